//! Runs promtool, which checks metrics, rules and their tests.
//!
//! The variable `PROMTOOL` has its path; `.ci/promtool` provides a binary, and `make test` sets the variable.

use std::{
    env,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

/// Runs promtool. Returns whether it succeeds, and all that it prints.
pub(crate) fn promtool(arguments: &[&str], folder: &Path, input: &str) -> (bool, String) {
    let Ok(program) = env::var("PROMTOOL") else {
        panic!("PROMTOOL is not set: run `make test`, or set it to what .ci/promtool prints")
    };
    let mut command = Command::new(&program);
    command.args(arguments).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
    // promtool may end before it has read all input.
    let _ = process.stdin.take().unwrap().write_all(input.as_bytes());
    let output = process.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.success(), text)
}
