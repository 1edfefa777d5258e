//! Starting and stopping the cores of a node.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use super::counters::{CoreStats, Counters};
use super::cycle::{Cycle, SinceBoot};
use super::doorbell::{Doorbell, Ring};
use super::driver::{self, Driver};
use super::idle::Idle;
use super::slice;
use crate::executor::{Core, CoreId, Handle, Remote, spawn};

/// How often a core tries again to get memory for its ring, and how long it pauses before.
const MEMORY_TRIES: u32 = 20;
const MEMORY_PAUSE: Duration = Duration::from_millis(100);

/// The settings for running a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The processors to run on, one thread each; core `n` runs on `processors[n]`.
    pub processors: Vec<usize>,
    /// Whether to bind each thread to its processor.
    pub pin: bool,
    /// The longest time that a core looks for new work before it sleeps. Zero: it sleeps at once.
    pub poll: Duration,
}

/// Why a node could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel refuses io_uring.
    #[error(
        "io_uring is not permitted here ({0}): set the sysctl kernel.io_uring_disabled to 0, or, in a container, allow the io_uring system calls in its seccomp profile"
    )]
    NotPermitted(#[source] io::Error),
    /// The kernel has no io_uring, or one too old.
    #[error("this kernel's io_uring is too old ({0}): Linux 6.1 or newer is required")]
    TooOld(#[source] io::Error),
    /// The limit on memory is too low.
    #[error(
        "not enough memory for the cores' rings ({0}): raise the limit on locked memory (ulimit -l, LimitMEMLOCK= of a systemd unit), or the memory limit of the container"
    )]
    Memory(#[source] io::Error),
    /// A thread could not be bound to its processor.
    #[error("cannot run on processor {processor}: choose processors that this process may use")]
    Processor {
        /// The processor's number.
        processor: usize,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Any other error.
    #[error("cannot start the cores")]
    System(#[source] io::Error),
}

impl StartError {
    pub(super) fn of_ring(error: io::Error) -> StartError {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => StartError::NotPermitted(error),
            // Some seccomp profiles report that the system call does not exist; the sysctl shows that it
            // does.
            Some(libc::ENOSYS) if std::fs::exists("/proc/sys/kernel/io_uring_disabled").unwrap_or(false) => {
                StartError::NotPermitted(error)
            }
            Some(libc::ENOSYS | libc::EINVAL) => StartError::TooOld(error),
            Some(libc::ENOMEM) => StartError::Memory(error),
            _ => StartError::System(error),
        }
    }
}

/// A running node. Dropping this does not stop the node.
pub struct Running {
    shared: Vec<CoreShared>,
    remotes: Arc<[Arc<Remote>]>,
    threads: Vec<JoinHandle<Result<(), Box<dyn Any + Send>>>>,
}

/// What the thread of a core shares with the others.
#[derive(Clone)]
struct CoreShared {
    doorbell: Arc<Doorbell>,
    counters: Arc<Counters>,
}

/// Stops the node; every core has one.
#[derive(Clone)]
struct Stop {
    stopping: Arc<AtomicBool>,
    doorbells: Arc<[Arc<Doorbell>]>,
}

impl Stop {
    fn now(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.doorbells.iter().for_each(|doorbell| doorbell.wake_always());
    }
}

/// The parameters of a core's thread.
struct Start {
    id: CoreId,
    processor: Option<usize>,
    poll: Duration,
    shared: CoreShared,
    remotes: Arc<[Arc<Remote>]>,
    stop: Stop,
    /// Reports whether the core has started.
    started: mpsc::Sender<Result<(), StartError>>,
}

impl Running {
    /// Starts one thread per core, which runs `main(core)`; the function is called on that core.
    ///
    /// When core 0's main ends, the node stops.
    ///
    /// # Panics
    /// Without a processor to run on, or with more than 65,535.
    pub fn start<F: Future<Output = ()> + 'static>(
        config: Config,
        main: impl Fn(CoreId) -> F + Send + Clone + 'static,
    ) -> Result<Running, StartError> {
        assert!(!config.processors.is_empty(), "a node has a core");
        let mut shared = Vec::new();
        for _ in &config.processors {
            let doorbell = Doorbell::new().map_err(StartError::System)?;
            shared.push(CoreShared { doorbell, counters: Arc::default() });
        }
        let remotes: Arc<[Arc<Remote>]> =
            shared.iter().map(|core| Remote::new(Box::new(Ring(Arc::clone(&core.doorbell))))).collect();
        let stop = Stop {
            stopping: Arc::default(),
            doorbells: shared.iter().map(|core| Arc::clone(&core.doorbell)).collect(),
        };
        let (started, starts) = mpsc::channel();
        let mut running = Running { shared, remotes, threads: Vec::new() };
        let mut result = Ok(());
        for (number, processor) in config.processors.iter().enumerate() {
            let start = Start {
                id: CoreId(u16::try_from(number).expect("fewer than 65,536 cores")),
                processor: config.pin.then_some(*processor),
                poll: config.poll,
                shared: running.shared[number].clone(),
                remotes: Arc::clone(&running.remotes),
                stop: stop.clone(),
                started: started.clone(),
            };
            let main = main.clone();
            let thread = std::thread::Builder::new().name(format!("core-{number}"));
            match thread.spawn(move || run_core(start, main)) {
                Ok(thread) => running.threads.push(thread),
                Err(error) => {
                    result = Err(StartError::System(error));
                    break;
                }
            }
        }
        drop(started);
        result = result.and_then(|()| starts.iter().collect());
        if let Err(error) = result {
            stop.now();
            running.join();
            return Err(error);
        }
        Ok(running)
    }

    /// Access to the cores from other threads.
    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.remotes))
    }

    /// What each core has done so far.
    pub fn stats(&self) -> Vec<CoreStats> {
        self.stats_reader()()
    }

    /// A function that reads [`Running::stats`] later, in any thread, and even after the node has been
    /// joined.
    pub fn stats_reader(&self) -> impl Fn() -> Vec<CoreStats> + Send + Sync + 'static {
        let counters: Vec<Arc<Counters>> =
            self.shared.iter().map(|core| Arc::clone(&core.counters)).collect();
        move || counters.iter().map(|core| core.read()).collect()
    }

    /// Waits until core 0's main and all threads have ended.
    ///
    /// # Panics
    /// If a core has panicked, with its panic.
    pub fn join(self) {
        let ends: Vec<_> = self.threads.into_iter().map(|thread| thread.join().and_then(|end| end)).collect();
        if let Some(panic) = ends.into_iter().find_map(Result::err) {
            resume_unwind(panic);
        }
    }
}

