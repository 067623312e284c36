//! Names of machines: base-36 instance numbers behind a prefix, as scale sets number their instances.
//!
//! In: a prefix and a number. Out: the name.

/// Digits of the number in a computer name.
pub(super) const DIGITS: usize = 6;
/// Longest prefix on Windows, where a host name has at most 15 characters.
pub(super) const WINDOWS_PREFIX: usize = 15 - DIGITS;
/// The first number that needs a seventh digit.
pub(super) const NUMBERS: u32 = 36_u32.pow(6);

/// Returns `prefix` and the number in base 36, six digits: `aks-pool1-vmss00000a`.
pub fn computer_name(prefix: &str, number: u32) -> String {
    let mut rest = number;
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdefghijklmnopqrstuvwxyz"[(rest % 36) as usize];
        rest /= 36;
    }
    prefix.chars().chain(digits.map(char::from)).collect()
}

/// Returns numbers from text: FNV-1a, then mixed, so that neighbors differ widely. The result is the same on every machine.
pub(super) fn scatter(seed: u64, text: &str) -> u64 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns a UUID of version 4 made from text, in ARM's spelling.
pub fn uuid(seed: u64, text: &str) -> String {
    let halves = u128::from(scatter(seed, text)) << 64 | u128::from(scatter(!seed, text));
    uuid::Builder::from_random_bytes(halves.to_be_bytes()).into_uuid().to_string()
}
