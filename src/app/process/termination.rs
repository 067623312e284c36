//! Requests to end the process: signals on Unix; console events and stops of the service on Windows.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown};

/// Listener for requests to end the process, from its creation on.
///
/// Windows kills the process a few seconds after a close or shutdown event.
pub(super) struct TerminationRequests {
    #[cfg(unix)]
    signals: (Signal, Signal),
    #[cfg(windows)]
    events: (CtrlC, CtrlBreak, CtrlClose, CtrlShutdown),
}

impl TerminationRequests {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            signals: (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?),
            #[cfg(windows)]
            events: (ctrl_c()?, ctrl_break()?, ctrl_close()?, ctrl_shutdown()?),
        })
    }

    #[cfg(unix)]
    pub(super) async fn next(&mut self) {
        let (terminate, interrupt) = &mut self.signals;
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }

    #[cfg(windows)]
    pub(super) async fn next(&mut self) {
        let (ctrl_c, ctrl_break, ctrl_close, ctrl_shutdown) = &mut self.events;
        tokio::select! {
            biased;
            _ = ctrl_c.recv() => {}
            _ = ctrl_break.recv() => {}
            _ = ctrl_close.recv() => {}
            _ = ctrl_shutdown.recv() => {}
            () = super::windows_service::STOP.notified() => {}
        }
    }
}
