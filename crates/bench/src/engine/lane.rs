//! A lane, one source of requests: a thread of DISKSPD, with its own sequence and its outstanding requests.
//!
//! A lane always ends. A request without an answer ends the lane after the run's timeout, whatever the target
//! does; a failure ends all lanes. The lane records requests that were answered, and counts those that were
//! under way when it ended.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Poll;
use std::time::Duration;

use base::{Buf, Instant, Rng};
use initiator::Pattern;
use rt::Task;
use rt::sync::{Receiver, Sender};

use super::gauge::Gauge;
use super::plan::Plan;
use crate::Workload;
use crate::arrivals::Arrivals;
use crate::content::Filler;
use crate::device::{Device, Failure, NoWay, Way};
use crate::ledger::{Claim, Ledger};
use crate::recorder::{Answered, Recorder, Window};
use crate::sequence::{Region, Sequence};

/// How often a lane checks whether an answer is overdue, or whether the run was stopped.
const GUARD_INTERVAL: Duration = Duration::from_millis(100);

/// What the lanes of one target share.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) way: Way,
    pub(super) region: Region,
    /// With `--verify`: what was written where.
    pub(super) ledger: Option<Arc<Ledger>>,
    /// The shared position of interlocked threads.
    pub(super) count: Arc<AtomicU64>,
}

/// Everything that a lane needs to start on its core.
pub(super) struct LaneStart {
    pub(super) plan: Arc<Plan>,
    pub(super) number: usize,
    pub(super) ground: Ground,
    pub(super) gauge: Arc<Gauge>,
}

/// The result of a lane.
pub(crate) struct LaneEnd {
    pub(crate) recorder: Recorder,
    /// The first failure, which ended the lane.
    pub(crate) loss: Option<Loss>,
    /// Reads and writes whose outcome is unknown.
    pub(crate) unanswered: [u64; 2],
    /// Reads that were compared with the expected data, and reads of blocks that this run has not written.
    pub(crate) checked: u64,
    pub(crate) unchecked: u64,
    /// Requests that were due and never sent.
    pub(crate) never_begun: u64,
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) at: Instant,
    /// The last answer before the failure.
    pub(crate) last_answer: Option<Instant>,
    pub(crate) place: usize,
    pub(crate) read: bool,
    pub(crate) offset: u64,
    pub(crate) failure: Failure,
}

struct Lane {
    start: LaneStart,
    devices: Vec<Device>,
    window: Window,
    sequence: RefCell<Sequence>,
    /// Decides between reads and writes.
    mix: RefCell<Rng>,
    /// When requests are due; with `None`, whenever one is answered.
    arrivals: Option<RefCell<Arrivals>>,
    recorder: RefCell<Recorder>,
    pattern: Pattern,
    /// The request of each worker.
    under_way: Vec<Cell<Option<UnderWay>>>,
    last_answer: Cell<Option<Instant>>,
    loss: RefCell<Option<Loss>>,
    unanswered: Cell<[u64; 2]>,
    checked: Cell<u64>,
    unchecked: Cell<u64>,
    never_begun: Cell<u64>,
}

#[derive(Clone, Copy)]
struct UnderWay {
    since: Instant,
    read: bool,
    offset: u64,
}

struct Request {
    read: bool,
    offset: u64,
    claim: Option<Claim>,
    /// When it was sent, or was due.
    began: Instant,
}

/// Opens the lane's devices, reports that, waits for the start signal and runs. `None` if it never started.
pub(super) async fn run(
    start: LaneStart,
    ready: Sender<Result<(), NoWay>>,
    go: Receiver<Window>,
) -> Option<LaneEnd> {
    let devices = match open(&start).await {
        Ok(devices) => devices,
        Err(error) => {
            ready.send(Err(error));
            return None;
        }
    };
    ready.send(Ok(()));
    let window = go.await.ok()?;
    let lane = Rc::new(Lane::new(start, devices, window));
    rt::sleep_until(window.start).await;
    let depth = lane.under_way.len();
    let mut workers: Vec<Task<()>> =
        (0..depth).map(|worker| rt::spawn(work(Rc::clone(&lane), worker))).collect();
    either(all(&mut workers), lane.guard()).await;
    lane.count_under_way();
    for worker in workers {
        worker.cancel().await;
    }
    let Ok(lane) = Rc::try_unwrap(lane).map_err(drop) else {
        unreachable!("the workers are gone, and nobody else knows the lane");
    };
    Some(lane.end().await)
}

