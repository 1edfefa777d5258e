//! Hosts that must notice nothing but a delay, since there is only one fault: they read and write at that
//! very moment.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, Lba};
use initiator::{Error, Multipath, MultipathOptions, Search, UnitSelector};
use rt::CoreId;
use rt::sim::NodeId;

use super::{Harms, Victim};
use crate::cluster::{TARGET, Volume, log_in, named};
use crate::history::filled;
use crate::load::hot::attended;
use crate::load::{is_conflict, is_conflict_error};

/// Longest time of such a host's command, over all of its attempts.
///
/// The other nodes go on without a copy after two seconds, and our initiator gives up a path after eight.
const UNHARMED_MAX: Duration = Duration::from_secs(20);
/// Longest time until all faults have gone. If it takes longer, this fault does not happen.
const CALM_WITHIN: Duration = Duration::from_secs(30);
/// How long there must be no fault: within this time a node that was silent is removed, even if it is heard
/// again in between.
const CALM_FOR: Duration = Duration::from_millis(1200);
/// How often to check.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest time until a host has opened a volume over all of its paths. If it takes longer, because another
/// host has reserved the volume, that host does not observe the fault.
const OPENS_WITHIN: Duration = Duration::from_secs(5);
/// So many reads of such a host must be answered once a path is cut: the first may have been under way.
const ANSWERS: u32 = 2;
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(100);

