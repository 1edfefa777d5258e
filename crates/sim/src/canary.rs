//! Mistakes that runs must detect: in a protocol, a node, a store, a disk or a clock.

use std::fmt;

use node::canary::Canary as Mistake;
use proto::canary::Canary as Slip;
use replica::canary::Canary as Rule;
use store::canary::Canary as Flaw;

use crate::plan::{
    ALL_REGISTRANTS, CONVERSIONS, FULL_POOLS, LARGE_DISK_BLOCKS, LEAPS_TOO_FAR, LOGS, RESTORES, ROT_IN_LOGS,
    SNAPSHOTS, TWO_DISKS,
};
use crate::rot::Rot;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A rule of the replication protocol is left out.
    Rule(Rule),
    /// A node errs.
    Node(Mistake),
    /// A store errs.
    Store(Flaw),
    /// A target violates its protocol.
    Target(Slip),
    /// Flushes of all disks do nothing.
    Disks,
    /// Flushes of the disks in the second volume's own pool do nothing.
    DisksBeside,
    /// Flushes of the second disk of each pool do nothing.
    SecondDisks,
    /// Nodes read a clock that stops while their machine stands still.
    Clocks,
    /// Hosts use only one path.
    OnePath,
}

/// A list of mistakes: those of the world, then those of each family.
macro_rules! mistakes {
    ($($own:ident)+; $($family:ident($names:ident): $($name:ident)+;)+) => {
        &[$(Canary::$own,)+ $($(Canary::$family($names::$name),)+)+]
    };
}

impl Canary {
    /// The mistakes that one of the first 250 seeds detects, each with a seed that did.
    ///
    /// The test tries that seed first, and then the others.
    pub const NOTICED: [(Canary, u64); 35] = [
        (Canary::Disks, 91),
        (Canary::DisksBeside, 3),
        (Canary::Node(Mistake::AnswerEarly), 1),
        (Canary::Node(Mistake::NotDurable), 3),
        (Canary::Node(Mistake::InstallElsewhere), 0),
        (Canary::Node(Mistake::InstallUnexpected), 2),
        (Canary::Node(Mistake::NotStored), 10),
        (Canary::Node(Mistake::LockHere), 212),
        (Canary::Node(Mistake::ReadHere), 0),
        (Canary::Node(Mistake::BadLeft), 23),
        (Canary::Node(Mistake::FaultIgnored), 25),
        (Canary::Node(Mistake::FullIsBroken), 185),
        (Canary::Node(Mistake::TrustSetBack), 8),
        (Canary::Node(Mistake::StartUnnumbered), 98),
        (Canary::Node(Mistake::SnapshotUnheld), 103),
        (Canary::Node(Mistake::SnapshotLate), 103),
        (Canary::Node(Mistake::SnapshotLeft), 103),
        (Canary::Node(Mistake::RestoreSkipped), 86),
        (Canary::Node(Mistake::RestoreUnkept), 86),
        (Canary::Store(Flaw::MoveUncopied), 9),
        (Canary::Store(Flaw::MoveUnfollowed), 66),
        (Canary::Store(Flaw::RootWithoutFlush), 45),
        (Canary::Store(Flaw::MoveWithoutLooking), 140),
        (Canary::Store(Flaw::RecordCached), 76),
        (Canary::Store(Flaw::RotReturned), 57),
        (Canary::Store(Flaw::HoleIgnored), 105),
        (Canary::Store(Flaw::StateOnce), 21),
        (Canary::Store(Flaw::RootOnce), 52),
        (Canary::Store(Flaw::ConvertOnce), 5),
        (Canary::Store(Flaw::ConvertUnheld), 5),
        (Canary::Rule(Rule::NoIntent), 0),
        (Canary::Rule(Rule::NoEpoch), 99),
        (Canary::Rule(Rule::NoFloor), 137),
        (Canary::Rule(Rule::Unconfirmed), 69),
        (Canary::Rule(Rule::GrownUnseen), 143),
    ];

