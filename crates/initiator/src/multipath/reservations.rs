//! Persistent reservations over several paths (SPC-4 5.13).
//!
//! Every path is an I_T nexus of its own. So a host that may write must be registered over all of its paths,
//! including those that are added or come back later.
//!
//! **A host that was fenced stays fenced.** Another host revokes the right to write with PREEMPT, which
//! removes our key everywhere. A path that comes back must not bring the key back with it. Therefore:
//! - a path that was registered before uses REGISTER with its old key, which the unit refuses if that key is
//!   gone;
//! - a path that was not registered before registers only if the unit still has our key from another path.
//!   Then it reads the keys again: if ours is the only one, a PREEMPT came in between, and the path removes
//!   its registration.
//!
//! A unit that has lost its registrations (a power loss without APTPL) cannot be distinguished from this: the
//! host's cluster software must register again.

use std::rc::Rc;

use super::event::What;
use super::failure::{Failure, Why};
use super::outcome::{Verdict, judge};
use super::path::{Link, Path};
use super::path_lifetime::persistently;
use super::shared::Shared;
use super::{EffectKnown, Multipath};
use crate::Error;
use crate::command::{PersistentReserveOut, ReadKeys, ReservationType, ServiceAction};

/// SAM-5 table 40.
const RESERVATION_CONFLICT: u8 = 0x18;

/// What a registered host does with the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Reserves the unit.
    Reserve(ReservationType),
    /// Releases the reservation.
    Release(ReservationType),
    /// Replaces the host with this key, whose registrations and reservation are removed. Its commands under
    /// way may still take effect.
    Preempt(ReservationType, u64),
    /// The same; in addition, its commands under way have ended when this is answered.
    PreemptAndAbort(ReservationType, u64),
}

impl Multipath {
    /// Registers this host over all paths, including those that come later. The key must be the host's own.
    ///
    /// # Errors
    /// [`Failure`]: the host may be registered over some of the paths.
    ///
    /// # Panics
    /// If the key is zero, which is not a valid key.
    pub async fn register(&self, key: u64) -> Result<(), Failure> {
        assert!(key != 0, "zero is no key");
        self.shared.register_all(Some(key)).await
    }

    /// Removes the registration from all paths; from lost paths when they come back.
    pub async fn unregister(&self) -> Result<(), Failure> {
        self.shared.register_all(None).await
    }

    /// Reserves, releases or preempts.
    ///
    /// If the path is lost meanwhile, the outcome is unknown: the [`Failure`] says so, and the caller can
    /// find out with [`ReadReservation`](crate::command::ReadReservation).
    ///
    /// # Panics
    /// For a reservation type that only a single path would hold.
    pub async fn claim(&self, claim: Claim) -> Result<(), Failure> {
        let (action, kind, action_key) = match claim {
            Claim::Reserve(kind) => (ServiceAction::Reserve, kind, 0),
            Claim::Release(kind) => (ServiceAction::Release, kind, 0),
            Claim::Preempt(kind, other) => (ServiceAction::Preempt, kind, other),
            Claim::PreemptAndAbort(kind, other) => (ServiceAction::PreemptAndAbort, kind, other),
        };
        assert!(
            !matches!(kind, ReservationType::WriteExclusive | ReservationType::ExclusiveAccess),
            "one path would keep the others out"
        );
        let key = self.shared.key.get().unwrap_or_default();
        self.send(&PersistentReserveOut { action, kind, key, action_key, survives: false }).await
    }
}

/// A REGISTER that the unit refuses if the path has another key.
fn exchange(old: u64, new: u64) -> PersistentReserveOut {
    PersistentReserveOut { action: ServiceAction::Register, key: old, ..PersistentReserveOut::register(new) }
}

fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Status { status: RESERVATION_CONFLICT, .. })
}

