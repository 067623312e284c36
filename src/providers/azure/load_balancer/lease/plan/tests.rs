//! Tests of the permission to take the lease, and of its contents.

use serde_json::json;

use super::*;

const NOW: &str = "2026-01-01T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn lease(holder: &str, renewed: &str, seconds: i32) -> Lease {
    serde_json::from_value(json!({
        "metadata": {"name": NAME, "namespace": NAMESPACE, "resourceVersion": "7"},
        "spec": {"holderIdentity": holder, "renewTime": renewed, "acquireTime": renewed, "leaseDurationSeconds": seconds},
    }))
    .unwrap()
}

#[test]
fn only_another_holders_unexpired_lease_is_respected() {
    let minute_ago = "2026-01-01T11:59:00.000000Z";
    let empty = Lease { metadata: ObjectMeta::default(), spec: None };
    let no_time =
        Lease { spec: Some(LeaseSpec { holder_identity: Some("aks-rp".into()), ..LeaseSpec::default() }), ..empty.clone() };
    for (seen, may) in [
        (lease("aks-rp", minute_ago, 900), false),
        (lease("aks-rp", minute_ago, 60), false),
        (lease("aks-rp", minute_ago, 59), true),
        (lease("", minute_ago, 900), true),
        (lease("Cloud-Controller-Manager", minute_ago, 900), true),
        (empty, true),
        (no_time, true),
    ] {
        match acquire(Some(&seen), at(NOW)) {
            LeaseAcquisition::Take(taken) => {
                assert!(may, "{seen:?}");
                let spec = taken.spec.as_ref().unwrap();
                assert_eq!((spec.renew_time.as_ref().unwrap().0, spec.acquire_time.as_ref().unwrap().0), (at(NOW), at(NOW)));
                assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some(HOLDER), Some(900)));
                assert_eq!(taken.metadata, seen.metadata, "its version guards the write");
            }
            other => {
                assert!(!may, "{seen:?}");
                let until = expires(&seen).unwrap();
                assert_eq!(other, LeaseAcquisition::Wait { holder: "aks-rp".into(), until });
            }
        }
    }
    assert!(
        matches!(acquire(None, at(NOW)), LeaseAcquisition::Create(lease) if is_ours(&lease) && expires(&lease) > Some(at(NOW)))
    );
}

#[test]
fn a_release_leaves_who_it_was() {
    let mut held = lease(HOLDER, NOW, 900);
    held.metadata.annotations = Some([("other".to_owned(), "kept".to_owned())].into());
    let free = released(&held);
    assert_eq!((is_ours(&free), expires(&free)), (false, None));
    let annotations = free.metadata.annotations.unwrap();
    assert_eq!((annotations["other"].as_str(), annotations[PREVIOUS_HOLDER].as_str()), ("kept", HOLDER));
}

#[test]
fn a_renewal_keeps_when_it_was_acquired() {
    let spec = renewed(&lease(HOLDER, "2026-01-01T11:50:00Z", 900), at(NOW)).spec.unwrap();
    assert_eq!((spec.acquire_time.unwrap().0, spec.renew_time.unwrap().0), (at("2026-01-01T11:50:00Z"), at(NOW)));
}

#[test]
fn others_are_noticed() {
    let (free, ours) = (lease("", NOW, 900), lease(HOLDER, NOW, 900));
    let mut after_rp = free.clone();
    after_rp.metadata.annotations = Some([(PREVIOUS_HOLDER.to_owned(), "aks-rp".to_owned())].into());
    for (seen, own, others) in [
        (&free, None, false),
        (&ours, None, false),
        (&after_rp, None, true),
        (&lease("aks-rp", NOW, 0), None, true),
        (&released(&ours), None, false),
        (&free, Some("7"), false),
        // Another replica of this program wrote.
        (&ours, Some("6"), true),
    ] {
        assert_eq!(others_held(seen, own), others, "{seen:?} {own:?}");
    }
}
