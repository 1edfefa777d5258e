//! Cores for one piece of work, from its start to its end.

use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rt::CoreId;
use rt::uring::{Config, Running};

use super::{Observer, Watch};
use crate::Error;

/// On how many cores, and where.
pub(super) struct Cores(Config);

impl Cores {
    /// So many cores, pinned to the processors in turn if there are any named.
    pub(super) fn new(count: usize, processors: Option<&[usize]>) -> Cores {
        let pin = processors.is_some_and(|processors| !processors.is_empty());
        let processor = |core| match processors {
            Some(processors) if pin => processors[core % processors.len()],
            _ => core,
        };
        // A client that polls would take the processor of the server beside it.
        Cores(Config { processors: (0..count).map(processor).collect(), pin, poll: Duration::ZERO })
    }
}

/// Runs `work` on core 0 and watches it.
pub(super) fn run_on<T, F>(
    cores: Cores,
    observer: &mut Observer,
    watch: Watch<'_>,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let (done, result) = mpsc::channel();
    let over = observer.gauge();
    // The main of every core is made on it; only core 0 has something to do.
    let work = Arc::new(Mutex::new(Some((work, done, over))));
    let running = Running::start(cores.0, move |core| {
        let work = match core {
            CoreId(0) => work.lock().ok().and_then(|mut work| work.take()),
            _ => None,
        };
        async move {
            if let Some((work, done, over)) = work {
                // The receiver waits until the end.
                let _ = done.send(work().await);
                over.enter(crate::Phase::Over);
            }
        }
    })?;
    let handle = running.handle();
    loop {
        let over = observer.look(watch, &handle);
        match result.try_recv() {
            Ok(result) => {
                running.join();
                return Ok(result);
            }
            Err(TryRecvError::Empty) if !over => {}
            Err(_) => {
                // A core has panicked: joining it says so.
                running.join();
                unreachable!("core 0 has ended without a result and without a panic");
            }
        }
    }
}
