//! The reference of the status page.
//!
//! In: the types in `src/status.rs` and in the folder next to it. Out: the text of `docs/reference/status.md`, with a section for each type:
//! its keys or values as serde writes them, and its documentation.

use std::{collections::BTreeMap, fs, path::PathBuf};

use syn::{Attribute, Field, Fields, GenericArgument, Item, LitStr, PathArguments, Type, Variant};

use crate::{
    guides::blocks::{files_with_extension, root},
    structure::language::docs::doc_line,
};

const HEAD: &str = "# Status page\n\n\
    <!-- Generated from the types in src/status.rs; do not edit. `make docs` writes it again. -->\n\n\
    `/statusz?format=json` on the secure port (`--secure-port`) serves one [ManagerStatus](#managerstatus). The request needs a token and `get` \
    on the non-resource URL `/statusz` ([operating](../guides/operating.md#is-it-working)). Ignore keys that you do not know: later versions \
    add keys.\n";

/// Options of serde, with empty values for those that have none.
type SerdeOptions = BTreeMap<String, String>;

/// Returns the text of the page.
pub(super) fn page() -> String {
    let mut files = vec![root().join("src/status.rs")];
    files.extend(files_with_extension(&root().join("src/status"), "rs"));
    let items = |path: &PathBuf| syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap().items;
    let sections: String = files.iter().flat_map(items).filter_map(|item| section(&item)).collect();
    format!("{HEAD}{sections}")
}

/// Returns the section of a type; `None` for other items.
fn section(item: &Item) -> Option<String> {
    let (ident, attributes, head, rows): (_, _, _, String) = match item {
        Item::Struct(item) => {
            let options = serde_options(&item.attrs);
            let rows = item.fields.iter().map(|field| field_row(field, &options)).collect();
            (&item.ident, &item.attrs, "| Key | Type | Meaning |\n|---|---|---|", rows)
        }
        Item::Enum(item) => {
            let options = serde_options(&item.attrs);
            let rows = item.variants.iter().map(|variant| variant_row(variant, &options)).collect();
            (&item.ident, &item.attrs, "| Value | Meaning |\n|---|---|", rows)
        }
        _ => return None,
    };
    Some(format!("\n## {ident}\n\n{}\n\n{head}\n{rows}", documentation(attributes, "`null`")))
}

fn field_row(field: &Field, of_type: &SerdeOptions) -> String {
    let options = serde_options(&field.attrs);
    if options.contains_key("skip") {
        return String::new();
    }
    let name = field.ident.as_ref().unwrap().to_string();
    let is_flat = options.contains_key("flatten");
    let key = if is_flat { "all keys of".to_owned() } else { format!("`{}`", json_name(&name, &options, of_type)) };
    let value = type_text(&field.ty);
    let (value, none) = if options.contains_key("skip_serializing_if") {
        (format!("{}, may be missing", value.trim_end_matches(" or `null`")), "missing")
    } else {
        (value, "`null`")
    };
    format!("| {key} | {value} | {} |\n", documentation(&field.attrs, none))
}

fn variant_row(variant: &Variant, of_type: &SerdeOptions) -> String {
    let value: String = match &variant.fields {
        Fields::Unit => format!("`{}`", json_name(&variant.ident.to_string(), &serde_options(&variant.attrs), of_type)),
        untagged => untagged.iter().map(|field| type_text(&field.ty)).collect(),
    };
    format!("| {value} | {} |\n", documentation(&variant.attrs, "`null`"))
}

/// Returns a type in words, with a link if it has a section.
fn type_text(field_type: &Type) -> String {
    let Type::Path(path) = field_type else { panic!("a type without a name") };
    let segment = path.path.segments.last().unwrap();
    let name = segment.ident.to_string();
    let argument = |argument: &GenericArgument| match argument {
        GenericArgument::Type(inner) => type_text(inner),
        _ => String::new(),
    };
    let arguments: Vec<String> = match &segment.arguments {
        PathArguments::AngleBracketed(list) => list.args.iter().map(argument).collect(),
        _ => Vec::new(),
    };
    match (name.as_str(), &arguments[..]) {
        ("String", _) => "text".to_owned(),
        ("bool", _) => "boolean".to_owned(),
        ("i32" | "u32" | "u64" | "usize" | "f64", _) => "number".to_owned(),
        ("Timestamp", _) => "time".to_owned(),
        ("Value", _) => "any value".to_owned(),
        ("Box", [inner]) => inner.clone(),
        ("Option", [inner]) => format!("{inner} or `null`"),
        ("Vec", [inner]) => format!("list of {inner}"),
        ("BTreeMap", [key, inner]) => format!("map of {key} to {inner}"),
        _ => format!("[{name}](#{})", name.to_lowercase()),
    }
}

/// Returns the name of a field or variant in JSON.
fn json_name(name: &str, options: &SerdeOptions, of_type: &SerdeOptions) -> String {
    if let Some(renamed) = options.get("rename") {
        return renamed.clone();
    }
    match of_type.get("rename_all").map(String::as_str) {
        None => name.to_owned(),
        Some("lowercase") => name.to_lowercase(),
        Some("camelCase") => {
            let (first, others) = name.split_once('_').unwrap_or((name, ""));
            let words = others.split('_').filter(|word| !word.is_empty());
            words.fold(first.to_owned(), |camel, word| camel + &word[..1].to_uppercase() + &word[1..])
        }
        Some(rule) => panic!("names by {rule} are not described yet"),
    }
}

fn serde_options(attributes: &[Attribute]) -> SerdeOptions {
    let mut options = SerdeOptions::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let parsed = attribute.parse_nested_meta(|meta| {
            let value = meta.value().and_then(|value| value.parse::<LitStr>()).map(|text| text.value());
            options.insert(meta.path.require_ident()?.to_string(), value.unwrap_or_default());
            Ok(())
        });
        parsed.unwrap();
    }
    options
}

/// Returns the documentation as one line. `none` replaces `None`.
fn documentation(attributes: &[Attribute], none: &str) -> String {
    let lines = attributes.iter().filter_map(doc_line).map(|line| line.trim().to_owned());
    lines.collect::<Vec<_>>().join(" ").replace("`None`", none).replace('|', "\\|")
}
