//! An explicit-state model of the protocol of `docs/why/replication.md`: one block, two or three copies,
//! every interleaving, breadth first.
//!
//! It knows nothing of the code. The simulator looks at some runs of the real code; this looks at all runs of
//! a small model: a rule that is left out here has a shortest story of how data is lost. The model takes the
//! adversary's view: messages are sent, leases granted and bits cleared as early as the rules allow
//! (receiving, finishing and reading stay optional), so that no behavior is missing. It leaves out several
//! blocks, forgetting (R15), and write-back.
//!
//! The bounds in the tests take seconds. With larger ones (two copies, three crashes, five epochs: 64 million
//! states; three copies, two writes, one crash, three epochs: 119 million) the model was safe, too.

mod search;

use search::{Searched, search};

const NODES: usize = 3;
const EPOCHS: usize = 8;
/// Write 0 is what the block held before.
const WRITES: usize = 4;
const NO_EPOCH: u8 = 255;

/// A rule to leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    /// R3: an acknowledgement does not wait for what superseded the write.
    DurableSuperseding,
    /// R4: no intents.
    Intents,
    /// R4: only the coordinator has intents.
    FollowerIntents,
    /// R5: writes do not wait for joiners.
    JoinerAcks,
    /// R2: messages of other epochs count.
    EpochCheck,
    /// R9: reads need no lease.
    Leases,
    /// R9: reads need no lease of joiners.
    JoinerLeases,
    /// R10: leases carry no revision.
    LeaseRevision,
    /// R11: no node waits for leases to expire.
    ActivationWait,
    /// R12: a restarted node does not wait.
    BootWait,
    /// R13a: promotion does not wait until all copies know of the joiner.
    Confirmation,
    /// R13b: promotion does not wait for the joiner's disk.
    DurableJoiner,
    /// R14: a restarted process keeps its membership.
    Incarnations,
    /// R17: the joiner's own bits do not count.
    OwnDirty,
    /// R17: the joiner does not take over the source's bits for third copies.
    Inheritance,
    /// R18: what a resync brings has no timestamp.
    SyncTimestamps,
    /// R18: an older write that is sent again makes a block count as resynced.
    FreshWrites,
}

/// How much to search.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    nodes: usize,
    writes: u8,
    crashes: u8,
    epochs: u8,
    /// A fixed order of configuration changes, with everything else free; empty: any order.
    script: &'static [(Change, usize)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Remove,
    Admit,
    Promote,
    Recover,
}

