//! A host that has blocks of its own and uses all nodes at once.
//!
//! It sends writes, UNMAP, WRITE SAME of zeros, and flushes; then it reads. Once a command has been answered,
//! no earlier one takes effect any more (`docs/why/multipath.md`), through whichever node it was sent (A12).
//! A restore of the volume brings back what the snapshot has of these blocks.

use std::ops::Range;

use base::{BlockCount, Chain, Lba, LbaRange, Rng};
use initiator::command::WriteSame;
use initiator::multipath::{EffectKnown, Failure};
use initiator::{Multipath, MultipathOptions, Search, UnitSelector};
use rt::sim::linear::Time;

use super::{Common, LOG_IN_AGAIN};
use crate::cluster::{TARGET, named};
use crate::history::{filled, value_of};
use crate::layout::SECTOR;

/// Blocks of a command, at most.
const BLOCKS_MAX: u64 = 3;

/// What a block may hold, the same value in all its sectors.
///
/// `certain` is the value of the latest answered command; the others may still replace it.
struct Block {
    certain: u64,
    /// When the command began that has written or read `certain`, and when it was answered.
    known: (Time, Time),
    /// Commands that may have taken effect.
    perhaps: Vec<u64>,
    /// Commands that may take effect after any later write: their node could not be reached.
    later: Vec<u64>,
}

pub(super) async fn run(common: Common, own: Range<u64>, name: String, mut rng: Rng) {
    let search = Search {
        portals: common.portals.clone(),
        target: Some(TARGET.to_owned()),
        unit: UnitSelector::Lun(common.lun),
        discover: false,
    };
    let empty = |_| Block { certain: 0, known: (0, 0), perhaps: Vec::new(), later: Vec::new() };
    let mut blocks: Vec<Block> = own.clone().map(empty).collect();
    loop {
        let options = MultipathOptions { login: named(&name), ..MultipathOptions::default() };
        let Ok(unit) = Multipath::open(&search, options).await else {
            rt::sleep(LOG_IN_AGAIN).await;
            continue;
        };
        while turn(&common, &unit, own.start, &mut blocks, &mut rng).await {
            common.think(&mut rng).await;
        }
    }
}

/// Returns whether to continue with this unit.
async fn turn(common: &Common, unit: &Multipath, start: u64, blocks: &mut [Block], rng: &mut Rng) -> bool {
    let first = rng.below(blocks.len() as u64);
    let count = (1 + rng.below(BLOCKS_MAX)).min(blocks.len() as u64 - first);
    let (lba, blocks) = (Lba(start + first), &mut blocks[first as usize..(first + count) as usize]);
    let count = BlockCount(count);
    let call = common.history.tick();
    let value = match rng.below(8) {
        0 | 1 => 0,
        2 => return unit.flush().await.is_ok(),
        3..=5 => common.history.value(),
        _ => {
            let Ok(data) = unit.read(lba, count).await else { return false };
            check(common, lba, blocks, &data, call);
            return true;
        }
    };
    let result = match value {
        0 if rng.one_in(2) => {
            common.counts.count("UNMAP");
            unit.unmap(&[LbaRange { start: lba, count }]).await
        }
        0 => {
            common.counts.count("WRITE SAME of zeros");
            unit.write_same(&WriteSame { lba, count, block: Chain::new(), unmap: rng.one_in(2) }).await
        }
        value => {
            common.counts.count("write by several paths");
            unit.write(lba, filled(value, count.0, common.size)).await
        }
    };
    let effect = result.as_ref().map_err(Failure::effect);
    let known = (call, common.history.tick());
    for block in blocks {
        match effect {
            Ok(()) => (block.certain, block.known, block.perhaps) = (value, known, Vec::new()),
            Err(EffectKnown::None) => {}
            Err(EffectKnown::Answered | EffectKnown::Perhaps) => block.perhaps.push(value),
            Err(EffectKnown::PerhapsLater) => block.later.push(value),
        }
    }
    result.is_ok()
}

/// Checks what a read that began at `call` has found.
fn check(common: &Common, lba: Lba, blocks: &mut [Block], data: &[u8], call: Time) {
    let Common { history, counts, size, .. } = common;
    counts.count("read by several paths");
    let known = (call, history.tick());
    for (number, (block, bytes)) in
        (lba.0..).zip(blocks.iter_mut().zip(data.chunks_exact(size.bytes() as usize)))
    {
        let is_replaced = history.is_restored_between(block.known.1, call);
        for (sector, bytes) in history.sectors_of(number).zip(bytes.chunks_exact(SECTOR)) {
            let found = value_of(bytes);
            let brought_back = history.brought_back(sector, block.known.0);
            let possible = |value| {
                block.certain == value && !is_replaced
                    || block.perhaps.contains(&value)
                    || block.later.contains(&value)
                    || brought_back.contains(&value)
            };
            assert!(
                found.is_some_and(possible),
                "block {number} of one host holds {found:?}, and {} was answered last; perhaps {:?}, later {:?}, restored {brought_back:?}",
                block.certain,
                block.perhaps,
                block.later
            );
        }
        // What was read stays, unless a command is still under way.
        if let Some(value) = value_of(bytes).filter(|_| block.later.is_empty()) {
            (block.certain, block.known, block.perhaps) = (value, known, Vec::new());
        }
    }
}
