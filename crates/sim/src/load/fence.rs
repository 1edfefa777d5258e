//! Hosts that write one block while they are registered, each through one node; and one that fences them off, through changing nodes: from then on
//! nothing of theirs takes effect any more (A10).

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
/// For so long nothing may change after the writers were fenced off, looked at so often.
const LOOKS: u64 = 5;

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

pub(super) async fn write(common: Common, portal: SocketAddr, name: String) {
    loop {
        if let Ok(session) = log_in(portal, &name).await {
            while reserve(&session, surviving(WRITERS)).await.is_ok() {
                loop {
                    let data = filled(common.history.value(), 1, common.size);
                    // Word of a lost registration comes before the write is carried out: it is not sent again.
                    if session.write(LUN, Lba(FENCED), data, common.size).await.is_err() {
                        break;
                    }
                    common.counts.count("write of a registrant");
                }
                rt::sleep(Duration::from_millis(1)).await;
            }
        }
        rt::sleep(LOG_IN_AGAIN).await;
    }
}

pub(super) async fn run(common: Common, name: String, mut rng: Rng) {
    loop {
        let index = rng.below(common.portals.len() as u64) as usize;
        if let Ok(session) = log_in(common.portals[index], &name).await {
            let result = fence(&common, &session, &mut rng).await;
            if result.is_err_and(|error| !matches!(error, Error::Status { .. })) {
                rt::sleep(LATE_MAX).await;
            }
        }
        rt::sleep(Duration::from_millis(rng.below(200))).await;
    }
}

async fn fence(common: &Common, session: &Session, rng: &mut Rng) -> Result<(), Error> {
    let kind = ReservationType::WriteExclusive;
    let out =
        |action, action_key| PersistentReserveOut { action, kind, key: FENCER, action_key, survives: true };
    reserve(session, surviving(FENCER)).await?;
    // It may be held by an earlier session of this host, through another node.
    let held = reserve(session, out(ServiceAction::Reserve, 0)).await;
    if is_conflict(&held) {
        return reserve(session, out(ServiceAction::Clear, 0)).await;
    }
    held?;
    reserve(session, out(ServiceAction::PreemptAndAbort, WRITERS)).await?;
    let before = read(common, session).await?;
    for _ in 0..LOOKS {
        rt::sleep(Duration::from_millis(rng.below(50))).await;
        let after = read(common, session).await?;
        assert_eq!(before, after, "a write took effect after its initiator was fenced off");
    }
    common.counts.count("fencing");
    reserve(session, out(ServiceAction::Release, 0)).await
}

/// What the sectors of the block hold.
async fn read(common: &Common, session: &Session) -> Result<Vec<Option<u64>>, Error> {
    let size = common.size;
    let data = attended(async || session.read(LUN, Lba(FENCED), BlockCount(1), size).await).await?;
    Ok(data.chunks_exact(crate::layout::SECTOR).map(value_of).collect())
}
