//! Mistakes that runs must detect: in a protocol, a node, a store, a disk or a clock.

use std::fmt;

use node::canary::Canary as Mistake;
use proto::canary::Canary as Slip;
use replica::canary::Canary as Rule;
use store::canary::Canary as Flaw;

use crate::plan::{
    ALL_REGISTRANTS, CONVERSIONS, FULL_POOLS, LARGE_DISK_BLOCKS, LOGS, ROT, ROT_IN_LOGS, TWO_DISKS,
};

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
}

impl Canary {
    /// The mistakes that one of the first 250 seeds detects, each with a seed that did.
    ///
    /// The test tries that seed first, and then the others.
    pub const NOTICED: [(Canary, u64); 31] = [
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
        (Canary::Store(Flaw::MoveUncopied), 220),
        (Canary::Store(Flaw::MoveUnfollowed), 66),
        (Canary::Store(Flaw::RootWithoutFlush), 21),
        (Canary::Store(Flaw::MoveWithoutLooking), 140),
        (Canary::Store(Flaw::RecordCached), 8),
        (Canary::Store(Flaw::RotReturned), 34),
        (Canary::Store(Flaw::RotDropped), 112),
        (Canary::Store(Flaw::HoleIgnored), 105),
        (Canary::Store(Flaw::StateOnce), 21),
        (Canary::Store(Flaw::RootOnce), 38),
        (Canary::Store(Flaw::ConvertOnce), 2),
        (Canary::Store(Flaw::ConvertUnheld), 5),
        (Canary::Rule(Rule::NoIntent), 0),
        (Canary::Rule(Rule::NoEpoch), 57),
        (Canary::Rule(Rule::NoFloor), 137),
        (Canary::Rule(Rule::Unconfirmed), 69),
        (Canary::Rule(Rule::GrownUnseen), 143),
    ];

    /// A part of a plan, a mistake, and a seed whose run detects the mistake only with that part.
    ///
    /// The same run without the part ([`crate::Plan::without`]) detects nothing: proof that the part is
    /// effective.
    pub const SHOWN_BY: [(&str, Canary, u64); 39] = [
        ("kill", Canary::Rule(Rule::CoordinatorIntent), 124),
        ("kill that is told", Canary::Rule(Rule::CoordinatorIntent), 3),
        ("last words", Canary::Rule(Rule::CoordinatorIntent), 28),
        ("power loss", Canary::DisksBeside, 85),
        ("black-out", Canary::Node(Mistake::NotStored), 10),
        ("orderly stop", Canary::Rule(Rule::SettleBlind), 47),
        ("loss of the vote", Canary::Node(Mistake::ForkUnwritten), 262),
        ("pause", Canary::Rule(Rule::NoLease), 17),
        ("clock stop", Canary::Rule(Rule::Unconfirmed), 69),
        ("clock leap", Canary::Clocks, 110),
        ("cut", Canary::Rule(Rule::NoLease), 11),
        ("isolation", Canary::Rule(Rule::NoLease), 6),
        ("lapse", Canary::Rule(Rule::NoLease), 5),
        ("stutter", Canary::Rule(Rule::NoFloor), 4),
        ("turn", Canary::Rule(Rule::NoFloor), 45),
        ("watch of the record held", Canary::Rule(Rule::NoRevision), 166),
        ("full disk", Canary::Node(Mistake::FullIsBroken), 18),
        ("copy taken off", Canary::Rule(Rule::NoOwnDirty), 173),
        ("copy added", Canary::Rule(Rule::NoOwnDirty), 34),
        ("copy moved", Canary::Rule(Rule::NoOwnDirty), 13),
        ("growth", Canary::Rule(Rule::GrownUnseen), 143),
        ("bad blocks", Canary::Node(Mistake::BadLeft), 23),
        ("blocks lost for good", Canary::Node(Mistake::ReadHere), 24),
        ("unreadable disk", Canary::Node(Mistake::ReadHere), 0),
        ("failing disk", Canary::Node(Mistake::FaultIgnored), 25),
        ("hanging disk", Canary::Node(Mistake::HangUnseen), 112),
        ("dead disk", Canary::Node(Mistake::FaultIgnored), 98),
        ("disk gone for good", Canary::Rule(Rule::NoOwnDirty), 34),
        ("disk set back", Canary::Node(Mistake::TrustSetBack), 63),
        ("machine set back", Canary::Node(Mistake::StartUnnumbered), 98),
        ("disk leaves its pool", Canary::Store(Flaw::MoveUnfollowed), 66),
        (LARGE_DISK_BLOCKS, Canary::Store(Flaw::PartUnlocked), 4),
        (ROT, Canary::Node(Mistake::RotUnseen), 1),
        (TWO_DISKS, Canary::SecondDisks, 3),
        (ALL_REGISTRANTS, Canary::Target(Slip::AllRegistrantsLetRead), 10),
        (FULL_POOLS, Canary::Node(Mistake::RefusedForGood), 2),
        (CONVERSIONS, Canary::Store(Flaw::ConvertOnce), 2),
        (ROT_IN_LOGS, Canary::Store(Flaw::StateOnce), 21),
        (LOGS, Canary::Store(Flaw::RecordCached), 8),
    ];

    /// Faults for which no such mistake is known.
    pub const UNSHOWN: &[&str] = &[
        "record gone",
        "time of day set",
        "cut one way",
        "cut of a host",
        "reset of links",
        "slow disk",
        "answers of the record lost",
        // These end other faults.
        "start",
        "heal",
        "well disks",
        "room",
        "record back",
    ];

