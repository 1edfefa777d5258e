//! What a kind of fault is, and the table of all of them.

use std::fmt;

use base::Rng;

use super::{
    Harms, bad_blocks, clock, dead_disk, disk, forks, full_disk, growth, lapse, last_words, network, pause,
    power, process, record, relocation, set_back, stutter, turn,
};

/// A kind of fault: a constant in the file that carries it out, and a line in [`ALL`]. Nothing else names it.
pub struct Harm {
    /// What it is called in plans, counts and events.
    pub name: &'static str,
    /// How often it happens beside the others, in plans that have all of them alike.
    pub weight: u64,
    /// By which of these a plan multiplies the weight: 0 leaves the fault out of that run.
    pub measures: &'static [u64],
    /// How often it happens at least in the seeds of a test run ([`crate::floors`]).
    pub floor: u64,
    /// Afterwards copies may have to copy everything: a run that has it in its plan does not look for that.
    pub costs_full_copies: bool,
    /// In which plans it may be.
    pub plans: Plans,
    /// Does it, if it can be done; answers whether it did. What it starts may outlast it.
    pub strike: fn(&mut Harms<'_>, Victim, &mut Rng) -> bool,
    /// Is called before each fault: ends what has lasted for long enough.
    pub tick: fn(&mut Harms<'_>),
    /// Ends all of it that lasts: when nothing is to fail any more, and before what begins in a quiet moment.
    /// Is called whether it happened or not.
    pub heal: fn(&mut Harms<'_>),
    /// What an administrator does about what it has left, once nothing fails any more. Is called again and
    /// again until all copies are in sync.
    pub repair: fn(&mut Harms<'_>),
}

/// Plans that may have a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plans {
    /// Any.
    All,
    /// Those in which no node continues alone ([`crate::Plan::forks`]).
    WithoutForks,
    /// Those in which one does.
    WithForks,
}

impl Plans {
    /// Whether one in which a node may continue alone, or none may, is among them.
    pub fn has(self, forks: bool) -> bool {
        match self {
            Plans::All => true,
            Plans::WithoutForks => !forks,
            Plans::WithForks => forks,
        }
    }
}

/// On whom it falls, drawn by the seed.
#[derive(Clone, Copy)]
pub struct Victim {
    /// A node, by its index.
    pub index: usize,
    /// Another one.
    pub other: usize,
}

/// A third of all plans leaves a fault out, and some have little else.
const ANY: &[u64] = &[0, 0, 2, 4, 4, 16];
/// What ends other faults is in each plan.
const ALWAYS: &[u64] = &[2, 4, 4, 8];

impl Harm {
    /// One that leaves nothing behind that somebody has to end.
    pub const fn new(
        name: &'static str,
        weight: u64,
        strike: fn(&mut Harms<'_>, Victim, &mut Rng) -> bool,
    ) -> Harm {
        let nothing: fn(&mut Harms<'_>) = |_| {};
        let (measures, floor, costs_full_copies) = (ANY, 5, false);
        Harm {
            name,
            weight,
            measures,
            floor,
            costs_full_copies,
            plans: Plans::All,
            strike,
            tick: nothing,
            heal: nothing,
            repair: nothing,
        }
    }

    /// It ends other faults: no plan leaves it out.
    pub const fn always(self) -> Harm {
        Harm { measures: ALWAYS, floor: 30, ..self }
    }

    /// It may cost a copy of everything: what must cost none would not be told from it, and so only a third
    /// of all plans may have such faults.
    pub const fn costs_full_copies(self) -> Harm {
        Harm { costs_full_copies: true, ..self }
    }

    /// Two nodes that are well may not hear each other by it, and both go on.
    pub const fn may_split(self) -> Harm {
        Harm { plans: Plans::WithoutForks, ..self }
    }

    /// It is about a node that continues alone.
    pub const fn of_forks(self) -> Harm {
        Harm { plans: Plans::WithForks, ..self }
    }

    /// It happens at least so often in the seeds of a test run.
    pub const fn floor(self, floor: u64) -> Harm {
        Harm { floor, ..self }
    }
}

impl fmt::Debug for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Happens instead of a fault that was taken out of a plan.
pub static NOTHING: Harm = Harm::new("nothing", 1, |_, _, _| true);

/// All kinds. A new one changes only the meaning of seeds whose plans have it.
pub static ALL: &[Harm] = &[
    process::KILL,
    process::KILL_AND_TELL,
    last_words::LAST_WORDS,
    power::POWER_LOSS,
    power::BLACK_OUT,
    process::START,
    process::STOP,
    forks::VOTE_LOST,
    pause::PAUSE,
    clock::STOP,
    clock::LEAP,
    clock::TIME_OF_DAY,
    network::CUT,
    network::CUT_ONE_WAY,
    network::ISOLATE,
    lapse::LAPSE,
    stutter::STUTTER,
    turn::TURN,
    network::CUT_HOST,
    network::HEAL,
    network::BREAK,
    disk::SLOW,
    disk::FAILING,
    disk::WELL,
    full_disk::FULL,
    full_disk::ROOM,
    record::GONE,
    record::ANSWERS_LOST,
    record::WATCH_HELD,
    record::BACK,
    relocation::REMOVE,
    relocation::ADD,
    relocation::MOVE,
    growth::GROW,
    bad_blocks::BAD,
    bad_blocks::LOST,
    bad_blocks::UNREADABLE,
    dead_disk::HANG,
    dead_disk::DEAD,
    dead_disk::GONE,
    set_back::DISK_BACK,
    set_back::MACHINE_BACK,
];
