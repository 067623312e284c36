//! Plain-text forms of `/flagz` and `/statusz`, for someone at a terminal.
//!
//! In: flags and the status value. Out: text; nothing parses it, programs take `?format=json`.

use serde_json::Value;

use crate::runtime::yaml;

/// Formats one flag per line, as on the command line.
pub(super) fn flags(flags: &[(String, String)]) -> String {
    let lines: String = flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    format!("cloud-controller-manager flags\n\n{lines}")
}

/// Formats the status value as YAML.
pub(super) fn status(status: &Value) -> String {
    let text = yaml::print(status).unwrap_or_else(|error| format!("{error}\n"));
    format!("cloud-controller-manager status\n\n{text}")
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
        let expected = "cloud-controller-manager status\n\ncontrollers:\n  route:\n    reason: null\n    running: false\n  \
                        service: {}\nleader: a_1\nwaiting:\n- default/web\n- key: default/db\n";
        assert_eq!(status(&value), expected);
    }
}
