//! Hosts that write one block while they are registered, and one host that fences them off (A10).
//!
//! Each writer uses one node; the fencer uses changing nodes, and reservations of all types. After a fencing,
//! no write of the writers takes effect except those that they may do when they register again, and each
//! command gets the response that its host's rights demand ([`super::rights`]).

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use base::{BlockCount, Lba, Rng};
use initiator::command::{PersistentReserveOut, ReservationType, ServiceAction};
use initiator::{Error, Session};
use rt::sim::linear::Time;

use super::hot::attended;
use super::rights::{Access, Fence, KINDS, Registration, Rights, is_shared, lets_read};
use super::{Common, LOG_IN_AGAIN};
use crate::cluster::{LUN, log_in};
use crate::history::{filled, value_of};
use crate::layout::FENCED;

/// The key of the writers.
const WRITERS: u64 = 0xaa;
/// The key of the fencer.
const FENCER: u64 = 0xfe;
/// How long after the loss of its session a command may still take effect: a node decides a change of
/// reservations within two seconds of its request, or never.
const LATE_MAX: Duration = Duration::from_secs(3);
/// How often the fencer checks that nothing changes: for a moment, or for so long that nodes are lost and
/// return meanwhile.
const LOOKS: [u64; 4] = [5, 5, 60, 150];
/// One in this many commands of a writer is a read.
const READS_ONE_IN: u64 = 4;
/// Concurrent commands of a writer.
const DEPTH: usize = 4;
/// A writer registers again after this many commands of each lane, so that changes of reservations overlap.
const REGISTERED_WRITES: u64 = 4;

fn surviving(key: u64) -> PersistentReserveOut {
    PersistentReserveOut { survives: true, ..PersistentReserveOut::register(key) }
}

async fn reserve(session: &Session, command: PersistentReserveOut) -> Result<(), Error> {
    attended(async || session.reserve(LUN, command).await).await
}

pub(crate) fn is_conflict<T>(result: &Result<T, Error>) -> bool {
    result.as_ref().is_err_and(is_conflict_error)
}

pub(crate) fn is_conflict_error(error: &Error) -> bool {
    const RESERVATION_CONFLICT: u8 = 0x18;
    matches!(error, Error::Status { status: RESERVATION_CONFLICT, .. })
}

pub(super) async fn write(common: Common, rights: Rights, portal: SocketAddr, name: String, mut rng: Rng) {
    loop {
        if let Ok(session) = log_in(portal, LUN, &name).await {
            let writer = Writer { common: &common, rights: &rights, session: &session };
            while writer.turn(&mut rng).await.is_ok() {}
        }
        rt::sleep(LOG_IN_AGAIN).await;
    }
}

/// A session of a writer.
#[derive(Clone, Copy)]
struct Writer<'a> {
    common: &'a Common,
    rights: &'a Rights,
    session: &'a Session,
}

impl Writer<'_> {
    /// Registers, writes, unregisters, and tries a command without registration.
    async fn turn(&self, rng: &mut Rng) -> Result<(), Error> {
        let asked = self.common.history.tick();
        reserve(self.session, surviving(WRITERS)).await?;
        let registration = Registration::Since(asked, self.common.history.tick());
        let lost = Cell::new(false);
        let lanes = (0..DEPTH).map(|_| self.lane(registration, &lost, rng.fork()));
        rt::join_all(lanes.collect::<Vec<_>>()).await;
        reserve(self.session, surviving(0)).await?;
        // An unregistered writer sends a write only behind a fence. Otherwise the node would accept the
        // write, PREEMPT AND ABORT would not abort it, and it could take effect after the fencing.
        let access =
            if self.rights.fence().is_some() && rng.one_in(2) { Access::Write } else { Access::Read };
        let _ = self.send(Registration::None, access).await;
        Ok(())
    }

    /// Sends one command after the other, until one of any lane fails.
    ///
    /// All lanes stop then, because only one command receives the unit attention for the lost registration,
    /// and a writer that is not registered when a fencing happens is not fenced off. Some commands must
    /// arrive while a node waits for the decision about a fencing: earlier ones have begun by then.
    async fn lane(&self, registration: Registration, lost: &Cell<bool>, mut rng: Rng) {
        for _ in 0..REGISTERED_WRITES {
            if lost.get() {
                return;
            }
            let access = if rng.one_in(READS_ONE_IN) { Access::Read } else { Access::Write };
            // The unit attention for a lost registration precedes the execution of the command: the command
            // is not sent again.
            if self.send(registration, access).await.is_err() {
                lost.set(true);
                return;
            }
            if access == Access::Write {
                self.common.counts.count("write of a registrant");
            }
            self.common.think(&mut rng).await;
        }
    }

    /// Sends a command, and checks the response if everything that determines it is known.
    async fn send(&self, registration: Registration, access: Access) -> Result<(), Error> {
        let Common { history, counts, size, .. } = self.common;
        let fence = self.rights.fence();
        let result = match access {
            Access::Read => self.session.read(LUN, Lba(FENCED), BlockCount(1), *size).await.map(drop),
            Access::Write => {
                let value = history.value();
                self.rights.send(value, registration, history.tick());
                self.session.write(LUN, Lba(FENCED), filled(value, 1, *size), *size).await
            }
        };
        if let Some(fence) = fence.filter(|fence| self.rights.fence() == Some(*fence))
            && (result.is_ok() || is_conflict(&result))
            && self.rights.check_answer(fence, registration, access, result.is_ok())
        {
            counts.count(match (access, result.is_ok()) {
                (Access::Read, true) => "read that a reservation allows",
                (Access::Read, false) => "read that a reservation forbids",
                (Access::Write, true) => "write that a reservation allows",
                (Access::Write, false) => "write that a reservation forbids",
            });
        }
        result
    }
}

