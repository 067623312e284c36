//! A stand-in for controllers that knows the recording by heart, to try the harness on: it puts the documents and statuses of the
//! step that is on. A twist may spoil what it puts.

use std::time::Duration;

use async_trait::async_trait;
use cloud_controller_manager::runtime::shutdown::Shutdown;
use k8s_openapi::api::core::v1::{Event, Node, NodeCondition, Service};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::golden::{
    case::{Case, State, Step},
    replay::{Running, Subject},
    stage::{Stage, served, split},
};

/// Changes the documents and the Services of a step before they are put.
pub(crate) type Twist = fn(&Step, &mut State, &mut Service);

/// Plays this case.
pub(crate) struct Understudy {
    pub(crate) case: &'static Case,
    pub(crate) twist: Twist,
}

struct Playing {
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

#[async_trait]
impl Subject for Understudy {
    async fn start(&self, stage: &Stage, _: &Value, _: &[String]) -> Box<dyn Running> {
        let shutdown = Shutdown::new();
        let (case, twist, stage, stop) = (self.case, self.twist, stage.clone(), shutdown.clone());
        let task = tokio::spawn(async move {
            let play = play(case, twist, &stage);
            tokio::select! {
                () = play => {}
                () = stop.begun() => {}
            }
        });
        Box::new(Playing { shutdown, task })
    }
}

#[async_trait]
impl Running for Playing {
    async fn stop(self: Box<Self>) {
        self.shutdown.begin();
        self.task.await.unwrap();
    }
}

async fn play(case: &'static Case, twist: Twist, stage: &Stage) {
    // By the clock, since a change of documents by somebody else wakes nobody.
    let mut ticks = tokio::time::interval(Duration::from_millis(700));
    loop {
        ticks.tick().await;
        if let Some(number) = stage.step() {
            perform(twist, stage, &case.steps[number]);
        }
    }
}

fn key(service: &Service) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", text(&service.metadata.namespace), text(&service.metadata.name))
}

fn perform(twist: Twist, stage: &Stage, step: &Step) {
    let mut documents = step.after.clone();
    for service in stage.server.list::<Service>() {
        let key = key(&service);
        let (namespace, name) = split(&key);
        if service.metadata.deletion_timestamp.is_some() {
            stage.server.update_with(namespace, name, |service: &mut Service| service.metadata.finalizers = None);
            continue;
        }
        let mut wanted = served(&service, step, &key);
        twist(step, &mut documents, &mut wanted);
        if step.failing().contains(&key) {
            warn(stage, name, &step.name);
        }
        if wanted.status != service.status || wanted.metadata.finalizers != service.metadata.finalizers {
            stage.server.update_with(namespace, name, |service: &mut Service| *service = wanted);
        }
    }
    conditions(stage, step);
    put(stage, &documents);
}

fn put(stage: &Stage, documents: &State) {
    let found = stage.documents();
    if found == *documents {
        return;
    }
    for id in found.keys().filter(|id| !documents.contains_key(*id)) {
        stage.azure().delete_document(id);
    }
    let changed = documents.iter().filter(|(id, document)| found.get(*id) != Some(document));
    changed.for_each(|(_, document)| stage.azure().put_document(document.clone()).unwrap());
}

fn warn(stage: &Stage, name: &str, step: &str) {
    let event_name = format!("{name}.{step}");
    let event = json!({
        "metadata": {"namespace": "default", "name": event_name},
        "involvedObject": {"kind": "Service", "namespace": "default", "name": name},
        "type": "Warning", "reason": "SyncLoadBalancerFailed", "message": "as recorded",
        "lastTimestamp": stage.clock.wall().to_string(),
    });
    if stage.server.get::<Event>("default", &event_name).is_none() {
        stage.server.create::<Event>(&serde_json::from_value(event).unwrap());
    }
}

fn conditions(stage: &Stage, step: &Step) {
    for (key, outcome) in &step.outcomes {
        let (Some(condition), ("node", name)) = (&outcome.network_unavailable, split(key)) else { continue };
        let Some(node) = stage.server.get::<Node>("", name) else { continue };
        let known = node.status.and_then(|status| status.conditions).into_iter().flatten();
        if known.into_iter().any(|known| known.type_ == "NetworkUnavailable") {
            continue;
        }
        stage.server.update_with("", name, |node: &mut Node| {
            node.status.get_or_insert_default().conditions.get_or_insert_default().push(NodeCondition {
                type_: "NetworkUnavailable".to_owned(),
                status: condition.status.clone(),
                reason: Some(condition.reason.clone()),
                ..NodeCondition::default()
            });
        });
    }
}
