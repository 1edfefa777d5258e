//! Persistent reservations by several paths (SPC-4 5.13): every path is an I_T nexus of its own, so that a
//! host that may write has to be registered by all of them, and by those that come later or come back.
//!
//! **A host that was fenced stays fenced.** Another host takes the right to write away by PREEMPT, which
//! removes our key everywhere. A path that comes back must not bring the key back with it, and so
//! - a path that was registered registers anew by REGISTER with its old key, which the unit refuses if that
//!   is gone;
//! - a path that was not registers only if the unit still has our key by another path, and looks once more
//!   afterwards whether that was still so: if ours is the only one then, a PREEMPT came in between, and it is
//!   taken back.
//!
//! A unit that has forgotten its registrations (it lost power, and APTPL was not asked for) looks the same:
//! the host's cluster software has to register again.

use std::rc::Rc;

use super::event::What;
use super::failure::{Failure, Why};
use super::life::persistently;
use super::path::{Link, Path};
use super::shared::Shared;
use super::verdict::{Verdict, judge};
use super::{EffectKnown, Multipath};
use crate::Error;
use crate::command::{PersistentReserveOut, ReadKeys, ReservationType, ServiceAction};

/// SAM-5 table 40.
const RESERVATION_CONFLICT: u8 = 0x18;

/// What a host does about reservations once it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Reserves the unit.
    Reserve(ReservationType),
    /// Gives the reservation back.
    Release(ReservationType),
    /// Takes the place of the host with this key, whose registrations and reservation are removed. Commands
    /// that it has under way may still take effect.
    Preempt(ReservationType, u64),
    /// The same; and its commands are over when this is answered.
    PreemptAndAbort(ReservationType, u64),
}

impl Multipath {
    /// Registers this host by all paths, those that come later included. The key must be the host's own.
    ///
    /// # Errors
    /// [`Failure`]: it may be registered by some paths.
    ///
    /// # Panics
    /// With zero, which is no key.
    pub async fn register(&self, key: u64) -> Result<(), Failure> {
        assert!(key != 0, "zero is no key");
        self.shared.register_all(Some(key)).await
    }

    /// Takes back the registration by all paths; by those that are lost when they come back.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn unregister(&self) -> Result<(), Failure> {
        self.shared.register_all(None).await
    }

    /// Reserves, or preempts. Should its path be lost meanwhile, nobody knows whether it did: the [`Failure`]
    /// says so, and [`ReadReservation`](crate::command::ReadReservation) tells.
    ///
    /// # Errors
    /// [`Failure`].
    ///
    /// # Panics
    /// For a type of reservation that one path alone would hold.
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

/// REGISTER, which the unit refuses if the path has another key.
fn exchange(old: u64, new: u64) -> PersistentReserveOut {
    PersistentReserveOut { action: ServiceAction::Register, key: old, ..PersistentReserveOut::register(new) }
}

fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Status { status: RESERVATION_CONFLICT, .. })
}

impl Shared {
    /// Every path that is there is told, whatever we think that it is registered with: the unit may know
    /// better.
    async fn register_all(&self, key: Option<u64>) -> Result<(), Failure> {
        let began = rt::now();
        let command = PersistentReserveOut::register(key.unwrap_or_default());
        let mut told: Vec<Rc<Link>> = Vec::new();
        let mut is_known = key.is_none();
        loop {
            let Some((path, link)) = self.path_but(&told) else {
                if is_known {
                    // Nothing is waited for between the last look and this: who comes later knows the key.
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
                // Whether it is registered turns out when it comes back.
                Err(_) => {}
            }
            told.push(link);
        }
    }

    /// A path that is there and is none of these.
    fn path_but(&self, told: &[Rc<Link>]) -> Option<(Rc<Path>, Rc<Link>)> {
        let paths = self.paths.borrow();
        let table = self.table.borrow();
        let mut links =
            paths.iter().zip(&table.links).filter_map(|(path, link)| Some((path, link.as_ref()?)));
        let other = links.find(|(_, link)| !told.iter().any(|told| Rc::ptr_eq(told, link)));
        other.map(|(path, link)| (Rc::clone(path), Rc::clone(link)))
    }

    /// Registers a path that has come, or come back, before commands go by it.
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

    /// Registers a path that was not, if the unit has our key by another one; whether it has.
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
