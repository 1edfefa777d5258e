//! A run: faults and load from a seed, then peace, then nothing may be missing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// Steps with faults.
const STEPS: u32 = 2500;
/// Steps until everything must be in sync and at rest once nothing fails any more (A13).
const PEACE_STEPS_MAX: u32 = 6000;

/// One seed.
pub fn run(seed: u64, canary: Option<Canary>) -> BTreeMap<&'static str, u64> {
    let mut plan = Rng::new(seed ^ 0x5eed);
    let copies = 2 + plan.below(10) as usize / 6 + usize::from(plan.one_in(8));
    let mut world = World::new(seed, copies, canary);
    for step in 0..STEPS {
        world.step();
        world.load(&mut plan);
        world.fault(&mut plan);
        if step % 8 == 0 {
            world.check_map();
        }
    }
    world.make_peace(&mut plan);
    world.check_history();
    world.counts
}

impl World {
    fn load(&mut self, plan: &mut Rng) {
        let index = plan.below(self.nodes.len() as u64) as usize;
        match plan.below(6) {
            0 => self.host_write(index),
            1 | 2 => self.host_read(index),
            _ => {}
        }
    }

    fn fault(&mut self, plan: &mut Rng) {
        let count = self.nodes.len() as u64;
        // The worst moment to lose somebody is when the record has just changed.
        if std::mem::replace(&mut self.seen, self.record.len()) < self.record.len() && plan.one_in(4) {
            self.isolate(plan.below(count) as usize, 300);
        }
        let (a, b) = (plan.below(count) as usize, plan.below(count) as usize);
        match plan.below(400) {
            0 => self.crash(a),
            1..=6 => self.restart(a),
            7 | 8 if a != b => self.cut(a, b),
            9..=14 if a != b => self.connect(a, b),
            15 if plan.one_in(8) => {
                self.count("black-out");
                (0..self.nodes.len()).for_each(|index| self.crash(index));
            }
            16..=18 if a != b => self.remove(a, b),
            19..=40 if a != b => {
                if self.nodes[a].replica.caught_up().contains(slot(b)) || plan.one_in(6) {
                    self.admit(a, b);
                }
            }
            41..=90 => self.promote(a),
            91..=93 => self.recover(a),
            94 if plan.one_in(6) => {
                self.count("record out of reach");
                let until = self.now + Duration::from_millis(plan.below(300));
                self.nodes.iter_mut().for_each(|node| node.record_gone_until = until);
            }
            95 if plan.one_in(2) => self.isolate(a, 400),
            // Who does not answer is suspected.
            100..=130 if self.is_cut(a, b) => self.remove(a, b),
            _ => {}
        }
    }

    /// Everything works again, and somebody sees to it that all join.
    fn make_peace(&mut self, plan: &mut Rng) {
        let now = self.now;
        self.nodes.iter_mut().for_each(|node| node.record_gone_until = now);
        for _ in 0..PEACE_STEPS_MAX {
            for a in 0..self.nodes.len() {
                self.restart(a);
                for b in a + 1..self.nodes.len() {
                    self.connect(a, b);
                }
            }
            self.step();
            let newest = self.record.last().unwrap();
            let alive = newest.in_sync().iter().map(Slot::index).find(|index| {
                newest.in_sync_incarnation(slot(*index)) == Some(self.nodes[*index].incarnation)
            });
            let strangers: Vec<usize> = newest
                .members()
                .iter()
                .map(Slot::index)
                .filter(|index| newest.standing(slot(*index), self.nodes[*index].incarnation) == Standing::Outside)
                .collect();
            match alive {
                None => self.recover(newest.in_sync().iter().next().unwrap().index()),
                Some(by) => {
                    for whom in strangers {
                        self.remove(by, whom);
                    }
                    for whom in self.nodes[by].replica.caught_up().iter().collect::<Vec<_>>() {
                        self.admit(by, whom.index());
                    }
                    self.promote(by);
                }
            }
            if self.is_whole() {
                let all = Blocks::new(0, GEOMETRY.blocks);
                let first = self.nodes[0].disk.read(all);
                for node in &self.nodes {
                    assert_eq!(node.disk.read(all), first, "all are in sync, and their disks differ");
                }
                for block in 0..GEOMETRY.blocks {
                    let now = self.tick_moment();
                    let value = first[block as usize];
                    self.history[block as usize].push(Op { kind: Kind::Read, value, call: now, reply: now });
                }
                return;
            }
            if plan.one_in(1000) {
                self.check_map();
            }
        }
        panic!("it never came to rest: {:?} {}", self.record.last().unwrap(), self.why_not_whole());
    }

    fn why_not_whole(&self) -> String {
        let nodes = self.nodes.iter().map(|node| {
            format!(
                "{:?} {} dirty {} active {:?}",
                node.replica.standing(),
                node.replica.unrest(),
                node.replica.map().dirty(all_slots()).count(),
                node.membership.active().map(|config| config.epoch),
            )
        });
        nodes.collect::<Vec<_>>().join("; ")
    }
}

/// The first seed from `from` on, of `count`, that fails, with its message.
pub fn first_failure(from: u64, count: u64, canary: Canary) -> Option<(u64, String)> {
    (from..from + count).find_map(|seed| {
        let message = catch_unwind(AssertUnwindSafe(|| run(seed, Some(canary)))).err()?;
        let text = message.downcast_ref::<String>().cloned();
        Some((seed, text.or_else(|| message.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()))
    })
}
