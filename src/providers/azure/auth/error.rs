//! Error of a token or a cloud, classified by the remedy. Never contains a token, secret, assertion or
//! certificate.

use std::time::Duration;

/// Reason why a credential cannot be built or a token cannot be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Invalid configuration, environment, or file named in them. A retry without a change does not help.
    #[error("{field}: {message}")]
    Configuration {
        /// Field of the configuration file, or variable of the environment.
        field: String,
        /// Description of the error, and of the accepted values.
        message: String,
    },
    /// Rejection by the identity service. Retried slowly, because it may be fixed there.
    #[error("{identity} was refused: {message}")]
    Refused {
        /// Rejected identity: `application <client id> in tenant <tenant>`.
        identity: String,
        /// Error code, such as `AADSTS7000215`; empty if there is none.
        code: String,
        /// First line of the service's message, and the field to check.
        message: String,
    },
    /// No usable response; retried.
    #[error("unusable response from {endpoint}: {message}")]
    Unreachable {
        /// Requested URL: scheme, host and path.
        endpoint: String,
        message: String,
        /// Delay that the service requested.
        retry_after: Option<Duration>,
    },
}

impl AuthError {
    /// Creates an error of [`AuthError::Configuration`].
    pub fn configuration(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Configuration { field: field.into(), message: message.into() }
    }

    pub(super) fn unreachable(endpoint: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Unreachable { endpoint: endpoint.into(), message: message.into(), retry_after: None }
    }

    /// Returns `true` if only a change of the configuration, the environment or a file can fix the error.
    pub fn is_configuration(&self) -> bool {
        matches!(self, Self::Configuration { .. })
    }

    /// Returns the delay that the service requested.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unreachable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Maximum length of a repeated line, in characters.
const MAX_LINE: usize = 300;
/// Maximum length of a repeated word, in characters: GUIDs and host names are shorter, tokens and keys are longer.
const MAX_WORD: usize = 100;

/// Returns the first line of an untrusted text for logs: without `secrets`, control characters and words as long as tokens, truncated.
pub fn safe_line(text: &str, secrets: &[&str]) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut line: String = line.chars().filter(|character| character.is_whitespace() || !character.is_control()).collect();
    for secret in secrets.iter().map(|secret| secret.trim()).filter(|secret| !secret.is_empty()) {
        line = line.replace(secret, "[secret]");
    }
    let words = line.split_whitespace().map(|word| if word.chars().count() > MAX_WORD { "[…]" } else { word });
    words.collect::<Vec<_>>().join(" ").chars().take(MAX_LINE).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_secret_is_repeated(secret in "[A-Za-z0-9~._]{9,60}", before in ".{0,80}", after in "\\PC{0,80}", at in 0_usize..9) {
            let (head, tail) = secret.split_at(at);
            for inside in ["", "\u{1}"] {
                let line = safe_line(&format!("{before}{head}{inside}{tail}{after}"), &["", &secret]);
                prop_assert!(!line.contains(&secret), "{}", line);
                prop_assert!(line.chars().count() <= MAX_LINE && !line.chars().any(char::is_control));
            }
        }
    }

    #[test]
    fn untrusted_lines_are_cut_and_cleaned() {
        let long = "e".repeat(400);
        let rows = [
            ("\r\n AADSTS1: no.\r\nTrace ID: 1", "AADSTS1: no."),
            ("secret is s3cret!", "secret is [secret]!"),
            (&format!("token {long} refused"), "token […] refused"),
            ("", ""),
        ];
        for (text, expected) in rows {
            assert_eq!(safe_line(text, &["s3cret", ""]), expected);
        }
        assert_eq!(safe_line(&"word ".repeat(200), &[]).chars().count(), MAX_LINE);
    }
}