    /// A part of a plan, a mistake, and a seed whose run detects the mistake only with that part.
    ///
    /// The same run without the part ([`crate::Plan::without`]) detects nothing: proof that the part is
    /// effective.
    pub const SHOWN_BY: [(&str, Canary, u64); 48] = [
        ("kill", Canary::Rule(Rule::CoordinatorIntent), 20),
        ("kill that is told", Canary::Rule(Rule::CoordinatorIntent), 13),
        ("last words", Canary::Rule(Rule::CoordinatorIntent), 28),
        ("power loss", Canary::DisksBeside, 85),
        ("black-out", Canary::Node(Mistake::NotStored), 10),
        ("loss of the vote", Canary::Node(Mistake::ForkUnwritten), 53),
        ("pause", Canary::Rule(Rule::NoLease), 17),
        ("clock stop", Canary::Rule(Rule::Unconfirmed), 134),
        ("clock leap", Canary::Clocks, 110),
        (LEAPS_TOO_FAR, Canary::Rule(Rule::Unconfirmed), 99),
        ("cut", Canary::Rule(Rule::NoLease), 11),
        ("cut one way", Canary::Rule(Rule::NoLease), 26),
        ("isolation", Canary::Rule(Rule::NoLease), 6),
        ("lapse", Canary::Rule(Rule::NoLease), 5),
        ("stutter", Canary::Rule(Rule::NoFloor), 19),
        ("turn", Canary::Rule(Rule::NoFloor), 40),
        ("cut of a host", Canary::OnePath, 36),
        ("reset of links", Canary::Rule(Rule::LostWithLink), 30),
        ("record gone", Canary::Node(Mistake::RecordNeeded), 14),
        ("watch of the record held", Canary::Rule(Rule::NoRevision), 166),
        ("slow disk", Canary::Node(Mistake::LateAwaited), 4),
        ("full disk", Canary::Node(Mistake::FullIsBroken), 18),
        ("copy taken off", Canary::Rule(Rule::NoOwnDirty), 173),
        ("copy added", Canary::Rule(Rule::NoOwnDirty), 34),
        ("copy moved", Canary::Rule(Rule::NoOwnDirty), 13),
        ("growth", Canary::Rule(Rule::GrownUnseen), 143),
        ("bad blocks", Canary::Node(Mistake::BadLeft), 23),
        ("blocks lost for good", Canary::Node(Mistake::ReadHere), 133),
        ("unreadable disk", Canary::Node(Mistake::ReadHere), 0),
        ("failing disk", Canary::Node(Mistake::FaultIgnored), 25),
        ("hanging disk", Canary::Node(Mistake::HangUnseen), 112),
        ("dead disk", Canary::Node(Mistake::FaultIgnored), 98),
        ("disk gone for good", Canary::Rule(Rule::NoOwnDirty), 34),
        ("disk set back", Canary::Node(Mistake::TrustSetBack), 63),
        ("machine set back", Canary::Node(Mistake::StartUnnumbered), 98),
        ("disk leaves its pool", Canary::Store(Flaw::MoveUnfollowed), 66),
        (LARGE_DISK_BLOCKS, Canary::Store(Flaw::PartUnlocked), 4),
        (Rot::Decay.name(), Canary::Node(Mistake::RotUnseen), 1),
        (Rot::LostWrite.name(), Canary::Node(Mistake::RotUnseen), 9),
        (Rot::MisdirectedWrite.name(), Canary::Node(Mistake::RotUnseen), 25),
        (TWO_DISKS, Canary::SecondDisks, 3),
        (ALL_REGISTRANTS, Canary::Target(Slip::AllRegistrantsLetRead), 10),
        (FULL_POOLS, Canary::Node(Mistake::RefusedForGood), 2),
        (CONVERSIONS, Canary::Store(Flaw::ConvertOnce), 2),
        (ROT_IN_LOGS, Canary::Store(Flaw::StateOnce), 21),
        (SNAPSHOTS, Canary::Node(Mistake::SnapshotUnheld), 103),
        (RESTORES, Canary::Node(Mistake::RestoreSkipped), 86),
        (LOGS, Canary::Store(Flaw::RecordCached), 8),
    ];

