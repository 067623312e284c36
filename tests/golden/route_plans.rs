//! Printed plans of the recorded route cases, from the state before each step: without controllers and writes.
//!
//! Input: a case. Output: a text, compared with the file in `printed/`, which `UPDATE_PLANS=1` rewrites.

use std::{fs, path::Path, sync::Arc};

use cloud_controller_manager::{
    app::plan::{ClusterPlan, print},
    cloud_provider::WritePlan,
    controllers::route,
    sandbox::azure::Class,
};
use k8s_openapi::api::core::v1::Node;

use crate::golden::{
    case::{Action, Case},
    corpus::cases,
    replica::session,
    stage::Stage,
};

const POD_CIDRS: [&str; 2] = ["100.64.0.0/10", "fd00:64::/32"];

/// Returns the Nodes after step `number`.
fn nodes_after(case: &Case, number: usize) -> Vec<Node> {
    case.steps[..=number].iter().rev().find_map(|step| step.nodes.clone()).unwrap_or_else(|| case.nodes.clone())
}

/// Returns the plan of a newly started replica for `nodes`. Checks that a second plan is equal.
async fn planned(stage: &Stage, case: &Case, nodes: Vec<Node>) -> WritePlan {
    let (session, _) = session(stage.azure(), stage.clock, &stage.config(&case.config), nodes.clone()).await;
    let cidrs = POD_CIDRS.map(|cidr| cidr.parse().unwrap());
    let nodes: Vec<Arc<Node>> = nodes.into_iter().map(Arc::new).collect();
    let plan = || async { route::plan_of_nodes(session.routes.as_ref(), "kubernetes", &nodes, &cidrs).await.unwrap() };
    let (before, first) = (stage.documents(), plan().await);
    assert_eq!(first, plan().await, "{}: second plan", case.path);
    assert_eq!(before, stage.documents(), "{}: planning writes nothing", case.path);
    let writes = |class: Class| matches!(class, Class::Write | Class::Delete);
    assert_eq!(stage.azure().count(|request| writes(request.class)), 0, "{}", case.path);
    first
}

/// Returns the plans of all steps, each from the previous state and the external changes of the step.
async fn printed(case: &Case) -> String {
    let mut text = String::new();
    for (number, step) in case.steps.iter().enumerate() {
        let stage = number.checked_sub(1).map_or_else(|| Stage::new(case), |before| Stage::after(case, before));
        stage.act(step, &Action::Azure).await;
        let plan = planned(&stage, case, nodes_after(case, number)).await;
        let plan = ClusterPlan { parts: vec![("Routes", plan)], ..ClusterPlan::default() };
        text += &format!("# {}\n{}", step.name, print::text(&plan, false));
    }
    text
}

#[tokio::test(start_paused = true)]
async fn printed_route_plans_match_the_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/printed/azure-routes");
    let mut failures = Vec::new();
    for case in cases().iter().filter(|case| case.is_about_routes()) {
        let file = folder.join(format!("{}.txt", case.path.trim_start_matches("azure-routes/")));
        let text = printed(case).await;
        if std::env::var_os("UPDATE_PLANS").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, text).unwrap();
        } else if fs::read_to_string(&file).unwrap_or_default() != text {
            failures.push(format!("{} differs from the plan (UPDATE_PLANS=1 rewrites it):\n{text}", file.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
