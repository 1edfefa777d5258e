//! A node that dies while some of the others no longer receive its messages.

use std::time::Duration;

use base::Rng;

use super::{Harm, Harms};

/// A process is killed, or its machine loses power, while one other node no longer receives its messages.
pub const LAST_WORDS: Harm = Harm::new("last words", 5, |harms, victim, rng| {
    let up = harms.is_up(victim.index);
    if up {
        harms.speak_last_words(victim.index, victim.other, rng);
    }
    up
});

/// How long another node does not receive its messages before it dies, and how long hosts hurry afterwards to
/// see the effect.
const LAST_WORDS_MAX: Duration = Duration::from_millis(10);
const AFTER_LAST_WORDS: Duration = Duration::from_millis(60);

impl Harms<'_> {
    /// Kills a node whose last messages have not reached `other`.
    fn speak_last_words(&self, index: usize, other: usize, rng: &mut Rng) {
        let (world, servers) = (&self.cluster.world, &self.cluster.servers);
        let (machine, deaf) = (servers[index].machine, servers[other].machine);
        let was_cut = self.is_cut(machine, deaf);
        self.hurry.begin(index);
        self.inside.run_for(LAST_WORDS_MAX);
        world.cut_one_way(machine, deaf);
        self.inside.run_for(Duration::from_micros(rng.below(LAST_WORDS_MAX.as_micros() as u64)));
        world.break_connections(machine, deaf);
        if rng.one_in(2) {
            self.power_loss(&[index]);
        } else {
            self.kill(index);
        }
        if !was_cut {
            world.heal(machine, deaf);
        }
        self.inside.run_for(AFTER_LAST_WORDS);
        self.hurry.end();
    }
}
