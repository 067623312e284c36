use ipnet::IpNet;

use super::*;

#[test]
fn booleans_are_go_booleans() {
    for (texts, value) in [
        (&["1", "t", "T", "TRUE", "true", "True"][..], Some(true)),
        (&["0", "f", "F", "FALSE", "false", "False"], Some(false)),
        (&["yes", "on", "tRUE", ""], None),
    ] {
        for text in texts {
            assert_eq!(bool::parse(text).ok(), value, "{text:?}");
        }
    }
}

#[test]
fn integers_are_go_integers() {
    for (text, value) in [
        ("10", Some(10)),
        ("-1", Some(-1)),
        ("+7", Some(7)),
        ("0x1F", Some(31)),
        ("0b11", Some(3)),
        ("0o17", Some(15)),
        ("017", Some(15)),
        ("1_000", Some(1000)),
        ("0", Some(0)),
        ("2147483648", None),
        ("1.5", None),
        ("", None),
        ("0x-1", None),
        ("--1", None),
        ("ten", None),
    ] {
        assert_eq!(integer(text), value, "{text:?}");
    }
}

#[test]
fn lists_split_at_commas_outside_quotes() {
    for (text, list) in [
        ("", Some(vec![])),
        ("a", Some(vec!["a"])),
        ("a,b", Some(vec!["a", "b"])),
        ("a,,b", Some(vec!["a", "", "b"])),
        (r#""a,b",c"#, Some(vec!["a,b", "c"])),
        (r#""say ""hi""",c"#, Some(vec![r#"say "hi""#, "c"])),
        (r#""a"#, None),
    ] {
        let list = list.map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(Vec::<String>::parse(text).ok(), list, "{text:?}");
    }
}

#[test]
fn repeated_values_add_up_and_others_are_replaced() {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(parse_all::<Vec<String>>(&texts(&["a,b", "c"])), Ok(texts(&["a", "b", "c"])));
    assert_eq!(parse_all::<i32>(&texts(&["1", "2"])), Ok(2));
    assert_eq!(parse_all::<Vec<i32>>(&texts(&["1,2", "3"])), Ok(vec![1, 2, 3]));
    assert_eq!(parse_all::<MapStringBool>(&texts(&["A=true,B=false", "A=0"])).unwrap().print(), "A=false,B=false");
    let error = parse_all::<i32>(&texts(&["x", "2"])).unwrap_err();
    assert_eq!(error.text, "x");
}

#[test]
fn certificates_by_name_as_upstream_writes_them() {
    let parse = |text: &str| Vec::<SniCertKey>::parse(text).map(|list| list.print());
    for text in ["c.crt,c.key", "c.crt,c.key:*.example.org,example.org"] {
        assert_eq!(parse(text).as_deref(), Ok(text));
    }
    assert_eq!(parse(" c.crt , c.key : a "), Ok("c.crt,c.key:a".to_owned()));
    for text in ["c.crt", "c.crt,c.key,x", "c.crt,c.key:", ",c.key"] {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn networks_lose_their_host_bits() {
    assert_eq!(Vec::<IpNet>::parse("10.244.1.5/16, fd00::1/48").unwrap().print(), "10.244.0.0/16,fd00::/48");
    assert_eq!(Vec::<IpNet>::parse("").unwrap(), Vec::<IpNet>::new());
    assert!(Vec::<IpNet>::parse("10.0.0.0").is_err());
}

#[test]
fn version_flag_accepts_booleans_raw_and_versions() {
    for (text, value) in [
        ("true", Some(VersionRequest::Short)),
        ("false", Some(VersionRequest::No)),
        ("raw", Some(VersionRequest::Raw)),
        ("v1.2.3", Some(VersionRequest::Override("v1.2.3".to_owned()))),
        ("v1.2.3-rc.1+x", Some(VersionRequest::Override("v1.2.3-rc.1+x".to_owned()))),
        ("v1", None),
        ("1.2.3", None),
    ] {
        assert_eq!(VersionRequest::parse(text).ok(), value, "{text:?}");
    }
}

#[test]
fn module_levels_are_pairs_of_pattern_and_number() {
    let parse = |text: &str| Vec::<logging::ModuleLevel>::parse(text).ok().map(|list| list.print());
    assert_eq!(parse("route*=4,work_queue=6"), Some("route*=4,work_queue=6".to_owned()));
    for text in ["route", "=4", "route=x", "route=-1"] {
        assert_eq!(parse(text), None, "{text:?}");
    }
}
