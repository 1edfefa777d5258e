//! The load of a drill: reads and writes through all paths, with verified data, on a core of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use initiator::load::{self, Access, Config, LoadError, Pulse, Report, Until};
use initiator::{Lun, MultipathOptions, Options, Policy, Timeouts};
use rt::CoreId;
use rt::uring::{self, Running};

use super::DrillError;

/// The length of requests, typical for databases and file systems.
const REQUEST_BYTES: u32 = 4096;

/// Longer than any drill: the load is stopped explicitly.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How long requests wait if no node serves; long enough for the loss of all nodes.
const QUEUE_FOR: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub struct LoadSpec {
    pub portals: Vec<SocketAddr>,
    pub target: String,
    /// Requests in progress per portal.
    pub depth: usize,
    pub read_percent: u8,
    /// The part of the volume to use, from its start; `None`: all of it.
    pub span_bytes: Option<u64>,
    /// Whether writes wait for space.
    pub waits_for_space: bool,
    /// How requests are spread over the paths.
    pub policy: Policy,
    /// The seed of offsets and data.
    pub seed: u64,
}

pub struct Load {
    running: Running,
    pulse: Arc<Pulse>,
    over: Arc<AtomicBool>,
    result: mpsc::Receiver<Result<Report, LoadError>>,
}

impl Load {
    /// Starts the load.
    ///
    /// # Errors
    /// The core cannot be started. Whether the volume is reached, the pulse shows.
    pub fn start(wanted: LoadSpec) -> Result<Load, DrillError> {
        let pulse = Arc::new(Pulse::default());
        let (done, result) = mpsc::channel();
        let config = Config {
            portals: wanted.portals,
            target: wanted.target,
            lun: Lun(0),
            depth: wanted.depth,
            request_bytes: REQUEST_BYTES,
            read_percent: wanted.read_percent,
            access: Access::Random,
            until: Until::Time(LONGEST),
            span_bytes: wanted.span_bytes,
            verify: true,
            waits_for_space: wanted.waits_for_space,
            seed: wanted.seed,
            options: options(wanted.policy),
        };
        let over = Arc::new(AtomicBool::new(false));
        let (shown, ended) = (Arc::clone(&pulse), Arc::clone(&over));
        let running = on_a_core(move || async move {
            let _ = done.send(load::run_shown(&config, || None, Some(shown)).await);
            ended.store(true, Ordering::Relaxed);
        })?;
        Ok(Load { running, pulse, over, result })
    }

    /// Whether it has ended on its own, after an error.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Stops the load, after it has read back and verified all that it wrote.
    ///
    /// # Errors
    /// The first error: a request failed, or returned wrong data.
    pub fn stop(self) -> Result<Report, LoadError> {
        self.pulse.stop();
        self.running.join();
        match self.result.recv() {
            Ok(result) => result,
            Err(_) => unreachable!("a core that says nothing has panicked, and joining it says so"),
        }
    }
}

/// Does `work` on a core of its own.
pub fn on_a_core<F: Future<Output = ()> + 'static>(
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<Running, DrillError> {
    let core = uring::Config { processors: vec![0], pin: false, poll: Duration::ZERO };
    let work = Arc::new(Mutex::new(Some(work)));
    let running = Running::start(core, move |_: CoreId| {
        let work = work.lock().ok().and_then(|mut work| work.take());
        async move {
            if let Some(work) = work {
                work().await;
            }
        }
    });
    running.map_err(DrillError::Core)
}

/// The options of a host that is configured for short stalls.
pub fn options(policy: Policy) -> MultipathOptions {
    let timeouts = Timeouts {
        login: Duration::from_secs(2),
        ping_after: Duration::from_millis(500),
        ping_deadline: Duration::from_millis(500),
        ..Timeouts::default()
    };
    MultipathOptions {
        login: Options { timeouts, ..Options::default() },
        policy,
        queue_for: QUEUE_FOR,
        // Like dm-multipath: requests in progress on a lost path are sent again at once. The volume's nodes
        // must keep an earlier copy of a write from taking effect later; the verification of reads detects it
        // if they do not.
        quiesce: Duration::ZERO,
        ..MultipathOptions::default()
    }
}