/// Makes the driver of this thread, and waits a little for memory.
///
/// The kernel frees the rings of a process that has ended a moment later, so a node that is restarted at once
/// may not get any yet.
fn driver_at_last() -> io::Result<Rc<Driver>> {
    let mut attempts = 0;
    loop {
        match Driver::new() {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && attempts < MEMORY_TRIES => {
                attempts += 1;
                std::thread::sleep(MEMORY_PAUSE);
            }
            made => return made,
        }
    }
}

/// The thread of a core. A panic stops the node and is passed to the caller of `join`.
fn run_core<F: Future<Output = ()> + 'static>(
    start: Start,
    main: impl Fn(CoreId) -> F,
) -> Result<(), Box<dyn Any + Send>> {
    block_signals();
    slice::ask_for_short();
    let core = Core::new(start.id, Arc::clone(&start.remotes), Rc::new(SinceBoot), seed());
    let ring = bind(start.processor).and_then(|()| driver_at_last().map_err(StartError::of_ring));
    let driver = match ring {
        Ok(driver) => driver,
        Err(error) => {
            core.remote().close();
            // The receiver exists until every core has reported.
            let _ = start.started.send(Err(error));
            return Ok(());
        }
    };
    driver.start_doorbell(start.shared.doorbell.event());
    driver::set_current(Some(Rc::clone(&driver)));
    start.shared.counters.start();
    let _ = start.started.send(Ok(()));
    drop(start.started);

    let entered = core.enter();
    let stop = start.stop.clone();
    let mut cycle = Cycle {
        core: Rc::clone(&core),
        driver: Rc::clone(&driver),
        doorbell: Arc::clone(&start.shared.doorbell),
        counters: Arc::clone(&start.shared.counters),
        stopping: Arc::clone(&start.stop.stopping),
        idle: Idle::new(start.poll),
        polling_ns: 0,
        busy_turns: 0,
    };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let id = core.id();
        let main = main(id);
        spawn(async move {
            main.await;
            if id == CoreId(0) {
                stop.now();
            }
        })
        .detach();
        cycle.run();
    }));
    start.stop.now();
    // Operations must complete before what they use is dropped: after the tasks, before the ring.
    let ended = catch_unwind(AssertUnwindSafe(|| {
        core.tear_down();
        driver.quiesce();
    }));
    driver::set_current(None);
    drop(entered);
    core.remote().close();
    start.shared.counters.finish();
    ran.and(ended)
}

/// Leaves signals to the other threads of the process, so that a core is not interrupted.
fn block_signals() {
    // SAFETY: the set is initialized by sigfillset before it is used, and only this thread's mask changes.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// Binds the current thread to `processor`, if one is given.
fn bind(processor: Option<usize>) -> Result<(), StartError> {
    let Some(processor) = processor else { return Ok(()) };
    let failed = |source| StartError::Processor { processor, source };
    if processor >= libc::CPU_SETSIZE as usize {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    // SAFETY: a set of zeros is empty and valid, and the number was checked.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result == 0 { Ok(()) } else { Err(failed(io::Error::last_os_error())) }
}

/// Fills `bytes` with random bytes from the system.
pub(crate) fn secret_bytes(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: the rest of the bytes is valid for writing.
        let count = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        // A signal may interrupt a long request; with valid memory there is no other failure (getrandom(2)).
        filled += usize::try_from(count).unwrap_or(0);
    }
}

fn seed() -> u64 {
    let mut bytes = [0; 8];
    secret_bytes(&mut bytes);
    u64::from_ne_bytes(bytes)
}
