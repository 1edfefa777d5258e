//! A logical unit that is reached over several paths (SPC-4 5.15, RFC 7143).
//!
//! [`Multipath::open`] finds the unit and all paths to it, by asking portals for targets (`find`) and units
//! for their names. Each path has a task that maintains its session (`life`). The policy chooses the path for
//! a command (`policy`) among those that are good enough (`access`). If a command fails, `verdict` classifies
//! the failure, and `trial` waits for what must be waited for and then sends the command again, or reports
//! why not. `suspect` keeps commands that may still be under way on a lost path from overwriting later
//! writes, and `reservations` registers a host over all of its paths. See `docs/why/multipath.md`.

mod access;
mod attempt;
mod backoff;
mod event;
mod failover;
mod failure;
mod find;
mod options;
mod outcome;
mod path;
mod path_lifetime;
mod policy;
mod reservations;
mod shared;
mod suspect;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Buf, Chain, Lba, LbaRange};
use rt::Task;

pub use self::event::{Event, What};
pub use self::failure::{EffectKnown, Failure, Tried, Why};
use self::find::Place;
pub use self::options::{MultipathOptions, Search, UnitSelector};
use self::path::Path;
pub use self::path::{PathName, PathState, PathStatus};
pub use self::policy::Policy;
pub use self::reservations::Claim;
use self::shared::Shared;
use crate::command::{
    Command, CompareAndWrite, GetLbaStatus, LbaStatus, Read, SynchronizeCache, UnitName, Unmap, Write,
    WriteSame,
};
use crate::error::told;
use crate::{Capacity, Error};

/// Once one path is usable, `open` waits at most this long for the others.
const OPEN_GRACE: Duration = Duration::from_secs(1);

/// A portal that has not reported its targets is asked again after this time.
const SEARCH_AGAIN: Duration = Duration::from_secs(10);

/// A logical unit, over all paths to it. It belongs to the core that opened it.
///
/// Commands that fail because of a path are sent again over another one where that is safe.
/// `docs/why/multipath.md` states what is guaranteed about writes. In short: when a command that changes
/// blocks has been answered, nothing of it happens later, and a [`Failure`] says if that could not be
/// ensured.
///
/// Dropping it closes all connections without a logout.
pub struct Multipath {
    shared: Rc<Shared>,
    /// One per path, and one that looks for more paths. They end when this is dropped.
    tasks: Rc<RefCell<Vec<Task<()>>>>,
}

/// Why a unit could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No portal reported a target that may have the unit.
    #[error("no target found{}", each(.0))]
    NoTarget(Vec<(SocketAddr, Error)>),
    /// There are targets, but none has the unit.
    #[error("LUN not found at any target{}", each(.0))]
    NoUnit(Vec<(SocketAddr, Error)>),
    /// The unit was found, but then no path to it was usable.
    #[error("no usable path to the LUN{}", paths(.0))]
    NoPath(Vec<PathStatus>),
}

fn each(failed: &[(SocketAddr, Error)]) -> String {
    failed.iter().map(|(portal, error)| format!("; {portal}: {}", told(error))).collect()
}

fn paths(paths: &[PathStatus]) -> String {
    paths.iter().map(|path| format!("; {path}")).collect()
}

impl Multipath {
    /// Finds the unit and the paths to it, and waits until one is usable; the others then get one second.
    pub async fn open(search: &Search, options: MultipathOptions) -> Result<Multipath, OpenError> {
        let found = find::places(search, &options.login).await;
        if found.places.is_empty() {
            return Err(OpenError::NoTarget(found.failed));
        }
        let (unit, failures) = find::unit(&found.places, &search.unit, &options.login).await;
        let mut failed = found.failed;
        let is_complete = failed.is_empty();
        failed.extend(failures);
        let Some(unit) = unit else { return Err(OpenError::NoUnit(failed)) };
        let login_deadline = options.login.timeouts.login;
        let shared = Rc::new(Shared::new(unit.name, unit.capacity, options));
        let multipath = Multipath { shared, tasks: Rc::default() };
        add_paths(&multipath.shared, &multipath.tasks, found.places, unit.lun);
        if !is_complete {
            multipath.search_again(search.clone(), unit.lun);
        }
        // Connecting may take this long, then logging in, and then a few queries.
        multipath.wait_for_paths(login_deadline * 3).await?;
        Ok(multipath)
    }

    async fn wait_for_paths(&self, limit: Duration) -> Result<(), OpenError> {
        let shared = &self.shared;
        let first = async {
            while shared.out_since.get().is_some() {
                shared.changed.notified().await;
            }
        };
        if rt::timeout(limit, first).await.is_err() {
            return Err(OpenError::NoPath(shared.status()));
        }
        let all = async {
            while shared.paths.borrow().iter().any(|path| !path.tried.get()) {
                shared.changed.notified().await;
            }
        };
        // Paths that are late are used as soon as they are up.
        let _ = rt::timeout(OPEN_GRACE, all).await;
        Ok(())
    }

