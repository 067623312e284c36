//! The binary: the providers that ship, and the mode.

use std::process::ExitCode;

use cloud_controller_manager::{app, providers};

fn main() -> ExitCode {
    #[cfg(feature = "sandbox")]
    if std::env::args_os().nth(1).is_some_and(|mode| mode == "demo") {
        return demo();
    }
    app::run(&providers::registry())
}

#[cfg(feature = "sandbox")]
fn demo() -> ExitCode {
    use cloud_controller_manager::sandbox;
    app::on_runtime(|stop| sandbox::demo::run(std::env::args_os().skip(2), stop)).unwrap_or(ExitCode::FAILURE)
}