async fn open(start: &LaneStart) -> Result<Vec<Device>, NoWay> {
    let mut devices = vec![Device::reach(&start.ground.way).await?];
    if matches!(start.ground.way, Way::Unit(_)) {
        for _ in 1..start.plan.sessions {
            devices.push(Device::reach(&start.ground.way).await?);
        }
    }
    Ok(devices)
}

impl Lane {
    fn new(start: LaneStart, devices: Vec<Device>, window: Window) -> Lane {
        let workload = &start.plan.workload;
        let (number, lanes) = (start.number, start.plan.lanes.len());
        let thread = start.plan.lanes[number].thread;
        let sequence = Sequence::new(workload, start.ground.region, thread, &start.ground.count);
        let depth = workload.depth as usize;
        // A different sequence from that of the offsets: which requests are writes must not depend on where
        // they go.
        let mix = Rng::new(!workload.seed.wrapping_add(number as u64));
        Lane {
            devices,
            window,
            sequence: RefCell::new(sequence.expect("a region has room for a request")),
            mix: RefCell::new(mix),
            arrivals: workload
                .rate
                .map(|rate| RefCell::new(Arrivals::even(window.start, rate, number, lanes))),
            recorder: RefCell::new(Recorder::new(window)),
            pattern: Pattern::new(start.plan.pattern),
            under_way: vec![Cell::new(None); depth],
            last_answer: Cell::default(),
            loss: RefCell::default(),
            unanswered: Cell::default(),
            checked: Cell::default(),
            unchecked: Cell::default(),
            never_begun: Cell::default(),
            start,
        }
    }

    /// The next request and its start time; `None` when the lane has ended. `now` need not be exact.
    async fn next(&self, now: Instant) -> Option<Request> {
        if self.start.gauge.is_stopped() {
            return None;
        }
        let began = match &self.arrivals {
            None => (now < self.window.until).then_some(now)?,
            Some(arrivals) => self.wait_for_turn(arrivals).await?,
        };
        let read = self.mix.borrow_mut().below(100) >= u64::from(self.start.plan.workload.write_percent);
        let (offset, claim) = self.choose(read);
        Some(Request { read, offset, claim, began })
    }

    /// Waits until the next request is due. When the lane is too far behind, it records all remaining
    /// requests as never sent, and ends.
    async fn wait_for_turn(&self, arrivals: &RefCell<Arrivals>) -> Option<Instant> {
        let next = || Some(arrivals.borrow_mut().next()).filter(|due| *due < self.window.until);
        let mut due = next()?;
        let now = rt::now();
        if now > self.window.until + self.start.plan.timeout {
            let writes_only = !self.start.plan.workload.reads();
            loop {
                self.never_begun.set(self.never_begun.get() + 1);
                self.recorder.borrow_mut().note_never_begun(!writes_only, now - due);
                due = next()?;
            }
        }
        if due > now {
            rt::sleep_until(due).await;
        }
        Some(due)
    }

    /// Chooses the offset of a request. With `--verify` it skips blocks that a conflicting request uses: it
    /// would be unknown what a read of them returns.
    fn choose(&self, read: bool) -> (u64, Option<Claim>) {
        let mut sequence = self.sequence.borrow_mut();
        loop {
            let offset = sequence.next();
            let Some(ledger) = &self.start.ground.ledger else { return (offset, None) };
            if let Some(claim) = ledger.claim(self.block_number(offset), read) {
                return (offset, Some(claim));
            }
        }
    }

    fn block_number(&self, offset: u64) -> u64 {
        (offset - self.start.ground.region.start) / u64::from(self.start.plan.workload.block)
    }

    async fn carry_out(&self, worker: usize, request: &Request, filler: &mut Filler) -> Result<(), Failure> {
        let device = &self.devices[worker % self.devices.len()];
        let Workload { block, write_through, .. } = self.start.plan.workload;
        if request.read {
            let data = device.read(request.offset, block).await?;
            if let (Some(claim), Some(ledger)) = (request.claim, &self.start.ground.ledger) {
                self.check(&data, request.offset, ledger.expected(claim))?;
            }
            return Ok(());
        }
        let Some(claim) = request.claim else {
            let data = filler.next();
            device.write(request.offset, data.clone(), write_through).await?;
            filler.give_back(data);
            return Ok(());
        };
        let mut data = Buf::uncleared(block as usize);
        self.pattern.fill(&mut data, request.offset, claim.write_number());
        device.write(request.offset, data.share(), write_through).await
    }

