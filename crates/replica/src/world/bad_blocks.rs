//! Blocks that a disk cannot read: fetched from another copy, and rewritten (R25).

use super::*;
use crate::{LostBlocks, Payload, Slots};

/// A fetch of blocks that the node's own disk cannot read.
pub(super) struct Fetch {
    number: u64,
    blocks: Blocks,
    mark: ReadMark,
    /// The nodes to ask, one after the other.
    rest: Vec<usize>,
    until: Instant,
    /// When the host that waits for it sent its command.
    called: Option<u64>,
}

/// A read that a node does for another one.
pub(super) struct Service {
    look_at: Instant,
    end_at: Instant,
    to: usize,
    number: u64,
    blocks: Blocks,
    mark: ReadMark,
    values: Option<Vec<u64>>,
}

/// How long a node keeps asking.
const FETCH_MAX: Duration = Duration::from_millis(60);
/// How often it asks the same node: a write that was under way there may have ended.
const ROUNDS: usize = 6;

/// The maximum number of a node's concurrent fetches: hosts that read the same block repeatedly need no more.
const FETCHES_MAX: usize = 4;

impl World {
    /// A block of the node's disk cannot be read from now on; a write heals it or not.
    pub(super) fn spoil(&mut self, index: usize, block: u64, heals: bool) {
        self.count("bad block");
        self.nodes[index].disk.spoil(block, heals);
    }

    pub(super) fn fetch(&mut self, index: usize, blocks: Blocks, mark: ReadMark, called: Option<u64>) {
        let node = &mut self.nodes[index];
        let now = self.now;
        node.fetches.retain(|fetch| fetch.until > now);
        let Some(config) = node.replica.config() else { return };
        if node.fetches.len() >= FETCHES_MAX {
            return;
        }
        let others: Vec<usize> = config.in_sync().without(slot(index)).iter().map(Slot::index).collect();
        let rest = others.repeat(ROUNDS);
        node.last_fetch += 1;
        let number = node.last_fetch;
        node.fetches.push(Fetch { number, blocks, mark, rest, until: now + FETCH_MAX, called });
        self.ask_next(index, number);
    }

    /// What a node can give of a region that its disk can read only in part: without the blocks that no copy
    /// in sync can read, if others have all the rest; what they have is being fetched.
    pub(super) fn without_lost(
        &mut self,
        index: usize,
        region: Blocks,
        mut values: Vec<u64>,
    ) -> Result<(Payload, Vec<LostBlocks>), DiskFailed> {
        let in_sync = self.nodes[index].replica.config().ok_or(DiskFailed)?.in_sync();
        let is_bad = |of: usize, block: &Blocks| self.nodes[of].disk.is_bad(*block);
        let bad = (region.start..region.end).map(|block| Blocks::new(block, block + 1));
        let bad: Vec<Blocks> = bad.filter(|block| is_bad(index, block)).collect();
        let is_lost = |block: &Blocks| in_sync.iter().all(|slot| is_bad(slot.index(), block));
        let found = |block: u64| {
            values[(block - region.start) as usize] == LOST && !bad.contains(&Blocks::new(block, block + 1))
        };
        let is_found = (region.start..region.end).any(found);
        if bad.len() as u64 == region.count() || !bad.iter().all(is_lost) || is_found {
            return Err(DiskFailed);
        }
        self.count("given without lost blocks");
        bad.iter().for_each(|block| values[(block.start - region.start) as usize] = EMPTY);
        let disk = &mut self.nodes[index].disk;
        let lost = bad.into_iter().map(|blocks| {
            let noted = disk.lost().get(&blocks.start).copied();
            if noted.is_none() {
                disk.hold(blocks.start);
            }
            LostBlocks { blocks, holders: noted.unwrap_or(Slots::NONE.with(slot(index))) }
        });
        Ok((disk::from_values(&values), lost.collect()))
    }

