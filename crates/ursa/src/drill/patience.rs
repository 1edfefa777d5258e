//! Waiting: for something, not for ever, and not after somebody has said that it is enough.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use super::DrillError;

/// How often it is looked whether what is waited for has happened.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until a signal asks for the end.
pub struct Patience {
    over: Arc<AtomicBool>,
}

impl Patience {
    /// From now on SIGINT and SIGTERM end waiting instead of the process, so that whoever waits can clear up.
    ///
    /// # Errors
    /// Signals cannot be waited for.
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
        // It ends with the process.
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

    /// Lets so much time pass.
    ///
    /// # Errors
    /// [`DrillError::Interrupted`].
    pub fn pass(&self, time: Duration) -> Result<(), DrillError> {
        match self.wait(time, "", || false) {
            Err(DrillError::Late(..)) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Looks again and again until it is done.
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
