use std::collections::BTreeMap;

use base::{Chain, Rng};

use super::*;
use crate::{Epoch, Slot};

const GEOMETRY: Geometry = Geometry { blocks: 40, block_bytes: 4, region_blocks: 8 };

fn ts(counter: u64) -> Timestamp {
    Timestamp { epoch: Epoch(1), counter, slot: Slot::new(0).unwrap() }
}

fn payload(blocks: Blocks, value: u32) -> Payload {
    let bytes: Vec<u8> =
        (blocks.start..blocks.end).flat_map(|block| (value * 100 + block as u32).to_le_bytes()).collect();
    Payload::Data(Chain::copy_of(&bytes))
}

#[test]
fn an_older_write_covers_only_blocks_that_are_not_newer() {
    let mut table = Table::new(GEOMETRY);
    let (middle, all) = (Blocks::new(4, 6), Blocks::new(2, 9));
    assert_eq!(table.write(middle, ts(5), &payload(middle, 5)), [middle]);
    assert_eq!(table.write(all, ts(3), &payload(all, 3)), [Blocks::new(2, 4), Blocks::new(6, 9)]);
    assert_eq!(table.write(all, ts(3), &payload(all, 3)), [], "the same write again changes nothing");
    table.check();
}

#[test]
fn a_write_is_settled_only_where_it_is_the_newest() {
    let mut table = Table::new(GEOMETRY);
    let (old, new) = (Blocks::new(0, 8), Blocks::new(2, 4));
    table.write(old, ts(1), &payload(old, 1));
    table.write(new, ts(2), &payload(new, 2));
    table.settle(old, ts(1));
    assert!(table.is_valid(Blocks::new(0, 2)) && table.is_valid(Blocks::new(4, 8)));
    assert!(!table.is_valid(Blocks::new(3, 5)));
    table.settle(new, ts(2));
    assert!(table.is_valid(old));
    // Others may still send the write at the floor again.
    table.forget_below(ts(2));
    assert_eq!(table.count(), (0, 1));
    table.forget_below(ts(3));
    assert!(table.is_empty());
}

#[test]
fn writes_older_than_forgotten_ones_are_refused() {
    let mut table = Table::new(GEOMETRY);
    let (blocks, part) = (Blocks::new(0, 4), Blocks::new(1, 2));
    for counter in [1, 2] {
        table.write(blocks, ts(counter), &payload(blocks, 1));
        table.settle(blocks, ts(counter));
    }
    table.forget_below(ts(3));
    assert_eq!(table.write(part, ts(1), &payload(part, 1)), []);
    assert_eq!(table.write(part, ts(2), &payload(part, 2)), []);
    assert_eq!(table.write(part, ts(3), &payload(part, 3)), [part], "it may be new");
    table.clear();
    assert_eq!(table.write(part, ts(1), &payload(part, 1)), [part], "nothing is known of what was here");
    table.check();
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "was never in all of")]
fn an_unknown_write_is_not_mistaken_for_a_late_one() {
    let mut table = Table::new(GEOMETRY);
    let blocks = Blocks::new(0, 4);
    table.write(blocks, ts(2), &payload(blocks, 2));
    table.settle(blocks, ts(2));
    table.forget_below(ts(3));
    let other = Blocks::new(3, 5);
    table.write(other, ts(1), &payload(other, 1));
}

#[test]
fn a_doubtful_entry_yields_to_another_copys_and_to_no_older_write() {
    let mut table = Table::new(GEOMETRY);
    let (all, new) = (Blocks::new(0, 4), Blocks::new(2, 3));
    table.write(all, ts(5), &payload(all, 5));
    table.settle(all, ts(5));
    assert_eq!(table.older_than(all, None), []);
    table.doubt_valid_before(ts(6));
    assert_eq!(table.older_than(all, None), [all]);
    assert_eq!(table.write(all, ts(4), &payload(all, 4)), []);
    table.write(new, ts(7), &payload(new, 7));
    assert_eq!(table.older_than(all, None), [Blocks::new(0, 2), Blocks::new(3, 4)]);
    table.check();
}

