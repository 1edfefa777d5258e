//! Rewrites blocks that the local disk could not read (R25).
//!
//! The data is what another copy in sync would have given to a host of its own. If nothing was taken into
//! these blocks since the failed read began, and they are valid, then it is their newest write, and every
//! member holds it. Writes that are taken later are handed out behind the rewrite.
//!
//! A write of a part of a disk block needs the rest of that block. If the disk cannot read it, the block is
//! written as a whole before the write ([`Replica::block_around`]).

use base::Instant;

use crate::canary::{Canary, makes};
use crate::{ApplyId, ApplyKind, Blocks, Leases, Payload, Slots, Standing};

use super::{DiskFault, ReadMark, Replica};

/// The content that a disk block must get, as of a moment.
#[derive(Debug)]
pub struct Around {
    blocks: Blocks,
    mark: ReadMark,
    /// The parts of the block in order, with the data that this copy has taken; `None` for what any copy in
    /// sync holds.
    pub parts: Vec<(Blocks, Option<Payload>)>,
}

/// Why a write's block must not be written as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAround {
    /// The write does not belong to this membership: nothing waits for it. A resync brings its data, or it is
    /// no longer wanted.
    Over,
    /// This copy has failed or is outside: it does not know the rest.
    NoMember,
}

impl Replica {
    /// Hands out a rewrite of blocks that the local disk could not read, with the data of another copy in
    /// sync.
    ///
    /// Its bits for all other copies are on the disk first (R4), since a power loss may tear it.
    /// [`Replica::handle_applied`] ends it; an error ends this copy's part, as for any write.
    ///
    /// Returns `None` if something has changed since `mark`, which must be older than the question to the
    /// other copy: the blocks hold something else by now, or soon will.
    pub fn repair(
        &mut self,
        mark: ReadMark,
        now: Instant,
        leases: &Leases,
        blocks: Blocks,
        payload: Payload,
    ) -> Option<ApplyId> {
        if self.failed.is_some()
            || !self.still_readable(mark, now, leases, blocks) && !makes(Canary::RepairLate)
        {
            return None;
        }
        let intents = if makes(Canary::RepairWithoutIntent) { Slots::NONE } else { self.others() };
        let regions = self.geometry.regions_of(blocks);
        for region in regions.clone() {
            self.warm.insert(region, self.ticks);
            self.note_dirtied(region);
        }
        self.map.mark(regions, intents);
        Some(self.media.submit(blocks, payload, intents, ApplyKind::Repair))
    }

    /// The content for the disk block of which the write `id` changes a part, if the disk cannot read the
    /// rest.
    ///
    /// This notes the block's bits for all other copies, as [`Replica::repair`] does. The block may be
    /// written as long as [`Replica::still_around`] agrees.
    ///
    /// Where a write is under way, it is safe to write the newest one that was taken, even early: it is not
    /// valid, so no host sees it, no node was told that it is on the disk, and it is written again when its
    /// turn comes. Everything else is valid: every copy in sync holds it, and a joiner holds it or gets it.
    /// So any copy in sync can give the rest.
    pub fn block_around(&mut self, id: ApplyId, blocks: Blocks) -> Result<Around, NotAround> {
        self.may_fill(id)?;
        let regions = self.geometry.regions_of(blocks);
        for region in regions.clone() {
            self.warm.insert(region, self.ticks);
            self.note_dirtied(region);
        }
        self.map.mark(regions, self.others());
        let mut parts = Vec::new();
        let mut at = blocks.start;
        for (part, payload) in self.table.invalid_within(blocks) {
            if at < part.start {
                parts.push((Blocks::new(at, part.start), None));
            }
            parts.push((part, Some(payload)));
            at = part.end;
        }
        if at < blocks.end {
            parts.push((Blocks::new(at, blocks.end), None));
        }
        Ok(Around { blocks, mark: ReadMark(self.table.mark()), parts })
    }

