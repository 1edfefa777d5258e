//! The watcher's side.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use node::control::Handoff;
use rt::CoreId;
use rt::uring::{self, Running};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};

use super::{COMMAND, FAREWELL};
use crate::devices::take_off_all;

/// Nodes that were not told within this time are not told at all.
///
/// They have continued by then, since leases are shorter; and a service manager that waits for all processes
/// of the service to end must not wait for long.
const TELL_LIMIT: Duration = Duration::from_secs(2);

/// After this time the death is reported even if floating addresses are still configured.
///
/// Volumes wait for the report. Removing addresses takes milliseconds; those that remain expire on their own.
const TAKE_OFF_LIMIT: Duration = Duration::from_millis(300);

/// A line holds a few addresses for each node of a cluster.
const LINE_MAX: usize = 1 << 20;

/// Runs the watcher if this process was started as one.
pub fn main_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(COMMAND) {
        return None;
    }
    let pid = arguments.next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    Some(match pid.map_or_else(|| Err(io::ErrorKind::InvalidInput.into()), watch) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ursa: the watcher process of a node has failed: {error}");
            ExitCode::FAILURE
        }
    })
}

fn watch(pid: Pid) -> io::Result<()> {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: ignoring a signal runs no handler. A service manager that stops the service signals all of
        // its processes; the watcher must survive the node for a moment.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let node = pidfd_open(pid, PidfdFlags::empty())?;
    // If the node's process is no longer our parent, its id may already belong to another process, and the
    // pidfd would miss the death.
    if getppid() != Some(pid) {
        return Ok(());
    }
    let Some(handoff) = wait_for_death(&node)? else { return Ok(()) };
    // Nodes that receive the report take over the addresses at once.
    take_off_all(handoff.addresses(), TAKE_OFF_LIMIT);
    tell(handoff)
}

/// Waits until the process is dead with all of its threads; returns its last handoff.
///
/// `None`: it said farewell, or never sent a handoff.
fn wait_for_death(node: &OwnedFd) -> io::Result<Option<Handoff>> {
    let (mut lines, mut handoff) = (Lines::default(), None);
    let mut open = true;
    loop {
        let mut polled = vec![PollFd::new(node, PollFlags::IN)];
        let stdin = io::stdin();
        if open {
            polled.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled?,
        };
        let is_dead = !polled[0].revents().is_empty();
        let has_more = polled.get(1).is_some_and(|pipe| !pipe.revents().is_empty());
        if has_more {
            let mut piece = [0; 4096];
            // Reads without a buffer: buffered data would be invisible to the next poll.
            let len = rustix::io::read(&stdin, &mut piece)?;
            open = len > 0;
            for line in lines.take(&piece[..len])? {
                if line == FAREWELL {
                    return Ok(None);
                }
                handoff = serde_json::from_str(&line)?;
            }
            // Read everything that the node sent before its death counts.
            continue;
        }
        if is_dead {
            return Ok(handoff);
        }
    }
}

/// Splits a stream of bytes into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// The lines that are complete now.
    fn take(&mut self, bytes: &[u8]) -> io::Result<Vec<String>> {
        self.0.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = self.0.iter().position(|byte| *byte == b'\n') {
            let rest = self.0.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.0, rest);
            line.pop();
            lines.push(
                String::from_utf8(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
            );
        }
        if self.0.len() > LINE_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(lines)
    }
}

fn tell(handoff: Handoff) -> io::Result<()> {
    let credentials = handoff.credentials().map_err(io::Error::other)?;
    let start = Arc::new(Mutex::new(Some((handoff, credentials))));
    let core = uring::Config { processors: vec![0], pin: false, poll: Duration::ZERO };
    let running = Running::start(core, move |_: CoreId| {
        let start = start.lock().ok().and_then(|mut start| start.take());
        async move {
            let Some((handoff, credentials)) = start else { return };
            match handoff.carry_out(Some(&credentials), TELL_LIMIT).await {
                Ok(told) => eprintln!("ursa: the node's process has died; {told} other nodes were notified"),
                Err(error) => {
                    eprintln!("ursa: the node's process has died, and no other node was notified: {error}")
                }
            }
        }
    });
    running.map_err(io::Error::other)?.join();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_any_pieces() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(b"{\"a\"").unwrap(), Vec::<String>::new());
        assert_eq!(lines.take(b":1}\nfare").unwrap(), ["{\"a\":1}"]);
        assert_eq!(lines.take(b"well\n\n").unwrap(), ["farewell", ""]);
        assert!(lines.take(&vec![b'x'; LINE_MAX + 1]).is_err(), "nothing of ours");
    }
}
