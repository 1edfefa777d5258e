//! Tasks of one core: the ready ones, messages from other cores, and timers.
//!
//! A [`Core`] does not know io_uring or the simulator. A world creates cores, enters one, lets it run what is
//! ready, and sleeps (or advances its clock) when nothing is.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use async_task::Runnable;
use base::{Instant, Rng};
use slab::Slab;

use crate::stops::Stops;
use crate::sync::{self, oneshot};
use crate::timer::Timers;

/// The number of a core within its node, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u16);

base::shows!(Display for CoreId, |it| "core {}", it.0);

/// A spawned task. Dropping it cancels the task; `detach` lets it run on its own; awaiting it returns its
/// result.
pub type Task<T> = async_task::Task<T>;

/// A request to a core from another thread or core.
enum Message {
    Run(Runnable),
    Call(Box<dyn FnOnce() + Send>),
}

/// How a world learns that a core has a message.
pub(crate) trait Doorbell: Send + Sync {
    /// Called after a message was queued, unless it can wait, from any thread.
    fn ring(&self);
}

/// The part of a core that other threads may use.
pub(crate) struct Remote {
    inbox: Mutex<Inbox>,
    /// Whether the inbox has messages. A core that is awake reads this without the lock, since it will check
    /// again.
    mail: AtomicBool,
    doorbell: Box<dyn Doorbell>,
}

#[derive(Default)]
struct Inbox {
    messages: VecDeque<Message>,
    /// The core is gone: messages are dropped.
    closed: bool,
}

impl Remote {
    pub(crate) fn new(doorbell: Box<dyn Doorbell>) -> Arc<Remote> {
        Arc::new(Remote { inbox: Mutex::default(), mail: AtomicBool::new(false), doorbell })
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().expect("no code panics while it holds the inbox")
    }

    fn push(&self, message: Message) {
        if self.leave(message) {
            self.doorbell.ring();
        }
    }

    /// Queues a message, and does not wake the core; returns whether the core is still there.
    fn leave(&self, message: Message) -> bool {
        let mut inbox = self.lock();
        if inbox.closed {
            // Dropping the message may run any code, so it happens without the lock.
            drop(inbox);
            drop(message);
            return false;
        }
        inbox.messages.push_back(message);
        self.mail.store(true, Ordering::Release);
        true
    }

    /// Whether a message waits. A world checks this again after it has announced that it will sleep.
    pub(crate) fn has_messages(&self) -> bool {
        !self.lock().messages.is_empty()
    }

    /// As [`Remote::has_messages`], for a core that is awake: cheap, but may become true a moment later.
    pub(crate) fn has_mail(&self) -> bool {
        self.mail.load(Ordering::Acquire)
    }

    /// The core is gone: drops all messages that wait or come later.
    pub(crate) fn close(&self) {
        let mut inbox = self.lock();
        inbox.closed = true;
        let messages = std::mem::take(&mut inbox.messages);
        drop(inbox);
        drop(messages);
    }
}

/// Reads the clocks of a world.
pub(crate) trait Clock {
    /// The clock of [`now`]. It includes the time during which the machine sleeps.
    fn now(&self) -> Instant;

    /// The machine's time of day, in nanoseconds. Anyone may set it, so only its steps are used here.
    fn wall(&self) -> u64;
}

/// One core of one node.
pub(crate) struct Core {
    id: CoreId,
    /// Tasks that can make progress, oldest first.
    ready: RefCell<VecDeque<Runnable>>,
    /// Tasks that wait for the end of the turn; see [`next_turn`].
    turn_enders: RefCell<Vec<Waker>>,
    /// The number of the current turn.
    turn: Cell<u64>,
    /// A waker of each unfinished task, so that a core can be torn down with tasks still waiting.
    active: RefCell<Slab<Waker>>,
    pub(crate) timers: Timers,
    clock: Rc<dyn Clock>,
    /// Counts how often the clock stopped.
    stops: RefCell<Stops>,
    rng: RefCell<Rng>,
    /// All cores of this node, this one included, by number.
    remotes: Arc<[Arc<Remote>]>,
    /// Messages taken from the inbox at once; kept to reuse its memory.
    taken: RefCell<VecDeque<Message>>,
    /// The values kept on this core, one of each type; see [`set_local`].
    local: RefCell<Vec<Rc<dyn Any>>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
    /// The address of the current core's `Remote`: a cheap test of whether a wake is local.
    static CURRENT_REMOTE: Cell<*const Remote> = const { Cell::new(std::ptr::null()) };
}

