//! The load of a drill: reads and writes by all paths, whose data is checked, on a core of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use initiator::load::{self, Access, Config, LoadError, Pulse, Report, Until};
use initiator::{Lun, MultipathOptions, Options, Policy, Timeouts};
use rt::CoreId;
use rt::uring::{self, Running};

use super::DrillError;

/// Requests are so long: what databases and file systems mostly write.
const REQUEST_BYTES: u32 = 4096;

/// No drill takes so long: it is stopped.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How long requests wait when no node serves: a black-out is to be outlived.
const QUEUE_FOR: Duration = Duration::from_secs(120);

/// What the load is to be.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Where the volume is served.
    pub portals: Vec<SocketAddr>,
    /// The target.
    pub target: String,
    /// Requests under way for each portal.
    pub depth: usize,
    /// Of a hundred requests, so many are reads.
    pub read_percent: u8,
    /// How they are spread over the paths.
    pub policy: Policy,
    /// Seed of what is read and written.
    pub seed: u64,
}

/// A load that goes on.
pub struct Load {
    running: Running,
    pulse: Arc<Pulse>,
    over: Arc<AtomicBool>,
    result: mpsc::Receiver<Result<Report, LoadError>>,
}

impl Load {
    /// Begins.
    ///
    /// # Errors
    /// The core cannot be started. Whether the volume is reached is seen by the pulse.
    pub fn start(wanted: Wanted) -> Result<Load, DrillError> {
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
            span_bytes: None,
            verify: true,
            seed: wanted.seed,
            options: options(wanted.policy),
        };
        let over = Arc::new(AtomicBool::new(false));
        let start = Arc::new(Mutex::new(Some((config, Arc::clone(&pulse), Arc::clone(&over), done))));
        let core = uring::Config { processors: vec![0], pin: false, poll: Duration::ZERO };
        let running = Running::start(core, move |_: CoreId| {
            let start = start.lock().ok().and_then(|mut start| start.take());
            async move {
                if let Some((config, pulse, over, done)) = start {
                    let _ = done.send(load::run_shown(&config, || None, Some(pulse)).await);
                    over.store(true, Ordering::Relaxed);
                }
            }
        });
        Ok(Load { running: running.map_err(DrillError::Core)?, pulse, over, result })
    }

    /// It has ended by itself: something went wrong.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// How it goes.
    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Ends it, once all that was written has been read again.
    ///
    /// # Errors
    /// What went wrong first: a request, or what it read.
    pub fn stop(self) -> Result<Report, LoadError> {
        self.pulse.stop();
        self.running.join();
        match self.result.recv() {
            Ok(result) => result,
            Err(_) => unreachable!("a core that says nothing has panicked, and joining it says so"),
        }
    }
}

/// As a host does it that is set up for short stalls.
fn options(policy: Policy) -> MultipathOptions {
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
        // As dm-multipath does it: what was under way on a path that is lost is sent again at once. What an
        // earlier copy of a write could still do is for the volume's nodes to prevent, and the check of what
        // is read finds it.
        quiesce: Duration::ZERO,
        ..MultipathOptions::default()
    }
}
