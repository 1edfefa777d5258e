use base::Chain;

use super::*;
use crate::{
    Activation, ApplyId, Command, Config, DirtyMap, Geometry, Incarnation, NodeId, RegionCompare, Revision,
    TICK,
};

const GEOMETRY: Geometry = Geometry { blocks: 48, block_bytes: 8, region_blocks: 6 };
const LIFE: Incarnation = Incarnation(1);

fn slot(number: usize) -> Slot {
    Slot::new(number).unwrap()
}

/// A copy in sync, and one outside that misses two of eight regions and has asked for them.
struct Pair {
    source: Replica,
    outside: Replica,
}

impl Pair {
    fn new() -> Pair {
        Pair::with_lost(LostUnits::new())
    }

    /// With this much lost at the copy outside.
    fn with_lost(lost: LostUnits) -> Pair {
        let nodes = [(NodeId(1), LIFE), (NodeId(2), LIFE)];
        let config = Config::initial(&nodes, Revision(1)).remove(slot(1)).unwrap();
        let [source, outside] = [0, 1].map(|number| {
            let mut map = DirtyMap::new(GEOMETRY.regions());
            map.mark(0..if number == 0 { 2 } else { 0 }, Slots::NONE.with(slot(1)));
            let mut replica = Replica::new(slot(number), LIFE, GEOMETRY, map);
            replica.activate(Activation { config: config.clone(), kept: false });
            replica.handle_link_up(slot(1 - number));
            replica
        });
        let mut pair = Pair { source, outside };
        pair.source.handle_tick();
        pair.outside.set_lost(lost);
        pair.outside.catch_up();
        pair.talk();
        pair
    }

    /// Delivers all messages between the two. Returns what the copy outside is to compare, and drops all
    /// other outputs.
    fn talk(&mut self) -> Vec<RegionCompare> {
        let mut compares = Vec::new();
        let mut quiet = false;
        while !std::mem::replace(&mut quiet, true) {
            for [number, other] in [[0, 1], [1, 0]] {
                let both = [&mut self.source, &mut self.outside];
                let mut said = Vec::new();
                while let Some(output) = both[number].poll() {
                    match output {
                        Output::Send(to, envelope) => {
                            assert_eq!(to, slot(other));
                            said.push(envelope);
                        }
                        Output::CompareRegion(compare) => compares.push(compare),
                        _ => {}
                    }
                }
                quiet &= said.is_empty();
                said.into_iter().for_each(|envelope| both[other].handle_message(slot(number), envelope));
            }
        }
        compares
    }

    fn break_link(&mut self) {
        self.source.handle_link_down(slot(1));
        self.outside.handle_link_down(slot(0));
        self.source.handle_link_up(slot(1));
        self.outside.handle_link_up(slot(0));
        self.talk();
    }

    /// Both act in this configuration; the second copy has been no member until now.
    fn activate(&mut self, config: &Config) {
        self.source.activate(Activation { config: config.clone(), kept: true });
        self.outside.activate(Activation { config: config.clone(), kept: false });
        self.talk();
    }

    /// The source gives this many regions.
    fn give(&mut self, regions: u32) {
        for _ in 0..regions {
            let read = self.begin();
            self.source.handle_region_read(read, Ok(Payload::Data(Chain::copy_of(&[7; 48]))));
            self.talk();
        }
    }

    /// The source begins one region.
    fn begin(&mut self) -> RegionRead {
        assert_eq!(self.source.begin_regions(1, Receivers::All), 1);
        let read = |output| match output {
            Output::ReadRegion(read) => Some(read),
            _ => None,
        };
        std::iter::from_fn(|| self.source.poll()).find_map(read).expect("there is a region to be read")
    }

    fn write(&mut self, region: u64) -> u64 {
        let before = self.source.dirtied_bytes(slot(1));
        let blocks = GEOMETRY.blocks_of(region);
        self.source
            .write(Command(1), Blocks::new(blocks.start, blocks.start + 1), Payload::Zeros, 0)
            .unwrap();
        (self.source.dirtied_bytes(slot(1)) - before) / GEOMETRY.region_bytes()
    }
}

