//! The node's side: it starts its watcher and passes it what to report.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use node::control::Handoff;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::{COMMAND, FAREWELL};

/// The node's watcher, which it has while its cluster has other nodes.
#[derive(Debug, Default)]
pub struct Guarded {
    watcher: Option<Child>,
    /// The handoff that the watcher received last.
    handed: Option<Handoff>,
    /// The log already says that no watcher could be started.
    complained: bool,
}

impl Guarded {
    /// Ensures that a watcher runs and has this handoff.
    pub fn keep(&mut self, handoff: Option<Handoff>) {
        if self.watcher.as_mut().is_some_and(|watcher| !matches!(watcher.try_wait(), Ok(None))) {
            tracing::warn!("the watcher process has exited; starting another one");
            (self.watcher, self.handed) = (None, None);
        }
        if handoff.is_none() || handoff == self.handed {
            return;
        }
        match self.hand(handoff.as_ref()) {
            Ok(()) => (self.handed, self.complained) = (handoff, false),
            Err(error) => {
                self.dismiss();
                if !std::mem::replace(&mut self.complained, true) {
                    tracing::warn!(%error, "cannot start the watcher process: if this node dies, the other nodes wait until its leases have expired");
                }
            }
        }
    }

    fn hand(&mut self, handoff: Option<&Handoff>) -> io::Result<()> {
        if self.watcher.is_none() {
            self.watcher = Some(start()?);
        }
        let pipe = self.watcher.as_mut().and_then(|watcher| watcher.stdin.as_mut());
        let pipe = pipe.ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = serde_json::to_vec(&handoff)?;
        line.push(b'\n');
        // Does not block: a watcher that does not read is replaced.
        pipe.write_all(&line)
    }

    /// Dismisses the watcher: the node has notified the other nodes itself.
    pub fn farewell(mut self) {
        if let Some(pipe) = self.watcher.as_mut().and_then(|watcher| watcher.stdin.as_mut()) {
            // A watcher that does not read this reports what the nodes already know.
            let _ = pipe.write_all(format!("{FAREWELL}\n").as_bytes());
        }
    }

    fn dismiss(&mut self) {
        if let Some(mut watcher) = self.watcher.take() {
            let _ = watcher.kill();
            let _ = watcher.wait();
        }
        self.handed = None;
    }
}

fn start() -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("ursa").arg(COMMAND).arg(std::process::id().to_string());
    // All other descriptors of this process are opened with CLOEXEC. The watcher writes its errors where this
    // process does.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
    // mimalloc would take whole huge pages for the few kilobytes that the watcher needs.
    command.env("MIMALLOC_ALLOW_THP", "0");
    // Its own process group: Ctrl-C is for the node.
    command.process_group(0);
    // The watcher must not keep a directory busy.
    command.current_dir("/");
    let child = command.spawn()?;
    if let Some(pipe) = &child.stdin {
        fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
    }
    Ok(child)
}
