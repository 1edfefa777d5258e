//! Searches all reachable states, breadth first, so that the first bad one has a shortest story.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use super::{Bounds, State, Step, Without};

/// A fast hash that is the same in every run.
#[derive(Default)]
struct Fx(u64);

impl Hasher for Fx {
    fn finish(&self) -> u64 {
        let hash = (self.0 ^ self.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^ hash >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, byte: u8) {
        self.0 = (self.0.rotate_left(5) ^ (u64::from(byte) + 0x100)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u8(value as u8);
    }
}

/// The result of a search.
#[derive(Debug)]
pub(super) enum Searched {
    /// All states were visited, and none is bad.
    Safe { states: usize },
    /// The shortest story has this many steps.
    Found { steps: u32, what: String },
}

pub(super) fn search(bounds: Bounds, without: Option<Without>) -> Searched {
    let fingerprint = |state: &State| {
        let mut hasher = Fx(0xcbf2_9ce4_8422_2325);
        state.hash(&mut hasher);
        hasher.finish()
    };
    let mut first = State::initial(bounds);
    first.close(bounds, without);
    let mut seen: HashSet<u64, BuildHasherDefault<Fx>> = HashSet::default();
    seen.insert(fingerprint(&first));
    let mut frontier = vec![first];
    let mut after = Vec::new();
    for steps in 1.. {
        let mut next = Vec::new();
        for before in &frontier {
            Step { bounds, without, before, after: &mut after }.all();
            for (mut state, found) in after.drain(..) {
                state.close(bounds, without);
                let fresh = seen.insert(fingerprint(&state));
                let found = found.or_else(|| if fresh { state.check(bounds, without) } else { None });
                if let Some(what) = found {
                    return Searched::Found { steps, what };
                }
                if fresh {
                    next.push(state);
                }
            }
        }
        if next.is_empty() {
            break;
        }
        frontier = next;
    }
    Searched::Safe { states: seen.len() }
}