/// Fences writers off by reservations of these types.
pub(super) async fn run(
    common: Common,
    rights: Rights,
    kinds: Vec<ReservationType>,
    name: String,
    mut rng: Rng,
) {
    loop {
        let index = rng.below(common.portals.len() as u64) as usize;
        if let Ok(session) = log_in(common.portals[index], LUN, &name).await {
            let kind = kinds[rng.below(kinds.len() as u64) as usize];
            let fencer = Fencer { common: &common, rights: &rights, kind, name: &name };
            let result = fencer.fence(session, &mut rng).await;
            if result.is_err_and(|error| !matches!(error, Error::Status { .. })) {
                rt::sleep(LATE_MAX).await;
            }
        }
        rt::sleep(Duration::from_millis(rng.below(if common.hurries() { 10 } else { 200 }))).await;
    }
}

/// A single fencing.
struct Fencer<'a> {
    common: &'a Common,
    rights: &'a Rights,
    kind: ReservationType,
    name: &'a str,
}

impl Fencer<'_> {
    fn out(&self, action: ServiceAction, action_key: u64) -> PersistentReserveOut {
        PersistentReserveOut { action, kind: self.kind, key: FENCER, action_key, survives: true }
    }

    async fn fence(&self, session: Session, rng: &mut Rng) -> Result<(), Error> {
        let Fencer { common, rights, kind, .. } = *self;
        rights.begin(common.history.tick());
        reserve(&session, surviving(FENCER)).await?;
        // An earlier session of this host may hold it, through another node or with another type.
        let held = reserve(&session, self.out(ServiceAction::Reserve, 0)).await;
        if is_conflict(&held) {
            rights.clear();
            return reserve(&session, self.out(ServiceAction::Clear, 0)).await;
        }
        held?;
        let asked = common.history.tick();
        reserve(&session, self.out(ServiceAction::PreemptAndAbort, WRITERS)).await?;
        let fence = Fence { kind, asked, answered: common.history.tick() };
        rights.set_fence(Some(fence));
        // What the block held, and when the read of that began.
        let mut before: Option<(Time, Vec<Option<u64>>)> = None;
        let mut session = Some(session);
        let hurried = common.hurries();
        for look in 0..LOOKS[rng.below(LOOKS.len() as u64) as usize] {
            // The hurry has just begun: stop here, so that a fencing happens during it.
            if look >= LOOKS[0] && common.hurries() && !hurried {
                break;
            }
            rt::sleep(Duration::from_millis(rng.below(50))).await;
            let call = common.history.tick();
            let found = match &session {
                Some(session) => read(common, session).await.ok(),
                None => None,
            };
            let Some(found) = found else {
                // The reservation must hold even if the node or the session is lost.
                let index = rng.below(common.portals.len() as u64) as usize;
                session = self.log_in_again(common.portals[index]).await.ok();
                continue;
            };
            let now = (call, found.clone());
            let (since, before) = before.replace(now.clone()).unwrap_or(now);
            // A restore brings back what was written before the fencing.
            if common.history.is_restored_since(since) {
                continue;
            }
            for (_, value) in before.iter().zip(&found).filter(|(before, found)| before != found) {
                rights.check_written(fence, value.expect("a sector is written as a whole"));
            }
        }
        let Some(session) = session else { return Ok(()) };
        common.counts.count("fencing");
        let (_, counted) = KINDS.iter().find(|(it, _)| *it == kind).expect("all are there");
        common.counts.count(counted);
        let (action, counted) = match rng.below(4) {
            0 => (ServiceAction::Clear, "reservation cleared"),
            _ => (ServiceAction::Release, "reservation released"),
        };
        match action {
            ServiceAction::Clear => rights.clear(),
            _ => rights.set_fence(None),
        }
        reserve(&session, self.out(action, 0)).await?;
        common.counts.count(counted);
        Ok(())
    }

    /// Opens a session that may read.
    ///
    /// Where the reservation restricts reads, the session registers, and becomes the only holder in place of
    /// the last session if the type has only one.
    async fn log_in_again(&self, portal: SocketAddr) -> Result<Session, Error> {
        let session = log_in(portal, LUN, self.name).await?;
        if !lets_read(self.kind) {
            reserve(&session, surviving(FENCER)).await?;
        }
        if !lets_read(self.kind) && !is_shared(self.kind) {
            reserve(&session, self.out(ServiceAction::PreemptAndAbort, FENCER)).await?;
        }
        Ok(session)
    }
}

/// The values of the block's sectors.
async fn read(common: &Common, session: &Session) -> Result<Vec<Option<u64>>, Error> {
    let size = common.size;
    let data = attended(async || session.read(LUN, Lba(FENCED), BlockCount(1), size).await).await?;
    Ok(data.chunks_exact(crate::layout::SECTOR).map(value_of).collect())
}
