//! A run of a program with all the processes that it starts.
//!
//! In: the command, its deadline, and the limit of its output. Out: its output, if it succeeded. Its standard error is
//! discarded, because it may contain secrets and has no limit. The program leads a separate process group. At the end of a
//! cancelled run, the whole group is killed, and its orphans are reaped if they become children of this process, as in a
//! container. Windows has no process groups, so only the program itself is killed.

use std::{process::Stdio, time::Duration};

#[cfg(unix)]
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};
use tokio::{
    io::AsyncReadExt,
    process::{Child, Command},
    time::{sleep, timeout},
};

/// Longest wait for processes that were killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between checks of killed processes.
const REAP_INTERVAL: Duration = Duration::from_millis(10);

pub(super) async fn output(command: Command, deadline: Duration, longest: u64) -> Result<Vec<u8>, String> {
    let mut group = ProcessGroup::start(command)?;
    let output = timeout(deadline, group.output(longest)).await;
    group.end().await;
    output.unwrap_or_else(|_| Err(format!("it did not end within {deadline:?}")))
}

struct ProcessGroup {
    leader: Child,
    #[cfg(unix)]
    id: Option<Pid>,
}

impl ProcessGroup {
    fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        #[cfg(unix)]
        command.process_group(0);
        let leader = command.kill_on_drop(true).spawn().map_err(|error| format!("it cannot be run: {error}"))?;
        #[cfg(unix)]
        let id = leader.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self {
            leader,
            #[cfg(unix)]
            id,
        })
    }

    async fn output(&mut self, longest: u64) -> Result<Vec<u8>, String> {
        let mut output = Vec::new();
        if let Some(stdout) = self.leader.stdout.take() {
            let read = stdout.take(longest + 1).read_to_end(&mut output).await;
            read.map_err(|error| format!("its output cannot be read: {error}"))?;
        }
        if output.len() as u64 > longest {
            return Err(format!("it prints more than {} KiB", longest >> 10));
        }
        let status = self.leader.wait().await.map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(output);
        }
        Err(format!("it ended with {status}; its standard error is not shown, as it may hold secrets: run it by hand"))
    }

    /// Kills the group, unless the program has ended.
    async fn end(mut self) {
        if self.leader.id().is_none() {
            self.reap();
            return;
        }
        self.kill();
        let exited = async {
            // The leader is reaped first, because waiting for the group would take it from tokio.
            if self.leader.wait().await.is_ok() {
                while self.reap() {
                    sleep(REAP_INTERVAL).await;
                }
            }
        };
        if timeout(KILL_TIMEOUT, exited).await.is_err() {
            tracing::warn!("killed processes of an exec plugin are still running");
        }
    }

    /// Kills the group. Its number is valid until the leader has been waited for; later it may be another group's.
    #[cfg(unix)]
    fn kill(&mut self) {
        if let (Some(_), Some(id)) = (self.leader.id(), self.id) {
            // It fails where there is nothing to kill.
            let _ = kill_process_group(id, Signal::KILL);
        }
    }

    #[cfg(not(unix))]
    fn kill(&mut self) {
        // It fails where there is nothing to kill.
        let _ = self.leader.start_kill();
    }

    /// Takes the status of children that have ended, so that they do not stay as zombies. Whether there are others.
    #[cfg(unix)]
    fn reap(&self) -> bool {
        let Some(id) = self.id else { return false };
        loop {
            match waitpgid(id, WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

#[cfg(not(unix))]
impl ProcessGroup {
    fn reap(&self) -> bool {
        false
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
