use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn unread() -> UnreadFields {
    let labels = UnreadFields::new(&["images", "capacity"], &["message"]).labels_but(|key| key == "zone");
    labels.annotations_but(|key| key != "b")
}

/// In pieces of `size` bytes.
fn filtered(text: &str, size: usize) -> String {
    without(unread(), text, size)
}

fn without(unread: UnreadFields, text: &str, size: usize) -> String {
    let mut filter = JsonFilter::new(unread);
    let output = text.as_bytes().chunks(size.max(1)).flat_map(|piece| filter.filter(piece)).collect();
    String::from_utf8(output).unwrap()
}

/// Asserts what becomes of `text`, wherever the pieces end.
fn assert_filtered(unread: &UnreadFields, text: &str, expected: &Value) {
    for size in 1..=text.len() {
        let output: Value = serde_json::from_str(&without(unread.clone(), text, size)).unwrap();
        assert_eq!(output, *expected, "pieces of {size} of {text}");
    }
}

fn node(unread: bool) -> Value {
    let mut node = json!({
        "metadata": {"name": "n\"\\", "annotations": {"managedFields": "stays", "a": "{[,\"images\":"}, "labels": {"zone": "1"}, "uid": "u"},
        "spec": {"status": {"images": ["stays"]}, "metadata": {"managedFields": "stays", "labels": {"b": "stays"}}},
        "status": {"conditions": [{"images": 1}, {}, {"status": {"message": "stays"}, "type": "Ready"}], "phase": null},
    });
    if unread {
        node["metadata"]["managedFields"] = json!([{"f:metadata": {"}": ["\\\"", {}]}}]);
        node["status"]["images"] = json!([{"names": ["a,b", "}"]}]);
        node["status"]["capacity"] = json!({"cpu": "1"});
        node["status"]["conditions"][1]["message"] = json!("a,\"}");
        node["status"]["conditions"][2]["message"] = json!("b");
        node["metadata"]["annotations"]["b"] = json!("{\"c\":[]}");
        node["metadata"]["labels"]["agentpool"] = json!("p");
        node["metadata"]["labels"]["zzz"] = json!("");
    }
    node
}

fn documents(unread: bool) -> Vec<Value> {
    let node = node(unread);
    vec![
        node.clone(),
        json!({"kind": "NodeList", "metadata": {"continue": "x"}, "items": [node, {}, node]}),
        json!({"type": "ADDED", "object": node}),
        json!({"object": {"metadata": {}, "status": {}}, "items": {"status": {"images": 1}}}),
    ]
}

#[test]
fn unread_fields_are_removed_for_all_sizes_of_pieces() {
    for (whole, expected) in documents(true).iter().zip(documents(false)) {
        for text in [whole.to_string(), serde_json::to_string_pretty(whole).unwrap()] {
            assert_filtered(&unread(), &text, &expected);
        }
    }
}

#[test]
fn removed_annotations_leave_a_digest_in_each_object() {
    let use_of = |key: &str| match key.as_bytes().first() {
        Some(b'r') => AnnotationUse::Read { longest: 5 },
        Some(b's') => AnnotationUse::Sampled,
        _ => AnnotationUse::Unread,
    };
    let all = |count: usize| -> serde_json::Map<String, Value> {
        let sampled = (0..count).map(|number| (format!("s{number:02}"), json!("s")));
        sampled
            .chain([("a".to_owned(), json!("x\"<\n")), ("r".to_owned(), json!("read")), ("z".to_owned(), json!(""))])
            .collect()
    };
    let object = |count| json!({"metadata": {"annotations": all(count), "name": "n"}});
    let list = json!({"items": [object(0), {"metadata": {"annotations": {"r": "b"}}}, object(12)]}).to_string();
    let digest = |more: &[&str]| {
        let mut digest = AnnotationDigest::default();
        [("a", "x\"<\n"), ("z", "")]
            .into_iter()
            .chain(more.iter().map(|key| (*key, "s")))
            .for_each(|(key, value)| digest.add(key, value));
        digest.text().unwrap()
    };
    for size in 1..=list.len() {
        let unread = UnreadFields::default().annotations_by_use(use_of);
        let output: Value = serde_json::from_str(&without(unread, &list, size)).unwrap();
        assert_eq!(output["items"][0]["metadata"]["annotations"], json!({"r": "read", UNREAD_ANNOTATIONS: digest(&[])}));
        assert_eq!(output["items"][1]["metadata"]["annotations"], json!({"r": "b"}));
        let sampled = output["items"][2]["metadata"]["annotations"].as_object().unwrap();
        assert_eq!((sampled.len(), &sampled[UNREAD_ANNOTATIONS]), (12, &json!(digest(&["s10", "s11"]))));
        assert_eq!(output["items"][2]["metadata"]["name"], "n");
    }
}

