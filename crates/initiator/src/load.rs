//! The load generator: many sessions, many commands at a time, from one core.
//!
//! Each session has `depth` workers; a worker sends a command, waits for its answer, notes the time and begins again.
//! What all workers of a session send while the core runs them goes out in one send.

mod blocks;
mod report;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Buf, Chain, Instant, Lba, Rng};

use crate::{Error, Lun, Options, Pattern, Session, WrongSector};
use blocks::{Blocks, Claim};
pub use report::{Direction, Report};

/// Where the next request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anywhere, aligned to the request's length.
    Random,
    /// Behind the last one; each session has its own part of the unit, and begins again at its end.
    Sequential,
}

/// When the run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so much time.
    Time(Duration),
    /// After so many requests.
    Requests(u64),
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the target is.
    pub portal: SocketAddr,
    /// TargetName.
    pub target: String,
    /// The unit.
    pub lun: Lun,
    /// Sessions, each of one connection.
    pub sessions: usize,
    /// Requests under way in each session.
    pub depth: usize,
    /// Bytes of a request: a multiple of the unit's block.
    pub request_bytes: u32,
    /// Of a hundred requests, so many are reads. Writes destroy what is on the unit.
    pub read_percent: u8,
    /// Where they go.
    pub access: Access,
    /// How long.
    pub until: Until,
    /// The part of the unit to use, from its start; `None`: all of it.
    pub span_bytes: Option<u64>,
    /// Whether writes bring data that knows its place and reads are checked against what was written before. Blocks that
    /// this run has not written are not checked.
    pub verify: bool,
    /// The same seed makes the same requests.
    pub seed: u64,
    /// How to log in.
    pub options: Options,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A session or a command failed.
    #[error(transparent)]
    Session(#[from] Error),
    /// A block does not hold what was written to it.
    #[error("wrong data: {0}")]
    WrongData(WrongSector),
    /// The configuration does not go together with the unit.
    #[error("{0}")]
    Config(&'static str),
}

/// Carries out a run on the current core. `cpu_time` tells the CPU time that the client has used so far, if the caller
/// can know.
///
/// # Errors
/// The first thing that went wrong; the run ends there.
pub async fn run(config: &Config, cpu_time: impl Fn() -> Option<Duration>) -> Result<Report, LoadError> {
    let mut sessions = Vec::new();
    for _ in 0..config.sessions.max(1) {
        let session = Session::connect(config.portal, &config.target, &config.options).await?;
        session.make_ready(config.lun).await?;
        sessions.push(Rc::new(session));
    }
    let run = Rc::new(Run::new(config, &sessions).await?);
    let (start, cpu_start) = (rt::now(), cpu_time());
    if let Until::Time(duration) = config.until {
        run.deadline.set(start + duration);
    }
    let mut workers = Vec::new();
    for (number, session) in sessions.iter().enumerate() {
        for _ in 0..config.depth.max(1) {
            workers.push(rt::spawn(work(Rc::clone(&run), Rc::clone(session), number)));
        }
    }
    for worker in workers {
        worker.await;
    }
    let elapsed = rt::now() - start;
    let client_cpu = cpu_time().zip(cpu_start).map(|(end, start)| end.saturating_sub(start));
    for session in sessions {
        // All requests are answered: how the session ends does not matter.
        let _ = session.logout().await;
    }
    if let Some(error) = run.error.take() {
        return Err(error);
    }
    let [reads, writes] = run.directions.take();
    Ok(Report { elapsed, client_cpu, reads, writes })
}

/// What all workers have in common.
struct Run {
    lun: Lun,
    request_bytes: u32,
    read_percent: u8,
    access: Access,
    block_size: BlockSize,
    /// Requests' worth of space in the part of the unit that is used, and of it for each session.
    slots: u64,
    slots_a_session: u64,
    /// The next slot of each session, for sequential access.
    next: Vec<Cell<u64>>,
    rng: RefCell<Rng>,
    deadline: Cell<Instant>,
    /// Requests that may still be started.
    left: Cell<u64>,
    /// What was written where; without `verify` nobody cares.
    blocks: Option<RefCell<Blocks>>,
    pattern: Pattern,
    /// What writes bring without `verify`.
    data: Chain,
    directions: RefCell<[Direction; 2]>,
    error: Cell<Option<LoadError>>,
}

/// One request.
struct Request {
    slot: u64,
    read: bool,
    claim: Claim,
}

impl Run {
    async fn new(config: &Config, sessions: &[Rc<Session>]) -> Result<Run, LoadError> {
        let session = sessions.first().ok_or(LoadError::Config("a run needs a session"))?;
        let capacity = session.read_capacity(config.lun).await?;
        let block = capacity.block_size.bytes();
        let request_bytes = config.request_bytes;
        if request_bytes == 0 || !request_bytes.is_multiple_of(block) {
            return Err(LoadError::Config("the length of a request is no multiple of the unit's block"));
        }
        let size = (capacity.blocks * capacity.block_size).0;
        let slots = config.span_bytes.unwrap_or(size).min(size) / u64::from(request_bytes);
        let count = sessions.len() as u64;
        let verified = config.verify && slots < 4 * count * config.depth.max(1) as u64;
        if slots < count || verified {
            return Err(LoadError::Config("the unit is too small for so many requests at a time"));
        }
        let left = match config.until {
            Until::Requests(requests) => requests,
            Until::Time(_) => u64::MAX,
        };
        let mut rng = Rng::new(config.seed);
        let mut data = Buf::zeroed(request_bytes as usize);
        rng.fill(&mut data);
        Ok(Run {
            lun: config.lun,
            request_bytes,
            read_percent: config.read_percent.min(100),
            access: config.access,
            block_size: capacity.block_size,
            slots,
            slots_a_session: slots / count,
            next: vec![Cell::new(0); sessions.len()],
            pattern: Pattern::new(rng.next()),
            rng: RefCell::new(rng),
            deadline: Cell::new(Instant(u64::MAX)),
            left: Cell::new(left),
            blocks: config.verify.then(|| RefCell::new(Blocks::new(slots))),
            data: data.into(),
            directions: RefCell::default(),
            error: Cell::new(None),
        })
    }

    /// The next request of a session; `None` when the run is over.
    fn next(&self, session: usize, now: Instant) -> Option<Request> {
        if now >= self.deadline.get() || self.left.get() == 0 {
            return None;
        }
        self.left.set(self.left.get() - 1);
        let mut rng = self.rng.borrow_mut();
        let read = rng.below(100) < u64::from(self.read_percent);
        loop {
            let slot = match self.access {
                Access::Random => rng.below(self.slots),
                Access::Sequential => {
                    let next = &self.next[session];
                    let slot = next.get();
                    next.set((slot + 1) % self.slots_a_session);
                    session as u64 * self.slots_a_session + slot
                }
            };
            // A block that is being written is left alone: what a read of it gives is not known.
            let claim = match &self.blocks {
                None => Some(Claim::default()),
                Some(blocks) => blocks.borrow_mut().claim(slot, read),
            };
            if let Some(claim) = claim {
                return Some(Request { slot, read, claim });
            }
        }
    }

    async fn carry_out(&self, session: &Session, request: &Request) -> Result<(), LoadError> {
        let size = self.block_size;
        let blocks = u64::from(self.request_bytes >> size.shift());
        let lba = Lba(request.slot * blocks);
        let offset = (lba * size).0;
        if request.read {
            let data = session.read(self.lun, lba, BlockCount(blocks), size).await?;
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
            session.write(self.lun, lba, data, size).await?;
        }
        if let Some(blocks) = &self.blocks {
            blocks.borrow_mut().release(request.slot, request.claim);
        }
        Ok(())
    }

    /// The first error counts, and ends the run.
    fn fail(&self, error: LoadError) {
        self.left.set(0);
        let first = self.error.take().unwrap_or(error);
        self.error.set(Some(first));
    }
}

async fn work(run: Rc<Run>, session: Rc<Session>, number: usize) {
    let mut now = rt::now();
    while let Some(request) = run.next(number, now) {
        let start = now;
        if let Err(error) = run.carry_out(&session, &request).await {
            return run.fail(error);
        }
        now = rt::now();
        run.directions.borrow_mut()[usize::from(!request.read)].note(now - start, run.request_bytes);
    }
}
