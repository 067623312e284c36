//! Reason why there is no token or no cloud, classified by the remedy. Never contains a token, secret, assertion or
//! certificate.

use std::time::Duration;

/// Reason why a credential cannot be built or a token cannot be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The configuration, the environment or a file named in them must be corrected; a retry without a change will not help.
    #[error("{field}: {message}")]
    Configuration {
        /// Field of the configuration file, or variable of the environment.
        field: String,
        /// Description of the error, and of the accepted values.
        message: String,
    },
    /// The identity service rejects the caller. Retried slowly: the problem may be fixed there.
    #[error("{identity} was refused: {message}")]
    Refused {
        /// Rejected identity: `application <client id> in tenant <tenant>`.
        identity: String,
        /// Error code, such as `AADSTS7000215`; empty if there is none.
        code: String,
        /// The first line of its message, and which field to look at.
        message: String,
    },
    /// No useful answer now; try again.
    #[error("unusable response from {endpoint}: {message}")]
    Unreachable {
        /// Requested URL: scheme, host and path.
        endpoint: String,
        message: String,
        /// Delay that the service requests.
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

    /// Returns `true` if only a change of the configuration, the environment or a file helps.
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

/// Longest line that is repeated, in characters.
const LONGEST_LINE: usize = 300;
/// Longest word that is repeated: GUIDs and host names are shorter, tokens and keys are longer.
const LONGEST_WORD: usize = 100;

/// Returns the first line of an untrusted text, fit for a log: without `secrets`, without words as long as tokens, bounded.
pub fn safe_line(text: &str, secrets: &[&str]) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut line: String = line.chars().filter(|character| character.is_whitespace() || !character.is_control()).collect();
    for secret in secrets.iter().map(|secret| secret.trim()).filter(|secret| !secret.is_empty()) {
        line = line.replace(secret, "[secret]");
    }
    let words = line.split_whitespace().map(|word| if word.chars().count() > LONGEST_WORD { "[…]" } else { word });
    words.collect::<Vec<_>>().join(" ").chars().take(LONGEST_LINE).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_secret_comes_through(secret in "[A-Za-z0-9~._]{9,60}", before in ".{0,80}", after in "\\PC{0,80}", at in 0_usize..9) {
            let (head, tail) = secret.split_at(at);
            for inside in ["", "\u{1}"] {
                let line = safe_line(&format!("{before}{head}{inside}{tail}{after}"), &["", &secret]);
                prop_assert!(!line.contains(&secret), "{}", line);
                prop_assert!(line.chars().count() <= LONGEST_LINE && !line.chars().any(char::is_control));
            }
        }
    }

    #[test]
    fn foreign_lines_are_cut_and_cleaned() {
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
        assert_eq!(safe_line(&"word ".repeat(200), &[]).chars().count(), LONGEST_LINE);
    }
}
