//! Hosts that exchange a block's content by COMPARE AND WRITE, each through one node.
//!
//! One host writes each block without comparing. Each exchange is atomic (A11).

use std::net::SocketAddr;

use base::{BlockCount, Lba, Rng};
use initiator::command::CompareAndWrite;
use initiator::{Error, Session};

use super::hot::attended;
use super::{Common, LOG_IN_AGAIN};
use crate::cluster::{LUN, log_in};
use crate::history::{filled, value_of};
use crate::layout::EXCHANGED;

pub(super) async fn run(common: Common, portal: SocketAddr, number: u64, name: String, mut rng: Rng) {
    let writes = Some(EXCHANGED.start + number).filter(|block| EXCHANGED.contains(block));
    loop {
        let Ok(session) = log_in(portal, LUN, &name).await else {
            rt::sleep(LOG_IN_AGAIN).await;
            continue;
        };
        while turn(&common, &session, writes, &mut rng).await.is_ok() {
            common.think(&mut rng).await;
        }
        common.recover(&mut rng).await;
    }
}

/// `writes` is the block that this host writes instead of exchanging it.
async fn turn(common: &Common, session: &Session, writes: Option<u64>, rng: &mut Rng) -> Result<(), Error> {
    let Common { history, counts, size, .. } = common;
    let (block, size) = (EXCHANGED.start + rng.below(EXCHANGED.end - EXCHANGED.start), *size);
    if writes == Some(block) {
        let new = history.value();
        let begun = history.begin_write(block..block + 1, new);
        attended(async || session.write(LUN, Lba(block), filled(new, 1, size), size).await).await?;
        history.end_write(&begun);
        return Ok(());
    }
    let call = history.tick();
    let data = attended(async || session.read(LUN, Lba(block), BlockCount(1), size).await).await?;
    history.read(block, &data, call);
    // A write that a power loss has torn cannot be exchanged.
    let Some(old) = value_of(&data) else { return Ok(()) };
    let new = history.value();
    let begun = history.begin_exchange(block, old, new);
    let exchange = || CompareAndWrite {
        lba: Lba(block),
        compare: filled(old, 1, size),
        write: filled(new, 1, size),
        size,
    };
    match attended(async || session.compare_and_write(LUN, exchange()).await).await {
        Ok(()) => {
            history.end_write(&begun);
            counts.count("exchange");
            Ok(())
        }
        Err(error) if error.is_miscompare() => {
            counts.count("miscompare");
            Ok(())
        }
        Err(error) => Err(error),
    }
}
