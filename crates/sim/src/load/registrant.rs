//! Hosts that register again and again with changing keys, each through one node.
//!
//! Neither concurrent changes by others nor a power loss may undo an answered registration (A10).

use std::net::SocketAddr;

use base::Rng;
use initiator::command::{PersistentReserveOut, ReadKeys};
use initiator::{Error, Options, Session};

use super::hot::attended;
use super::{Common, LOG_IN_AGAIN};
use crate::cluster::{LUN, log_in_as, named};

/// A host's keys have its number in these bits.
const NUMBER_BITS: u32 = 8;

pub(super) async fn run(common: Common, portal: SocketAddr, number: u64, name: String, mut rng: Rng) {
    // The nexus is what registers, so the next session must have the same ISID.
    let options = Options { isid: Some([0x80, 0, 0, 0, 0, number as u8]), ..named(&name) };
    // 0: not registered. `None`: it sent a command and received no response.
    let mut key = Some(0);
    loop {
        let Ok(session) = log_in_as(portal, LUN, &options).await else {
            rt::sleep(LOG_IN_AGAIN).await;
            continue;
        };
        while turn(&common, &session, number, &mut key, &mut rng).await.is_ok() {
            common.think(&mut rng).await;
        }
        common.recover(&mut rng).await;
    }
}

async fn turn(
    common: &Common,
    session: &Session,
    number: u64,
    key: &mut Option<u64>,
    rng: &mut Rng,
) -> Result<(), Error> {
    if let Some(key) = *key {
        let keys = attended(async || session.send(LUN, &ReadKeys).await).await?;
        let mask = (1 << NUMBER_BITS) - 1;
        let own: Vec<u64> = keys.into_iter().filter(|key| key & mask == number + 1).collect();
        let expected: Vec<u64> = [key].into_iter().filter(|key| *key != 0).collect();
        assert_eq!(own, expected, "what host {number} is registered with, and what was answered");
        common.counts.count("look at registrations");
    }
    // To unregister without a registration changes nothing: if the host errs about its registration, it has
    // the wanted result already.
    let new = if rng.one_in(2) { 0 } else { common.history.value() << NUMBER_BITS | (number + 1) };
    *key = None;
    let register = PersistentReserveOut { survives: true, ..PersistentReserveOut::register(new) };
    attended(async || session.reserve(LUN, register).await).await?;
    *key = Some(new);
    Ok(())
}
