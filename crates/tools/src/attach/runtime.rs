//! The core that has the unit: the file or block device sends its requests there.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use initiator::multipath::OpenError;
use initiator::{Multipath, MultipathOptions, Search};
use rt::sync::{Receiver, Sender, oneshot};
use rt::uring::{Config, Running};
use rt::{CoreId, Handle};

use super::AttachError;
use super::disk::{Disk, Geometry};

/// How long the end may wait for a lost target before it is left without a logout.
const CLOSE_LIMIT: Duration = Duration::from_secs(15);

/// The core that has the unit.
pub(super) struct Core {
    running: Running,
    geometry: Geometry,
    stop: Sender<()>,
    /// Receives the result of the final flush.
    closed: mpsc::Receiver<Result<(), AttachError>>,
}

/// What the core needs to start.
struct Start {
    search: Search,
    options: MultipathOptions,
    opened: mpsc::Sender<Result<Geometry, OpenError>>,
    stop: Receiver<()>,
    closed: mpsc::Sender<Result<(), AttachError>>,
}

/// The disk, until it is closed.
struct Served(RefCell<Option<Rc<Disk>>>);

/// The disk, if this core has it and it is not closed.
pub(super) fn disk() -> Option<Rc<Disk>> {
    rt::local::<Served>()?.0.borrow().clone()
}

impl Core {
    /// Starts a core and opens the unit on it.
    pub(super) fn start(search: Search, options: MultipathOptions) -> Result<Core, AttachError> {
        let (opened, opening) = mpsc::channel();
        let (stop, stopping) = oneshot();
        let (close, closed) = mpsc::channel();
        let start = Start { search, options, opened, stop: stopping, closed: close };
        // The runtime may call the function for several cores; here it calls it once.
        let start = Arc::new(Mutex::new(Some(start)));
        let config = Config { processors: vec![0], pin: false, poll: Duration::ZERO };
        let running = Running::start(config, move |_: CoreId| {
            let start = start.lock().ok().and_then(|mut start| start.take());
            async move {
                if let Some(start) = start {
                    start.carry_out().await;
                }
            }
        })?;
        match opening.recv() {
            Ok(Ok(geometry)) => Ok(Core { running, geometry, stop, closed }),
            Ok(Err(error)) => {
                running.join();
                Err(error.into())
            }
            Err(_) => {
                running.join();
                unreachable!("a core that says nothing has panicked, and joining it says so")
            }
        }
    }

    /// The unit's sizes when it was opened.
    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(super) fn handle(&self) -> Handle {
        self.running.handle()
    }

    /// Runs `function` with the disk and waits for the result; `None`: the core is gone.
    pub(super) fn ask<T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        function: impl FnOnce(Rc<Disk>) -> F + Send + 'static,
    ) -> Option<T> {
        let (told, result) = mpsc::channel();
        drop(self.handle().call(CoreId(0), move || async move {
            if let Some(disk) = disk() {
                // The caller waits below.
                let _ = told.send(function(disk).await);
            }
        }));
        result.recv().ok()
    }

    /// Flushes the unit and logs out.
    pub(super) fn stop(self) -> Result<(), AttachError> {
        self.stop.send(());
        self.running.join();
        self.closed.recv().unwrap_or(Ok(()))
    }

    /// Like [`Core::stop`], but leaves the core's thread running until the process ends.
    ///
    /// The thread cannot end as long as the kernel may still have requests for it.
    pub(super) fn leave(self) -> Result<(), AttachError> {
        self.stop.send(());
        self.closed.recv().unwrap_or(Err(AttachError::Crashed))
    }
}

impl Start {
    async fn carry_out(self) {
        let unit = match Multipath::open(&self.search, self.options).await {
            Ok(unit) => unit,
            // `start` waits for this.
            Err(error) => return drop(self.opened.send(Err(error))),
        };
        let disk = Rc::new(Disk::new(unit).await);
        let served = Rc::new(Served(RefCell::new(Some(Rc::clone(&disk)))));
        rt::set_local(Rc::clone(&served));
        let _ = self.opened.send(Ok(disk.geometry()));
        let _ = self.stop.await;
        let flushed = match rt::timeout(CLOSE_LIMIT, disk.flush()).await {
            Ok(result) => result.map_err(|error| AttachError::Flush(error.to_string())),
            Err(_) => Err(AttachError::Flush(format!("no answer within {} s", CLOSE_LIMIT.as_secs()))),
        };
        served.0.take();
        // Not closed if a request still waits for the unit.
        if let Some(disk) = Rc::into_inner(disk) {
            // A target that does not respond in time is left without a logout.
            let _ = rt::timeout(CLOSE_LIMIT, disk.close()).await;
        }
        let _ = self.closed.send(flushed);
    }
}
