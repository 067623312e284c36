//! Redaction of secrets in a text. Pure.
//!
//! In: any text, and the values of known secrets. Out: the text with `[redacted]` in their places. Other secrets are recognized by
//! their form or by the word before them: private keys, tokens, passwords in URLs, values of fields and parameters with names such as
//! `secret`, `password` or `token`, and keys in base64. In case of doubt, a text is redacted.

const REDACTED: &str = "[redacted]";

/// Minimum length of a known secret. Shorter values would match other words.
const SHORTEST_SECRET: usize = 5;
/// Length above which a word in the alphabet of base64 is a key or a certificate.
const LONGEST_WORD: usize = 180;
/// Minimum length of a key in base64, which is 24 bytes. Azure's keys have 32 or 64 bytes.
const SHORTEST_KEY: usize = 32;

/// Words in names whose values are secret.
const SECRET_WORDS: [&str; 18] = [
    "secret",
    "password",
    "passwd",
    "pwd",
    "token",
    "privatekey",
    "private-key",
    "private_key",
    "key-data",
    "apikey",
    "api-key",
    "api_key",
    "accountkey",
    "accesskey",
    "access-key",
    "access_key",
    "authorization",
    "credential",
];
/// Names that are secret as a whole: parameters of signed URLs.
const SECRET_NAMES: [&str; 3] = ["sig", "code", "assertion"];
/// Endings of names whose values are secret if they have the form of a key: `primaryKey`, and `sig` after an `&` that JSON wrote as `\u0026`.
const KEY_ENDINGS: [&str; 2] = ["key", "sig"];
/// Endings of names whose values are locations or numbers of secrets.
const HARMLESS_ENDINGS: [&str; 11] =
    ["file", "path", "name", "namespace", "endpoint", "audience", "type", "seconds", "count", "source", "plugin"];
/// Values that reveal nothing about a secret.
const HARMLESS_VALUES: [&str; 7] = ["(set)", "true", "false", "null", "none", "\"\"", REDACTED];

const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";

/// Returns the text without secrets.
pub(super) fn redacted(text: &str, secrets: &[String]) -> String {
    let text = without_secret_values(text, secrets);
    let text = without_flag_values(&without_private_keys(&text));
    text.split_inclusive('\n').map(|line| without_tokens(&without_named(&without_user_info(line)))).collect()
}