    /// Whether that content is still right, and may be written: nothing was taken there meanwhile, and its
    /// bits are on the disk (R4).
    pub fn still_around(&self, id: ApplyId, around: &Around) -> Result<bool, NotAround> {
        self.may_fill(id)?;
        let regions = self.geometry.regions_of(around.blocks);
        let unchanged = self.table.unchanged_since(around.mark.0, around.blocks);
        Ok((unchanged || makes(Canary::RepairLate)) && self.map.is_durable(regions, self.others()))
    }

    /// Whether something was taken into the blocks meanwhile.
    pub fn has_moved(&self, around: &Around) -> bool {
        !self.table.unchanged_since(around.mark.0, around.blocks)
    }

    fn may_fill(&self, id: ApplyId) -> Result<(), NotAround> {
        if !self.media.is_under_way(id) {
            return Err(NotAround::Over);
        }
        let is_member = self.standing() != Standing::Outside;
        if is_member && self.failed.is_none() { Ok(()) } else { Err(NotAround::NoMember) }
    }

    /// Gives up the write `id`, of a part of a block whose rest no copy can give. Returns whether it has
    /// ended.
    ///
    /// If this copy is the only member, the write ends as if it had been carried out, and the blocks keep
    /// their content: its host gets an error, and no other copy has taken it. Otherwise a joiner has taken
    /// the write and must not be promoted with it: the joiner must be outside again first
    /// ([`Replica::starved`]).
    pub fn give_up_write(&mut self, id: ApplyId) -> bool {
        if self.is_alone() {
            self.handle_applied(id, Ok(()));
            return true;
        }
        self.keeps_joiners_out = !self.has_others_in_sync();
        false
    }

    /// The rewrite with this number has failed, or its blocks still cannot be read.
    ///
    /// This copy leaves if there is another one in sync, since the blocks may hold anything.
    pub fn handle_unrepaired(&mut self, id: ApplyId) {
        self.media.end(id);
        self.open_sync();
        self.give_up_disk(DiskFault::Unrepaired);
    }

    /// The disk is not reliable any more. The only copy in sync stays, since no other copy has its data.
    pub fn give_up_disk(&mut self, fault: DiskFault) {
        let Some(config) = &self.config else { return };
        if config.members().contains(self.me) && !config.in_sync().without(self.me).is_empty() {
            self.fail(fault);
        }
    }

