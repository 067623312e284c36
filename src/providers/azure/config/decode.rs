//! Text to configuration. Pure. Rules: `docs/reference/azure-config.md`; upstream: `pkg/provider/config/env.go`.

use super::{
    document::{self, YamlNode, YamlValue},
    fields::{AzureConfig, FIELDS},
    finding::ConfigFinding,
    objects::ClientRateLimit,
    rate_limits::{RATE_LIMIT_CLIENTS, read_entries},
    reader::FieldReader,
    values::FieldValue,
};

/// Maximum number of reported findings.
const MAX_FINDINGS: usize = 100;

/// Name of the field with the limits by client.
const ENTRIES: &str = "entries";

/// Configuration of a text, as far as it could be read, with findings.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedConfig {
    /// Fields with errors keep their former value.
    pub config: AzureConfig,
    /// Findings, in the order of the text.
    pub findings: Vec<ConfigFinding>,
}

/// Reads `text`, YAML or JSON; fields that it omits have their defaults.
pub fn decode(text: &str) -> DecodedConfig {
    decode_over(AzureConfig::default(), text)
}

/// Reads `text`; fields that it omits have the values of `base`.
pub fn decode_over(base: AzureConfig, text: &str) -> DecodedConfig {
    let mut decoded = DecodedConfig { config: base, findings: Vec::new() };
    match document::parse(text) {
        Ok(YamlNode { value: YamlValue::Null, .. }) => {}
        Ok(YamlNode { value: YamlValue::Map(entries), .. }) => read_fields(&entries, &mut decoded),
        Ok(node) => decoded.findings.push(ConfigFinding::error("", "expected a map of fields to values").at(node.line)),
        Err(problem) => {
            decoded.findings.push(ConfigFinding { line: problem.line, ..ConfigFinding::error("", problem.message) });
        }
    }
    decoded
}

fn read_fields(entries: &[(String, YamlNode)], decoded: &mut DecodedConfig) {
    let names: Vec<_> = FIELDS.iter().map(|field| field.name).chain(RATE_LIMIT_CLIENTS.iter().copied()).collect();
    let DecodedConfig { config, findings } = decoded;
    let mut reader = FieldReader::new(findings);
    let mut found = reader.known_entries(entries, &names);
    // Limits at the top level are entries over those of the object.
    found.sort_by_key(|(name, _)| *name != ENTRIES);
    for (name, node) in found {
        reader.entry(name, |reader| read_field(name, node, config, reader));
    }
    limit_findings(&mut decoded.findings);
}

/// Limits `findings` to the most important ones, in the order of the text.
fn limit_findings(findings: &mut Vec<ConfigFinding>) {
    if let Some(further @ 1..) = findings.len().checked_sub(MAX_FINDINGS) {
        findings.sort_by_key(|finding| finding.severity);
        findings.truncate(MAX_FINDINGS);
        findings.push(ConfigFinding::warning("", format!("{further} further findings")));
    }
    findings.sort_by_key(|finding| finding.line.unwrap_or(u64::MAX));
}

fn read_field(name: &'static str, node: &YamlNode, config: &mut AzureConfig, reader: &mut FieldReader<'_>) {
    let field = FIELDS.iter().find(|field| field.name == name);
    reader.scalars_are_strings = field.is_some_and(|field| field.takes_scalars_as_strings());
    match field {
        Some(_) if name == ENTRIES => {
            if let Some(limits) = read_entries(node, reader) {
                config.rate_limit_entries = limits;
            }
        }
        Some(_) => config.set(name, node, reader),
        None => {
            let limit = ClientRateLimit::read(node, reader);
            config.rate_limit_entries.extend(limit.map(|limit| (name.to_owned(), limit)));
        }
    }
}

#[cfg(test)]
mod tests;