#[test]
fn a_waiting_joiner_learns_that_it_is_not_forgotten() {
    let mut pair = Pair::new();
    assert_eq!(pair.source.sync_to(slot(1)).unwrap().next, SyncNext::Budget);
    for _ in 0..40 {
        pair.source.handle_tick();
        pair.outside.handle_tick();
        pair.talk();
        let silent = pair.outside.syncs_from().unwrap().silent_ticks;
        assert!(silent <= 1, "{:?} without a word", TICK * silent);
    }
}

#[test]
fn a_joiner_does_not_wait_without_end_for_what_cannot_be_read() {
    let mut pair = Pair::new();
    let joins = pair.source.config().unwrap().admit(slot(1), LIFE).unwrap();
    pair.activate(&joins);
    for ticks in 0..=STARVED_TICKS + 1 {
        assert_eq!(pair.source.starved().contains(slot(1)), ticks > STARVED_TICKS, "{ticks}");
        pair.source.begin_regions(9, Receivers::All);
        while let Some(output) = pair.source.poll() {
            if let Output::ReadRegion(read) = output {
                pair.source.handle_region_read(read, Err(DiskFailed));
            }
        }
        pair.source.handle_tick();
    }
    assert!(!pair.source.has_failed());
}

/// A late answer of a disk to a read for a previous life does not count: the next life's first resync has
/// the same number, and what was written in between is newer than what was read.
#[test]
fn a_read_for_an_earlier_life_is_not_given_to_the_next() {
    let mut pair = Pair::new();
    let early = pair.begin();
    let mut next = Replica::new(slot(1), Incarnation(2), GEOMETRY, DirtyMap::new(GEOMETRY.regions()));
    next.activate(Activation { config: pair.source.config().unwrap().clone(), kept: false });
    pair.source.handle_link_down(slot(1));
    [&mut pair.source, &mut next].into_iter().zip([1, 0]).for_each(|(it, to)| it.handle_link_up(slot(to)));
    pair.outside = next;
    pair.outside.catch_up();
    pair.talk();
    let late = pair.begin();
    assert_eq!((early.to, early.sync, early.region), (late.to, late.sync, late.region));
    let gives = |source: &mut Replica| {
        std::iter::from_fn(|| source.poll())
            .any(|output| matches!(output, Output::Send(_, it) if matches!(it.message, Message::SyncRegion { .. })))
    };
    pair.source.handle_region_read(early, Ok(Payload::Zeros));
    assert!(!gives(&mut pair.source), "what was read for another life");
    pair.source.handle_region_read(late, Ok(Payload::Zeros));
    assert!(gives(&mut pair.source));
}

#[test]
fn a_copy_receives_no_more_lost_blocks_than_it_can_record() {
    let is_given = |had: LostUnits| {
        let mut pair = Pair::with_lost(had);
        let read = pair.begin();
        assert_eq!(read.region, 0);
        let blocks = Blocks::new(read.blocks.start, read.blocks.start + 1);
        let lost = vec![LostBlocks { blocks, holders: Slots::NONE }];
        pair.source.handle_region_read_by_block(read, Ok((Payload::Zeros, lost)));
        std::iter::from_fn(|| pair.source.poll())
            .any(|output| matches!(output, Output::Send(_, it) if matches!(it.message, Message::SyncRegion { .. })))
    };
    assert!(is_given([(5, LOST_UNITS_MAX - 1)].into()));
    assert!(!is_given([(5, LOST_UNITS_MAX)].into()));
    assert!(is_given([(0, LOST_UNITS_MAX)].into()), "these are lost anyway");
}

#[test]
fn a_region_may_take_minutes_as_long_as_parts_of_it_are_read() {
    for reads_parts in [true, false] {
        let mut pair = Pair::new();
        let read = pair.begin();
        let mut longest = 0;
        for tick in 0..3 * SLOW_READ_TICKS.end() {
            if reads_parts && tick % 40 == 0 {
                pair.source.handle_region_read_in_part(&read);
            }
            pair.source.handle_tick();
            pair.outside.handle_tick();
            // A copy that hears nothing for too long asks again, and this read would be wasted.
            longest = longest.max(pair.outside.syncs_from().unwrap().silent_ticks);
            pair.talk();
        }
        assert_eq!(longest < 8, reads_parts, "{longest} ticks without a word");
    }
}