/// While this lives, its core is the thread's current one.
pub(crate) struct Entered {
    previous: Option<Rc<Core>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let previous = self.previous.take();
        CURRENT_REMOTE.set(previous.as_ref().map_or(std::ptr::null(), |core| Arc::as_ptr(core.remote())));
        CURRENT.replace(previous);
    }
}

impl Core {
    pub(crate) fn new(id: CoreId, remotes: Arc<[Arc<Remote>]>, clock: Rc<dyn Clock>, seed: u64) -> Rc<Core> {
        assert!((id.0 as usize) < remotes.len());
        Rc::new(Core {
            id,
            ready: RefCell::default(),
            turn_enders: RefCell::default(),
            turn: Cell::default(),
            active: RefCell::default(),
            timers: Timers::default(),
            stops: RefCell::new(Stops::new(&*clock)),
            clock,
            rng: RefCell::new(Rng::new(seed)),
            remotes,
            taken: RefCell::default(),
            local: RefCell::default(),
        })
    }

    pub(crate) fn id(&self) -> CoreId {
        self.id
    }

    pub(crate) fn remote(&self) -> &Arc<Remote> {
        &self.remotes[self.id.0 as usize]
    }

    /// Makes this the thread's current core until the guard is dropped.
    pub(crate) fn enter(self: &Rc<Core>) -> Entered {
        CURRENT_REMOTE.set(Arc::as_ptr(self.remote()));
        Entered { previous: CURRENT.replace(Some(Rc::clone(self))) }
    }

    /// Whether a task can run at once, or in the next turn.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.turn_enders.borrow().is_empty()
    }

    /// Begins a turn: tasks that waited for the end of the last one continue after all that are ready by now.
    ///
    /// A world calls this after it has handed out completions. It also compares the clocks first, so that
    /// every decision of this turn knows whether the time can be trusted.
    pub(crate) fn begin_turn(&self) {
        self.stops.borrow_mut().look(&*self.clock);
        self.turn.update(|turn| turn + 1);
        self.turn_enders.take().into_iter().for_each(Waker::wake);
    }

    /// Runs at most `max` ready tasks; returns how many ran. The core must be entered.
    pub(crate) fn run_ready(&self, max: usize) -> usize {
        for ran in 0..max {
            let Some(task) = self.ready.borrow_mut().pop_front() else { return ran };
            task.run();
        }
        max
    }

    /// Handles messages from other cores; returns whether there were any. The core must be entered.
    pub(crate) fn take_messages(&self) -> bool {
        if !self.remote().has_mail() {
            return false;
        }
        let mut taken = self.taken.take();
        {
            let mut inbox = self.remote().lock();
            std::mem::swap(&mut taken, &mut inbox.messages);
            self.remote().mail.store(false, Ordering::Relaxed);
        }
        let any = !taken.is_empty();
        for message in taken.drain(..) {
            match message {
                Message::Run(task) => self.ready.borrow_mut().push_back(task),
                Message::Call(function) => function(),
            }
        }
        self.taken.replace(taken);
        any
    }

    /// Wakes the sleepers that are due; returns how many.
    pub(crate) fn fire_timers(&self, now: Instant) -> usize {
        self.timers.fire(now)
    }

    /// Cancels every task, as the end of the process would. The core must be entered.
    pub(crate) fn tear_down(&self) {
        let local = self.local.take();
        drop(local);
        // Dropping a task may wake or spawn others: repeat until all are gone.
        loop {
            let wakers: Vec<Waker> = self.active.borrow_mut().drain().collect();
            wakers.into_iter().for_each(Waker::wake);
            // Functions from other cores are no longer called, because the values that they need are gone.
            let messages = std::mem::take(&mut self.remote().lock().messages);
            drop(self.turn_enders.take());
            let ready = self.ready.take();
            if ready.is_empty() && messages.is_empty() && self.active.borrow().is_empty() {
                return;
            }
            drop(messages);
            drop(ready);
        }
    }
}