impl Harms<'_> {
    /// Whether there are no faults.
    ///
    /// All nodes run, reach each other and the record, have working disks, are in sync, have no lost blocks,
    /// and serve; and no volume is being restored.
    pub(super) fn is_calm(&self) -> bool {
        let cluster = self.cluster;
        let all = || 0..cluster.servers.len();
        self.cut.is_empty()
            && self.record_gone.is_empty()
            && !self.news_held.contains(&true)
            && self.stopping.is_empty()
            && !self.disks_ill.get()
            && !self.has_hung()
            && self.gone.is_empty()
            && self.left.is_empty()
            && !self.is_restoring()
            && all().all(|index| {
                cluster.is_started(index)
                    && cluster.has_all(index)
                    && !cluster.has_lost(index)
                    && !self.holds_older_data(index)
            })
            && all().all(|index| cluster.is_started(index) && cluster.serves(index))
    }

    /// Whether there are no faults, and there is room for everything that hosts write.
    pub(super) fn is_calm_with_room(&self) -> bool {
        !self.is_full.get() && !self.has_fillers() && self.is_calm()
    }

    /// Ends all faults, as an administrator would, and waits until they have no effect; returns whether that
    /// is so.
    pub(super) fn calm_down(&mut self) -> bool {
        self.end();
        let until = self.cluster.world.now() + CALM_WITHIN;
        let mut calm_since = None;
        loop {
            let now = self.cluster.world.now();
            calm_since = if self.is_calm() { calm_since.or(Some(now)) } else { None };
            if calm_since.is_some_and(|since| now - since >= CALM_FOR) {
                return true;
            }
            if now > until {
                return false;
            }
            self.look_after();
            self.inside.run_for(LOOK_EVERY);
        }
    }

    /// Lets a host write the quiet block of a volume through this node until it succeeds or conflicts with a
    /// reservation.
    ///
    /// The result becomes true then.
    pub(super) fn write_quietly(&self, volume: &Volume, by: usize) -> Rc<Cell<bool>> {
        let done = Rc::new(Cell::new(false));
        let (answered, history, portal) =
            (Rc::clone(&done), self.histories[volume.index].clone(), self.cluster.servers[by].portal);
        let (lun, block, size) = (volume.lun, volume.layout.quiet(self.plan.block), self.plan.block);
        let machine = self.cluster.add_host("unharmed");
        self.guests.borrow_mut().push(machine);
        let write = move || async move {
            loop {
                if let Ok(session) = log_in(portal, lun, "unharmed").await {
                    let value = history.value();
                    let begun = history.begin_write(block..block + 1, value);
                    let write = async || session.write(lun, Lba(block), filled(value, 1, size), size).await;
                    let written = attended(write).await;
                    // A reservation of another host, says the node: that is an answer, too.
                    if is_conflict(&written) {
                        return answered.set(true);
                    }
                    match written {
                        Ok(()) => {
                            history.end_write(&begun);
                            return answered.set(true);
                        }
                        Err(error) => check_harmless(&error),
                    }
                }
                rt::sleep(AGAIN).await;
            }
        };
        drop(self.cluster.world.spawn_on(machine, CoreId(0), write));
        done
    }

    /// Lets hosts use a volume, of which one disk has just failed, through the node with that disk, and then
    /// through another one. They must notice nothing but a delay.
    pub(super) fn use_unharmed(&self, volume: &Volume, victim: Victim) {
        // Nothing waits for a write of this block, so the read is held up by the disk alone.
        self.read_unharmed(volume, victim.index, self.quiet(volume));
        self.write_unharmed(volume, victim.other);
    }

    /// The quiet block of a volume.
    pub(super) fn quiet(&self, volume: &Volume) -> Range<u64> {
        let block = volume.layout.quiet(self.plan.block);
        block..block + 1
    }

    /// Lets a host write to a volume through this node, and expects an answer in time.
    pub(super) fn write_unharmed(&self, volume: &Volume, by: usize) {
        let done = self.write_quietly(volume, by);
        self.expect("write", &done);
        self.counts.count("write of a host that is not harmed");
    }

    /// Lets a host read these blocks of a volume through this node, or through another one if this one is no
    /// path any more, and expects an answer in time.
    ///
    /// Returns the node that gave the data; `None`: a reservation forbids the read.
    pub(super) fn read_unharmed(&self, volume: &Volume, by: usize, blocks: Range<u64>) -> Option<usize> {
        let (done, given) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(None)));
        let (answered, given_by) = (Rc::clone(&done), Rc::clone(&given));
        let (history, size) = (self.histories[volume.index].clone(), self.plan.block);
        let lun = volume.lun;
        let servers = &self.cluster.servers;
        let nodes = (0..servers.len()).map(|at| (by + at) % servers.len());
        let portals: Vec<_> = nodes.map(|node| (node, servers[node].portal)).collect();
        let machine = self.cluster.add_host("unharmed");
        self.guests.borrow_mut().push(machine);
        let read = move || async move {
            for (node, portal) in portals.iter().cycle() {
                if let Ok(session) = log_in(*portal, lun, "unharmed").await {
                    let call = history.tick();
                    let count = BlockCount(blocks.end - blocks.start);
                    let read = async || session.read(lun, Lba(blocks.start), count, size).await;
                    let read = attended(read).await;
                    // A reservation of another host, says the node: that is an answer, too.
                    if is_conflict(&read) {
                        return answered.set(true);
                    }
                    match read {
                        Ok(data) => {
                            history.read(blocks.start, &data, call);
                            given_by.set(Some(*node));
                            return answered.set(true);
                        }
                        Err(error) => check_harmless(&error),
                    }
                }
                rt::sleep(AGAIN).await;
            }
        };
        drop(self.cluster.world.spawn_on(machine, CoreId(0), read));
        self.expect("read", &done);
        self.counts.count("read of a host that is not harmed");
        given.get()
    }

    /// Lets a host read a volume over all nodes, `cut` it off from this one, and expects it to continue.
    pub(super) fn read_past_cut(&self, volume: &Volume, by: usize, cut: impl FnOnce(NodeId)) {
        let cluster = self.cluster;
        let guest = cluster.add_host("unharmed");
        self.guests.borrow_mut().push(guest);
        let paths = cluster.servers.iter().enumerate().filter(|(node, _)| !self.one_path || *node == by);
        let search = Search {
            portals: paths.map(|(_, server)| server.portal).collect(),
            target: Some(TARGET.to_owned()),
            unit: UnitSelector::Lun(volume.lun),
            discover: false,
        };
        let answers: Rc<Cell<Option<u32>>> = Rc::default();
        let (answered, history, block) =
            (Rc::clone(&answers), self.histories[volume.index].clone(), self.quiet(volume).start);
        let read = move || async move {
            let options = MultipathOptions { login: named("unharmed"), ..MultipathOptions::default() };
            let unit = loop {
                match Multipath::open(&search, options.clone()).await {
                    Ok(unit) => break unit,
                    Err(_) => rt::sleep(AGAIN).await,
                }
            };
            let mut count = 0;
            loop {
                answered.set(Some(count));
                rt::sleep(AGAIN).await;
                let call = history.tick();
                match unit.read(Lba(block), BlockCount(1)).await {
                    Ok(data) => {
                        history.read(block, &data, call);
                        count += 1;
                    }
                    Err(failure) => match failure.answer() {
                        // A reservation of another host, says the node: that is an answer, too.
                        Some(error) if is_conflict_error(error) => count += 1,
                        Some(error) => check_harmless(error),
                        None => {}
                    },
                }
            }
        };
        drop(cluster.world.spawn_on(guest, CoreId(0), read));
        let until = cluster.world.now() + OPENS_WITHIN;
        while answers.get().is_none() && cluster.world.now() < until {
            self.inside.run_for(LOOK_EVERY);
        }
        let Some(before) = answers.get() else { return };
        cut(guest);
        self.wait_for("read over another path", || answers.get() >= Some(before + ANSWERS));
        self.counts.count("read of a host that has lost a path");
    }

    fn expect(&self, what: &str, done: &Cell<bool>) {
        self.wait_for(what, || done.get());
    }

    /// Expects this to be done in time.
    pub(super) fn wait_for(&self, what: &str, is_done: impl Fn() -> bool) {
        let world = &self.cluster.world;
        let until = world.now() + UNHARMED_MAX;
        while !is_done() {
            assert!(world.now() < until, "waited in vain for a {what}, and there is only one fault");
            self.inside.run_for(LOOK_EVERY);
        }
    }
}

/// Checks that at most a path is lost: no host may be told that data are.
fn check_harmless(error: &Error) {
    const MEDIUM_ERROR: u8 = 3;
    const HARDWARE_ERROR: u8 = 4;
    let key = error.sense().map(|(key, _)| key);
    assert!(
        !matches!(key, Some(MEDIUM_ERROR | HARDWARE_ERROR)),
        "a host is told of a fault of one disk: {error}"
    );
}
