//! Which processes outlive a run.

use super::*;

/// The script's helper: the process id that it wrote to the file.
async fn helper(file: &std::path::Path) -> String {
    loop {
        match std::fs::read_to_string(file) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// As for the first process of a container, orphans become children of this one.
fn adopt_orphans() {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
}

fn exists(process: &str) -> bool {
    std::path::Path::new("/proc").join(process).exists()
}

#[tokio::test]
async fn too_much_output_ends_the_helpers_of_a_plugin() {
    adopt_orphans();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("helper");
    let plugin = script(&format!("sleep 60 & echo $! > {}; head -c 65537 /dev/zero", file.display()));
    assert!(plugin.current().await.unwrap_err().contains("prints more than"));
    assert!(!exists(&helper(&file).await));
}

#[tokio::test]
async fn the_deadline_ends_the_helpers_of_a_plugin() {
    adopt_orphans();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("helper");
    let plugin = script(&format!("sleep 60 & echo $! > {}; wait", file.display()));
    let request = tokio::spawn(async move { plugin.current().await });
    let helper = helper(&file).await;
    tokio::time::pause();
    tokio::time::advance(DEADLINE + Duration::from_secs(1)).await;
    tokio::time::resume();
    assert!(request.await.unwrap().unwrap_err().contains("did not end within"));
    assert!(!exists(&helper));
}

#[tokio::test]
async fn the_end_of_the_program_ends_the_helpers_of_a_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("helper");
    let plugin = script(&format!("sleep 60 & echo $! > {}; wait", file.display()));
    let mut output = Box::pin(plugin.0.output());
    let helper = tokio::select! {
        biased;
        _ = &mut output => unreachable!("the script waits"),
        helper = helper(&file) => helper,
    };
    drop(output);
    for _ in 0..400 {
        // Only the first process of the machine may reap the helper, so a zombie has ended, too.
        let status = std::fs::read_to_string(format!("/proc/{helper}/status")).unwrap_or_default();
        if status.is_empty() || status.contains("State:\tZ") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the helper {helper} still runs");
}