#[test]
fn a_forgotten_write_still_spoils_a_read_that_was_under_way() {
    let mut table = Table::new(GEOMETRY);
    let blocks = Blocks::new(0, 1);
    let mark = table.mark();
    table.write(blocks, ts(1), &payload(blocks, 1));
    table.settle(blocks, ts(1));
    table.forget_below(ts(2));
    assert!(table.is_empty() && !table.unchanged_since(mark, blocks));
    assert!(table.unchanged_since(table.mark(), blocks));
}

/// A disk may take seconds, and the table forgets several times a second.
#[test]
fn a_write_elsewhere_does_not_spoil_a_read_that_is_under_way() {
    let mut table = Table::new(GEOMETRY);
    let (read, before, elsewhere) = (Blocks::new(0, 1), Blocks::new(1, 2), Blocks::new(4, 5));
    table.write(before, ts(1), &payload(before, 1));
    table.settle(before, ts(1));
    let mark = table.mark();
    table.write(elsewhere, ts(2), &payload(elsewhere, 2));
    table.settle(elsewhere, ts(2));
    table.remember_since(Some(mark));
    table.forget_below(ts(3));
    assert_eq!(table.count(), (0, 1), "only what was written since is remembered");
    assert!(table.unchanged_since(mark, read) && !table.unchanged_since(mark, elsewhere));
    table.remember_since(None);
    table.forget_below(ts(3));
    assert!(table.is_empty());
}

/// However many reads are under way, of whichever age, and whenever the table forgets.
#[test]
fn reads_under_way_are_spoiled_by_writes_to_their_blocks_only() {
    for seed in 0..300 {
        let (mut rng, mut table) = (Rng::new(seed), Table::new(GEOMETRY));
        // Their marks and blocks, and whether these were written since.
        let mut reads: Vec<(u64, Blocks, bool)> = Vec::new();
        for counter in 1..100 {
            let start = rng.below(GEOMETRY.blocks);
            let blocks = Blocks::new(start, (start + 1 + rng.below(6)).min(GEOMETRY.blocks));
            match rng.below(5) {
                0 => reads.push((table.mark(), blocks, false)),
                1 if !reads.is_empty() => {
                    reads.swap_remove(rng.below(reads.len() as u64) as usize);
                }
                2 => {
                    table.remember_since(reads.iter().map(|(mark, ..)| *mark).min());
                    table.forget_below(ts(counter));
                    assert!(!reads.is_empty() || table.is_empty(), "seed {seed}: nobody needs what is left");
                }
                _ => {
                    table.write(blocks, ts(counter), &payload(blocks, 0));
                    table.settle(blocks, ts(counter));
                    for (_, read, is_written) in &mut reads {
                        *is_written |= read.overlaps(blocks);
                    }
                }
            }
            table.check();
            for (mark, read, is_written) in &reads {
                assert_eq!(table.unchanged_since(*mark, *read), !is_written, "seed {seed}: {read:?}");
            }
        }
    }
}

#[test]
fn a_read_under_way_keeps_a_limited_number_of_entries() {
    let mut table = Table::new(Geometry { blocks: 1 << 20, ..GEOMETRY });
    let (read, mark) = (Blocks::new(0, 1), table.mark());
    table.remember_since(Some(mark));
    let mut write = |block: u64| {
        let blocks = Blocks::new(block, block + 1);
        table.write(blocks, ts(block), &payload(blocks, 0));
        table.settle(blocks, ts(block));
        table.forget_below(ts(block + 1));
        (table.count(), table.unchanged_since(mark, read))
    };
    let last = REMEMBERED_MAX as u64;
    for block in 1..last {
        write(block);
    }
    assert_eq!(write(last), ((0, REMEMBERED_MAX), true));
    assert_eq!(write(last + 1), ((0, REMEMBERED_MAX), false));
}

