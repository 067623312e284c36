//! Keys that the code gives to JSON and YAML, read from its text, as paths: `[]` for items of a list, `*` for names.
//!
//! In: `sources.tsv`: list, path of the document, file, and the text with which a function, an expression or a struct begins. Out: keys of
//! `json!` and of `value["key"] = …`, or names of fields as serde writes them.

use std::{fs, mem};

use super::lines;
use crate::guides::blocks::root;

pub(super) fn read(list: &str) -> Vec<String> {
    let mut found = Vec::new();
    for row in lines("sources.tsv") {
        let [of_list, prefix, path, start] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("sources.tsv: {row}") };
        if of_list == list {
            let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("sources.tsv: {path}: {error}"));
            let start = start.replace("\\n", "\n");
            let at = text.find(&start).unwrap_or_else(|| panic!("sources.tsv: {path} has no {start:?}"));
            let item = balanced(&text[at..]);
            let keys = if start.starts_with("struct ") { field_keys(&text[..at], item) } else { json_keys(item) };
            found.extend(keys.into_iter().map(|key| format!("{prefix}{key}")));
        }
    }
    found
}

/// Returns the text up to the first line that closes all brackets.
fn balanced(text: &str) -> &str {
    let (mut end, mut opened, mut closed) = (0, 0, 0);
    for line in text.split_inclusive('\n') {
        end += line.len();
        let code: String = line.split('"').step_by(2).collect();
        opened += code.matches(['(', '[', '{']).count();
        closed += code.matches([')', ']', '}']).count();
        if opened <= closed {
            break;
        }
    }
    &text[..end]
}

fn json_keys(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut parents: Vec<String> = Vec::new();
    // The last key, and the text from there on.
    let (mut last, mut value): (Option<&str>, _) = (None, String::new());
    let pieces: Vec<&str> = text.split('"').collect();
    for (index, &piece) in pieces.iter().enumerate() {
        let next = pieces.get(index + 1).copied().unwrap_or_default();
        if index % 2 == 1 {
            let is_index = pieces[index - 1].ends_with('[') && next.starts_with(']') && !next.starts_with("].");
            if is_index || next.starts_with(": ") {
                found.push(parents.concat() + piece);
                last = Some(piece);
                value.clear();
            }
            continue;
        }
        for character in piece.chars() {
            value.push(character);
            match character {
                '{' => {
                    let step = if value.contains(".map(") { "[]." } else { "." };
                    parents.push(last.take().map_or_else(String::new, |key| format!("{key}{step}")));
                }
                '}' => {
                    parents.pop();
                    last = None;
                }
                _ => {}
            }
        }
    }
    found
}

fn field_keys(head: &str, item: &str) -> Vec<String> {
    let is_camel = head.rsplit("\n\n").next().is_some_and(|attributes| attributes.contains("camelCase"));
    let (mut found, mut renamed, mut is_skipped) = (Vec::new(), None, false);
    for line in item.lines().skip(1).map(str::trim) {
        if let Some((_, name)) = line.split_once("rename = \"") {
            renamed = name.split('"').next();
        }
        is_skipped |= line == "#[serde(skip)]";
        let Some((declaration, _)) = line.split_once(": ").filter(|_| line.starts_with("pub")) else { continue };
        let name = declaration.rsplit(' ').next().unwrap_or_default();
        let key = renamed.take().map_or_else(|| if is_camel { camel_case(name) } else { name.to_owned() }, str::to_owned);
        if !mem::take(&mut is_skipped) {
            found.push(key);
        }
    }
    found
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| text + &word[..1].to_uppercase() + &word[1..])
}