    /// Whether this copy and another one are in sync: then the other can give what this one cannot read.
    pub fn has_others_in_sync(&self) -> bool {
        let in_sync = self.config.as_ref().map_or(Slots::NONE, |config| config.in_sync());
        in_sync.contains(self.me) && in_sync.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canary::make;
    use crate::message::{Envelope, Message, SyncId};
    use crate::{
        Activation, Command, Config, DirtyMap, Geometry, Incarnation, LostUnits, NodeId, Output, PAGE_BYTES,
        Receivers, Revision, Slot, Terms, Timestamp,
    };

    const GEOMETRY: Geometry = Geometry { blocks: 48, block_bytes: 8, region_blocks: 6 };
    const LIFE: Incarnation = Incarnation(1);
    const BLOCK: Blocks = Blocks { start: 3, end: 4 };

    fn slot(number: usize) -> Slot {
        Slot::new(number).unwrap()
    }

    fn leases() -> Leases {
        Leases::new(Instant(0), LIFE, Terms::default())
    }

    /// The only copy in sync and the only member, which needs no lease; another copy is outside.
    fn alone() -> Replica {
        let two = Config::initial(&[(NodeId(1), LIFE), (NodeId(2), LIFE)], Revision(1));
        let mut replica = Replica::new(slot(0), LIFE, GEOMETRY, DirtyMap::new(GEOMETRY.regions()));
        replica.activate(Activation { config: two.remove(slot(1)).unwrap(), kept: false });
        replica
    }

    fn repair(replica: &mut Replica, mark: ReadMark) -> Option<ApplyId> {
        replica.repair(mark, Instant(1), &leases(), BLOCK, Payload::Zeros)
    }

    fn next_disk_write(replica: &mut Replica) -> Option<Output> {
        std::iter::from_fn(|| replica.poll())
            .find(|output| matches!(output, Output::Apply(_) | Output::WritePage(_)))
    }

    #[test]
    fn its_bits_are_on_the_disk_before_the_block_is_written_again() {
        let mut replica = alone();
        let mark = replica.readable(Instant(1), &leases(), BLOCK).unwrap();
        let id = repair(&mut replica, mark).unwrap();
        let Some(Output::WritePage(page)) = next_disk_write(&mut replica) else { panic!("no intent") };
        assert!(next_disk_write(&mut replica).is_none(), "nothing is written before that");
        replica.handle_page_written(page.page, Ok(()));
        let Some(Output::Apply(apply)) = next_disk_write(&mut replica) else { panic!("not written") };
        assert_eq!((apply.id, apply.blocks, apply.kind), (id, BLOCK, ApplyKind::Repair));
        replica.handle_applied(id, Ok(()));
        assert!(replica.is_at_rest());

        make(Some(Canary::RepairWithoutIntent));
        let mut replica = alone();
        let mark = replica.readable(Instant(1), &leases(), BLOCK).unwrap();
        repair(&mut replica, mark).unwrap();
        assert!(matches!(next_disk_write(&mut replica), Some(Output::Apply(_))), "the rule is what does it");
        make(None);
    }

    /// One of two copies in sync, which have both finished what they began, and its leases.
    fn one_of_two() -> (Replica, Leases) {
        let two = Config::initial(&[(NodeId(1), LIFE), (NodeId(2), LIFE)], Revision(1));
        one_of(two, DirtyMap::new(GEOMETRY.regions()))
    }

    /// Copy 0 of this configuration, in which copy 1 is the only other one in sync.
    fn one_of(config: Config, map: DirtyMap) -> (Replica, Leases) {
        let (epoch, revision) = (config.epoch, Revision(2));
        let mut replica = Replica::new(slot(0), LIFE, GEOMETRY, map);
        replica.activate(Activation { config, kept: false });
        let message = Message::Floor { floor: Timestamp::first_of(epoch) };
        replica.handle_message(slot(1), Envelope { epoch, incarnation: LIFE, message });
        let [mut leases, mut given] = [leases(), leases()];
        leases.set_applied(revision);
        given.set_applied(revision);
        let grant = given.handle_request(Instant(1), NodeId(1), leases.request(Instant(1))).unwrap();
        leases.handle_grant(NodeId(2), grant);
        replica.handle_tick();
        (replica, leases)
    }

    /// The regions that the next life of that copy asks for, besides those that the other one knows of, if
    /// its disk has this page of the dirty map.
    fn missed_by_the_next_life(page: &[u8; PAGE_BYTES]) -> Vec<u64> {
        let two = Config::initial(&[(NodeId(1), LIFE), (NodeId(2), LIFE)], Revision(1));
        let mut map = DirtyMap::new(GEOMETRY.regions());
        map.load(0, page).unwrap();
        let mut next = Replica::new(slot(0), Incarnation(2), GEOMETRY, map);
        next.activate(Activation { config: two.remove(slot(0)).unwrap(), kept: false });
        next.handle_link_up(slot(1));
        next.catch_up();
        let asked = std::iter::from_fn(|| next.poll()).find_map(|output| match output {
            Output::Send(_, Envelope { message: Message::SyncOpen { dirty, .. }, .. }) => Some(dirty),
            _ => None,
        });
        asked.expect("it asks for what it misses").iter().collect()
    }

    /// No table knows of a block that is being rewritten. If the power fails meanwhile, the disk may have
    /// lost neighboring blocks, and the other copy has noted nothing.
    #[test]
    fn bits_of_a_bad_block_stay_until_it_is_rewritten() {
        let a_node_stops = |replica: &mut Replica| replica.settle();
        let the_disk_hangs = |replica: &mut Replica| (0..60).for_each(|_| replica.handle_tick());
        for what_happens in [a_node_stops as fn(&mut Replica), the_disk_hangs] {
            let (mut replica, leases) = one_of_two();
            let mark = replica.readable(Instant(1), &leases, BLOCK).unwrap();
            let id = replica.repair(mark, Instant(1), &leases, BLOCK, Payload::Zeros).unwrap();
            let mut page = [0; PAGE_BYTES];
            let mut write_pages = |replica: &mut Replica| {
                while let Some(write) = replica.poll_idle() {
                    page.copy_from_slice(&write.image);
                    replica.handle_page_written(write.page, Ok(()));
                }
                missed_by_the_next_life(&page)
            };
            assert_eq!(write_pages(&mut replica), [0]);
            let Some(Output::Apply(apply)) = next_disk_write(&mut replica) else { panic!("not written") };
            assert_eq!(apply.id, id);
            what_happens(&mut replica);
            assert_eq!(write_pages(&mut replica), [0], "it is on its way to the disk");
            replica.handle_applied(id, Ok(()));
            what_happens(&mut replica);
            assert_eq!(write_pages(&mut replica), [0; 0]);
        }
    }

    /// A copy outside has got the region meanwhile. The rewrite may still change neighboring blocks if the
    /// power fails, and waits for these bits if they are not on the disk yet.
    #[test]
    fn bits_of_a_bad_block_stay_though_a_copy_out_of_sync_received_the_region() {
        let three = Config::initial(&[1, 2, 3].map(|node| (NodeId(node), LIFE)), Revision(1));
        let config = three.remove(slot(2)).unwrap();
        let mut map = DirtyMap::new(GEOMETRY.regions());
        map.mark(0..1, Slots::NONE.with(slot(2)));
        let epoch = config.epoch;
        let (mut replica, leases) = one_of(config, map);
        let hear = |replica: &mut Replica, message| {
            replica.handle_message(slot(2), Envelope { epoch, incarnation: LIFE, message });
        };
        let mark = replica.readable(Instant(1), &leases, BLOCK).unwrap();
        replica.repair(mark, Instant(1), &leases, BLOCK, Payload::Zeros).unwrap();
        replica.handle_link_up(slot(2));
        let dirty = [0].into_iter().collect();
        hear(&mut replica, Message::SyncOpen { sync: SyncId(1), dirty, lost: LostUnits::new() });
        replica.begin_regions(u32::MAX, Receivers::All);
        let mut was_sent = false;
        while let Some(output) = replica.poll() {
            match output {
                Output::ReadRegion(read) => replica.handle_region_read(read, Ok(Payload::Zeros)),
                Output::Send(to, Envelope { message: Message::SyncRegion { .. }, .. }) => {
                    was_sent |= to == slot(2);
                }
                _ => {}
            }
        }
        assert!(was_sent);
        hear(&mut replica, Message::SyncDone { sync: SyncId(1), region: 0 });
        assert!(replica.map().get(0).contains(slot(2)), "the rewrite has not ended");
    }

    #[test]
    fn a_block_is_written_again_though_a_node_stops_before_its_bits_are_on_the_disk() {
        let (mut replica, leases) = one_of_two();
        let mark = replica.readable(Instant(1), &leases, BLOCK).unwrap();
        let id = replica.repair(mark, Instant(1), &leases, BLOCK, Payload::Zeros).unwrap();
        replica.settle();
        let Some(Output::WritePage(write)) = next_disk_write(&mut replica) else { panic!("no intent") };
        replica.handle_page_written(write.page, Ok(()));
        let page = write.image.try_into().unwrap();
        assert_eq!(missed_by_the_next_life(&page), [0]);
        let Some(Output::Apply(apply)) = next_disk_write(&mut replica) else { panic!("not written") };
        assert_eq!(apply.id, id);
    }

    #[test]
    fn a_repair_does_not_overwrite_later_writes() {
        let mut replica = alone();
        let mark = replica.readable(Instant(1), &leases(), BLOCK).unwrap();
        replica.write(Command(1), BLOCK, Payload::Zeros, 0).unwrap();
        assert_eq!(repair(&mut replica, mark), None);
    }

    #[test]
    fn the_last_copy_in_sync_stays_though_a_block_cannot_be_repaired() {
        let mut replica = alone();
        let mark = replica.readable(Instant(1), &leases(), BLOCK).unwrap();
        let id = repair(&mut replica, mark).unwrap();
        replica.handle_unrepaired(id);
        assert!(!replica.has_failed());

        let two = Config::initial(&[(NodeId(1), LIFE), (NodeId(2), LIFE)], Revision(1));
        let mut replica = Replica::new(slot(0), LIFE, GEOMETRY, DirtyMap::new(GEOMETRY.regions()));
        replica.activate(Activation { config: two, kept: false });
        replica.handle_unrepaired(id);
        assert_eq!(replica.failure(), Some(DiskFault::Unrepaired));
    }

    #[test]
    fn a_joiner_fails_its_disk_too_and_a_non_member_has_none() {
        let two = Config::initial(&[(NodeId(1), LIFE), (NodeId(2), LIFE)], Revision(1));
        let outside = two.remove(slot(0)).unwrap();
        let joining = outside.admit(slot(0), LIFE).unwrap();
        for (config, fault) in [(outside, None), (joining, Some(DiskFault::Write))] {
            let mut replica = Replica::new(slot(0), LIFE, GEOMETRY, DirtyMap::new(GEOMETRY.regions()));
            replica.activate(Activation { config, kept: false });
            replica.give_up_disk(DiskFault::Write);
            assert_eq!(replica.failure(), fault);
        }
    }

    /// Takes a write of a block and hands it out.
    fn hand_out(replica: &mut Replica, command: u64, block: u64) -> ApplyId {
        replica.write(Command(command), Blocks { start: block, end: block + 1 }, Payload::Zeros, 0).unwrap();
        loop {
            match next_disk_write(replica).unwrap() {
                Output::WritePage(page) => replica.handle_page_written(page.page, Ok(())),
                Output::Apply(apply) => return apply.id,
                _ => unreachable!("these are the writes to the disk"),
            }
        }
    }

    #[test]
    fn a_block_around_a_write_is_what_was_taken_and_else_what_others_hold() {
        let mut replica = alone();
        let whole = Blocks { start: 0, end: 6 };
        let first = hand_out(&mut replica, 1, 3);
        let parts = |around: &Around| {
            let part =
                |(part, payload): &(Blocks, Option<Payload>)| (part.start, part.end, payload.is_some());
            around.parts.iter().map(part).collect::<Vec<_>>()
        };
        let around = replica.block_around(first, whole).unwrap();
        assert_eq!(parts(&around), [(0, 3, false), (3, 4, true), (4, 6, false)]);
        assert_eq!(replica.still_around(first, &around), Ok(true));

        let second = hand_out(&mut replica, 2, 5);
        assert!(replica.has_moved(&around));
        assert_eq!(replica.still_around(first, &around), Ok(false));
        let around = replica.block_around(first, whole).unwrap();
        assert_eq!(parts(&around), [(0, 3, false), (3, 4, true), (4, 5, false), (5, 6, true)]);

        // A write that has ended is valid here, since there is no other member.
        replica.handle_applied(second, Ok(()));
        assert_eq!(replica.still_around(first, &around), Ok(true), "it is still what the block holds");
        assert_eq!(parts(&replica.block_around(first, whole).unwrap()).len(), 3);
        replica.handle_applied(first, Ok(()));
        assert_eq!(replica.still_around(first, &around), Err(NotAround::Over));
        assert!(replica.block_around(first, whole).is_err());
    }

    #[test]
    fn the_only_member_gives_up_a_write_once_its_joiner_has_left() {
        let mut replica = alone();
        let id = hand_out(&mut replica, 1, 3);
        assert!(replica.give_up_write(id));
        let ended = std::iter::from_fn(|| replica.poll())
            .any(|output| matches!(output, Output::Complete(Command(1), crate::Outcome::Done)));
        assert!(ended, "the driver knows what to tell its host");
        assert!(replica.readable(Instant(1), &leases(), BLOCK).is_ok());

        let mut replica = alone();
        let config = replica.config().unwrap().clone();
        let joins = config.admit(slot(1), LIFE).unwrap();
        replica.activate(Activation { config: joins.clone(), kept: true });
        let id = hand_out(&mut replica, 1, 3);
        assert!(!replica.starved().contains(slot(1)));
        assert!(!replica.give_up_write(id));
        assert!(replica.starved().contains(slot(1)));
        replica.activate(Activation { config: joins.remove(slot(1)).unwrap(), kept: true });
        assert!(replica.give_up_write(id));
        assert!(replica.starved().is_empty());
    }
}
