//! Hosts that share blocks without coordination, each through one node.
//!
//! They send overlapping reads and writes of one to four blocks, some with FUA, flushes, and WRITE SAME. What
//! they see is linearizable, sector by sector (A1).

use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::Range;

use base::{BlockCount, Lba, Rng};
use initiator::command::{SynchronizeCache, Write, WriteSame};
use initiator::{Error, Session};

use super::{Common, LOG_IN_AGAIN};
use crate::cluster::log_in;
use crate::history::filled;

/// Concurrent commands of a host.
const DEPTH: usize = 2;
/// Blocks of a command, at most.
const BLOCKS_MAX: u64 = 4;
/// Where a volume grows, a host reads the capacity before one in this many commands.
const ASKS_ONE_IN: u64 = 8;
/// Number of shared blocks in narrow plans, and while hosts hurry.
const NARROW: u64 = 2;

pub(super) async fn run(common: Common, portal: SocketAddr, name: String, mut rng: Rng) {
    loop {
        let Ok(session) = log_in(portal, common.lun, &name).await else {
            rt::sleep(LOG_IN_AGAIN).await;
            continue;
        };
        let blocks = Cell::new(0);
        let unit = Unit { session: &session, blocks: &blocks };
        let lanes = (0..DEPTH).map(|_| lane(&common, unit, portal, rng.fork()));
        rt::join_all(lanes.collect::<Vec<_>>()).await;
        common.recover(&mut rng).await;
    }
}

/// The unit of a session.
#[derive(Clone, Copy)]
struct Unit<'a> {
    session: &'a Session,
    /// The capacity that it reported; 0: not asked yet.
    blocks: &'a Cell<u64>,
}

/// Sends one command after the other, until one fails.
async fn lane(common: &Common, unit: Unit<'_>, portal: SocketAddr, mut rng: Rng) {
    while turn(common, unit, common.only_look(portal), &mut rng).await.is_ok() {
        common.think(&mut rng).await;
    }
    // The other lanes' next commands fail at once.
    unit.session.give_up();
}

async fn turn(common: &Common, unit: Unit<'_>, looks: bool, rng: &mut Rng) -> Result<(), Error> {
    let Unit { session, blocks } = unit;
    if common.grows && rng.one_in(ASKS_ONE_IN) {
        let told = attended(async || session.read_capacity(common.lun).await).await?;
        blocks.set(told.blocks.0);
    }
    let grown = common.layout.grown(common.size, blocks.get());
    let blocks = draw(common, grown.clone(), rng);
    let is_grown = !grown.is_empty() && blocks.start >= grown.start;
    let lun = common.lun;
    let (lba, count) = (Lba(blocks.start), BlockCount(blocks.end - blocks.start));
    let Common { history, counts, size, .. } = common;
    let drawn = rng.below(16);
    match if looks { 0 } else { drawn } {
        0..=6 => {
            let call = history.tick();
            let data = attended(async || session.read(lun, lba, count, *size).await).await?;
            history.read(lba.0, &data, call);
            counts.count("read");
            if is_grown {
                counts.count("read of what a volume has grown by");
            }
        }
        7..=13 => {
            let (value, durable) = (history.value(), rng.one_in(3));
            let write = Write { lba, data: filled(value, count.0, *size), size: *size, durable };
            let begun = history.begin_write(blocks, value);
            attended(async || session.send(lun, &write).await).await?;
            history.end_write(&begun);
            counts.count(if durable { "write with FUA" } else { "write" });
            if is_grown {
                counts.count("write to what a volume has grown by");
            }
        }
        14 => {
            let value = history.value();
            let same = WriteSame { lba, count, block: filled(value, 1, *size), unmap: false };
            let begun = history.begin_write(blocks, value);
            attended(async || session.send(lun, &same).await).await?;
            history.end_write(&begun);
            counts.count("WRITE SAME");
        }
        _ => {
            attended(async || session.send(lun, &SynchronizeCache).await).await?;
            counts.count("flush");
        }
    }
    Ok(())
}

fn draw(common: &Common, grown: Range<u64>, rng: &mut Rng) -> Range<u64> {
    if common.narrow || common.hurries() {
        let first = rng.below(NARROW);
        return first..first + 1 + rng.below(NARROW - first);
    }
    let areas = common.layout.hot(common.size);
    let area = match usize::from(rng.one_in(3)) {
        _ if !grown.is_empty() && rng.one_in(4) => &grown,
        at => &areas[at.min(areas.len() - 1)],
    };
    let first = area.start + rng.below(area.end - area.start);
    let count = if rng.one_in(2) { 1 } else { 1 + rng.below(BLOCKS_MAX) };
    first..(first + count).min(area.end)
}

/// Sends a command, and again if the response was a unit attention.
pub(crate) async fn attended<T>(send: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    match send().await {
        Err(error) if error.is_unit_attention() => send().await,
        done => done,
    }
}