    /// Asks those portals again that have not reported their targets.
    fn search_again(&self, search: Search, lun: crate::Lun) {
        let (shared, tasks) = (Rc::clone(&self.shared), Rc::clone(&self.tasks));
        let task = rt::spawn(async move {
            loop {
                rt::sleep(SEARCH_AGAIN).await;
                let found = find::places(&search, &shared.options.login).await;
                add_paths(&shared, &tasks, found.places, lun);
                if found.failed.is_empty() {
                    return;
                }
            }
        });
        self.tasks.borrow_mut().push(task);
    }

    /// The unit's name.
    pub fn name(&self) -> &UnitName {
        &self.shared.unit
    }

    /// The unit's capacity, as last reported.
    pub fn capacity(&self) -> Capacity {
        self.shared.capacity.get()
    }

    /// All paths.
    pub fn paths(&self) -> Vec<PathStatus> {
        self.shared.status()
    }

    /// Events since the last call.
    pub fn events(&self) -> Vec<Event> {
        self.shared.events.borrow_mut().take()
    }

    /// Waits until something happens, and returns the events.
    pub async fn next_events(&self) -> Vec<Event> {
        loop {
            let events = self.events();
            if !events.is_empty() {
                return events;
            }
            self.shared.events_bell.notified().await;
        }
    }

    /// Commands that were sent again after they may have been under way on a lost path.
    pub fn repeated(&self) -> u64 {
        self.shared.repeated.get()
    }

    /// Logs out on all paths. No command can be under way, since commands borrow the unit.
    pub async fn close(self) {
        drop(self.tasks.take());
        let links: Vec<_> = self.shared.table.borrow().links.iter().flatten().cloned().collect();
        // A session whose target does not answer the logout is just dropped.
        rt::join_all(links.iter().map(|link| link.session.logout())).await;
    }

    /// Sends a command over a good path, and again over others if necessary.
    #[inline]
    pub async fn send<C: Command>(&self, command: &C) -> Result<C::Answer, Failure> {
        let is_clear = self.shared.doubt.borrow().is_empty() || command.effect().blocks().is_none();
        let attempt = is_clear.then(|| self.shared.begin(command, None)).flatten();
        let miss = match attempt {
            None => None,
            Some(attempt) => match attempt.await {
                Ok(data) => {
                    let answer = command.answer(data).ok_or(Error::BadAnswer(C::NAME));
                    return answer.map_err(Failure::answered);
                }
                Err(miss) => Some(miss),
            },
        };
        Box::pin(self.shared.persist(command, miss)).await
    }

    /// Reads blocks.
    pub async fn read(&self, lba: Lba, count: BlockCount) -> Result<Buf, Failure> {
        self.send(&Read { lba, count, size: self.block_size() }).await
    }

    /// Writes whole blocks.
    pub async fn write(&self, lba: Lba, data: Chain) -> Result<(), Failure> {
        self.send(&Write { lba, data, size: self.block_size(), durable: false }).await
    }

    /// Makes all answered writes durable.
    pub async fn flush(&self) -> Result<(), Failure> {
        self.send(&SynchronizeCache).await
    }

    /// Unmaps blocks.
    pub async fn unmap(&self, ranges: &[LbaRange]) -> Result<(), Failure> {
        self.send(&Unmap { ranges }).await
    }

    /// Writes one block's content to many blocks.
    pub async fn write_same(&self, command: &WriteSame) -> Result<(), Failure> {
        self.send(command).await
    }

    /// Writes blocks if they hold the expected data.
    ///
    /// If the path is lost meanwhile, it is unknown whether the command wrote: the [`Failure`] says so, and
    /// the caller can read the blocks.
    ///
    /// # Errors
    /// [`Failure`]; [`Error::is_miscompare`] of its answer tells whether the blocks held other data.
    pub async fn compare_and_write(&self, lba: Lba, compare: Chain, write: Chain) -> Result<(), Failure> {
        self.send(&CompareAndWrite { lba, compare, write, size: self.block_size() }).await
    }

    /// Which blocks from `lba` on are mapped.
    pub async fn lba_status(&self, lba: Lba) -> Result<Vec<LbaStatus>, Failure> {
        self.send(&GetLbaStatus { lba }).await
    }

    fn block_size(&self) -> BlockSize {
        self.shared.capacity.get().block_size
    }
}

impl Drop for Multipath {
    fn drop(&mut self) {
        // The task that looks for more paths also owns the list.
        drop(self.tasks.take());
    }
}

/// Creates the paths to places that have none yet, and starts them.
fn add_paths(
    shared: &Rc<Shared>,
    tasks: &Rc<RefCell<Vec<Task<()>>>>,
    places: impl IntoIterator<Item = Place>,
    lun: crate::Lun,
) {
    for Place { target, portal } in places {
        for number in 0..shared.options.sessions.max(1) {
            let name = PathName { portal, target: target.clone(), number };
            if shared.paths.borrow().iter().any(|path| path.name == name) {
                continue;
            }
            let index = shared.paths.borrow().len();
            let path = Rc::new(Path::new(index, name, crate::options::random_isid(), lun));
            shared.add_path(Rc::clone(&path));
            tasks.borrow_mut().push(rt::spawn(path_lifetime::keep(Rc::clone(shared), path)));
        }
    }
}