    /// All mistakes that whole nodes can make.
    pub const ALL: [Canary; 86] = [
        Canary::Disks,
        Canary::DisksBeside,
        Canary::SecondDisks,
        Canary::Clocks,
        Canary::Node(Mistake::AnswerEarly),
        Canary::Node(Mistake::NotDurable),
        Canary::Node(Mistake::ReadOnce),
        Canary::Node(Mistake::PartSpeaks),
        Canary::Node(Mistake::GoOnAfterLoss),
        Canary::Node(Mistake::InstallElsewhere),
        Canary::Node(Mistake::InstallUnexpected),
        Canary::Node(Mistake::InstallUnnamed),
        Canary::Node(Mistake::TakeOlder),
        Canary::Node(Mistake::NotStored),
        Canary::Node(Mistake::LockHere),
        Canary::Node(Mistake::FaultIgnored),
        Canary::Node(Mistake::ReadHere),
        Canary::Node(Mistake::BadLeft),
        Canary::Node(Mistake::FetchOnce),
        Canary::Node(Mistake::MergeFails),
        Canary::Node(Mistake::RestUnasked),
        Canary::Node(Mistake::FullIsBroken),
        Canary::Node(Mistake::RoomUnasked),
        Canary::Node(Mistake::AgeByStep),
        Canary::Node(Mistake::TrustSetBack),
        Canary::Node(Mistake::StartUnnumbered),
        Canary::Node(Mistake::HangUnseen),
        Canary::Node(Mistake::ForkUnled),
        Canary::Node(Mistake::ForkUnwritten),
        Canary::Node(Mistake::ForkFollowsRecord),
        Canary::Node(Mistake::ForkLends),
        Canary::Node(Mistake::GoOnUnheard),
        Canary::Node(Mistake::RotUnseen),
        Canary::Node(Mistake::RefusedForGood),
        Canary::Store(Flaw::PartUnlocked),
        Canary::Store(Flaw::MoveUnheld),
        Canary::Store(Flaw::MoveUncopied),
        Canary::Store(Flaw::MoveUnfollowed),
        Canary::Store(Flaw::RootWithoutFlush),
        Canary::Store(Flaw::FreeBeforeRoot),
        Canary::Store(Flaw::TakeWithoutChecksum),
        Canary::Store(Flaw::MoveWithoutLooking),
        Canary::Store(Flaw::MoveLate),
        Canary::Store(Flaw::RecordCached),
        Canary::Store(Flaw::RotReturned),
        Canary::Store(Flaw::RotDropped),
        Canary::Store(Flaw::HoleIgnored),
        Canary::Store(Flaw::StateOnce),
        Canary::Store(Flaw::RootOnce),
        Canary::Store(Flaw::ReserveToHosts),
        Canary::Store(Flaw::ConvertOnce),
        Canary::Store(Flaw::ConvertUnheld),
        Canary::Store(Flaw::EqualOnce),
        Canary::Target(Slip::AllRegistrantsLetRead),
        Canary::Rule(Rule::AckSuperseded),
        Canary::Rule(Rule::NoIntent),
        Canary::Rule(Rule::CoordinatorIntent),
        Canary::Rule(Rule::NoJoinerAck),
        Canary::Rule(Rule::NoEpoch),
        Canary::Rule(Rule::NoLease),
        Canary::Rule(Rule::NoJoinerLease),
        Canary::Rule(Rule::Unconfirmed),
        Canary::Rule(Rule::NoRevision),
        Canary::Rule(Rule::NoWait),
        Canary::Rule(Rule::NoBootWait),
        Canary::Rule(Rule::NoConfirm),
        Canary::Rule(Rule::PromoteEarly),
        Canary::Rule(Rule::NoOwnDirty),
        Canary::Rule(Rule::NoInherit),
        Canary::Rule(Rule::NoSyncTimestamp),
        Canary::Rule(Rule::NoMoving),
        Canary::Rule(Rule::NoFloor),
        Canary::Rule(Rule::MarksOutlive),
        Canary::Rule(Rule::AnyRead),
        Canary::Rule(Rule::AskEarly),
        Canary::Rule(Rule::ForgetAsSource),
        Canary::Rule(Rule::JoinerReplays),
        Canary::Rule(Rule::GrantBlind),
        Canary::Rule(Rule::OldWriteFresh),
        Canary::Rule(Rule::NoOverdue),
        Canary::Rule(Rule::RepairLate),
        Canary::Rule(Rule::RepairWithoutIntent),
        Canary::Rule(Rule::NoFinished),
        Canary::Rule(Rule::ClearOutside),
        Canary::Rule(Rule::GrownUnseen),
        Canary::Rule(Rule::SettleBlind),
    ];

    /// The mistake of this name.
    pub fn named(name: &str) -> Option<Canary> {
        Canary::ALL.into_iter().find(|canary| canary.to_string() == name)
    }
}

impl fmt::Display for Canary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Canary::Rule(rule) => write!(f, "{rule:?}"),
            Canary::Node(mistake) => write!(f, "{mistake:?}"),
            Canary::Store(flaw) => write!(f, "{flaw:?}"),
            Canary::Target(slip) => write!(f, "{slip:?}"),
            Canary::Disks | Canary::DisksBeside | Canary::SecondDisks | Canary::Clocks => {
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
