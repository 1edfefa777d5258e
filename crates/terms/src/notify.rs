//! Reports the service's state to systemd, or to another service manager with its protocol (sd_notify(3)).

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells the service manager that the node serves.
pub fn ready() {
    tell("READY=1");
}

/// Tells the service manager that the node is stopping.
pub fn stopping() {
    tell("STOPPING=1");
}

/// Ignores errors, so that they cannot keep a node from serving: at worst systemd times out, and logs that.
fn tell(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return };
    let sent = || -> io::Result<()> {
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&path)?,
        };
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
    };
    if let Err(error) = sent() {
        tracing::warn!(%error, state, "cannot notify the service manager");
    }
}
