//! Lists and etags that faults distort, for every type of resource.

use std::time::Duration;

use tokio::time::advance;

use super::*;
use crate::sandbox::azure::{Effect, EtagMode, Fault, Omission, distort, kinds::KINDS};

/// A document of each type that a group has, and the path of its list.
fn one_of_each() -> impl Iterator<Item = (&'static str, String)> {
    let top = |name: &str| name.matches('/').count() == 1 && !name.starts_with("Microsoft.Resources/");
    KINDS
        .iter()
        .map(|kind| kind.name)
        .filter(move |name| top(name))
        .map(|name| (name, format!("$RGS/rg-new/providers/{name}")))
}

/// A group, 20 seconds later a document of each type in it, `a`, and 20 seconds after that another, `b`.
async fn client() -> Client {
    let client = Client::new(AzureOptions::immediate());
    let put = |path: &str| {
        client.azure.put_document(json!({"id": canonical::expand(path), "location": "eastus"})).unwrap();
    };
    put("$RGS/rg-new");
    advance(Duration::from_secs(20)).await;
    one_of_each().for_each(|(_, list)| put(&format!("{list}/a")));
    advance(Duration::from_secs(20)).await;
    one_of_each().for_each(|(_, list)| put(&format!("{list}/b")));
    client
}

fn names(reply: &Reply) -> Vec<&str> {
    reply.body["value"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn lists_lack_documents_or_are_old_and_gets_are_right() {
    let client = client().await;
    let seconds = Duration::from_secs;
    let cases: [(Effect, &[&str]); 8] = [
        (Effect::EmptyList, &[]),
        (Effect::PartialList(Omission::Last(1)), &["a"]),
        (Effect::PartialList(Omission::Last(7)), &[]),
        (Effect::PartialList(Omission::EveryOther), &["a"]),
        (Effect::PartialList(Omission::Named("A".to_owned())), &["b"]),
        (Effect::StaleList(seconds(15)), &["a"]),
        (Effect::StaleList(seconds(35)), &[]),
        (Effect::MissJustWritten(seconds(15)), &["a"]),
    ];
    advance(seconds(10)).await;
    for (effect, expected) in cases {
        for (kind, list) in one_of_each() {
            client.azure.add_fault(Fault::new(effect.clone()).resource_type(kind));
            assert_eq!(client.get(&format!("{list}/b")).await.status, 200, "{kind}");
            assert_eq!(names(&client.get(&list).await), expected, "{effect:?} {kind}");
            client.azure.faults().clear();
            assert_eq!(names(&client.get(&list).await), ["a", "b"], "{effect:?} {kind}");
        }
    }
    advance(seconds(10)).await;
    client.azure.add_fault(Fault::new(Effect::StaleList(seconds(15))));
    client.azure.add_fault(Fault::new(Effect::MissJustWritten(seconds(15))));
    for (kind, list) in one_of_each() {
        assert_eq!(names(&client.get(&list).await), ["a", "b"], "{kind}: it has caught up");
    }
}

#[tokio::test(start_paused = true)]
async fn later_pages_go_missing_without_a_word() {
    let client = client().await;
    client.azure.with_options(|options| options.page_size = 1);
    client.azure.add_fault(Fault::new(Effect::PartialList(Omission::LaterPages)));
    for (kind, list) in one_of_each() {
        let page = client.get(&list).await;
        assert_eq!((names(&page), &page.body["nextLink"]), (vec!["a"], &Value::Null), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn etags_are_weak_absent_or_restless() {
    let client = client().await;
    let path = "$RGS/rg-new/providers/Microsoft.Compute/virtualMachineScaleSets/a";
    let strong = client.etag(path).await;
    assert!(strong.starts_with('"'), "{strong}");
    client.azure.add_fault(Fault::new(Effect::Etags(EtagMode::Weak)));
    let weak = client.get(path).await;
    assert_eq!((weak.header("etag"), &weak.body["etag"]), (&*format!("W/{strong}"), &json!(format!("W/{strong}"))));
    let body = json!({"location": "eastus", "properties": {}});
    let written = client.put_if(path, body.clone(), &[("if-match", &format!("W/{strong}"))]).await;
    assert_eq!(written.status, 200, "either form names the revision");
    assert_eq!(client.put_if(path, body, &[("if-match", &format!("W/{strong}"))]).await.status, 412);
    client.azure.faults().clear();

    for (kind, list) in one_of_each() {
        client.azure.add_fault(Fault::new(Effect::Etags(EtagMode::Absent)));
        for path in [list.clone(), format!("{list}/a")] {
            let shown = client.get(&path).await;
            assert!(shown.header("etag").is_empty() && !shown.body.to_string().contains("etag"), "{kind}: {}", shown.body);
        }
        client.azure.faults().clear();
        client.azure.add_fault(Fault::new(Effect::Etags(EtagMode::Restless)));
        let seen = [client.get(&format!("{list}/a")).await.body, client.get(&list).await.body["value"][0].clone()];
        client.azure.faults().clear();
        if !seen[0]["etag"].is_null() {
            assert_ne!(seen[0]["etag"], seen[1]["etag"], "{kind}");
            let [mut first, mut second] = seen.each_ref().map(|body| body["properties"].clone());
            [&mut first, &mut second].into_iter().for_each(distort::without_etags);
            assert_eq!(first, second, "{kind}");
            assert_eq!(client.etag(&format!("{list}/a")).await, seen[1]["etag"].as_str().unwrap(), "{kind}: it rests again");
        }
    }
}
