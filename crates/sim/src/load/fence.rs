//! Hosts that write one block while they are registered, each through one node; and one that fences them off, through changing nodes: from then on
//! nothing of theirs takes effect any more (A10).

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use base::{BlockCount, Lba, Rng};
use initiator::command::{PersistentReserveOut, ReservationType, ServiceAction};
use initiator::{Error, Session};

use super::hot::attended;
use super::{Common, LOG_IN_AGAIN};
use crate::cluster::{LUN, log_in};
use crate::history::{filled, value_of};
use crate::layout::FENCED;

/// The key of those who are fenced off.
const WRITERS: u64 = 0xaa;
/// The key of who does it.
const FENCER: u64 = 0xfe;
/// What a node may still carry out after its session was lost takes effect within this time: a change of reservations is decided within two seconds of
/// being asked for, or never.
const LATE_MAX: Duration = Duration::from_secs(3);
/// So often it is looked whether something changes after the writers were fenced off: for a moment, or for long enough that nodes are lost and
/// come back meanwhile.
const LOOKS: [u64; 4] = [5, 5, 60, 150];
/// Writes that a writer has under way at once.
const DEPTH: usize = 4;
/// A writer gives up its registration and asks for it anew after so many writes each, so that changes of reservations meet each other.
const REGISTERED_WRITES: u64 = 4;

fn surviving(key: u64) -> PersistentReserveOut {
    PersistentReserveOut { survives: true, ..PersistentReserveOut::register(key) }
}

async fn reserve(session: &Session, command: PersistentReserveOut) -> Result<(), Error> {
    attended(async || session.reserve(LUN, command).await).await
}

fn is_conflict(result: &Result<(), Error>) -> bool {
    const RESERVATION_CONFLICT: u8 = 0x18;
    matches!(result, Err(Error::Status { status: RESERVATION_CONFLICT, .. }))
}

pub(super) async fn write(common: Common, portal: SocketAddr, name: String, mut rng: Rng) {
    loop {
        if let Ok(session) = log_in(portal, &name).await {
            while reserve(&session, surviving(WRITERS)).await.is_ok() {
                let lost = Cell::new(false);
                let lanes = (0..DEPTH).map(|_| lane(&common, &session, &lost, rng.fork()));
                rt::join_all(lanes.collect::<Vec<_>>()).await;
                if reserve(&session, surviving(0)).await.is_err() {
                    break;
                }
            }
        }
        rt::sleep(LOG_IN_AGAIN).await;
    }
}

/// One write after the other, until one of them all was refused: one alone is told that the registration is lost, and who is not registered when others are
/// fenced off is not fenced off. Some must come while a node waits for whether it is to go on: those that came before have begun by then.
async fn lane(common: &Common, session: &Session, lost: &Cell<bool>, mut rng: Rng) {
    for _ in 0..REGISTERED_WRITES {
        if lost.get() {
            return;
        }
        let data = filled(common.history.value(), 1, common.size);
        // Word of a lost registration comes before the write is carried out: it is not sent again.
        if session.write(LUN, Lba(FENCED), data, common.size).await.is_err() {
            lost.set(true);
            return;
        }
        common.counts.count("write of a registrant");
        common.think(&mut rng).await;
    }
}

pub(super) async fn run(common: Common, name: String, mut rng: Rng) {
    loop {
        let index = rng.below(common.portals.len() as u64) as usize;
        if let Ok(session) = log_in(common.portals[index], &name).await {
            let result = fence(&common, session, &name, &mut rng).await;
            if result.is_err_and(|error| !matches!(error, Error::Status { .. })) {
                rt::sleep(LATE_MAX).await;
            }
        }
        rt::sleep(Duration::from_millis(rng.below(if common.hurries() { 10 } else { 200 }))).await;
    }
}

async fn fence(common: &Common, session: Session, name: &str, rng: &mut Rng) -> Result<(), Error> {
    let kind = ReservationType::WriteExclusive;
    let out =
        |action, action_key| PersistentReserveOut { action, kind, key: FENCER, action_key, survives: true };
    reserve(&session, surviving(FENCER)).await?;
    // It may be held by an earlier session of this host, through another node.
    let held = reserve(&session, out(ServiceAction::Reserve, 0)).await;
    if is_conflict(&held) {
        return reserve(&session, out(ServiceAction::Clear, 0)).await;
    }
    held?;
    reserve(&session, out(ServiceAction::PreemptAndAbort, WRITERS)).await?;
    let mut before = None;
    let mut session = Some(session);
    let hurried = common.hurries();
    for look in 0..LOOKS[rng.below(LOOKS.len() as u64) as usize] {
        // Others are to be fenced off in the moment that begins.
        if look >= LOOKS[0] && common.hurries() && !hurried {
            break;
        }
        rt::sleep(Duration::from_millis(rng.below(50))).await;
        let found = match &session {
            Some(session) => read(common, session).await.ok(),
            None => None,
        };
        let Some(found) = found else {
            // The reservation is to hold whatever becomes of the node and of the session.
            let index = rng.below(common.portals.len() as u64) as usize;
            session = log_in(common.portals[index], name).await.ok();
            continue;
        };
        let before = before.get_or_insert_with(|| found.clone());
        assert_eq!(*before, found, "a write took effect after its initiator was fenced off");
    }
    let Some(session) = session else { return Ok(()) };
    common.counts.count("fencing");
    let (action, counted) = match rng.below(4) {
        0 => (ServiceAction::Clear, "reservation cleared"),
        _ => (ServiceAction::Release, "reservation released"),
    };
    reserve(&session, out(action, 0)).await?;
    common.counts.count(counted);
    Ok(())
}

/// What the sectors of the block hold.
async fn read(common: &Common, session: &Session) -> Result<Vec<Option<u64>>, Error> {
    let size = common.size;
    let data = attended(async || session.read(LUN, Lba(FENCED), BlockCount(1), size).await).await?;
    Ok(data.chunks_exact(crate::layout::SECTOR).map(value_of).collect())
}