#[test]
fn lists_of_a_spec_are_cut_wherever_the_pieces_end() {
    let object = |is_whole: bool| {
        let all = |items: Vec<Value>, most: usize| Value::from_iter(items.into_iter().take(if is_whole { 9 } else { most }));
        let mut object = json!({
            "metadata": {"name": "n", "ports": [1, 2, 3, 4]},
            "spec": {
                "empty": all(vec![], 1),
                "few": all(vec![json!("a,]\"")], 1),
                "kept": {"ports": [1, 2, 3, 4], "selector": {}},
                "ports": all(vec![json!({"p": [1, {}]}), json!({"ports": [1, 2, 3]}), json!({"q": "]"}), json!([[], "x"])], 2),
                "ranges": all(vec![json!("a,\"["), json!("b"), json!("]"), json!([]), json!({"": 7}), json!(8)], 1),
                "type": "x",
            },
            "status": {"ports": [1, 2, 3]},
        });
        if is_whole {
            object["metadata"]["ownerReferences"] = json!([{"name": "]"}, {}]);
            object["spec"]["selector"] = json!({"a": ["}"]});
        }
        object
    };
    let lists = vec![("empty", 1), ("few", 1), ("ports", 2), ("ranges", 1)];
    for (whole, expected) in [
        (object(true), object(false)),
        (
            json!({"items": [object(true), {"spec": {}}, object(true)]}),
            json!({"items": [object(false), {"spec": {}}, object(false)]}),
        ),
        (json!({"type": "ADDED", "object": object(true)}), json!({"type": "ADDED", "object": object(false)})),
    ] {
        for text in [whole.to_string(), serde_json::to_string_pretty(&whole).unwrap()] {
            let unread = UnreadFields::default().metadata_and_spec(&["ownerReferences"], &["selector"]);
            assert_filtered(&unread.spec_lists(lists.clone()), &text, &expected);
        }
    }
}

#[test]
fn lists_in_annotations_are_cut_after_the_accepted_items() {
    let use_of = |key: &str| match key {
        "l" => AnnotationUse::ReadList { longest: 100, most: 2 },
        _ => AnnotationUse::Read { longest: 100 },
    };
    for (list, expected) in [("", ""), ("a,b", "a,b"), ("a,b,", "a,b,"), ("a,b,c,\"\\n\u{e9}", "a,b,"), ("\",,,d", "\",,")] {
        let object = |list: &str| json!({"metadata": {"annotations": {"a": "1,2,3,4", "l": list, "m": "1,2,3,4"}, "name": "1,2,3,4"}});
        let unread = UnreadFields::default().annotations_by_use(use_of);
        assert_filtered(&unread, &object(list).to_string(), &object(expected));
    }
}

#[test]
fn events_of_a_watch_are_lines() {
    let lines = |unread: bool| documents(unread).iter().map(|event| format!("{event}\n")).collect::<String>();
    assert_eq!(filtered(&lines(true), 7), lines(false));
}

#[test]
fn versions_of_lists_and_events_are_noted_but_not_of_items() {
    let noted = |text: &str, size: usize| -> Vec<u64> {
        let mut filter = JsonFilter::new(unread());
        let mut version_after = |piece: &[u8]| {
            filter.filter(piece);
            filter.take_version()
        };
        text.as_bytes().chunks(size).filter_map(&mut version_after).collect()
    };
    let object = |version: &str| {
        let owner = json!([{"resourceVersion": "4"}]);
        let metadata =
            json!({"annotations": {"resourceVersion": "3"}, "ownerReferences": owner, "resourceVersion": version});
        json!({"metadata": metadata, "spec": {"metadata": {"resourceVersion": "5"}}})
    };
    let list = json!({"items": [object("7"), object("8")], "metadata": {"resourceVersion": "900"}}).to_string();
    let event = |kind: &str, object: &Value| format!("{}\n", json!({"object": object, "type": kind}));
    let failed = event("ERROR", &json!({"code": 410, "metadata": {}}));
    let events = event("ADDED", &object("901")) + &event("BOOKMARK", &object("905")) + &failed;
    for size in 1..50 {
        assert_eq!(noted(&list, size), [900], "pieces of {size}");
        assert_eq!(noted(&events, size), [901, 905], "pieces of {size}");
    }
    assert_eq!((noted(&list, list.len()), noted(&events, events.len())), (vec![900], vec![905]));
    assert_eq!(noted(&object("opaque").to_string(), 9), Vec::<u64>::new());
}

#[test]
fn a_key_with_escapes_is_unchanged() {
    let text = r#"{"metadata":{"labels":{"zo\u006ee":"1"},"annotations":{"\u0062":"2"}}}"#;
    assert_eq!(filtered(text, 3), text);
}

#[test]
fn a_document_without_unread_fields_is_unchanged() {
    for text in
        ["", "down", "\"text\"", "[1, {\"status\": {\"images\": 1}}]", "{\"status\" : \"Failure\", \"code\": 410}", "}}]"]
    {
        assert_eq!(filtered(text, 3), text);
    }
}

proptest! {
    #[test]
    fn arbitrary_text_causes_no_panic(text in "[{}\\[\\],:\"\\\\a-z]{0,60}", size in 1_usize..9) {
        let whole = filtered(&text, usize::MAX);
        prop_assert_eq!(filtered(&text, size), whole);
    }
}
