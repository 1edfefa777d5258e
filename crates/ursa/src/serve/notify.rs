//! Tells systemd, or whoever started us in its way (sd_notify(3)), how far we are.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// We serve.
pub fn ready() {
    tell("READY=1");
}

/// We are about to end.
pub fn stopping() {
    tell("STOPPING=1");
}

/// Nothing here can keep a node from serving: at worst systemd waits in vain, and says so.
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
