//! Waits with a limit, and until a signal asks for the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use terms::signals;

use super::DrillError;

/// How often the condition is checked.
const LOOK: Duration = Duration::from_millis(20);

/// Waits that a signal ends.
pub struct Waiter {
    over: Arc<AtomicBool>,
}

impl Waiter {
    /// From now on SIGINT and SIGTERM end waits instead of the process, so that the caller can clean up.
    pub fn until_a_signal() -> Result<Waiter, DrillError> {
        Ok(Waiter { over: signals::flag(signals::END).map_err(DrillError::Signals)? })
    }

    /// Waits for this time.
    pub fn pass(&self, time: Duration) -> Result<(), DrillError> {
        match self.wait(time, "", || false) {
            Err(DrillError::Late(..)) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Polls `done` until it returns true.
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
