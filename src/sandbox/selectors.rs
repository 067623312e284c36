//! Label and field selectors, parsed and matched. Upstream: apimachinery `pkg/labels` and `pkg/fields`.

use serde_json::Value;

use super::refusal::Refusal;

/// Selection of a list or watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTerm {
    pointer: String,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses `labelSelector` and `fieldSelector`.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, Refusal> {
        let labels =
            split_outside_parentheses(labels).into_iter().map(|term| requirement(&term)).collect::<Result<_, _>>()?;
        let fields = fields.split(',').filter(|term| !term.trim().is_empty()).map(field_term).collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    /// Returns `true` if `object` is selected.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|requirement| requirement.matches(object))
            && self.fields.iter().all(|term| term.matches(object))
    }
}

impl Requirement {
    fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"].get(key).and_then(Value::as_str);
        let one_of =
            |key: &str, values: &[String]| label(key).map(|value| values.iter().any(|candidate| candidate == value));
        match self {
            Requirement::In(key, values) => one_of(key, values) == Some(true),
            Requirement::NotIn(key, values) => one_of(key, values) != Some(true),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
        }
    }
}

impl FieldTerm {
    fn matches(&self, object: &Value) -> bool {
        let found = match object.pointer(&self.pointer) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        (found == self.value) == self.equal
    }
}

fn split_outside_parentheses(text: &str) -> Vec<String> {
    let mut depth = 0;
    let mut terms = vec![String::new()];
    for character in text.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        match terms.last_mut() {
            Some(term) if character != ',' || depth > 0 => term.push(character),
            _ => terms.push(String::new()),
        }
    }
    terms.into_iter().filter(|term| !term.trim().is_empty()).collect()
}

fn requirement(term: &str) -> Result<Requirement, Refusal> {
    let term = term.trim();
    if let Some(open) = term.find('(') {
        return set_requirement(term, open);
    }
    let equality = [("!=", false), ("==", true), ("=", true)];
    for (operator, equal) in equality {
        if let Some((key, value)) = term.split_once(operator) {
            let (key, values) = (key.trim().to_owned(), vec![value.trim().to_owned()]);
            return Ok(if equal { Requirement::In(key, values) } else { Requirement::NotIn(key, values) });
        }
    }
    match term.strip_prefix('!') {
        Some(key) => Ok(Requirement::Absent(key.trim().to_owned())),
        None if term.contains(char::is_whitespace) => Err(unparsable(term)),
        None => Ok(Requirement::Exists(term.to_owned())),
    }
}

fn set_requirement(term: &str, open: usize) -> Result<Requirement, Refusal> {
    let (head, values) = (&term[..open], term[open + 1..].trim_end());
    let values = values.strip_suffix(')').ok_or_else(|| unparsable(term))?;
    let values = values.split(',').map(|value| value.trim().to_owned()).collect();
    match head.split_whitespace().collect::<Vec<_>>().as_slice() {
        [key, "in"] => Ok(Requirement::In((*key).to_owned(), values)),
        [key, "notin"] => Ok(Requirement::NotIn((*key).to_owned(), values)),
        _ => Err(unparsable(term)),
    }
}

fn unparsable(term: &str) -> Refusal {
    Refusal::bad_request(format!("unable to parse requirement {term:?} of the label selector"))
}

/// Fields that selectors may name. Upstream: the `ToSelectableFields` of each kind.
const FIELDS: &[&str] =
    &["metadata.", "spec.", "status.", "involvedObject.", "reason", "reportingComponent", "source", "type"];

fn field_term(term: &str) -> Result<FieldTerm, Refusal> {
    let term = term.trim();
    let parts = term.split_once("!=").map(|parts| (parts, false));
    let parts = parts.or_else(|| term.split_once("==").map(|parts| (parts, true)));
    let parts = parts.or_else(|| term.split_once('=').map(|parts| (parts, true)));
    let Some(((field, value), equal)) = parts else {
        return Err(Refusal::bad_request(format!("invalid field selector {term:?}: it must be <field>=<value>")));
    };
    let field = field.trim();
    if !FIELDS.iter().any(|candidate| field.starts_with(candidate)) {
        return Err(Refusal::bad_request(format!("field label not supported: {field}")));
    }
    let pointer = if field == "source" { "/source/component".to_owned() } else { format!("/{}", field.replace('.', "/")) };
    Ok(FieldTerm { pointer, value: value.trim().to_owned(), equal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn label_selectors() {
        let object = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        let matches = |text: &str| Selector::parse(text, "").unwrap().matches(&object);
        for text in ["", "a=1", "a==1,b=2", "c!=1", "a", "!c", "a in (1,2)", "a notin (2,3), b", "c notin (1)"] {
            assert!(matches(text), "{text}");
        }
        for text in ["a!=1", "c", "!a", "a in (2, 3)"] {
            assert!(!matches(text), "{text}");
        }
        assert_eq!(Selector::parse("a in (1", "").map_err(|refusal| refusal.code), Err(400));
        assert_eq!(Selector::parse("a b", "").map_err(|refusal| refusal.code), Err(400));
    }

    #[test]
    fn field_selectors() {
        let object = json!({
            "metadata": {"name": "x", "namespace": "n"}, "spec": {"nodeName": "node", "unschedulable": true},
            "involvedObject": {"uid": "u"},
        });
        let matches = |text: &str| Selector::parse("", text).unwrap().matches(&object);
        assert!(matches("metadata.name==x,metadata.namespace=n,spec.nodeName=node"));
        assert!(matches("spec.unschedulable=true,status.phase!=Failed,involvedObject.uid=u"));
        assert!(!matches("metadata.name!=x") && !matches("spec.nodeName="));
        assert_eq!(Selector::parse("", "bogus=1").map_err(|refusal| refusal.code), Err(400));
        assert_eq!(Selector::parse("", "metadata.name").map_err(|refusal| refusal.code), Err(400));
    }
}
