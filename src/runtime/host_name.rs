//! Name of this machine.

/// Returns the node name of `uname`.
#[cfg(unix)]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the DNS host name, as kubelet does: the variable `COMPUTERNAME` is cut after 15 characters.
#[cfg(windows)]
pub fn host_name() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}
