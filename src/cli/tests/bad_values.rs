//! Values that are refused, flags in the wrong place, and flags without effect.

use super::*;

fn complaints(line: &str) -> Vec<String> {
    parsed(line).unwrap_err().lines().to_vec()
}

#[test]
fn refused_values_are_cut_after_64_characters() {
    let (long, cut) = ("x".repeat(500), "x".repeat(64));
    for line in [
        "--node-monitor-period=LONG",
        "--tls-min-version=LONG",
        "--tls-cipher-suites=LONG",
        "--cloud-provider=LONG",
        "--controllers=LONG",
        "--feature-gates=LONG",
        "--feature-gates=LONG=true",
        "--feature-gates=a=LONG",
        "--node-filter-requirements=LONG",
        "--vmodule=LONG",
        "--enable-leader-migration --leader-migration-config=LONG",
        "--LONG=1",
        "LONG",
        "check-config --cloud-provider=LONG",
        "check-config -o LONG",
        "plan LONG",
        "status LONG",
        "status --url=LONG",
        "doctor --service-account=LONG",
        "completion LONG",
        "man LONG",
    ] {
        let found = complaints(&line.replace("LONG", &long)).join("\n");
        assert!(found.contains(&cut[..60]) && !found.contains(&format!("{cut}x")), "{line}: {found}");
    }
}