    /// Faults for which no such mistake is known.
    pub const UNSHOWN: &[&str] = &[
        // Only times that people read depend on it.
        "time of day set",
        // A change that was made is seen before anything is done about the lost answer.
        "answers of the record lost",
        // Open: `SettleBlind` showed it as long as waits ended by timers.
        "orderly stop",
        // These end other faults.
        "start",
        "heal",
        "well disks",
        "room",
        "record back",
    ];

    /// All mistakes that whole nodes can make.
    pub const ALL: &[Canary] = mistakes! {
        Disks DisksBeside SecondDisks Clocks OnePath;
        Node(Mistake): AnswerEarly NotDurable ReadOnce LateAwaited RecordNeeded PartSpeaks GoOnAfterLoss
            InstallElsewhere InstallUnexpected InstallUnnamed TakeOlder NotStored LockHere FaultIgnored
            ReadHere BadLeft FetchOnce MergeFails RestUnasked FullIsBroken RoomUnasked AgeByStep TrustSetBack
            StartUnnumbered HangUnseen ForkUnled ForkUnwritten ForkFollowsRecord ForkLends GoOnUnheard
            RotUnseen RefusedForGood SnapshotUnheld SnapshotLate SnapshotLeft RestoreSkipped RestoreUnnoted
            RestoreUnkept;
        Store(Flaw): PartUnlocked MoveUnheld MoveUncopied MoveUnfollowed RootWithoutFlush FreeBeforeRoot
            TakeWithoutChecksum MoveWithoutLooking MoveLate RecordCached RotReturned RotDropped HoleIgnored
            StateOnce RootOnce ReserveToHosts ConvertOnce ConvertUnheld EqualOnce;
        Target(Slip): AllRegistrantsLetRead;
        Rule(Rule): AckSuperseded NoIntent CoordinatorIntent NoJoinerAck NoEpoch NoLease NoJoinerLease
            Unconfirmed NoRevision NoWait NoBootWait NoConfirm PromoteEarly NoOwnDirty NoInherit
            NoSyncTimestamp NoMoving NoFloor MarksOutlive AnyRead AskEarly ForgetAsSource JoinerReplays
            GrantBlind OldWriteFresh NoOverdue RepairLate RepairWithoutIntent NoFinished ClearOutside
            GrownUnseen SettleBlind LostWithLink;
    };

    /// The mistake of this name.
    pub fn named(name: &str) -> Option<Canary> {
        Canary::ALL.iter().copied().find(|canary| canary.to_string() == name)
    }
}

impl fmt::Display for Canary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Canary::Rule(rule) => write!(f, "{rule:?}"),
            Canary::Node(mistake) => write!(f, "{mistake:?}"),
            Canary::Store(flaw) => write!(f, "{flaw:?}"),
            Canary::Target(slip) => write!(f, "{slip:?}"),
            Canary::Disks | Canary::DisksBeside | Canary::SecondDisks | Canary::Clocks | Canary::OnePath => {
                fmt::Debug::fmt(self, f)
            }
        }
    }
}

/// Makes all nodes that this thread simulates commit the mistake; `None`: no mistake.
///
/// # Panics
/// In a release build, which contains no mistakes.
pub fn make(canary: Option<Canary>) {
    #[cfg(debug_assertions)]
    {
        replica::canary::make(match canary {
            Some(Canary::Rule(rule)) => Some(rule),
            _ => None,
        });
        node::canary::make(match canary {
            Some(Canary::Node(mistake)) => Some(mistake),
            _ => None,
        });
        store::canary::make(match canary {
            Some(Canary::Store(flaw)) => Some(flaw),
            _ => None,
        });
        proto::canary::make(match canary {
            Some(Canary::Target(slip)) => Some(slip),
            _ => None,
        });
    }
    #[cfg(not(debug_assertions))]
    assert!(
        !matches!(canary, Some(Canary::Rule(_) | Canary::Node(_) | Canary::Store(_) | Canary::Target(_))),
        "canaries require a debug build: {canary:?}"
    );
}
