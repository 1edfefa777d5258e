//! What a kind of fault is, and the table of all kinds.

use base::Rng;

use super::{
    Harms, bad_blocks, clock, dead_disk, disk, forks, full_disk, growth, lapse, last_words, leaving, network,
    pause, power, process, record, relocation, set_back, stutter, turn,
};

/// A kind of fault: a constant in the file that implements it, and a line in [`ALL`]. Nothing else names it.
pub struct Harm {
    /// Its name in plans, counts and events.
    pub name: &'static str,
    /// How often it happens, relative to the others, in a plan that gives all the same factor.
    pub weight: u64,
    /// Factors for the weight, of which a plan draws one: 0 leaves the fault out of that run.
    pub measures: &'static [u64],
    /// How often it happens at least in the seeds of a test run ([`crate::floors`]).
    pub floor: u64,
    /// Copies may need a full resync afterwards: a run with this fault does not check that there is none.
    pub costs_full_copies: bool,
    /// The plans that may have it.
    pub plans: Plans,
    /// Does it, if possible, and returns whether it did. Its effects may last longer than the call.
    pub strike: fn(&mut Harms<'_>, Victim, &mut Rng) -> bool,
    /// Called before each fault: ends effects that have lasted for long enough.
    pub tick: fn(&mut Harms<'_>),
    /// Ends all its lasting effects: at the end of the faults, and before a fault that needs a quiet moment.
    ///
    /// Called whether it happened or not.
    pub heal: fn(&mut Harms<'_>),
    /// Does what an administrator does about its consequences once faults have ended.
    ///
    /// Called again and again until all copies are in sync.
    pub repair: fn(&mut Harms<'_>),
}

/// The plans that may have a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plans {
    /// All plans.
    All,
    /// Those in which no node may continue alone ([`crate::Plan::forks`]).
    WithoutForks,
    /// Those in which a node may.
    WithForks,
    /// Those with a pool of two disks that has no log volumes: one of its disks can be emptied. For the zones
    /// of logs, one disk is too small.
    WithSpareDisks,
}

impl Plans {
    /// Whether they include a plan in which a node may, or may not, continue alone, and which has, or has
    /// not, disks to spare.
    pub fn has(self, forks: bool, spare_disks: bool) -> bool {
        match self {
            Plans::All => true,
            Plans::WithoutForks => !forks,
            Plans::WithForks => forks,
            Plans::WithSpareDisks => spare_disks,
        }
    }
}

/// The nodes that a fault hits, drawn by the seed.
#[derive(Clone, Copy)]
pub struct Victim {
    /// A node, by its index.
    pub index: usize,
    /// Another one.
    pub other: usize,
}

/// A third of all plans leaves a fault out, and some have little else.
const ANY: &[u64] = &[0, 0, 2, 4, 4, 16];
/// Faults that end others are in each plan.
const ALWAYS: &[u64] = &[2, 4, 4, 8];

impl Harm {
    /// A fault with no lasting effects.
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

    /// It may cause a full resync.
    ///
    /// Only a third of all plans may have such faults: with them, a full resync that must not happen would go
    /// unnoticed.
    pub const fn costs_full_copies(self) -> Harm {
        Harm { costs_full_copies: true, ..self }
    }

    /// With it, two healthy nodes may lose contact and both continue.
    pub const fn may_split(self) -> Harm {
        Harm { plans: Plans::WithoutForks, ..self }
    }

    /// It concerns a node that continues alone.
    pub const fn of_forks(self) -> Harm {
        Harm { plans: Plans::WithForks, ..self }
    }

    /// It happens at least this often in the seeds of a test run.
    pub const fn floor(self, floor: u64) -> Harm {
        Harm { floor, ..self }
    }
}

base::shows!(Debug for Harm, |it| "{}", it.name);

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
    leaving::LEAVE,
];
