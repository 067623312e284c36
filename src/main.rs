//! Binary with all providers of this repository.

use std::process::ExitCode;

use cloud_controller_manager::{app, providers};

fn main() -> ExitCode {
    #[cfg(feature = "sandbox")]
    if let Some(code) = sandbox_mode() {
        return code;
    }
    app::run(&providers::registry())
}

#[cfg(feature = "sandbox")]
fn sandbox_mode() -> Option<ExitCode> {
    use cloud_controller_manager::{sandbox::verify, sandbox_demo};
    let arguments = || std::env::args_os().skip(2);
    let ended = match std::env::args_os().nth(1)?.to_str()? {
        "demo" => app::on_runtime(|stop| sandbox_demo::run(arguments(), stop)),
        "verify-azure" => app::on_runtime(|stop| verify::run(arguments(), stop)),
        _ => return None,
    };
    Some(ended.unwrap_or(ExitCode::FAILURE))
}
