use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use proptest::{collection::vec, prelude::*};

use super::*;

const VM: &str = "/subscriptions/S1/resourceGroups/My.Group_(1)/providers/Microsoft.Compute/virtualMachineScaleSets/pool-1/virtualMachines/3";

fn id(text: &str) -> ResourceId {
    ResourceId::parse(text).unwrap()
}

fn hash(id: &ResourceId) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one(id)
}

#[test]
fn ids_are_parsed_into_their_parts() {
    let vm = id(VM);
    assert_eq!((vm.subscription(), vm.resource_group(), vm.name()), ("S1", Some("My.Group_(1)"), "3"));
    assert_eq!(vm.resource_type(), "Microsoft.Compute/virtualMachineScaleSets/virtualMachines");
    assert_eq!(vm.name_of("VIRTUALMACHINESCALESETS"), Some("pool-1"));
    assert_eq!(vm.name_of("virtualMachines"), Some("3"));
    assert_eq!(vm.name_of("pool-1"), None, "a name is not a type");
    let chain: Vec<_> = std::iter::successors(vm.parent(), ResourceId::parent).map(|id| id.to_string()).collect();
    let set = VM.trim_end_matches("/virtualMachines/3");
    assert_eq!(chain, [set, "/subscriptions/S1/resourceGroups/My.Group_(1)", "/subscriptions/S1"]);
    let in_subscription = id("/SUBSCRIPTIONS/s/PROVIDERS/Microsoft.X/ys/z");
    assert_eq!((in_subscription.resource_group(), in_subscription.parent()), (None, Some(id("/subscriptions/s"))));
    assert!(id("/subscriptions/s").resource_type().is_empty());
}

#[test]
fn types_are_compared_level_by_level() {
    let vm = id(VM);
    assert!(vm.is_type("microsoft.compute/VIRTUALMACHINESCALESETS/virtualMachines"));
    let set = "Microsoft.Compute/virtualMachineScaleSets";
    for other in ["", "Microsoft.Compute", set, &format!("{set}/virtualMachines/x")] {
        assert!(!vm.is_type(other), "{other}");
    }
    assert!(id("/subscriptions/s").is_type(""));
}

#[test]
fn text_that_is_not_an_id_is_refused() {
    let missing = "a type or a name is missing";
    let segment = "a segment is empty, consists of dots, or contains a character that names do not allow";
    let start = "it does not begin with /subscriptions/";
    let cases = [
        ("", start),
        ("/", segment),
        ("subscriptions/s", start),
        ("/subscriptions", start),
        ("/subscriptions/", segment),
        ("/x/s", start),
        ("/subscriptions/s/", segment),
        ("/subscriptions/s/resourceGroups", missing),
        ("/subscriptions/s/resourceGroups/g/x", "`providers` is missing"),
        ("/subscriptions/s/x/y", "`providers` is missing"),
        ("/subscriptions/s/resourceGroups/g/providers", missing),
        ("/subscriptions/s/resourceGroups/g/providers/N", missing),
        ("/subscriptions/s/resourceGroups/g/providers/N/t", missing),
        ("/subscriptions/s/resourceGroups/g/providers/N/t/n/u", missing),
    ];
    for (text, reason) in cases {
        assert_eq!(ResourceId::parse(text).map(|id| id.to_string()).unwrap_err().reason, reason, "{text}");
    }
    for group in ["..", ".", "...", "%2e%2E", "a b", "a?b", "a#b", "a\\b", "a%b", "a%2", "a\nb"] {
        let refused = ResourceId::parse(&format!("/subscriptions/s/resourceGroups/{group}"));
        assert_eq!(refused.map(|id| id.to_string()).unwrap_err().reason, segment, "{group}");
    }
    let long = ResourceId::parse(&"\n".repeat(10_000)).unwrap_err();
    assert_eq!(long.text, "\\n".repeat(200), "truncated, and without line breaks");
    let longer = ResourceId::parse(&format!("/subscriptions/s/resourceGroups/g/providers/N{}", "/a".repeat(500_000)));
    assert_eq!(longer.unwrap_err().reason, "it is longer than any id", "refused before it is parsed");
}

#[test]
fn names_of_any_script_and_odd_but_harmless_ones_are_accepted() {
    for name in ["größe", "組", "a..b", "a@b:c~!$&'()*+,;=", "%41"] {
        assert_eq!(id(&format!("/subscriptions/s/resourceGroups/{name}")).name(), name);
    }
    assert_eq!(id("/subscriptions/s/resourceGroups/grö").url_path(), "/subscriptions/s/resourceGroups/gr%C3%B6");
    assert_eq!(id(VM).url_path(), VM);
}

