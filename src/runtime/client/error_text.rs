//! What an error and its causes say, in one line. Pure.

/// `error` with what caused it, since libraries leave the cause out of the message: "client error (Connect)" alone tells nobody
/// whether the address or the certificate is wrong.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}