    /// Another copy in sync may be able to read by now what is lost here.
    pub(super) fn look_for_lost(&mut self, index: usize) {
        let node = &self.nodes[index];
        // One after the other: some are lost on all copies.
        let lost = node.disk.lost();
        let turn = (self.now.0 / TICK_EVERY.as_nanos() as u64).checked_rem(lost.len() as u64);
        let Some(block) = turn.and_then(|turn| lost.keys().nth(turn as usize).copied()) else { return };
        let blocks = Blocks::new(block, block + 1);
        if let Ok(mark) = node.replica.readable(node.clock(self.now), &node.leases, blocks) {
            self.fetch(index, blocks, mark, None);
        }
    }

    fn ask_next(&mut self, index: usize, number: u64) {
        let fetches = &mut self.nodes[index].fetches;
        let Some(at) = fetches.iter().position(|fetch| fetch.number == number) else { return };
        match fetches[at].rest.pop() {
            Some(to) => {
                let blocks = fetches[at].blocks;
                self.send(index, to, Packet::Fetch(number, blocks));
            }
            None => drop(fetches.remove(at)),
        }
    }

    pub(super) fn serve(&mut self, index: usize, to: usize, number: u64, blocks: Blocks) {
        let node = &self.nodes[index];
        let Ok(mark) = node.replica.readable(node.clock(self.now), &node.leases, blocks) else {
            return self.send(index, to, Packet::Fetched(number, None));
        };
        let (look_at, end_at) = self.reading();
        let service = Service { look_at, end_at, to, number, blocks, mark, values: None };
        self.nodes[index].services.push(service);
    }

    pub(super) fn run_services(&mut self, index: usize) {
        let (node, now) = (&mut self.nodes[index], self.now);
        for service in &mut node.services {
            if service.values.is_none() && service.look_at <= now {
                service.values = Some(node.disk.read(service.blocks));
            }
        }
        let over = |service: &Service| service.values.is_some() && service.end_at <= now;
        let (ended, open) = std::mem::take(&mut node.services).into_iter().partition(over);
        node.services = open;
        let ended: Vec<Service> = ended;
        for Service { to, number, blocks, mark, values, .. } in ended {
            let node = &self.nodes[index];
            let still = node.replica.still_readable(mark, node.clock(now), &node.leases, blocks)
                || self.canary == Some(Canary::FetchOnce);
            let was_lost = values.iter().flatten().any(|value| *value == LOST);
            let good = still && !node.disk.is_bad(blocks) && !was_lost;
            self.send(index, to, Packet::Fetched(number, values.filter(|_| good)));
        }
    }

    pub(super) fn handle_fetched(&mut self, index: usize, number: u64, values: Option<Vec<u64>>) {
        let Some(values) = values else { return self.ask_next(index, number) };
        let now = self.now;
        let node = &mut self.nodes[index];
        let Some(at) = node.fetches.iter().position(|fetch| fetch.number == number) else { return };
        let Fetch { blocks, mark, called, .. } = node.fetches.remove(at);
        let clock = node.clock(now);
        let still = node.replica.still_readable(mark, clock, &node.leases, blocks);
        let payload = disk::from_values(&values);
        let given = node.replica.repair(mark, clock, &node.leases, blocks, payload);
        self.say(|| {
            format!("{index} fetched {values:?} of {blocks:?}, still {still}, written again {given:?}")
        });
        if given.is_some() {
            self.count("written again");
        }
        if let Some(called) = called.filter(|_| still) {
            let reply = self.tick_moment();
            self.note_read(blocks, &values, called, reply);
            self.count("read of another copy");
        }
        self.drain(index);
        let node = &self.nodes[index];
        if !still && let Ok(mark) = node.replica.readable(clock, &node.leases, blocks) {
            // Like a host's read that was overtaken: repeat it.
            self.fetch(index, blocks, mark, called);
        }
    }

    pub(super) fn note_read(&mut self, blocks: Blocks, values: &[u64], called: u64, reply: u64) {
        for (block, value) in (blocks.start..).zip(values) {
            let read = Op { kind: Kind::Read, value: *value, call: called, reply };
            self.history[block as usize].push(read);
        }
    }
}