/// The copy neither writes nor compares what it is given. If it asked again, it would get the same again,
/// without end.
#[test]
fn a_copy_whose_disk_hangs_receives_nothing_twice() {
    let mut pair = Pair::new();
    // By its own map it may miss one more region, which is compared first.
    pair.outside.map.mark(5..6, Slots::NONE.with(slot(0)));
    pair.break_link();
    let mut given = Vec::new();
    for _ in 0..5 * STARVED_TICKS {
        while pair.source.has_regions_to_begin(Receivers::All) {
            let read = pair.begin();
            given.push(read.region);
            pair.source.handle_region_read(read, Ok(Payload::Data(Chain::copy_of(&[7; 48]))));
            pair.talk();
        }
        pair.source.handle_tick();
        pair.outside.handle_tick();
        let silent = pair.outside.syncs_from().unwrap().silent_ticks;
        assert!(silent <= 1, "the source is waiting for this copy, and not the other way round");
        pair.talk();
    }
    assert_eq!(given, [0, 1, 5]);
    // The disk answers again.
    [1, 2].into_iter().for_each(|write| pair.outside.handle_applied(ApplyId(write), Ok(())));
    pair.talk();
    assert_eq!(pair.source.synced_bytes(slot(1)), 2 * GEOMETRY.region_bytes());
}

/// Each time, it could be given as much again, all of which stays in memory until the disk answers.
#[test]
fn a_copy_whose_disk_hangs_does_not_ask_though_links_break_and_epochs_change() {
    let the_record_changes = |pair: &mut Pair| {
        let config = pair.source.config().unwrap();
        let third = slot(2);
        let next = match config.copy(third) {
            Some(_) => config.drop_copy(third),
            None => config.add(third, NodeId(3)),
        };
        pair.activate(&next.unwrap());
    };
    for what_happens in [Pair::break_link as fn(&mut Pair), the_record_changes] {
        let mut pair = Pair::new();
        pair.give(2);
        for _ in 0..5 {
            what_happens(&mut pair);
            for _ in 0..STARVED_TICKS {
                pair.source.handle_tick();
                pair.outside.handle_tick();
                pair.talk();
            }
            assert!(!pair.source.has_regions_to_begin(Receivers::All));
            assert!(pair.outside.syncs_from().unwrap().awaits_disk);
        }
        // The disk answers again.
        pair.outside.handle_applied(ApplyId(1), Ok(()));
        pair.talk();
        assert!(!pair.source.has_regions_to_begin(Receivers::All), "one write is still under way");
        pair.outside.handle_applied(ApplyId(2), Ok(()));
        pair.talk();
        assert!(!pair.outside.syncs_from().unwrap().awaits_disk);
        pair.give(2);
        [3, 4].into_iter().for_each(|write| pair.outside.handle_applied(ApplyId(write), Ok(())));
        pair.talk();
        assert_eq!(pair.source.synced_bytes(slot(1)), 2 * GEOMETRY.region_bytes());
    }
}

/// A comparison holds no data while it waits for the disk, but all of them would be read at once when the
/// disk answers.
#[test]
fn a_copy_whose_disk_hangs_does_not_ask_while_it_compares() {
    let mut pair = Pair::new();
    pair.outside.map.mark(5..6, Slots::NONE.with(slot(0)));
    pair.break_link();
    let mut compare = None;
    while pair.source.has_regions_to_begin(Receivers::All) {
        let read = pair.begin();
        if read.region == 5 {
            pair.source.handle_region_read(read, Ok(Payload::Data(Chain::copy_of(&[7; 48]))));
            compare = pair.talk().into_iter().next();
        }
    }
    pair.break_link();
    assert!(!pair.source.has_regions_to_begin(Receivers::All));
    pair.outside.handle_region_compared(compare.unwrap(), Ok(None));
    pair.talk();
    assert!(pair.source.has_regions_to_begin(Receivers::All));
}