    fn check(&self, data: &[u8], offset: u64, expected: Option<u64>) -> Result<(), Failure> {
        let Some(number) = expected else {
            self.unchecked.set(self.unchecked.get() + 1);
            return Ok(());
        };
        self.checked.set(self.checked.get() + 1);
        self.pattern.check(data, offset, number).map_err(Failure::WrongData)
    }

    /// Records an answered request.
    fn note(&self, request: &Request, ended: Instant) {
        let bytes = u64::from(self.start.plan.workload.block);
        let answered = Answered { read: request.read, bytes, began: request.began, ended };
        self.recorder.borrow_mut().note(&answered, self.start.gauge.stopped_at());
        self.start.gauge.lane(self.start.number).add(request.read, bytes);
        self.last_answer.set(Some(ended));
        if let (Some(claim), Some(ledger)) = (request.claim, &self.start.ground.ledger) {
            ledger.release(self.block_number(request.offset), claim);
        }
    }

    /// Records the first failure, and ends the run.
    fn fail(&self, read: bool, offset: u64, failure: Failure) {
        let at = rt::now();
        self.start.gauge.stop(at);
        let place = self.start.plan.lanes[self.start.number].place;
        let last_answer = self.last_answer.get();
        self.loss.borrow_mut().get_or_insert(Loss { at, last_answer, place, read, offset, failure });
    }

    fn count_unanswered(&self, read: bool) {
        let mut unanswered = self.unanswered.get();
        unanswered[usize::from(!read)] += 1;
        self.unanswered.set(unanswered);
    }

    /// Ends when an answer is overdue, or when the run was stopped and nothing is under way.
    async fn guard(&self) {
        let timeout = self.start.plan.timeout;
        loop {
            rt::sleep(GUARD_INTERVAL).await;
            let now = rt::now();
            let oldest = self.under_way.iter().filter_map(Cell::get).min_by_key(|request| request.since);
            match oldest {
                Some(request) if now - request.since > timeout => {
                    // The request itself is counted with the others under way.
                    return self.fail(request.read, request.offset, Failure::Silent(timeout));
                }
                None if self.start.gauge.is_stopped() => return,
                _ => {}
            }
        }
    }

    /// Counts the requests under way as unanswered: nothing waits for them any more.
    fn count_under_way(&self) {
        for request in self.under_way.iter().filter_map(Cell::take) {
            self.count_unanswered(request.read);
        }
    }

    /// Closes the devices and returns the result.
    async fn end(self) -> LaneEnd {
        let loss = self.loss.into_inner();
        if loss.is_none() {
            for device in self.devices {
                device.close().await;
            }
        }
        LaneEnd {
            recorder: self.recorder.into_inner(),
            loss,
            unanswered: self.unanswered.get(),
            checked: self.checked.get(),
            unchecked: self.unchecked.get(),
            never_begun: self.never_begun.get(),
        }
    }
}

async fn work(lane: Rc<Lane>, worker: usize) {
    let workload = &lane.start.plan.workload;
    let seed = workload.seed ^ ((lane.start.number as u64) << 32 | worker as u64).wrapping_mul(0x9e37_79b9);
    let mut filler = Filler::new(workload.content, workload.block as usize, Rng::new(seed));
    let mut now = rt::now();
    while let Some(request) = lane.next(now).await {
        let Request { read, offset, .. } = request;
        let since = if lane.arrivals.is_some() { rt::now() } else { request.began };
        lane.under_way[worker].set(Some(UnderWay { since, read, offset }));
        let result = lane.carry_out(worker, &request, &mut filler).await;
        lane.under_way[worker].set(None);
        match result {
            Ok(()) => {
                now = rt::now();
                lane.note(&request, now);
            }
            Err(failure) => {
                if failure.is_unanswered() {
                    lane.count_unanswered(read);
                }
                return lane.fail(read, offset, failure);
            }
        }
    }
}

pub(super) async fn all(tasks: &mut [Task<()>]) {
    for task in tasks {
        task.await;
    }
}

/// Waits for the first of two futures, and drops the other.
pub(super) async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| {
        if one.as_mut().poll(context).is_ready() || other.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}