/// The obvious implementation: one entry per block.
#[derive(Default)]
struct Slow(BTreeMap<u64, (Timestamp, Option<Vec<u8>>)>);

#[test]
fn agrees_with_one_entry_a_block() {
    let mut rng = Rng::new(7);
    for _ in 0..300 {
        let (mut table, mut slow) = (Table::new(GEOMETRY), Slow::default());
        let mut writes: Vec<(Blocks, Timestamp)> = Vec::new();
        for _ in 0..60 {
            let start = rng.below(GEOMETRY.blocks);
            let blocks = Blocks::new(start, (start + 1 + rng.below(12)).min(GEOMETRY.blocks));
            match rng.below(4) {
                0 | 1 => {
                    let (ts, payload) = (ts(rng.below(30)), payload(blocks, rng.below(1000) as u32));
                    if writes.iter().any(|(_, other)| *other == ts) {
                        continue;
                    }
                    let taken = table.write(blocks, ts, &payload);
                    writes.push((blocks, ts));
                    for block in blocks.start..blocks.end {
                        let one = Blocks::new(block, block + 1);
                        let newer = slow.0.get(&block).is_none_or(|(there, _)| *there < ts);
                        assert_eq!(newer, taken.iter().any(|part| part.overlaps(one)), "block {block}");
                        if newer {
                            let Payload::Data(data) = payload.part(blocks, one, &GEOMETRY) else { panic!() };
                            slow.0.insert(block, (ts, Some(data.to_vec())));
                        }
                    }
                }
                2 if !writes.is_empty() => {
                    let (whole, ts) = writes[rng.below(writes.len() as u64) as usize];
                    let part = whole.intersection(blocks).unwrap_or(whole);
                    table.settle(part, ts);
                    for block in part.start..part.end {
                        if let Some((_, payload)) = slow.0.get_mut(&block).filter(|(there, _)| *there == ts) {
                            *payload = None;
                        }
                    }
                }
                _ => {
                    let valid = (blocks.start..blocks.end)
                        .all(|block| slow.0.get(&block).is_none_or(|(_, payload)| payload.is_none()));
                    assert_eq!(table.is_valid(blocks), valid);
                }
            }
            table.check();
            let mut known = BTreeMap::new();
            for (part, entry) in table.within(Blocks::new(0, GEOMETRY.blocks)) {
                for block in part.start..part.end {
                    let data = entry.payload.as_ref().map(|payload| {
                        let Payload::Data(data) =
                            payload.part(part, Blocks::new(block, block + 1), &GEOMETRY)
                        else {
                            panic!()
                        };
                        data.to_vec()
                    });
                    known.insert(block, (entry.ts, data));
                }
            }
            assert_eq!(known, slow.0);
        }
        table.forget_below(ts(1000));
        assert!(
            table.within(Blocks::new(0, GEOMETRY.blocks)).all(|(_, entry)| !entry.is_valid()),
            "all that is valid is forgotten"
        );
    }
}

#[test]
fn a_mark_from_before_everything_was_forgotten_counts_as_changed() {
    let mut table = Table::new(GEOMETRY);
    let blocks = Blocks::new(4, 6);
    let marks = [table.mark(), {
        table.write(blocks, ts(5), &payload(blocks, 5));
        table.mark()
    }];
    assert!(table.unchanged_since(marks[1], blocks));
    table.clear();
    let after = table.mark();
    for mark in marks {
        assert!(!table.unchanged_since(mark, blocks), "what came while it was no member is not known");
        assert!(table.moving_since(mark, blocks).is_none());
    }
    assert!(table.is_empty() && table.unchanged_since(after, blocks));
    table.write(blocks, ts(7), &payload(blocks, 7));
    assert!(!table.unchanged_since(marks[1], blocks) && !table.unchanged_since(after, blocks));
    table.check();
}
