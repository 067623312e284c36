use std::path::PathBuf;

use super::{
    super::tests::{GOOD, PATH, Server, loader},
    *,
};

struct Setting {
    folder: tempfile::TempDir,
    server: Server,
    loader: ConfigLoader,
    memory: ReloadState,
    sender: watch::Sender<Arc<AzureConfig>>,
    receiver: watch::Receiver<Arc<AzureConfig>>,
}

impl Setting {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("azure.json");
        std::fs::write(&path, GOOD).unwrap();
        let server = Server::default();
        server.put(PATH, "cloud-config", "vnetName: v");
        let loader = loader(Some(path), Some(&server));
        let (sender, receiver) = watch::channel(Arc::new(loader.load().await.unwrap().config));
        Self { folder, server, loader, memory: ReloadState::default(), sender, receiver }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("azure.json")
    }

    /// Reads once; returns the new configuration's location and virtual network, if it changed.
    async fn reload(&mut self) -> Option<(String, String)> {
        reload_once(&self.loader, &mut self.memory, &self.sender).await;
        let is_new = self.receiver.has_changed().unwrap();
        let config = Arc::clone(&self.receiver.borrow_and_update());
        is_new.then(|| (config.location.clone(), config.vnet_name.clone()))
    }
}

fn pair(location: &str, vnet: &str) -> Option<(String, String)> {
    Some((location.to_owned(), vnet.to_owned()))
}

#[tokio::test]
async fn changes_of_file_and_secret_count_and_nothing_else_does() {
    let mut setting = Setting::new().await;
    assert_eq!(setting.reload().await, None);
    std::fs::write(setting.path(), format!("# a comment\n{GOOD}")).unwrap();
    assert_eq!(setting.reload().await, None);
    std::fs::write(setting.path(), GOOD.replace("location: a", "location: b")).unwrap();
    assert_eq!(setting.reload().await, pair("b", "v"));
    setting.server.put(PATH, "cloud-config", "vnetName: w");
    assert_eq!(setting.reload().await, pair("b", "w"));
    assert_eq!(setting.reload().await, None);
    let target = setting.folder.path().join("next");
    std::fs::write(&target, GOOD.replace("location: a", "location: c")).unwrap();
    std::fs::remove_file(setting.path()).unwrap();
    std::os::unix::fs::symlink(&target, setting.path()).unwrap();
    assert_eq!(setting.reload().await, pair("c", "w"), "a link to another file");
}

#[tokio::test]
async fn invalid_texts_change_nothing_and_are_reported_once() {
    let mut setting = Setting::new().await;
    for bad in ["subscriptionId: s\nresourceGr", "", "location: [a]"] {
        std::fs::write(setting.path(), bad).unwrap();
        assert_eq!(setting.reload().await, None);
        assert!(setting.memory.problem.is_some(), "{bad}");
    }
    *setting.server.status.lock() = Some(503);
    assert_eq!(setting.reload().await, None);
    assert!(setting.memory.unreadable.is_some());
    *setting.server.status.lock() = None;
    std::fs::write(setting.path(), GOOD.replace("location: a", "location: d")).unwrap();
    assert_eq!(setting.reload().await, pair("d", "v"));
    assert_eq!((&setting.memory.unreadable, &setting.memory.problem), (&None, &None));
}

#[tokio::test]
async fn readable_again_and_unchanged_texts_clear_the_problem() {
    let mut setting = Setting::new().await;
    setting.reload().await;
    for (status, is_problem) in [(503, false), (403, true)] {
        *setting.server.status.lock() = Some(status);
        setting.reload().await;
        assert!(setting.memory.unreadable.is_some());
        assert_eq!(setting.memory.problem.is_some(), is_problem, "{status}");
        *setting.server.status.lock() = None;
        assert_eq!(setting.reload().await, None);
        assert_eq!((&setting.memory.unreadable, &setting.memory.problem), (&None, &None));
    }
}

#[tokio::test(start_paused = true)]
async fn following_ends_without_receivers() {
    let setting = Setting::new().await;
    let (sender, receiver) = watch::channel(Arc::clone(&setting.receiver.borrow()));
    drop(receiver);
    follow(setting.loader.clone(), Shutdown::new(), sender, &watch::Sender::new(None)).await;
}