/// Zero: not part of the configuration; otherwise the incarnation plus one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Config {
    in_sync: [u8; NODES],
    joining: [u8; NODES],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Block {
    #[default]
    Valid,
    Invalid,
    Unsynced,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    up: bool,
    incarnation: u8,
    epoch: u8,
    /// The value in memory, the write that it is known to be (0: unknown), and the block's state.
    value: u8,
    ts: u8,
    block: Block,
    /// The value on its disk.
    disk: u8,
    /// Its bit for each other copy, on the disk.
    dirty: u8,
    /// Its own write that is not done.
    pending: u8,
    clock: u8,
    /// The newest write of this membership that is on the disk.
    durable_ts: u8,
    /// When this membership began, and whether everything that it missed is on the disk.
    joined: u8,
    synced: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Sync {
    #[default]
    None,
    Data(Offer),
    Clean(Offer),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Offer {
    epoch: u8,
    value: u8,
    ts: u8,
    from: u8,
    dirty: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Write {
    epoch: u8,
    counter: u8,
    coordinator: u8,
    /// The newest write that was known to be done, or had been read, when the read began.
    floor: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    config_count: u8,
    configs: [Config; EPOCHS],
    nodes: [Node; NODES],
    writes: [Write; WRITES],
    write_count: u8,
    /// The newest write that was acknowledged to a host, or read.
    floor: u8,
    /// Bit sets of writes: sent in an epoch, acknowledged in an epoch by a node, known to be done.
    sent: [u8; EPOCHS],
    acked: [[u8; NODES]; EPOCHS],
    done: u8,
    sync: [Sync; NODES],
    /// Bit i of `leases[x]`: x holds a lease of i.
    leases: [u8; NODES],
    crashes: u8,
}

type Found = Option<String>;

/// Everything that can happen next, with anything that is wrong about it.
struct Step<'a> {
    bounds: Bounds,
    without: Option<Without>,
    before: &'a State,
    after: &'a mut Vec<(State, Found)>,
}

impl State {
    fn initial(bounds: Bounds) -> State {
        let mut state = State { config_count: 1, crashes: bounds.crashes, ..State::default() };
        for i in 0..NODES {
            if i < bounds.nodes {
                state.configs[0].in_sync[i] = 1;
                state.nodes[i].up = true;
            } else {
                state.nodes[i].epoch = NO_EPOCH;
            }
        }
        state
    }

    fn order(&self, write: u8) -> (u8, u8, u8) {
        let Write { epoch, counter, coordinator, .. } = self.writes[write as usize];
        if write == 0 { (0, 0, 0) } else { (epoch + 1, counter, coordinator) }
    }

    fn newest(&self) -> u8 {
        self.config_count - 1
    }

    fn in_sync(&self, epoch: u8, i: usize) -> bool {
        epoch != NO_EPOCH && self.configs[epoch as usize].in_sync[i] == self.nodes[i].incarnation + 1
    }

    fn joining(&self, epoch: u8, i: usize) -> bool {
        epoch != NO_EPOCH && self.configs[epoch as usize].joining[i] == self.nodes[i].incarnation + 1
    }

    fn member(&self, epoch: u8, i: usize) -> bool {
        self.in_sync(epoch, i) || self.joining(epoch, i)
    }

    /// Whether the epoch names the copy, in any life.
    fn named(&self, epoch: u8, i: usize) -> bool {
        let config = &self.configs[epoch as usize];
        config.in_sync[i] != 0 || config.joining[i] != 0
    }

    fn is_sent(&self, epoch: u8, write: u8, without: Option<Without>) -> bool {
        let bit = 1 << write;
        self.sent[epoch as usize] & bit != 0
            || without == Some(Without::EpochCheck) && self.sent.iter().any(|sent| sent & bit != 0)
    }

    fn acting(&self, nodes: usize) -> impl Iterator<Item = (usize, Node)> {
        (0..nodes)
            .map(|i| (i, self.nodes[i]))
            .filter(|(i, node)| node.up && node.epoch != NO_EPOCH && self.member(node.epoch, *i))
    }

    /// Sends, grants leases, acknowledges and clears bits as early as the rules allow.
    fn close(&mut self, bounds: Bounds, without: Option<Without>) {
        let nodes = bounds.nodes;
        for (_, node) in self.acting(nodes).collect::<Vec<_>>() {
            let sent = &mut self.sent[node.epoch as usize];
            if node.pending != 0 {
                *sent |= 1 << node.pending;
            }
            if node.block == Block::Invalid && node.ts != 0 {
                *sent |= 1 << node.ts;
            }
        }
        for (i, node) in self.acting(nodes).collect::<Vec<_>>() {
            for write in 1..=self.write_count {
                if self.is_sent(node.epoch, write, without)
                    && self.order(write) <= self.order(node.ts)
                    && self.is_durable(&node, write, without)
                {
                    self.acked[node.epoch as usize][i] |= 1 << write;
                    if without == Some(Without::EpochCheck) {
                        for epoch in 0..EPOCHS {
                            if self.sent[epoch] & (1 << write) != 0 {
                                self.acked[epoch][i] |= 1 << write;
                            }
                        }
                    }
                }
            }
            for x in (0..nodes).filter(|x| *x != i) {
                let other = self.nodes[x];
                let knows = other.epoch >= node.epoch || without == Some(Without::LeaseRevision);
                if other.up && other.epoch != NO_EPOCH && knows {
                    self.leases[x] |= 1 << i;
                }
            }
        }
        for (i, node) in self.acting(nodes).collect::<Vec<_>>() {
            if !self.in_sync(node.epoch, i) || node.block != Block::Valid || node.ts != node.durable_ts {
                continue;
            }
            let config = self.configs[node.epoch as usize];
            for q in (0..nodes).filter(|q| *q != i && config.in_sync[*q] != 0) {
                let has_it = node.ts == 0
                    || (0..self.config_count as usize).any(|e| {
                        let then = &self.configs[e];
                        self.acked[e][q] & (1 << node.ts) != 0
                            && (then.in_sync[q] == config.in_sync[q] || then.joining[q] == config.in_sync[q])
                    });
                if has_it {
                    self.nodes[i].dirty &= !(1 << q);
                }
            }
        }
    }

    fn is_durable(&self, node: &Node, write: u8, without: Option<Without>) -> bool {
        without == Some(Without::DurableSuperseding) && self.order(node.ts) > self.order(write)
            || self.order(node.durable_ts) >= self.order(write)
    }

    fn all_acked(&self, epoch: u8, write: u8, bounds: Bounds, without: Option<Without>) -> bool {
        let config = &self.configs[epoch as usize];
        (0..bounds.nodes).all(|i| {
            let needed =
                config.in_sync[i] != 0 || config.joining[i] != 0 && without != Some(Without::JoinerAcks);
            !needed || self.acked[epoch as usize][i] & (1 << write) != 0
        })
    }

    fn holds_leases(&self, i: usize, bounds: Bounds, without: Option<Without>) -> bool {
        let epoch = self.nodes[i].epoch;
        (0..bounds.nodes).filter(|j| *j != i && self.named(epoch, *j)).all(|j| {
            self.leases[i] & (1 << j) != 0
                || without == Some(Without::JoinerLeases) && self.configs[epoch as usize].joining[j] != 0
        })
    }

    /// Checks the invariants.
    fn check(&self, bounds: Bounds, without: Option<Without>) -> Found {
        let newest = self.newest();
        for i in 0..bounds.nodes {
            let named =
                self.configs[newest as usize].in_sync[i] != 0 && without != Some(Without::Incarnations);
            if named && self.order(self.nodes[i].disk) < self.order(self.floor) {
                return Some(format!("copy {i} is in sync, and its disk has not what was acknowledged"));
            }
        }
        let serving: Vec<(usize, Node)> = self
            .acting(bounds.nodes)
            .filter(|(i, node)| {
                node.epoch == newest && self.in_sync(newest, *i) && node.block == Block::Valid
            })
            .collect();
        let (_, first) = serving.first()?;
        let other = serving.iter().find(|(_, node)| node.value != first.value)?;
        Some(format!("copies {} and {} are valid and differ", serving[0].0, other.0))
    }
}

impl Node {
    /// The copy is no longer a member: what it knew of writes does not count.
    fn forget(&mut self) {
        (self.pending, self.ts, self.clock, self.durable_ts, self.synced) = (0, 0, 0, 0, false);
        (self.block, self.value) = (Block::Unsynced, self.disk);
    }
}

impl Step<'_> {
    fn left_out(&self, rule: Without) -> bool {
        self.without == Some(rule)
    }

    fn all(&mut self) {
        for i in 0..self.bounds.nodes {
            if !self.before.nodes[i].up {
                self.restart(i);
                continue;
            }
            self.crash(i);
            self.change_config(i);
            self.activate(i);
            let node = &self.before.nodes[i];
            if node.epoch != NO_EPOCH && self.before.member(node.epoch, i) {
                self.begin_write(i);
                self.take_and_finish(i);
                self.persist(i);
                self.read(i);
                self.offer_sync(i);
                self.take_sync(i);
            }
        }
    }

    fn next(&mut self, found: Found, change: impl FnOnce(&mut State)) {
        let mut state = *self.before;
        change(&mut state);
        self.after.push((state, found));
    }

    fn crash(&mut self, i: usize) {
        if self.before.crashes == 0 {
            return;
        }
        let keeps_epoch = self.left_out(Without::Incarnations);
        self.next(None, |state| {
            state.crashes -= 1;
            state.leases[i] = 0;
            state.sync[i] = Sync::None;
            let node = &mut state.nodes[i];
            node.up = false;
            node.forget();
            if !keeps_epoch {
                node.epoch = NO_EPOCH;
            }
        });
    }

    fn restart(&mut self, i: usize) {
        let (keeps_life, waits) = (self.left_out(Without::Incarnations), !self.left_out(Without::BootWait));
        self.next(None, |state| {
            let node = &mut state.nodes[i];
            node.up = true;
            if keeps_life {
                (node.block, node.value) = (Block::Valid, node.disk);
            } else {
                node.incarnation += 1;
            }
            if waits {
                // All promises of its last life have expired.
                state.leases.iter_mut().for_each(|held| *held &= !(1 << i));
            }
        });
    }

    fn allowed(&self, change: Change, whom: usize) -> bool {
        let script = self.bounds.script;
        script.is_empty() || script.get(self.before.config_count as usize - 1) == Some(&(change, whom))
    }

    fn commit(&mut self, change: impl FnOnce(&mut Config)) {
        self.next(None, |state| {
            let mut config = state.configs[state.newest() as usize];
            change(&mut config);
            state.configs[state.config_count as usize] = config;
            state.config_count += 1;
        });
    }

    fn change_config(&mut self, i: usize) {
        let before = *self.before;
        let newest = before.newest();
        if before.config_count >= self.bounds.epochs {
            return;
        }
        let node = before.nodes[i];
        if node.epoch == newest && before.in_sync(newest, i) {
            for x in (0..self.bounds.nodes).filter(|x| *x != i) {
                if before.named(newest, x) && self.allowed(Change::Remove, x) {
                    self.commit(|config| (config.in_sync[x], config.joining[x]) = (0, 0));
                }
                let other = before.nodes[x];
                if !before.named(newest, x) && other.up && self.allowed(Change::Admit, x) {
                    self.commit(|config| config.joining[x] = other.incarnation + 1);
                }
            }
            for j in 0..self.bounds.nodes {
                if self.may_promote(j) && self.allowed(Change::Promote, j) {
                    self.commit(|config| config.in_sync[j] = std::mem::take(&mut config.joining[j]));
                }
            }
        }
        let named = before.configs[newest as usize].in_sync[i];
        if named != 0 && named < node.incarnation + 1 && self.allowed(Change::Recover, i) {
            self.next(None, |state| {
                let epoch = state.config_count;
                let mut config = Config::default();
                config.in_sync[i] = node.incarnation + 1;
                state.configs[epoch as usize] = config;
                state.config_count += 1;
                let node = &mut state.nodes[i];
                node.forget();
                (node.epoch, node.joined, node.block, node.synced) = (epoch, epoch, Block::Valid, true);
            });
        }
    }

    fn may_promote(&self, j: usize) -> bool {
        let state = self.before;
        let (newest, joiner) = (state.newest(), state.nodes[j]);
        let confirmed = (0..self.bounds.nodes).all(|k| {
            state.configs[newest as usize].in_sync[k] == 0
                || state.in_sync(newest, k) && state.nodes[k].up && state.nodes[k].epoch == newest
        });
        state.joining(newest, j)
            && joiner.up
            && joiner.epoch == newest
            && joiner.block != Block::Unsynced
            && (confirmed || self.left_out(Without::Confirmation))
            && (joiner.synced || self.left_out(Without::DurableJoiner))
    }

    fn activate(&mut self, i: usize) {
        let before = self.before;
        let (node, newest) = (before.nodes[i], before.newest());
        if node.epoch == newest {
            return;
        }
        let from = if node.epoch == NO_EPOCH { newest } else { node.epoch };
        let gone: Vec<usize> = (0..self.bounds.nodes)
            .filter(|x| {
                *x != i
                    && (from..newest).any(|e| {
                        let life = before.configs[e as usize].in_sync[*x];
                        life != 0 && before.configs[newest as usize].in_sync[*x] != life
                    })
            })
            .collect();
        let kept = node.epoch != NO_EPOCH
            && (node.epoch..=newest).all(|e| before.member(e, i))
            && !((node.epoch..newest).any(|e| before.in_sync(e, i)) && before.joining(newest, i));
        let waits = !self.left_out(Without::ActivationWait);
        self.next(None, |state| {
            if waits {
                gone.iter().for_each(|x| state.leases[*x] &= !(1 << i));
            }
            let node = &mut state.nodes[i];
            (node.epoch, node.clock) = (newest, 0);
            if !kept {
                node.forget();
                node.joined = newest;
                state.leases[i] = 0;
                state.sync[i] = Sync::None;
            }
        });
    }

    fn begin_write(&mut self, i: usize) {
        let node = self.before.nodes[i];
        let may = self.before.in_sync(node.epoch, i) && node.block != Block::Unsynced;
        if !may || node.pending != 0 || self.before.write_count >= self.bounds.writes {
            return;
        }
        let old = self.before.order(node.ts);
        let write = Write {
            epoch: node.epoch,
            counter: node.clock + 1,
            coordinator: i as u8,
            floor: self.before.floor,
        };
        let newer = (write.epoch + 1, write.counter, write.coordinator) > old;
        let found = (!newer).then(|| "a write is not newer than what its coordinator has".to_owned());
        self.next(found, |state| {
            state.write_count += 1;
            let number = state.write_count;
            state.writes[number as usize] = write;
            state.sent[node.epoch as usize] |= 1 << number;
            let node = &mut state.nodes[i];
            node.clock += 1;
            (node.pending, node.value, node.ts, node.block) = (number, number, number, Block::Invalid);
        });
    }

    fn take_and_finish(&mut self, i: usize) {
        let before = self.before;
        let node = before.nodes[i];
        for write in 1..=before.write_count {
            let of = before.writes[write as usize];
            if before.is_sent(node.epoch, write, self.without) && before.order(write) > before.order(node.ts)
            {
                let fresh = node.block != Block::Unsynced
                    || of.epoch >= node.joined
                    || self.left_out(Without::FreshWrites);
                self.next(None, |state| {
                    let node = &mut state.nodes[i];
                    (node.value, node.ts) = (write, write);
                    if fresh {
                        node.block = Block::Invalid;
                    }
                    if of.epoch == node.epoch {
                        node.clock = node.clock.max(of.counter);
                    }
                });
            }
            let holds = node.block == Block::Invalid && node.ts == write;
            if before.all_acked(node.epoch, write, self.bounds, self.without) {
                if node.pending == write && before.in_sync(node.epoch, i) {
                    let late = before.order(write) <= before.order(of.floor);
                    let found = late.then(|| {
                        format!("write {write} is done, and older than what was done before it began")
                    });
                    self.next(found, |state| {
                        state.done |= 1 << write;
                        state.nodes[i].pending = 0;
                        if holds {
                            state.nodes[i].block = Block::Valid;
                        }
                        if state.order(write) > state.order(state.floor) {
                            state.floor = write;
                        }
                    });
                } else if holds {
                    self.next(None, |state| {
                        state.done |= 1 << write;
                        state.nodes[i].block = Block::Valid;
                    });
                }
            }
            if before.done & (1 << write) != 0 && holds {
                self.next(None, |state| state.nodes[i].block = Block::Valid);
            }
        }
    }

    fn persist(&mut self, i: usize) {
        let node = self.before.nodes[i];
        if node.ts == 0 || node.ts == node.durable_ts {
            return;
        }
        let foreign = self.before.writes[node.value as usize].coordinator as usize != i;
        let intends =
            !(self.left_out(Without::Intents) || foreign && self.left_out(Without::FollowerIntents));
        let others = (0..self.bounds.nodes).filter(|q| *q != i).fold(0, |bits, q| bits | 1 << q);
        self.next(None, |state| {
            let node = &mut state.nodes[i];
            (node.disk, node.durable_ts) = (node.value, node.ts);
            node.synced |= node.block != Block::Unsynced;
            if intends {
                node.dirty |= others;
            }
        });
    }

    fn read(&mut self, i: usize) {
        let before = self.before;
        let node = before.nodes[i];
        let may = before.holds_leases(i, self.bounds, self.without) || self.left_out(Without::Leases);
        if !before.in_sync(node.epoch, i) || node.block != Block::Valid || !may {
            return;
        }
        let (read, floor) = (before.order(node.value), before.order(before.floor));
        if read != floor {
            let found =
                (read < floor).then(|| format!("a stale read at {i}: {} after {}", node.value, before.floor));
            self.next(found, |state| state.floor = node.value);
        }
    }

    fn offer_sync(&mut self, i: usize) {
        let before = self.before;
        let node = before.nodes[i];
        if !before.in_sync(node.epoch, i) || node.block != Block::Valid {
            return;
        }
        for j in (0..self.bounds.nodes).filter(|j| *j != i) {
            let joiner = before.nodes[j];
            let wants = before.joining(node.epoch, j)
                && joiner.up
                && joiner.epoch == node.epoch
                && joiner.block == Block::Unsynced
                && before.sync[j] == Sync::None;
            if wants {
                let ts = if self.left_out(Without::SyncTimestamps) { 0 } else { node.ts };
                let offer =
                    Offer { epoch: node.epoch, value: node.value, ts, from: i as u8, dirty: node.dirty };
                let differs = node.dirty & (1 << j) != 0;
                self.next(None, |state| {
                    state.sync[j] = if differs { Sync::Data(offer) } else { Sync::Clean(offer) }
                });
            }
        }
    }

    fn take_sync(&mut self, i: usize) {
        let before = self.before;
        let node = before.nodes[i];
        let (offer, with_data) = match before.sync[i] {
            Sync::None => return,
            Sync::Data(offer) => (offer, true),
            Sync::Clean(offer) => (offer, false),
        };
        let wanted =
            offer.epoch == node.epoch && before.joining(node.epoch, i) && node.block == Block::Unsynced;
        let own = node.dirty & (1 << offer.from) != 0 && !self.left_out(Without::OwnDirty);
        let inherits = !self.left_out(Without::Inheritance);
        let newer_here = !self.left_out(Without::SyncTimestamps)
            && node.ts != 0
            && before.order(node.ts) > before.order(offer.ts);
        self.next(None, |state| {
            state.sync[i] = Sync::None;
            if !wanted {
                return;
            }
            let node = &mut state.nodes[i];
            if newer_here {
                node.block = Block::Invalid;
                node.synced |= node.durable_ts == node.ts;
            } else {
                if with_data || own || node.ts != 0 {
                    (node.value, node.disk) = (offer.value, offer.value);
                } else {
                    node.value = node.disk;
                }
                (node.ts, node.durable_ts, node.block, node.synced) =
                    (offer.ts, offer.ts, Block::Valid, true);
            }
            if inherits {
                node.dirty |= offer.dirty & !(1 << i);
            }
            if offer.ts != 0 && node.durable_ts == offer.ts {
                state.acked[offer.epoch as usize][i] |= 1 << offer.ts;
            }
        });
    }
}

const TWO: Bounds = Bounds { nodes: 2, writes: 2, crashes: 2, epochs: 5, script: &[] };

#[test]
fn two_copies_are_safe_in_all_interleavings() {
    match search(Bounds { crashes: 1, epochs: 4, ..TWO }, None) {
        // Fewer states would mean that something cannot happen any more.
        Searched::Safe { states } => assert!(states > 500_000, "{states} states"),
        Searched::Found { steps, what } => panic!("after {steps} steps: {what}"),
    }
}

/// The lengths are those of the model by which the protocol was decided.
#[test]
fn each_rule_left_out_has_a_story_of_how_data_is_lost() {
    use Change::{Admit, Promote, Remove};
    let third: &[(Change, usize)] =
        &[(Remove, 2), (Remove, 1), (Admit, 1), (Promote, 1), (Remove, 0), (Admit, 2), (Promote, 2)];
    let three = Bounds { nodes: 3, writes: 1, crashes: 0, epochs: 8, script: third };
    for (without, bounds, length) in [
        (Without::DurableSuperseding, TWO, 4),
        (Without::Incarnations, TWO, 4),
        (Without::EpochCheck, TWO, 5),
        (Without::ActivationWait, TWO, 6),
        (Without::Leases, TWO, 6),
        (Without::LeaseRevision, TWO, 6),
        (Without::BootWait, TWO, 7),
        (Without::JoinerAcks, TWO, 11),
        (Without::DurableJoiner, TWO, 11),
        (Without::Intents, TWO, 11),
        (Without::OwnDirty, TWO, 12),
        (Without::FollowerIntents, TWO, 13),
        (Without::Inheritance, three, 22),
    ] {
        match search(bounds, Some(without)) {
            Searched::Found { steps, what } => {
                println!("{without:?}: {steps} steps: {what}");
                assert_eq!(steps, length, "{without:?}: {what}");
            }
            Searched::Safe { states } => panic!("{without:?} is not noticed in {states} states"),
        }
    }
}

/// Takes minutes and some gigabytes: `cargo test --release -p replica --test all model -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn longer_stories_and_larger_bounds() {
    let three = Bounds { nodes: 3, writes: 1, crashes: 1, epochs: 5, script: &[] };
    for (without, bounds, length) in [
        (Without::FreshWrites, TWO, 14),
        (Without::JoinerLeases, TWO, 15),
        (Without::SyncTimestamps, TWO, 16),
        (Without::Confirmation, three, 14),
    ] {
        match search(bounds, Some(without)) {
            Searched::Found { steps, what } => assert_eq!(steps, length, "{without:?}: {what}"),
            Searched::Safe { states } => panic!("{without:?} is not noticed in {states} states"),
        }
    }
    assert!(matches!(search(Bounds { epochs: 4, ..TWO }, None), Searched::Safe { .. }));
}
