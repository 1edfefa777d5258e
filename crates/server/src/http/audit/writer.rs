//! The thread that writes the audit log, so that callers do not hang if the disk does.
//!
//! While the log cannot be written, changes of other callers are refused before they are executed: no change
//! may be untraceable. Callers with the local token are admitted, and their changes are in the node's log: an
//! administrator must be able to repair what is wrong.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::AuditEntry;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::log::Log;

/// The number of entries in the queue; each has some 600 bytes at most.
const WAITING_MAX: usize = 256;
/// How long a response waits for its entry to be written. After this time a disk counts as hung.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);

/// Why the audit log cannot be written or read. Nodes report it to each other as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub(in crate::http) enum AuditTrouble {
    /// The disk has hung for this long.
    #[error("its disk has not responded for {seconds} seconds")]
    Late { seconds: u64 },
    /// `errno` is an error number of the system.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    System { errno: i32 },
    /// An error without a number.
    #[error("the node's log says why")]
    Other,
}

impl From<&io::Error> for AuditTrouble {
    fn from(error: &io::Error) -> AuditTrouble {
        error.raw_os_error().map_or(AuditTrouble::Other, |errno| AuditTrouble::System { errno })
    }
}

/// The handle of the thread, which ends when the last clone is dropped. Cheap to clone.
#[derive(Clone)]
pub(super) struct Writer {
    work: SyncSender<Work>,
    state: Arc<Mutex<State>>,
}

struct Work {
    /// `None`: only check whether the log can be opened.
    entry: Option<AuditEntry>,
    done: oneshot::Sender<()>,
}

/// The state of the log.
#[derive(Default)]
struct State {
    /// Why the last entry was not written, or the log not opened.
    failed: Option<AuditTrouble>,
    /// Since when the thread waits for the disk; `None`: it does not.
    waits: Option<Instant>,
}

impl Writer {
    /// Starts the thread, which opens the log in this directory.
    pub(super) fn start(directory: &Path) -> io::Result<Writer> {
        let (work, waiting) = sync_channel(WAITING_MAX);
        let state = Arc::new(Mutex::new(State::default()));
        let thread = Thread { directory: directory.to_owned(), state: Arc::clone(&state), log: None };
        std::thread::Builder::new().name("audit".into()).spawn(move || thread.run(&waiting))?;
        let writer = Writer { work, state };
        // Opens the log now, so that an error is known before the first change.
        let _ = writer.give(None);
        Ok(writer)
    }

    /// Writes an entry. Returns when it is written, or after [`WRITTEN_WITHIN`]: then the entry is written
    /// when the disk responds.
    pub(super) async fn write(&self, entry: AuditEntry) {
        match self.give(Some(entry)) {
            Some(done) => drop(tokio::time::timeout(WRITTEN_WITHIN, done).await),
            None => tracing::error!("an audit log entry was lost: too many are waiting for the disk"),
        }
    }

    /// Why the log cannot be written at the moment; `None`: it can.
    pub(super) async fn trouble(&self) -> Option<AuditTrouble> {
        // The cause of a failure may be repaired: try again.
        let failed = self.state().failed.is_some();
        if failed && let Some(done) = self.give(None) {
            let _ = tokio::time::timeout(WRITTEN_WITHIN, done).await;
        }
        self.known_trouble()
    }

    /// As [`Writer::trouble`], as of the last attempt.
    pub(super) fn known_trouble(&self) -> Option<AuditTrouble> {
        let state = self.state();
        let late = state.waits.map(|since| since.elapsed()).filter(|age| *age >= WRITTEN_WITHIN);
        late.map(|age| AuditTrouble::Late { seconds: age.as_secs() }).or(state.failed)
    }

    fn give(&self, entry: Option<AuditEntry>) -> Option<oneshot::Receiver<()>> {
        let (done, is_done) = oneshot::channel();
        match self.work.try_send(Work { entry, done }) {
            Ok(()) => Some(is_done),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

struct Thread {
    directory: PathBuf,
    state: Arc<Mutex<State>>,
    log: Option<Log>,
}

impl Thread {
    fn run(mut self, waiting: &Receiver<Work>) {
        while let Ok(Work { entry, done }) = waiting.recv() {
            lock(&self.state).waits = Some(Instant::now());
            let written = self.carry_out(entry);
            if let Err(error) = &written {
                // The next entry opens the log again.
                self.log = None;
                tracing::error!(%error, directory = %self.directory.display(), "the audit log cannot be written");
            }
            let failed = written.as_ref().err().map(AuditTrouble::from);
            *lock(&self.state) = State { failed, waits: None };
            // The caller may have given up.
            let _ = done.send(());
        }
    }

    fn carry_out(&mut self, entry: Option<AuditEntry>) -> io::Result<()> {
        let log = match &mut self.log {
            Some(log) => log,
            closed => closed.insert(Log::open(&self.directory)?),
        };
        entry.map_or(Ok(()), |entry| log.write(entry))
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Each statement leaves the contents consistent, even if its thread panics later.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::http::audit::log::{AuditFilter, example, last};

    #[tokio::test]
    async fn a_log_that_cannot_be_opened_is_reported_and_opened_when_possible() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("audit");
        // A file has the directory's name.
        fs::write(&directory, "").unwrap();
        let writer = Writer::start(&directory).unwrap();
        writer.write(example("login")).await;
        assert!(writer.trouble().await.is_some());
        fs::remove_file(&directory).unwrap();
        assert_eq!(writer.trouble().await, None);
        writer.write(example("login")).await;
        let wanted = AuditFilter { limit: 10, before: None, until: None };
        assert_eq!(last(&directory, wanted).unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_hanging_disk_delays_no_response() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("audit");
        fs::create_dir(&directory).unwrap();
        // Opening a FIFO blocks until a reader opens it.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.join("audit.jsonl"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let writer = Writer::start(&directory).unwrap();
        // On a busy machine the thread may start late.
        while writer.trouble().await.is_none() {
            let waits = tokio::time::timeout(5 * WRITTEN_WITHIN, writer.write(example("login")));
            waits.await.expect("an answer does not wait for the disk");
        }
        assert!(writer.trouble().await.is_some_and(|why| matches!(why, AuditTrouble::Late { .. })));
    }
}
