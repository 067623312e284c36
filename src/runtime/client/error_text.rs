//! Text of an error and its causes, in one line. Pure.

/// Returns `error` with its causes, because libraries omit them from the message.
///
/// "client error (Connect)" alone does not show whether the address or the certificate is wrong.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(kube::Error::Api(status)) = error.downcast_ref::<kube::Error>()
        && !status.message.is_empty()
    {
        return status.message.clone();
    }
    let text = error.to_string();
    // The library's name of the variant says nothing to an operator.
    let mut text = text.strip_prefix("ServiceError: ").map(str::to_owned).unwrap_or(text);
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
