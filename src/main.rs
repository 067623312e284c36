//! The binary: the providers that ship, and the mode.

use std::process::ExitCode;

use cloud_controller_manager::{
    app,
    cloud_provider::Registry,
    providers::{azure, fake},
};

fn main() -> ExitCode {
    let registry = Registry::new()
        .register(azure::NAME, azure::factory)
        .with_check(azure::NAME, |request| Box::pin(azure::check::check(request)))
        .with_local(azure::NAME, azure::local_factory)
        .register(fake::PROVIDER_NAME, fake::factory)
        .with_local(fake::PROVIDER_NAME, fake::local_factory);
    #[cfg(feature = "sandbox")]
    if std::env::args_os().nth(1).is_some_and(|mode| mode == "demo") {
        return demo();
    }
    app::run(&registry)
}

#[cfg(feature = "sandbox")]
fn demo() -> ExitCode {
    use cloud_controller_manager::sandbox;
    app::on_runtime(|stop| sandbox::demo::run(std::env::args_os().skip(2), stop)).unwrap_or(ExitCode::FAILURE)
}
