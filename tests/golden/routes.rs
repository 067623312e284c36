//! The recorded cases about pod routes, played with the whole manager.

use crate::golden::{
    corpus::cases,
    manager::Manager,
    replay::{replay, take_over},
};

#[tokio::test(start_paused = true)]
async fn the_manager_leaves_the_routes_that_were_recorded() {
    let mut played = 0;
    for case in cases().iter().filter(|case| case.path.starts_with("azure-routes/")) {
        played += 1;
        let findings = replay(&Manager, case).await;
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
    assert_eq!(played, 4);
}

#[tokio::test(start_paused = true)]
async fn tables_left_by_gos_program_are_taken_over_without_a_write() {
    for case in cases().iter().filter(|case| case.path.starts_with("azure-routes/")) {
        let writes = take_over(&Manager, case, case.steps.len() - 1).await;
        assert!(writes.is_empty(), "{}: {writes:?}", case.path);
    }
}