/// Once, the copy waited for room with what it was given first, and never got the zeros that would make
/// some.
#[test]
fn regions_without_space_come_after_all_others() {
    let mut pair = Pair::new();
    pair.give(1);
    assert!(pair.outside.put_off(ApplyId(1)));
    assert!(!pair.outside.put_off(ApplyId(1)), "it has ended");
    pair.talk();
    let read = pair.begin();
    assert_eq!(read.region, 1);
    pair.source.handle_region_read(read, Ok(Payload::Zeros));
    pair.talk();
    pair.outside.handle_applied(ApplyId(2), Ok(()));
    pair.talk();
    assert_eq!(pair.source.synced_bytes(slot(1)), GEOMETRY.region_bytes());
    assert!(!pair.source.caught_up().contains(slot(1)), "as a joiner, it would wait for room again");
    assert_eq!(pair.source.sync_to(slot(1)).unwrap().next, SyncNext::Room);
    assert!(!pair.source.has_regions_to_begin(Receivers::All), "not at once");
    pair.source.handle_tick();
    pair.talk();
    pair.give(1);
    pair.outside.handle_applied(ApplyId(3), Ok(()));
    pair.talk();
    assert_eq!(pair.source.synced_bytes(slot(1)), 2 * GEOMETRY.region_bytes());
    assert!(pair.source.caught_up().contains(slot(1)));
}

/// The source's disk tries for seconds to read two regions, and never for both at the same time.
///
/// Before, what had been put off waited until none of them was being read.
#[test]
fn what_was_put_off_does_not_wait_for_regions_that_cannot_be_read() {
    let mut pair = Pair::new();
    pair.outside.map.mark(5..6, Slots::NONE.with(slot(0)));
    pair.break_link();
    pair.give(1);
    assert!(pair.outside.put_off(ApplyId(1)));
    pair.talk();
    let mut reads = [pair.begin(), pair.begin()];
    assert_eq!(reads.map(|read| read.region), [1, 5]);
    for tick in 0..4 {
        pair.source.handle_region_read(reads[tick % 2], Err(DiskFailed));
        pair.source.handle_tick();
        pair.talk();
        let read = pair.begin();
        if read.region == 0 {
            assert!(pair.source.has_regions_to_begin(Receivers::All), "and the other one is read again");
            return;
        }
        assert_eq!(read.region, reads[tick % 2].region);
        reads[tick % 2] = read;
    }
    panic!("there may be room by now");
}

/// If the region were given again before that, it could be found equal, and then the old write would
/// land.
#[test]
fn a_region_is_postponed_when_all_of_its_writes_have_ended() {
    let mut pair = Pair::new();
    let read = pair.begin();
    let lost = LostBlocks { blocks: Blocks::new(0, 1), holders: Slots::NONE };
    let data = Payload::Data(Chain::copy_of(&[7; 48]));
    pair.source.handle_region_read_by_block(read, Ok((data, vec![lost])));
    pair.talk();
    assert!(pair.outside.put_off(ApplyId(2)));
    pair.talk();
    let next = |pair: &Pair| pair.source.sync_to(slot(1)).unwrap().next;
    // The loss is noted before and after the region is written around it.
    for apply in [1, 3, 4] {
        assert_eq!(next(&pair), SyncNext::Confirmed(0), "{apply}");
        pair.outside.handle_applied(ApplyId(apply), Ok(()));
        pair.talk();
    }
    assert_eq!(next(&pair), SyncNext::Budget, "the other region");
    assert_eq!(pair.source.synced_bytes(slot(1)), 0);
}

/// A region is not written around a loss whose note found no room: its zeros would pass for data.
#[test]
fn later_notes_than_a_postponed_one_are_known() {
    let mut pair = Pair::new();
    let read = pair.begin();
    let lost = LostBlocks { blocks: Blocks::new(0, 1), holders: Slots::NONE };
    let data = Payload::Data(Chain::copy_of(&[7; 48]));
    pair.source.handle_region_read_by_block(read, Ok((data, vec![lost])));
    pair.talk();
    assert!(!pair.outside.is_put_off(ApplyId(2)));
    assert!(pair.outside.put_off(ApplyId(1)));
    assert!(pair.outside.is_under_way(ApplyId(2)) && pair.outside.is_put_off(ApplyId(2)));
}

