use super::*;
use crate::providers::registry;

#[test]
fn names_and_texts_are_well_formed() {
    let table = FlagTable::new(registry().flags());
    assert_eq!(table.clashes(), Vec::<String>::new());
    for spec in table.all() {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(spec.name.chars().all(is_plain), "{}", spec.name);
        assert!(spec.help.len() > 10 && spec.help.ends_with('.'), "--{}: {:?}", spec.name, spec.help);
        assert!(!spec.placeholder.is_empty(), "--{}", spec.name);
        assert!(spec.canonical(&[spec.default.to_owned()]).is_ok(), "--{}: {:?}", spec.name, spec.default);
        if let Some(reason) = spec.ignored {
            assert!(!reason.is_empty() && !reason.ends_with('.'), "--{}: {reason:?}", spec.name);
        }
    }
}