impl Shared {
    /// Registers every path that is up, whatever we believe it is registered with: the unit may know better.
    async fn register_all(&self, key: Option<u64>) -> Result<(), Failure> {
        let began = rt::now();
        let command = PersistentReserveOut::register(key.unwrap_or_default());
        let mut told: Vec<Rc<Link>> = Vec::new();
        let mut is_known = key.is_none();
        loop {
            let Some((path, link)) = self.path_but(&told) else {
                if is_known {
                    // No await between the last look and this: a path that comes later sees the key.
                    self.key.set(key);
                    return Ok(());
                }
                let left = self.options.queue_for.saturating_sub(rt::now().since(began));
                if rt::timeout(left, self.changed.notified()).await.is_err() {
                    let why = Why::NoPath(rt::now().since(began), self.status());
                    return Err(Failure::new(why, EffectKnown::None, Vec::new()));
                }
                told.clear();
                continue;
            };
            match persistently(|| link.session.send(link.lun, &command)).await {
                Ok(()) => {
                    path.registered.set(key);
                    is_known = true;
                }
                Err(error) if judge(&error) == Verdict::Final => return Err(Failure::answered(error)),
                // Whether it is registered turns out when the path comes back.
                Err(_) => {}
            }
            told.push(link);
        }
    }

    /// A path that is up and not one of these.
    fn path_but(&self, told: &[Rc<Link>]) -> Option<(Rc<Path>, Rc<Link>)> {
        let paths = self.paths.borrow();
        let table = self.table.borrow();
        let mut links =
            paths.iter().zip(&table.links).filter_map(|(path, link)| Some((path, link.as_ref()?)));
        let other = links.find(|(_, link)| !told.iter().any(|told| Rc::ptr_eq(told, link)));
        other.map(|(path, link)| (Rc::clone(path), Rc::clone(link)))
    }

    /// Registers a path that is new or has come back, before commands use it.
    pub(super) async fn enroll(&self, path: &Path, link: &Link) -> Result<(), Error> {
        loop {
            let key = self.key.get();
            match (key, path.registered.get()) {
                (None, None) => {}
                (None, Some(old)) => self.take_back(path, link, old).await?,
                (Some(key), old) => self.enroll_with(key, old, path, link).await?,
            }
            if self.key.get() == key {
                return Ok(());
            }
        }
    }

    async fn take_back(&self, path: &Path, link: &Link, old: u64) -> Result<(), Error> {
        let command = exchange(old, 0);
        match persistently(|| link.session.send(link.lun, &command)).await {
            Err(error) if !is_conflict(&error) => return Err(error),
            _ => path.registered.set(None),
        }
        Ok(())
    }

    async fn enroll_with(&self, key: u64, old: Option<u64>, path: &Path, link: &Link) -> Result<(), Error> {
        let send = async |command: PersistentReserveOut| {
            persistently(|| link.session.send(link.lun, &command)).await
        };
        let is_ours = match old == Some(key) {
            true => match send(exchange(key, key)).await {
                Err(error) if is_conflict(&error) => false,
                result => result.map(|()| true)?,
            },
            false => {
                self.registering.acquire(1).await;
                let result = self.register_if_known(key, link).await;
                self.registering.release(1);
                result?
            }
        };
        path.registered.set(is_ours.then_some(key));
        if !is_ours {
            self.tell(What::Fenced(path.name.clone()));
        }
        Ok(())
    }

    /// Registers a path that was not registered, if the unit has our key from another path. Returns whether
    /// it has.
    async fn register_if_known(&self, key: u64, link: &Link) -> Result<bool, Error> {
        let send = async |command: PersistentReserveOut| {
            persistently(|| link.session.send(link.lun, &command)).await
        };
        let count = async || -> Result<usize, Error> {
            let keys = persistently(|| link.session.send(link.lun, &ReadKeys)).await?;
            Ok(keys.iter().filter(|other| **other == key).count())
        };
        if count().await? == 0 {
            return Ok(false);
        }
        send(PersistentReserveOut::register(key)).await?;
        let is_still_known = count().await? > 1;
        if !is_still_known {
            send(PersistentReserveOut::register(0)).await?;
        }
        Ok(is_still_known)
    }
}