/// What hosts have written since the copy caught up may find no room there.
///
/// Once, it was let in nevertheless while other regions of the same pass were left.
#[test]
fn a_copy_that_puts_something_off_has_not_caught_up_any_more() {
    let mut pair = Pair::new();
    pair.give(2);
    [1, 2].into_iter().for_each(|write| pair.outside.handle_applied(ApplyId(write), Ok(())));
    pair.talk();
    assert!(pair.source.caught_up().contains(slot(1)));
    pair.source.map.mark(2..4, Slots::NONE.with(slot(1)));
    pair.source.handle_tick();
    pair.talk();
    pair.give(1);
    assert!(pair.outside.put_off(ApplyId(3)));
    pair.talk();
    assert_eq!(pair.source.sync_to(slot(1)).unwrap().next, SyncNext::Budget, "another region is left");
    assert!(!pair.source.caught_up().contains(slot(1)));
}

/// A joiner takes hosts' writes: it leaves if it has no room.
#[test]
fn a_joiner_puts_nothing_off() {
    let mut pair = Pair::new();
    pair.give(1);
    let joins = pair.source.config().unwrap().admit(slot(1), LIFE).unwrap();
    pair.activate(&joins);
    assert!(!pair.outside.put_off(ApplyId(1)), "nothing waits for it any more");
    pair.outside.handle_applied(ApplyId(1), Ok(()));
    pair.talk();
    pair.give(1);
    assert!(!pair.outside.put_off(ApplyId(2)));
}

/// There may always be some host's write under way to a joiner's disk.
#[test]
fn a_joiner_asks_again_when_its_disk_has_what_it_was_given_whatever_hosts_write() {
    let mut pair = Pair::new();
    let joins = pair.source.config().unwrap().admit(slot(1), LIFE).unwrap();
    pair.activate(&joins);
    pair.give(2);
    pair.write(3);
    pair.talk();
    pair.break_link();
    assert!(!pair.source.has_regions_to_begin(Receivers::All));
    pair.outside.handle_applied(ApplyId(1), Ok(()));
    pair.talk();
    assert!(!pair.source.has_regions_to_begin(Receivers::All), "one region is still under way");
    pair.outside.handle_applied(ApplyId(2), Ok(()));
    pair.talk();
    assert!(pair.source.has_regions_to_begin(Receivers::All));
}

#[test]
fn only_joiners_receive_regions_out_of_turn() {
    let mut pair = Pair::new();
    assert!(!pair.source.has_regions_to_begin(Receivers::Joiners));
    assert_eq!(pair.source.begin_regions(9, Receivers::Joiners), 0);
    assert!(pair.source.has_regions_to_begin(Receivers::All));
    assert_eq!(pair.source.begin_regions(9, Receivers::All), 2);
}

#[test]
fn an_excluded_joiner_receives_nothing_and_nothing_is_forgotten() {
    let mut pair = Pair::new();
    let paused = Receivers::AllBut(Slots::NONE.with(slot(1)));
    assert!(!pair.source.has_regions_to_begin(paused));
    assert_eq!(pair.source.begin_regions(9, paused), 0);
    let missed = pair.source.missed_bytes(slot(1));
    pair.write(0);
    assert!(missed > 0 && pair.source.missed_bytes(slot(1)) >= missed);
    let other = Receivers::AllBut(Slots::NONE.with(slot(2)));
    assert!(pair.source.begin_regions(9, other) > 0);
}

#[test]
fn regions_that_are_sent_anyway_are_not_added() {
    let mut pair = Pair::new();
    assert_eq!(pair.source.begin_regions(1, Receivers::All), 1);
    // The first region is on its way, the second waits, the third was equal.
    assert_eq!([0, 1, 2].map(|region| pair.write(region)), [1, 0, 1]);
    assert_eq!([0, 1, 2].map(|region| pair.write(region)), [0, 0, 0]);
}
