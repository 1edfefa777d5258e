//! Waits with a limit, and until a signal asks for the end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use super::DrillError;

/// How often the condition is checked.
const LOOK: Duration = Duration::from_millis(20);

/// Waits that a signal ends.
pub struct Patience {
    over: Arc<AtomicBool>,
}

impl Patience {
    /// From now on SIGINT and SIGTERM end waits instead of the process, so that the caller can clean up.
    ///
    /// # Errors Signals cannot be received.
    pub fn until_a_signal() -> Result<Patience, DrillError> {
        let over = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(DrillError::Signals)?;
        let signals = {
            let _inside = runtime.enter();
            let both: io::Result<_> = signal(SignalKind::interrupt())
                .and_then(|interrupt| Ok((interrupt, signal(SignalKind::terminate())?)));
            both.map_err(DrillError::Signals)?
        };
        let told = Arc::clone(&over);
        // The thread ends with the process.
        thread::spawn(move || {
            let (mut interrupt, mut terminate) = signals;
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            told.store(true, Ordering::Relaxed);
        });
        Ok(Patience { over })
    }

    /// Waits for this time.
    ///
    /// # Errors
    /// [`DrillError::Interrupted`].
    pub fn pass(&self, time: Duration) -> Result<(), DrillError> {
        match self.wait(time, "", || false) {
            Err(DrillError::Late(..)) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Polls `done` until it returns true.
    ///
    /// # Errors
    /// [`DrillError::Late`], [`DrillError::Interrupted`].
    pub fn wait(
        &self,
        limit: Duration,
        what: &str,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), DrillError> {
        let end = Instant::now() + limit;
        while !done() {
            if self.over.load(Ordering::Relaxed) {
                return Err(DrillError::Interrupted);
            }
            if Instant::now() >= end {
                return Err(DrillError::Late(what.to_owned(), limit));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}
