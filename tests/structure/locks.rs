//! The load balancer engine has little shared state.

use std::{fs, path::Path};

use crate::{guides::blocks::files_with_extension, structure::source::is_test};

const FOLDERS: [&str; 2] = ["src/providers/azure/load_balancer", "src/providers/azure/arm/batch"];
const TYPES: [&str; 6] = ["Mutex<", "OnceCell<", "OnceLock<", "Notify,", "Atomic", "Watched<"];
/// Number of declarations of shared state. May only fall.
const MOST: usize = 38;

/// Returns `true` if a line declares a field or a static of a shared type.
fn is_shared(line: &str) -> bool {
    let is_declared = line.split_once(": ").is_some_and(|(name, kind)| {
        let is_initialized = kind.contains("::new(") || kind.contains("::default(");
        !name.contains("fn ")
            && !name.contains("let ")
            && !is_initialized
            && TYPES.iter().any(|shared| kind.contains(shared))
    });
    is_declared && !line.trim_start().starts_with("//")
}

#[test]
fn shared_state_of_the_load_balancer_engine_does_not_grow() {
    let files = FOLDERS.iter().flat_map(|folder| files_with_extension(Path::new(folder), "rs"));
    let product = files.filter(|path| !is_test(path));
    let texts = product.map(|path| (fs::read_to_string(&path).expect("a file"), path));
    let found: Vec<String> = texts
        .flat_map(|(text, path)| {
            let product = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            let shared = product.lines().filter(|line| is_shared(line)).map(str::trim).map(str::to_owned);
            shared.map(|line| format!("{}: {line}", path.display())).collect::<Vec<_>>()
        })
        .collect();
    assert!(found.len() <= MOST, "{} instead of {MOST}: {found:#?}", found.len());
    assert!(found.len() > MOST - 5, "lower MOST to {}", found.len());
}