#[test]
fn built_ids_mean_nothing_but_their_names() {
    let cases = [
        ("plain", "plain"),
        ("", "%00"),
        (".", "%252E"),
        ("..", "%252E%252E"),
        ("%2e%2e", "%252e%252e"),
        ("../x", "..%2Fx"),
        ("a?b#c", "a%3Fb%23c"),
        ("a b\n", "a%20b%0A"),
        ("größe/€", "größe%2F%E2%82%AC"),
    ];
    for (name, segment) in cases {
        let group = ResourceId::group_of("s", name);
        assert_eq!(group.as_str(), format!("/subscriptions/s/resourceGroups/{segment}"));
        assert_eq!(group.resource("Microsoft.Network/loadBalancers", &[name]).name(), segment);
    }
}

#[test]
fn serde_keeps_the_spelling() {
    let json = serde_json::to_string(&id(VM)).unwrap();
    assert_eq!(json, format!("\"{VM}\""));
    assert_eq!(serde_json::from_str::<ResourceId>(&json).unwrap().as_str(), VM);
    assert!(serde_json::from_str::<ResourceId>("\"/x\"").is_err());
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9._()é-]{0,11}[a-zA-Z0-9_()-]"
}

fn any_id() -> impl Strategy<Value = ResourceId> {
    (name(), proptest::option::of(name()), vec((name(), name()), 0..4)).prop_map(|(subscription, group, levels)| {
        let base = match group {
            Some(group) => ResourceId::group_of(&subscription, &group),
            None => ResourceId::subscription_of(&subscription),
        };
        let Some(((first_type, first_name), rest)) = levels.split_first() else { return base };
        let top = base.resource(&format!("Microsoft.Network/{first_type}"), &[first_name.as_str()]);
        rest.iter().fold(top, |id, (kind, name)| id.child(kind, name))
    })
}

/// Returns `text` with the letter case flipped at the bits of `mask`.
fn respell(text: &str, mask: u64) -> String {
    let flip = |(position, c): (usize, char)| match (mask >> (position % 64) & 1, c.is_ascii_uppercase()) {
        (0, _) => c,
        (_, true) => c.to_ascii_lowercase(),
        (_, false) => c.to_ascii_uppercase(),
    };
    text.chars().enumerate().map(flip).collect()
}

proptest! {
    #[test]
    fn spelling_does_not_matter(id in any_id(), mask in any::<u64>()) {
        let other = ResourceId::parse(&respell(id.as_str(), mask)).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&id, &other);
        prop_assert_eq!(id.cmp(&other), Ordering::Equal);
        prop_assert_eq!(hash(&id), hash(&other));
        prop_assert_eq!(id.key(), other.key());
        prop_assert!(other.is_type(&id.resource_type()));
    }

    #[test]
    fn equality_order_and_keys_agree(id in any_id(), other in any_id()) {
        prop_assert_eq!(id == other, id.key() == other.key());
        prop_assert_eq!(id.cmp(&other), id.key().cmp(&other.key()));
        prop_assert_eq!(id.cmp(&other), other.cmp(&id).reverse());
    }

    #[test]
    fn a_child_has_its_parent(id in any_id(), kind in name(), name in name()) {
        prop_assume!(!id.resource_type().is_empty());
        let child = id.child(&kind, &name);
        prop_assert_eq!(child.parent().map(|id| id.to_string()), Some(id.to_string()));
        prop_assert_eq!(child.name(), &*segment_of(&name));
        prop_assert!(child.name_of(&kind).is_some());
    }

    /// Builds IDs from arbitrary names, and checks their form and the path of their URLs.
    #[test]
    fn no_name_escapes_its_segment(group in ".{0,12}", name in "[./%?#a2eE \\\\]{0,8}") {
        let id = ResourceId::group_of("s", &group).resource("Microsoft.Network/loadBalancers", &[&name]);
        prop_assert!(ResourceId::parse(id.as_str()).is_ok(), "{id}");
        prop_assert_eq!(id.as_str().split('/').count(), 9);
        let url = reqwest::Url::parse(&format!("https://host{}?api-version=1", id.url_path())).unwrap();
        prop_assert_eq!(url.path(), &*id.url_path());
        prop_assert_eq!(url.query(), Some("api-version=1"));
    }
}
