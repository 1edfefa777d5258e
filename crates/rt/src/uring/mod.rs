//! The world of production: a thread and an io_uring a core.
mod stubs;
pub use stubs::{DetachedStream, Disk, Listener, Received, Stream};

/// How to run a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The processors to run on, one thread each; core `n` runs on `processors[n]`.
    pub processors: Vec<usize>,
    /// Whether to bind each thread to its processor.
    pub pin: bool,
    /// How long a core looks for new work before it sleeps, at most. Zero: it sleeps at once.
    pub poll: std::time::Duration,
}

/// A node could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel refuses io_uring.
    #[error(
        "io_uring is not permitted here ({0}): set the sysctl kernel.io_uring_disabled to 0, or, in a container, allow the io_uring system calls in its seccomp profile"
    )]
    NotPermitted(#[source] std::io::Error),
    /// The kernel has no io_uring, or one too old.
    #[error("this kernel's io_uring is too old ({0}): Linux 6.1 or newer is needed")]
    TooOld(#[source] std::io::Error),
    /// Everything else.
    #[error("cannot start the cores")]
    System(#[source] std::io::Error),
}

/// CPU time and turns of a core, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreStats {
    /// CPU time of the thread.
    pub cpu: std::time::Duration,
    /// Of it, time spent looking for work in vain.
    pub polling: std::time::Duration,
    /// Turns of the loop that found work.
    pub busy_turns: u64,
    /// Calls of io_uring_enter.
    pub enters: u64,
    /// Completions taken from the ring.
    pub completions: u64,
}

/// A running node.
pub struct Running;

impl Running {
    /// Starts a thread a core. Each runs `main(core)` there (made by the function, on that core); when core 0's main
    /// ends, the node stops.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start<F: Future<Output = ()> + 'static>(
        config: Config,
        main: impl Fn(crate::CoreId) -> F + Send + Clone + 'static,
    ) -> Result<Running, StartError> {
        let _ = (config, main);
        todo!()
    }
    /// Reaches the cores from other threads.
    pub fn handle(&self) -> crate::Handle {
        todo!()
    }
    /// What the cores have done so far, by core.
    pub fn stats(&self) -> Vec<CoreStats> {
        todo!()
    }
    /// Waits until core 0's main has ended and all threads have.
    pub fn join(self) {
        todo!()
    }
}
