//! The cores for one piece of work, from its start to its end.

use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rt::CoreId;
use rt::uring::{Config, Running};

use super::{Observer, Watch};
use crate::Error;

/// The number of cores and their processors.
pub(super) struct Cores(Config);

impl Cores {
    /// This many cores, pinned to the processors in turn if any are named.
    pub(super) fn new(count: usize, processors: Option<&[usize]>) -> Cores {
        let pin = processors.is_some_and(|processors| !processors.is_empty());
        let processor = |core| match processors {
            Some(processors) if pin => processors[core % processors.len()],
            _ => core,
        };
        // No polling: a client that polls would take the processor of a server on the same machine.
        Cores(Config { processors: (0..count).map(processor).collect(), pin, poll: Duration::ZERO })
    }
}

/// Runs `work` on core 0 and observes it.
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
    // The main future of every core is created on that core; only core 0 has work.
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
                // A core has panicked: joining it passes the panic on.
                running.join();
                unreachable!("core 0 has ended without a result and without a panic");
            }
        }
    }
}
