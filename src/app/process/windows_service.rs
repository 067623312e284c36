//! Windows service (`--windows-service`): reports the state of the program to the service control manager, and stops it on
//! request.
//!
//! Upstream: `k8s.io/kubernetes/pkg/windows/service`, whose name for the service is kept.

use std::{error::Error, process::ExitCode, time::Duration};

use parking_lot::Mutex;
use tokio::sync::Notify;
use windows_service::{
    service::{ServiceControl, ServiceControlAccept, ServiceExitCode, ServiceState, ServiceStatus, ServiceType},
    service_control_handler::{self, ServiceControlHandlerResult},
    service_dispatcher,
};

/// Name of the service.
const NAME: &str = "cloud-node-manager";
/// Exit code of a service that failed (`ERROR_EXCEPTION_IN_SERVICE`).
const FAILED: u32 = 1064;

/// Stop request of the service control manager.
pub(super) static STOP: Notify = Notify::const_new();

type Work = Box<dyn FnOnce() -> ExitCode + Send>;

/// Work of the service, for the thread that the service control manager starts.
static WORK: Mutex<Option<Work>> = Mutex::new(None);
/// Exit code of the work.
static ENDED: Mutex<Option<ExitCode>> = Mutex::new(None);

/// Runs `work` as the service. Returns an error if the service control manager did not start the process.
pub(crate) fn run(work: impl FnOnce() -> ExitCode + Send + 'static) -> Result<ExitCode, String> {
    *WORK.lock() = Some(Box::new(work));
    service_dispatcher::start(NAME, service_main).map_err(|error| {
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        format!("--windows-service: the service control manager did not start this process: {cause}")
    })?;
    Ok(ENDED.lock().take().unwrap_or(ExitCode::FAILURE))
}

extern "system" fn service_main(_arguments: u32, _values: *mut *mut u16) {
    let handler = |control| match control {
        ServiceControl::Stop | ServiceControl::Shutdown => {
            STOP.notify_one();
            ServiceControlHandlerResult::NoError
        }
        ServiceControl::Interrogate => ServiceControlHandlerResult::NoError,
        _ => ServiceControlHandlerResult::NotImplemented,
    };
    let Some(work) = WORK.lock().take() else { return };
    let status = match service_control_handler::register(NAME, handler) {
        Ok(status) => status,
        Err(error) => return tracing::error!(%error, "cannot register with the service control manager"),
    };
    let report = |state, exit_code| {
        if let Err(error) = status.set_service_status(service_status(state, exit_code)) {
            tracing::error!(%error, "cannot report to the service control manager");
        }
    };
    report(ServiceState::Running, 0);
    let ended = work();
    report(ServiceState::Stopped, if ended == ExitCode::SUCCESS { 0 } else { FAILED });
    *ENDED.lock() = Some(ended);
}

fn service_status(state: ServiceState, exit_code: u32) -> ServiceStatus {
    let controls_accepted = match state {
        ServiceState::Running => ServiceControlAccept::STOP | ServiceControlAccept::SHUTDOWN,
        _ => ServiceControlAccept::empty(),
    };
    ServiceStatus {
        service_type: ServiceType::OWN_PROCESS,
        current_state: state,
        controls_accepted,
        exit_code: ServiceExitCode::Win32(exit_code),
        checkpoint: 0,
        wait_hint: Duration::ZERO,
        process_id: None,
    }
}
