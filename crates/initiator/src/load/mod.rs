//! The load generator: many concurrent commands to one unit, over all paths to it, from one core.
//!
//! There are `depth` workers for each session. A worker sends a command, waits for the answer, records the
//! latency, and starts again. Everything that the workers send over one session before the core waits leaves
//! in one send.

mod blocks;
mod pulse;
mod report;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Buf, Chain, Instant, Lba, Rng};

use crate::multipath::{Failure, OpenError};
use crate::{Lun, Multipath, MultipathOptions, Pattern, Search, UnitSelector, WrongSector};
use blocks::{Blocks, Claim};
pub use pulse::{Pulse, Stall};
pub use report::{Direction, Report};

/// How often path events are passed to the pulse.
const EVENTS_EVERY: Duration = Duration::from_millis(20);

/// After this time, a write for which there was no space is sent again.
const SPACE_AGAIN: Duration = Duration::from_millis(100);

/// Where the next request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anywhere, aligned to the request's length.
    Random,
    /// Behind the previous one. The unit is divided into as many parts as there are sessions; each session
    /// starts again at the end of its part.
    Sequential,
}

/// When the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this time.
    Time(Duration),
    /// After this many requests.
    Requests(u64),
}

/// Configuration of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The target's portals; all of them are used.
    pub portals: Vec<SocketAddr>,
    /// TargetName.
    pub target: String,
    /// The unit.
    pub lun: Lun,
    /// Requests under way for each session.
    pub depth: usize,
    /// Bytes of a request: a multiple of the unit's block size.
    pub request_bytes: u32,
    /// Percentage of reads. Writes destroy the data on the unit.
    pub read_percent: u8,
    /// Where requests go.
    pub access: Access,
    /// When the run ends.
    pub until: Until,
    /// The part of the unit to use, from its start; `None` means all of it.
    pub span_bytes: Option<u64>,
    /// Whether to check data.
    ///
    /// Writes then carry data that identifies its place, reads are checked against what was written before,
    /// and at the end all that was written is read once more. Blocks that this run has not written are not
    /// checked.
    pub verify: bool,
    /// Whether a write for which the unit has no space is sent again until there is some, as a hypervisor
    /// does that pauses its virtual machine. Its worker reads meanwhile. Otherwise that ends the run.
    pub waits_for_space: bool,
    /// The same seed produces the same requests.
    pub seed: u64,
    /// How to use the paths, including the number of sessions at each portal.
    pub options: MultipathOptions,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The unit could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A command failed.
    #[error(transparent)]
    Command(#[from] Failure),
    /// A block does not hold what was written to it.
    #[error("wrong data: {0}")]
    WrongData(WrongSector),
    /// The configuration does not fit the unit.
    #[error("{0}")]
    Config(&'static str),
}

impl LoadError {
    fn is_out_of_space(&self) -> bool {
        matches!(self, LoadError::Command(failure) if failure.is_out_of_space())
    }
}

/// Executes a run on the current core.
///
/// `cpu_time` returns the CPU time that the client has used so far, if the caller knows it.
///
/// # Errors
/// The first error; the run ends there.
pub async fn run(config: &Config, cpu_time: impl Fn() -> Option<Duration>) -> Result<Report, LoadError> {
    run_shown(config, cpu_time, None).await
}

/// Like [`run`], and reports progress through the pulse, which can also end the run.
pub async fn run_shown(
    config: &Config,
    cpu_time: impl Fn() -> Option<Duration>,
    pulse: Option<Arc<Pulse>>,
) -> Result<Report, LoadError> {
    let search = Search {
        portals: config.portals.clone(),
        target: Some(config.target.clone()),
        unit: UnitSelector::Lun(config.lun),
        discover: false,
    };
    let unit = Rc::new(Multipath::open(&search, config.options.clone()).await?);
    let streams = unit.paths().len();
    let run = Rc::new(Run::new(config, &unit, streams, pulse.clone())?);
    let _events = pulse.map(|pulse| {
        let unit = Rc::downgrade(&unit);
        rt::spawn(tell_events(unit, pulse))
    });
    let (start, cpu_start) = (rt::now(), cpu_time());
    if let Until::Time(duration) = config.until {
        run.deadline.set(start + duration);
    }
    if let Some(pulse) = &run.pulse {
        pulse.begin(start);
    }
    let mut workers = Vec::new();
    for stream in 0..streams {
        for _ in 0..config.depth.max(1) {
            workers.push(rt::spawn(work(Rc::clone(&run), Rc::clone(&unit), stream)));
        }
    }
    for worker in workers {
        worker.await;
    }
    let elapsed = rt::now() - start;
    let client_cpu = cpu_time().zip(cpu_start).map(|(end, start)| end.saturating_sub(start));
    let readers =
        (0..streams * config.depth.max(1)).map(|_| rt::spawn(read_again(Rc::clone(&run), Rc::clone(&unit))));
    let readers: Vec<_> = readers.collect();
    for reader in readers {
        reader.await;
    }
    if let Some(unit) = Rc::into_inner(unit) {
        unit.close().await;
    }
    if let Some(error) = run.error.take() {
        return Err(error);
    }
    let [reads, writes] = run.directions.take();
    Ok(Report { elapsed, client_cpu, reads, writes })
}

/// State that all workers share.
struct Run {
    request_bytes: u32,
    read_percent: u8,
    access: Access,
    block_size: BlockSize,
    /// The size of the used part of the unit, in requests; and the same for each stream.
    slots: u64,
    slots_a_stream: u64,
    /// The next slot of each stream, for sequential access.
    next: Vec<Cell<u64>>,
    rng: RefCell<Rng>,
    deadline: Cell<Instant>,
    /// Requests that may still be started.
    left: Cell<u64>,
    /// What was written where; `None` without `verify`.
    blocks: Option<RefCell<Blocks>>,
    pattern: Pattern,
    waits_for_space: bool,
    /// The data of writes without `verify`.
    data: Chain,
    directions: RefCell<[Direction; 2]>,
    /// The next slot of the final read.
    next_again: Cell<u64>,
    pulse: Option<Arc<Pulse>>,
    has_failed: Cell<bool>,
    error: Cell<Option<LoadError>>,
}

struct Request {
    slot: u64,
    read: bool,
    claim: Claim,
}

impl Run {
    fn new(
        config: &Config,
        unit: &Multipath,
        streams: usize,
        pulse: Option<Arc<Pulse>>,
    ) -> Result<Run, LoadError> {
        let capacity = unit.capacity();
        let block = capacity.block_size.bytes();
        let request_bytes = config.request_bytes;
        if request_bytes == 0 || !request_bytes.is_multiple_of(block) {
            return Err(LoadError::Config("the request size is not a multiple of the LUN's block size"));
        }
        let size = (capacity.blocks * capacity.block_size).0;
        let slots = config.span_bytes.unwrap_or(size).min(size) / u64::from(request_bytes);
        let count = streams as u64;
        let verified = config.verify && slots < 4 * count * config.depth.max(1) as u64;
        if slots < count || verified {
            return Err(LoadError::Config("the LUN is too small for this many outstanding requests"));
        }
        let left = match config.until {
            Until::Requests(requests) => requests,
            Until::Time(_) => u64::MAX,
        };
        let mut rng = Rng::new(config.seed);
        let mut data = Buf::zeroed(request_bytes as usize);
        rng.fill(&mut data);
        Ok(Run {
            request_bytes,
            read_percent: config.read_percent.min(100),
            access: config.access,
            block_size: capacity.block_size,
            slots,
            slots_a_stream: slots / count,
            next: vec![Cell::new(0); streams],
            pattern: Pattern::new(rng.next()),
            rng: RefCell::new(rng),
            deadline: Cell::new(Instant(u64::MAX)),
            left: Cell::new(left),
            waits_for_space: config.waits_for_space,
            blocks: config.verify.then(|| RefCell::new(Blocks::new(slots))),
            data: data.into(),
            directions: RefCell::default(),
            next_again: Cell::new(0),
            pulse,
            has_failed: Cell::new(false),
            error: Cell::new(None),
        })
    }

    /// Whether no further request is started.
    fn is_over(&self, now: Instant) -> bool {
        let is_stopped = self.pulse.as_ref().is_some_and(|pulse| pulse.is_stopped());
        now >= self.deadline.get() || self.left.get() == 0 || is_stopped
    }

    /// The next request of a stream; `None` when the run has ended. It is a read if a write of this worker
    /// waits for space.
    fn next(&self, stream: usize, now: Instant, waits: bool) -> Option<Request> {
        if self.is_over(now) {
            return None;
        }
        self.left.set(self.left.get() - 1);
        let mut rng = self.rng.borrow_mut();
        let read = waits || rng.below(100) < u64::from(self.read_percent);
        loop {
            let slot = match self.access {
                Access::Random => rng.below(self.slots),
                Access::Sequential => {
                    let next = &self.next[stream];
                    let slot = next.get();
                    next.set((slot + 1) % self.slots_a_stream);
                    stream as u64 * self.slots_a_stream + slot
                }
            };
            // Skip a block that is being written: it is not known which data a read of it returns.
            let claim = match &self.blocks {
                None => Some(Claim::default()),
                Some(blocks) => blocks.borrow_mut().claim(slot, read),
            };
            if let Some(claim) = claim {
                return Some(Request { slot, read, claim });
            }
        }
    }

    async fn carry_out(&self, unit: &Multipath, request: &Request) -> Result<(), LoadError> {
        let size = self.block_size;
        let blocks = u64::from(self.request_bytes >> size.shift());
        let lba = Lba(request.slot * blocks);
        let offset = (lba * size).0;
        if request.read {
            let data = unit.read(lba, BlockCount(blocks)).await?;
            match request.claim.written() {
                Some(write) if self.blocks.is_some() => {
                    self.pattern.check(&data, offset, write).map_err(LoadError::WrongData)?;
                }
                _ => {}
            }
        } else {
            let data = if self.blocks.is_some() {
                let mut data = Buf::uncleared(self.request_bytes as usize);
                self.pattern.fill(&mut data, offset, request.claim.write());
                data.into()
            } else {
                self.data.clone()
            };
            unit.write(lba, data).await?;
        }
        if let Some(blocks) = &self.blocks {
            blocks.borrow_mut().release(request.slot, request.claim);
        }
        Ok(())
    }

    /// The next request of the final read; `None` when all known blocks have been read.
    fn next_again(&self) -> Option<Request> {
        loop {
            let slot = self.next_again.get();
            if slot == self.slots || self.has_failed.get() {
                return None;
            }
            self.next_again.set(slot + 1);
            let claim = self.blocks.as_ref()?.borrow_mut().claim(slot, true)?;
            if claim.written().is_some() {
                return Some(Request { slot, read: true, claim });
            }
        }
    }

    /// Records the first error, and ends the run.
    fn fail(&self, error: LoadError) {
        self.left.set(0);
        self.has_failed.set(true);
        let first = self.error.take().unwrap_or(error);
        self.error.set(Some(first));
    }
}

async fn work(run: Rc<Run>, unit: Rc<Multipath>, stream: usize) {
    let mut now = rt::now();
    // A write for which there was no space, and when it is sent again: at the end of the run at the latest.
    let mut waiting: Option<(Request, Instant)> = None;
    loop {
        let due = waiting.take_if(|(_, at)| now >= *at || run.is_over(now));
        let request = match due {
            Some((write, _)) => write,
            None => match run.next(stream, now, waiting.is_some()) {
                Some(request) => request,
                None if waiting.is_some() => continue,
                None => return,
            },
        };
        let start = now;
        let result = run.carry_out(&unit, &request).await;
        now = rt::now();
        match result {
            Ok(()) => {}
            Err(error) if run.waits_for_space && error.is_out_of_space() && !run.is_over(now) => {
                if let Some(pulse) = &run.pulse {
                    pulse.note_refused(start, now);
                }
                waiting = Some((request, now + SPACE_AGAIN));
                continue;
            }
            Err(error) => return run.fail(error),
        }
        run.directions.borrow_mut()[usize::from(!request.read)].note(now - start, run.request_bytes);
        if let Some(pulse) = &run.pulse {
            pulse.note(start, now);
        }
    }
}

/// Reads all that was written, if `verify` recorded it.
async fn read_again(run: Rc<Run>, unit: Rc<Multipath>) {
    while let Some(request) = run.next_again() {
        if let Err(error) = run.carry_out(&unit, &request).await {
            return run.fail(error);
        }
    }
}

/// Passes path events to the pulse, as long as the unit is open.
async fn tell_events(unit: Weak<Multipath>, pulse: Arc<Pulse>) {
    loop {
        let Some(unit) = unit.upgrade() else { return };
        pulse.note_events(unit.events());
        drop(unit);
        rt::sleep(EVENTS_EVERY).await;
    }
}
