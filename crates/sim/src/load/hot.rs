//! Hosts that share blocks without any agreement, each through one node: reads and writes of one to four blocks that overlap, some
//! with FUA, flushes, WRITE SAME. What they see is linearizable, sector by sector (A1).

use std::net::SocketAddr;
use std::ops::Range;

use base::{BlockCount, Lba, Rng};
use initiator::command::{SynchronizeCache, Write, WriteSame};
use initiator::{Error, Session};

use super::{Common, LOG_IN_AGAIN};
use crate::cluster::{LUN, log_in};
use crate::history::filled;
use crate::layout;

/// Commands that a host has under way at once.
const DEPTH: usize = 2;
/// Blocks of a command at most.
const BLOCKS_MAX: u64 = 4;
/// So many blocks are shared where these are few, and while hosts hurry.
const NARROW: u64 = 2;

pub(super) async fn run(common: Common, portal: SocketAddr, name: String, mut rng: Rng) {
    loop {
        let Ok(session) = log_in(portal, &name).await else {
            rt::sleep(LOG_IN_AGAIN).await;
            continue;
        };
        let lanes = (0..DEPTH).map(|_| lane(&common, &session, portal, rng.fork()));
        rt::join_all(lanes.collect::<Vec<_>>()).await;
        common.recover(&mut rng).await;
    }
}

/// One command after the other, until one fails.
async fn lane(common: &Common, session: &Session, portal: SocketAddr, mut rng: Rng) {
    while turn(common, session, common.only_look(portal), &mut rng).await.is_ok() {
        common.think(&mut rng).await;
    }
    // The other lanes' next commands fail at once.
    session.give_up();
}

async fn turn(common: &Common, session: &Session, looks: bool, rng: &mut Rng) -> Result<(), Error> {
    let blocks = draw(common, rng);
    let (lba, count) = (Lba(blocks.start), BlockCount(blocks.end - blocks.start));
    let Common { history, counts, size, .. } = common;
    let drawn = rng.below(16);
    match if looks { 0 } else { drawn } {
        0..=6 => {
            let call = history.tick();
            let data = attended(async || session.read(LUN, lba, count, *size).await).await?;
            history.read(lba.0, &data, call);
            counts.count("read");
        }
        7..=13 => {
            let (value, durable) = (history.value(), rng.one_in(3));
            let write = Write { lba, data: filled(value, count.0, *size), size: *size, durable };
            let begun = history.begin_write(blocks, value);
            attended(async || session.send(LUN, &write).await).await?;
            history.end_write(&begun);
            counts.count(if durable { "write with FUA" } else { "write" });
        }
        14 => {
            let value = history.value();
            let same = WriteSame { lba, count, block: filled(value, 1, *size), unmap: false };
            let begun = history.begin_write(blocks, value);
            attended(async || session.send(LUN, &same).await).await?;
            history.end_write(&begun);
            counts.count("WRITE SAME");
        }
        _ => {
            attended(async || session.send(LUN, &SynchronizeCache).await).await?;
            counts.count("flush");
        }
    }
    Ok(())
}

fn draw(common: &Common, rng: &mut Rng) -> Range<u64> {
    if common.narrow || common.hurries() {
        let first = rng.below(NARROW);
        return first..first + 1 + rng.below(NARROW - first);
    }
    let areas = layout::hot(common.size);
    let area = &areas[usize::from(rng.one_in(3))];
    let first = area.start + rng.below(area.end - area.start);
    let count = if rng.one_in(2) { 1 } else { 1 + rng.below(BLOCKS_MAX) };
    first..(first + count).min(area.end)
}

/// Sends a command again that was answered with the word that something else has changed.
pub(crate) async fn attended<T>(send: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    match send().await {
        Err(error) if error.is_unit_attention() => send().await,
        done => done,
    }
}