fn with_current<T>(f: impl FnOnce(&Rc<Core>) -> T) -> T {
    CURRENT.with_borrow(|current| f(current.as_ref().expect("called outside of a core of the runtime")))
}

/// The current core, for worlds' operations.
pub(crate) fn current() -> Rc<Core> {
    with_current(Rc::clone)
}

/// Starts `future` on this core. It is first polled after the current task has yielded.
pub fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    with_current(|core| {
        let entry = core.active.borrow_mut().insert(Waker::noop().clone());
        let future = Tracked { core: Rc::clone(core), entry, future };
        let remote = Arc::clone(core.remote());
        let schedule = move |task: Runnable| {
            if CURRENT_REMOTE.get() == Arc::as_ptr(&remote) {
                with_current(|core| core.ready.borrow_mut().push_back(task));
            } else {
                remote.push(Message::Run(task));
            }
        };
        // SAFETY: the future need not be Send because the task never leaves this core: `schedule` gives the
        // runnable only to this core's queue or inbox, which only this core's thread empties, and `Task`
        // handles of non-Send output stay on this thread since `spawn` gives them to this core's code.
        // The schedule function is Send, Sync and 'static; the future is 'static.
        let (runnable, task) = unsafe { async_task::spawn_unchecked(future, schedule) };
        if let Some(slot) = core.active.borrow_mut().get_mut(entry) {
            *slot = runnable.waker();
        }
        runnable.schedule();
        task
    })
}

/// A task's future, which removes itself from the core's list of unfinished tasks at its end.
struct Tracked<F> {
    core: Rc<Core>,
    entry: usize,
    future: F,
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is pinned with the structure and never moved out of it.
        unsafe { self.map_unchecked_mut(|tracked| &mut tracked.future) }.poll(context)
    }
}

impl<F> Drop for Tracked<F> {
    fn drop(&mut self) {
        // The entry is missing while the core is torn down.
        drop(self.core.active.borrow_mut().try_remove(self.entry));
    }
}

/// The core that runs the caller.
pub fn core() -> CoreId {
    with_current(|core| core.id)
}

/// The number of cores of this node.
pub fn cores() -> usize {
    with_current(|core| core.remotes.len())
}

/// The time now, of this node's own clock.
pub fn now() -> Instant {
    with_current(|core| core.clock.now())
}

/// The time of day since 1970, as the machine has it. It may jump forward and back, so nothing that must be
/// correct may rely on it.
pub fn time_of_day() -> std::time::Duration {
    with_current(|core| std::time::Duration::from_nanos(core.clock.wall()))
}

/// How often this core has found that its clock may have stopped.
///
/// It checks at the beginning of each turn whether the time of day has run ahead of [`now`] since the turn
/// before (for example because a virtual machine was paused). Whatever was valid for a limited time may then
/// have expired. A stop of both clocks goes unnoticed.
pub fn clock_stops() -> u64 {
    with_current(|core| core.stops.borrow().count())
}

/// Sixty-four random bits; in the simulator they follow from the seed. Not for secrets.
pub fn random() -> u64 {
    with_current(|core| core.rng.borrow_mut().next())
}

/// Keeps `value` on this core for [`local`], and replaces an earlier one of its type.
///
/// Functions that are sent to this core find their data with it. A thread-local would not do, because in the
/// simulator many cores share a thread.
pub fn set_local<T: 'static>(value: Rc<T>) {
    let previous = with_current(|core| {
        let mut local = core.local.borrow_mut();
        match local.iter_mut().find(|kept| kept.is::<T>()) {
            Some(kept) => Some(std::mem::replace(kept, value)),
            None => {
                local.push(value);
                None
            }
        }
    });
    drop(previous);
}

/// The value of this type that [`set_local`] keeps on this core.
pub fn local<T: 'static>() -> Option<Rc<T>> {
    // There are two or three: looking at each costs less than a map.
    let kept = with_current(|core| core.local.borrow().iter().find(|kept| kept.is::<T>()).map(Rc::clone));
    kept?.downcast().ok()
}

