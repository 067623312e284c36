//! Plain-text forms of `/flagz` and `/statusz`, for someone at a terminal.
//!
//! In: flags and the status value. Out: text; nothing parses it, programs take `?format=json`.

use serde_json::Value;

/// Formats one flag per line, as on the command line.
pub(super) fn flags(flags: &[(String, String)]) -> String {
    let lines: String = flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    format!("cloud-controller-manager flags\n\n{lines}")
}

/// Formats the status value, indented by depth.
pub(super) fn status(status: &Value) -> String {
    let mut text = String::from("cloud-controller-manager status\n\n");
    write(&mut text, status, 0);
    text
}

fn write(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                field(text, &format!("{name}:"), value, depth);
            }
        }
        Value::Array(items) => {
            for item in items {
                field(text, "-", item, depth);
            }
        }
        scalar => {
            text.push_str(&plain(scalar));
            text.push('\n');
        }
    }
}

/// Writes a field: a scalar on the line of its name, other values below it, indented.
fn field(text: &mut String, name: &str, value: &Value, depth: usize) {
    text.push_str(&"  ".repeat(depth));
    text.push_str(name);
    let has_parts = value.as_object().is_some_and(|fields| !fields.is_empty())
        || value.as_array().is_some_and(|items| !items.is_empty());
    if has_parts {
        text.push('\n');
        write(text, value, depth + 1);
    } else {
        text.push(' ');
        text.push_str(&plain(value));
        text.push('\n');
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.replace('\n', " "),
        Value::Null => "-".to_owned(),
        Value::Array(_) | Value::Object(_) => "none".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts() {
        let pairs = [("v".to_owned(), "2".to_owned()), ("controllers".to_owned(), "*".to_owned())];
        assert_eq!(flags(&pairs), "cloud-controller-manager flags\n\nv=2\ncontrollers=*\n");
        let value = json!({
            "controllers": { "route": { "reason": null, "running": false }, "service": {} },
            "leader": "a_1",
            "waiting": ["default/web", { "key": "default/db" }],
        });
        let expected = "cloud-controller-manager status\n\ncontrollers:\n  route:\n    reason: -\n    running: false\n  \
                        service: none\nleader: a_1\nwaiting:\n  - default/web\n  -\n    key: default/db\n";
        assert_eq!(status(&value), expected);
    }
}