/// Replaces secret values, also in their encodings of JSON and URLs. Longer values come first, because they may contain others.
fn without_secret_values(text: &str, secrets: &[String]) -> String {
    let mut forms: Vec<String> = Vec::new();
    for secret in secrets.iter().map(|secret| secret.trim()).filter(|secret| secret.len() >= SHORTEST_SECRET) {
        let json = serde_json::to_string(secret).unwrap_or_default();
        forms.extend([secret.to_owned(), json.trim_matches('"').to_owned(), percent_encoded(secret)]);
    }
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    forms.dedup();
    forms.iter().fold(text.to_owned(), |text, form| text.replace(form, REDACTED))
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Removes private keys from their first to their last line, or to the end of the text if the last line is missing.
fn without_private_keys(text: &str) -> String {
    let (mut clean, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(PEM_BEGIN) {
        let (before, block) = rest.split_at(at);
        clean.push_str(before);
        let title = block[PEM_BEGIN.len()..].split("-----").next().unwrap_or_default();
        if !title.contains("PRIVATE KEY") {
            let (marker, after) = block.split_at(PEM_BEGIN.len());
            clean.push_str(marker);
            rest = after;
            continue;
        }
        clean.push_str(REDACTED);
        let end = block.find(PEM_END).map(|end| end + PEM_END.len());
        let after = end.and_then(|end| Some(&block[end + block[end..].find("-----")? + 5..]));
        rest = after.unwrap_or_default();
    }
    clean + rest
}

/// Removes user and password from `scheme://user:password@host`.
fn without_user_info(line: &str) -> String {
    let mut parts = line.split("://");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end =
            part.find(|character: char| character.is_whitespace() || "/?#\"'<>,".contains(character)).unwrap_or(part.len());
        let (authority, rest) = part.split_at(end);
        clean.push_str("://");
        match authority.rsplit_once('@') {
            Some((_, host)) => clean += &format!("{REDACTED}@{host}"),
            None => clean.push_str(authority),
        }
        clean.push_str(rest);
    }
    clean
}

/// Removes values after secret names: `"aadClientSecret": "x"`, `--password=x`, `?sig=x`, `Authorization: Bearer x`.
fn without_named(line: &str) -> String {
    let (mut clean, mut rest) = (String::new(), line);
    while let Some(at) = rest.find([':', '=']) {
        let (before, after) = rest.split_at(at + 1);
        let is_prose_mark = before.ends_with(':');
        clean.push_str(before);
        rest = after;
        let lead = rest.len() - rest.trim_start_matches([' ', '"', '\'', '\\']).len();
        let (quotes, value) = rest.split_at(lead);
        if !is_secret(&before[..at], value) {
            continue;
        }
        let is_quoted = quotes.contains(['"', '\'']);
        let is_end = |character: char| "\n\"'&;,})".contains(character) || (character == ' ' && !is_scheme(value));
        let end = if is_quoted { quoted_length(quotes, value) } else { value.find(is_end).unwrap_or(value.len()) };
        let (secret, after) = value.split_at(end);
        let plain = secret.trim();
        let is_word = plain.trim_end_matches(':').chars().all(|character| character.is_ascii_lowercase());
        let is_prose = is_prose_mark && !is_quoted && before.trim_start().contains(' ') && is_word;
        if is_prose || HARMLESS_VALUES.contains(&plain) || plain.parse::<f64>().is_ok() {
            continue;
        }
        clean.push_str(quotes);
        clean.push_str(REDACTED);
        rest = after;
    }
    clean + rest
}

/// Removes words after secret flags, on a line or in an array: `--password x`, `"--password",` and `"x"` on the next line.
fn without_flag_values(text: &str) -> String {
    let (mut clean, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("--") {
        let length = rest[at..].find(|character| !is_of_name(character)).unwrap_or(rest.len() - at);
        let (before, after) = rest.split_at(at + length);
        clean.push_str(before);
        let (gap, value) = after.split_at(after.len() - after.trim_start_matches(is_between_words).len());
        let is_quoted = gap.matches(['"', '\'']).count() > 1;
        let is_end = |character: char| character.is_whitespace() || "\"'\\],".contains(character);
        let end = if is_quoted { quoted_length(gap, value) } else { value.find(is_end).unwrap_or(value.len()) };
        let is_next = is_quoted || (!gap.is_empty() && gap.chars().all(|character| character == ' '));
        let is_kept = is_flag(value) || HARMLESS_VALUES.contains(&&value[..end]);
        rest = match is_next && end > 0 && !is_kept && is_secret(&before[at..], value) {
            true => {
                clean.push_str(gap);
                clean.push_str(REDACTED);
                &value[end..]
            }
            false => after,
        };
    }
    clean + rest
}

/// Returns the length up to the quotation mark that closes the last one of `quotes`. After `\"` the text is JSON within JSON,
/// where `\"` closes it.
fn quoted_length(quotes: &str, value: &str) -> usize {
    let mark = quotes.chars().rfind(|character| "\"'".contains(*character)).unwrap_or('"');
    let (is_nested, mut is_escaped) = (quotes.contains('\\'), false);
    for (at, character) in value.char_indices() {
        match character {
            '\\' if is_nested && value[at + 1..].starts_with(mark) => return at,
            '\n' => return at,
            _ if character == mark && !is_escaped => return at,
            _ => is_escaped = character == '\\' && !is_escaped,
        }
    }
    value.len()
}

fn is_between_words(character: char) -> bool {
    character.is_whitespace() || "\"',\\".contains(character)
}

fn is_flag(word: &str) -> bool {
    word.strip_prefix("--").is_some_and(|name| name.starts_with(|first: char| first.is_ascii_lowercase()))
}

/// Returns `true` if a value begins with the name of a scheme of HTTP, which precedes the secret.
fn is_scheme(value: &str) -> bool {
    let begins = |scheme: &&str| value.get(..scheme.len()).is_some_and(|start| start.to_ascii_lowercase() == **scheme);
    ["bearer ", "basic ", "sharedkey "].iter().any(begins)
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_.".contains(character)
}

/// Returns `true` if the last word before a colon or an equals sign marks this value as secret.
fn is_secret(before: &str, value: &str) -> bool {
    let name = before.trim_end_matches(['"', '\'', ' ', '\\']);
    let start = name
        .rfind(|character: char| !is_of_name(character))
        .map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
    let name = name[start..].to_ascii_lowercase();
    let is_secret =
        SECRET_WORDS.iter().any(|word| name.contains(word)) && !HARMLESS_ENDINGS.iter().any(|end| name.ends_with(end));
    let is_key = KEY_ENDINGS.iter().any(|end| name.ends_with(end)) && begins_with_key(value);
    is_secret || is_key || SECRET_NAMES.contains(&name.as_str())
}

/// Returns `true` if `value` begins with a key in base64, or in base64 for URLs. Names in Kubernetes have several parts and no
/// capital letters.
fn begins_with_key(value: &str) -> bool {
    let end = value
        .find(|character: char| !(character.is_ascii_alphanumeric() || "+/=-_%".contains(character)))
        .unwrap_or(value.len());
    let word = &value[..end];
    word.len() >= SHORTEST_KEY
        && (word.contains(|character: char| character.is_ascii_uppercase()) || !word.contains(['-', '/']))
}

/// Removes words with the form of a token: JSON web tokens, words after `Bearer`, long words of base64.
fn without_tokens(line: &str) -> String {
    let is_of_word = |character: char| character.is_ascii_alphanumeric() || "-_.+/=~".contains(character);
    let (mut clean, mut rest, mut last) = (String::new(), line, "");
    while !rest.is_empty() {
        let length = rest.find(|character| !is_of_word(character)).unwrap_or(rest.len());
        if length == 0 {
            let width = rest.chars().next().map_or(1, char::len_utf8);
            clean.push_str(&rest[..width]);
            rest = &rest[width..];
            continue;
        }
        let (word, after) = rest.split_at(length);
        let follows = ["bearer", "sharedkey"].contains(&last.to_ascii_lowercase().as_str());
        clean.push_str(if is_token(word) || (follows && word.len() >= SHORTEST_SECRET) { REDACTED } else { word });
        (rest, last) = (after, word);
    }
    clean
}

fn is_token(word: &str) -> bool {
    let is_web_token = word.starts_with("eyJ") && word.len() > 20;
    let is_base64 = word.len() > LONGEST_WORD && !word.contains(['.', '-', '~']);
    is_web_token || is_base64 || is_padded_key(word)
}

/// Returns `true` if `word` ends with a padded key of 32 or 64 bytes in base64.
fn is_padded_key(word: &str) -> bool {
    let bare = word.trim_end_matches('=');
    let key = bare.rsplit('=').next().unwrap_or_default();
    let has = |is_it: fn(&char) -> bool| key.chars().any(|character| is_it(&character));
    let is_mixed = has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase) && has(char::is_ascii_digit);
    let is_of_key = |character: char| character.is_ascii_alphanumeric() || "+/".contains(character);
    bare.len() < word.len() && key.len() > SHORTEST_KEY && key.chars().all(is_of_key) && is_mixed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Key of 64 bytes, as Azure Storage and Service Bus create them.
    const AZURE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
    const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl";

    #[test]
    fn secrets_are_redacted_by_value_name_and_form() {
        let key = format!("a {PEM_BEGIN}RSA PRIVATE KEY-----\nplanted\n{PEM_END}RSA PRIVATE KEY-----\nb");
        let rows = [
            ("client planted! refused", "client [redacted]! refused"),
            ("\"aadClientSecret\": \"p1 p2\", \"x\": 1", "\"aadClientSecret\": \"[redacted]\", \"x\": 1"),
            ("aadClientCertPassword: p1\n", "aadClientCertPassword: [redacted]\n"),
            ("--password=p1 --v=2", "--password=[redacted] --v=2"),
            ("HTTPS_PROXY=http://me:p1@proxy:3128/", "HTTPS_PROXY=http://[redacted]@proxy:3128/"),
            ("http://me:p@ss@proxy:1 x", "http://[redacted]@proxy:1 x"),
            ("https://h/a?sv=1&sig=p1%2B&se=2", "https://h/a?sv=1&sig=[redacted]&se=2"),
            ("Authorization: Bearer p1p1p1\n", "Authorization: [redacted]\n"),
            ("sent Bearer p1p1p1 there", "sent Bearer [redacted] there"),
            (&format!("token {TOKEN}."), "token [redacted]"),
            ("client-key-data: QUJD", "client-key-data: [redacted]"),
            (&format!("x {}=", "QUJD".repeat(60)), "x [redacted]"),
            (&format!("AccountName=x;AccountKey={AZURE_KEY};E=y"), "AccountName=x;AccountKey=[redacted];E=y"),
            (
                &format!("SharedAccessKeyName=n;SharedAccessKey={AZURE_KEY}"),
                "SharedAccessKeyName=n;SharedAccessKey=[redacted]",
            ),
            (&format!("\"primaryKey\": \"{AZURE_KEY}\","), "\"primaryKey\": \"[redacted]\","),
            ("x-functions-key: 0123456789abcdef0123456789abcdef.", "x-functions-key: [redacted]"),
            ("sv=1\\u0026sig=QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo%3D", "sv=1\\u0026sig=[redacted]"),
            ("apiKey=p1", "apiKey=[redacted]"),
            (&format!("the key {AZURE_KEY} is wrong"), "the key [redacted] is wrong"),
            (
                "[\n  \"--x-password\",\n  \"p1 p2\",\n  \"--v=2\"\n]",
                "[\n  \"--x-password\",\n  \"[redacted]\",\n  \"--v=2\"\n]",
            ),
            ("[\"--x-password\",\"p1\"]", "[\"--x-password\",\"[redacted]\"]"),
            ("[\n\"--password\",\n\"p\\\"1'2\"\n]", "[\n\"--password\",\n\"[redacted]\"\n]"),
            ("\"password\": \"p\\\"1'2\", \"x\": 1", "\"password\": \"[redacted]\", \"x\": 1"),
            ("{\\\"password\\\":\\\"p1\\\"}", "{\\\"password\\\":\\\"[redacted]\\\"}"),
            ("run --client-secret p1 --v 2", "run --client-secret [redacted] --v 2"),
            (&format!("--account-key {}", &AZURE_KEY[..40]), "--account-key [redacted]"),
            (&key, "a [redacted]\nb"),
            (&key.replace('\n', "\\n"), "a [redacted]\\nb"),
        ];
        for (text, expected) in rows {
            assert_eq!(redacted(text, &["planted".to_owned()]), expected, "{text}");
        }
    }

    #[test]
    fn harmless_texts_are_unchanged() {
        for text in [
            "\"aadClientSecret\": \"(set)\"",
            "--cloud-config-secret-name=azure-cloud-provider",
            "--token-file=/var/run/token",
            "azure_arm_budget_tokens{bucket=\"compute\"} 12",
            "passwords: 3",
            "no token: credentials: none is configured; set aadClientSecret",
            "https://management.azure.com/subscriptions/s?api-version=1",
            "a@b.c wrote: no",
            "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/group/providers/Microsoft.Network/loadBalancers/kubernetes/frontendIPConfigurations/a6f3c1a528d7e4b909a412c5d7e8f9a0-a-long-name-of-a-subnet-that-goes-on",
            "-----BEGIN CERTIFICATE-----",
            "\"key\": \"a-namespace-with-a-name/a-service-with-a-longer-name\"",
            "\"key\": \"node.kubernetes.io/exclude-from-external-load-balancers\"",
            "[\"--use-token\",\"--v=2\"]",
            "[\"--x-password\"]\n\"status\": \"x\"",
            "--service-key default/web",
        ] {
            assert_eq!(redacted(text, &[]), text);
        }
    }

    proptest! {
        #[test]
        fn known_secrets_are_always_redacted(secret in "[ -~]{9,40}", before in "\\PC{0,40}", after in "\\PC{0,40}") {
            let secrets = [secret.clone()];
            let trimmed = secret.trim().to_owned();
            let text = format!("{before}{trimmed}{after}\n{}\n{}", serde_json::json!({"x": trimmed}), percent_encoded(&trimmed));
            let clean = redacted(&text, &secrets);
            prop_assume!(trimmed.len() >= SHORTEST_SECRET && !REDACTED.contains(&trimmed));
            prop_assert!(!clean.contains(&trimmed), "{}", clean);
        }
    }
}