/// Bytes that cannot be guessed: from the system in production, from the seed in the simulator.
pub fn secret_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if crate::sim::is_current() {
        with_current(|core| core.rng.borrow_mut().fill(&mut bytes));
    } else {
        crate::uring::secret_bytes(&mut bytes);
    }
    bytes
}

/// Runs `function` on `target` soon; functions run in the order sent. It runs later even on the current core.
pub fn send(target: CoreId, function: impl FnOnce() + Send + 'static) {
    with_current(|core| core.remotes[target.0 as usize].push(Message::Call(Box::new(function))));
}

/// As [`send`], but does not wake a core that sleeps: see [`Handle::leave`].
pub fn leave(target: CoreId, function: impl FnOnce() + Send + 'static) {
    with_current(|core| core.remotes[target.0 as usize].leave(Message::Call(Box::new(function))));
}

/// Runs an async function on `target` and waits for its result. On the current core it is simply awaited.
pub async fn call<T, F>(target: CoreId, function: impl FnOnce() -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    if target == core() {
        return function().await;
    }
    let (reply, result) = oneshot();
    send(target, move || spawn(async move { reply.send(function().await) }).detach());
    result_of(result).await
}

/// Runs `work` on this core to its end, even if the caller stops waiting for it.
pub async fn to_the_end<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    let (ended, result) = oneshot();
    spawn(async move { ended.send(work.await) }).detach();
    result_of(result).await
}

async fn result_of<T>(result: sync::Receiver<T>) -> T {
    match result.await {
        Ok(value) => value,
        // The node is stopping, and the core of the task is already gone; the caller is next.
        Err(sync::Closed) => std::future::pending().await,
    }
}

/// Lets other ready tasks of this core run first. Completions may have to wait longer: see [`next_turn`].
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The number of the core's turn: whatever runs with the same number keeps the same completions waiting.
pub fn turn() -> u64 {
    with_current(|core| core.turn.get())
}

/// Lets the core end its turn, so that completions and messages from other cores come first.
///
/// For long work in parts: whatever arrives then waits for one part at each step on this core, not for all of
/// them.
pub async fn next_turn() {
    let ends = turn();
    std::future::poll_fn(|context| {
        with_current(|core| {
            if core.turn.get() != ends {
                return Poll::Ready(());
            }
            // Registered at each poll, because the task that polls this may have changed.
            core.turn_enders.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
    })
    .await;
}

/// Access to a node's cores from another thread, such as the control plane's.
#[derive(Clone)]
pub struct Handle {
    remotes: Arc<[Arc<Remote>]>,
}

impl Handle {
    pub(crate) fn new(remotes: Arc<[Arc<Remote>]>) -> Handle {
        Handle { remotes }
    }

    /// The node of the caller.
    pub fn current() -> Handle {
        with_current(|core| Handle::new(Arc::clone(&core.remotes)))
    }

    /// The number of cores of the node.
    pub fn cores(&self) -> usize {
        self.remotes.len()
    }

    /// Runs an async function on `target` and returns its result, or `None` if the node stopped first.
    ///
    /// The future may be awaited on any executor.
    pub fn call<T, F, N>(
        &self,
        target: CoreId,
        function: N,
    ) -> impl Future<Output = Option<T>> + Send + use<T, F, N>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
        N: FnOnce() -> F + Send + 'static,
    {
        let (reply, result) = oneshot();
        let start = move || spawn(async move { reply.send(function().await) }).detach();
        self.remotes[target.0 as usize].push(Message::Call(Box::new(start)));
        async move { result.await.ok() }
    }

    /// Runs a function on `target` as soon as something else wakes that core: a timer, or another message.
    ///
    /// It runs before any task does there. For what only matters then, and for cores that wake regularly: to
    /// wake a core costs more than most functions. Functions that are left, sent or called run in order.
    pub fn leave(&self, target: CoreId, function: impl FnOnce() + Send + 'static) {
        self.remotes[target.0 as usize].leave(Message::Call(Box::new(function)));
    }
}
