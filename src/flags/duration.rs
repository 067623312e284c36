//! Go's notation for durations, as in `1h30m` or `1.5s`: text in, [`Duration`] out, and back.
//!
//! The grammar is that of Go's `time.ParseDuration`. No flag accepts a negative duration, so
//! it is an error.

use std::time::Duration;

const UNITS: &[(&str, u128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Go keeps nanoseconds in a signed 64-bit integer.
const MAX: u128 = i64::MAX as u128;

/// Error of a text that is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Text that is not in Go's notation.
    #[error("expected a duration with units h, m, s, ms, us or ns, such as 1m30s")]
    Syntax,
    /// Duration below zero, which no flag accepts.
    #[error("a duration must not be negative")]
    Negative,
    /// Duration above Go's maximum of 292 years.
    #[error("expected a duration of at most 2562047h")]
    TooLong,
}

/// Parses a duration in Go's notation.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(DurationError::Syntax);
    }
    let mut total = 0_u128;
    while !rest.is_empty() {
        let (nanos, tail) = term(rest)?;
        total = total.saturating_add(nanos);
        rest = tail;
    }
    match (total, negative) {
        (0, _) => Ok(Duration::ZERO),
        (_, true) => Err(DurationError::Negative),
        (total, false) if total > MAX => Err(DurationError::TooLong),
        (total, false) => Ok(Duration::from_nanos(u64::try_from(total).unwrap_or(u64::MAX))),
    }
}

/// Parses the first number with its unit. Returns its nanoseconds, and the rest of the text.
fn term(text: &str) -> Result<(u128, &str), DurationError> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationError::Syntax);
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let (_, scale) = *UNITS.iter().find(|(name, _)| *name == unit).ok_or(DurationError::Syntax)?;
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| DurationError::TooLong)? };
    Ok((u128::from(whole) * scale + fraction_of(fraction, scale), rest))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns the nanoseconds of `0.fraction` of a unit. Digits below a nanosecond, even of an hour, are ignored.
fn fraction_of(fraction: &str, scale: u128) -> u128 {
    let digits = fraction.chars().filter_map(|c| c.to_digit(10)).take(18);
    let (sum, divisor) = digits.fold((0, 1), |(sum, divisor), digit| (sum * 10 + u128::from(digit), divisor * 10));
    sum * scale / divisor
}

/// Formats a duration as Go's `Duration.String` does: `1h30m0s`, `1.5s`, `100ms`, `0s`.
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(nanos, 1_000_000)),
        _ => clock(nanos),
    }
}

fn clock(nanos: u128) -> String {
    const MINUTE: u128 = 60_000_000_000;
    let seconds = decimal(nanos % MINUTE, 1_000_000_000);
    match nanos / MINUTE {
        0 => format!("{seconds}s"),
        minutes @ 1..60 => format!("{minutes}m{seconds}s"),
        minutes => format!("{}h{}m{seconds}s", minutes / 60, minutes % 60),
    }
}

/// Formats `value / unit` without trailing zeros. `unit` is a power of ten.
fn decimal(value: u128, unit: u128) -> String {
    let fraction = (unit + value % unit).to_string();
    match fraction[1..].trim_end_matches('0') {
        "" => (value / unit).to_string(),
        fraction => format!("{}.{fraction}", value / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_go_are_parsed() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("-0s", 0),
            ("5s", 5_000_000_000),
            ("+5s", 5_000_000_000),
            ("10h0m0s", 36_000_000_000_000),
            ("1m30.5s", 90_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1h1h", 7_200_000_000_000),
            ("100ms", 100_000_000),
            ("1us", 1_000),
            ("1µs", 1_000),
            ("1μs", 1_000),
            ("7ns", 7),
            ("0.000000001s", 1),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("9223372036854775807ns", i64::MAX as u64),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn texts_that_go_rejects_are_errors() {
        for text in ["", "+", "-", "5", "s", ".s", "1.5", "5d", "5 s", " 5s", "5S", "1s-1s", "--1s", "five", "1m30"] {
            assert_eq!(parse(text), Err(DurationError::Syntax), "{text}");
        }
        assert_eq!(parse("-1s"), Err(DurationError::Negative));
        for text in ["9223372036854775808ns", "2562048h", "99999999999999999999999h"] {
            assert_eq!(parse(text), Err(DurationError::TooLong), "{text}");
        }
    }

    #[test]
    fn durations_are_formatted_as_by_go() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (100_000_000, "100ms"),
            (1_500_000_000, "1.5s"),
            (300_000_000_000, "5m0s"),
            (90_000_000_001, "1m30.000000001s"),
            (43_200_000_000_000, "12h0m0s"),
        ] {
            assert_eq!(format(Duration::from_nanos(nanos)), text);
        }
    }
}
