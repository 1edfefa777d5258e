//! Mistakes that a simulation can have a node make, to prove that it notices; those of the protocol are in
//! [`replica::canary`].

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A write is answered when it has begun.
    AnswerEarly,
    /// A write is said to be on the disk when it is in the disk's cache.
    NotDurable,
    /// A write that a disk has failed counts as written.
    FaultIgnored,
    /// What was read is given to the host though something was taken in between (R9).
    ReadOnce,
    /// A host's read that fails on this disk ends in an error, whatever other copies have.
    ReadHere,
    /// A node gives another one what its disk holds, without a look whether a host might still be given that
    /// (R25).
    FetchOnce,
    /// A write of a part of a block that the disk does not read counts as one that the disk has failed (R26).
    MergeFails,
    /// A host's write of a part of a block is taken though nobody may be able to read the rest (R26).
    RestUnasked,
    /// A copy of which a slice cannot be opened takes part with the others.
    PartSpeaks,
    /// A disk that hangs is waited for, by the node that has it and by the others.
    HangUnseen,
    /// A command goes on, when this node is a member again, though the others have gone on without it since
    /// it came.
    GoOnAfterLoss,
    /// A write begins however long it has waited for others to the same blocks.
    BeginLate,
    /// A full file system counts as a broken disk.
    FullIsBroken,
    /// A write is taken whether there is room for it or not.
    RoomUnasked,
    /// Each step of a command has an age of its own, and nobody asks whether its initiator is still there.
    AgeByStep,
    /// Other nodes say that they have taken a change of reservations, and have not.
    InstallElsewhere,
    /// The member with the lowest slot takes a change that was decided against something else.
    InstallUnexpected,
    /// A change of reservations during which members changed is in force here under the name of the one
    /// before.
    InstallUnnamed,
    /// Who takes a change again that aborts commands does not wait for what lost nodes have left of these.
    OrphansOnce,
    /// A change is decided while another one is being carried out here.
    DecideBeside,
    /// A member that has a later change of reservations says of an earlier one that it has it.
    TakeOlder,
    /// Reservations that are to survive are not stored.
    NotStored,
    /// A pool that was set back is taken for what it was.
    TrustSetBack,
    /// A start of a node has no number of its own: a life that was used before is taken for this one.
    StartUnnumbered,
    /// A comparison of copies finds no difference.
    RotUnseen,
    /// COMPARE AND WRITE has its range on its own node only.
    LockHere,
    /// A node goes on alone with a volume of which nobody has agreed to that.
    ForkUnasked,
    /// A node goes on alone that had no lease when the other one fell silent.
    ForkUnled,
    /// A node goes on alone though it has heard the other one again while that was being written down.
    ForkThoughHeard,
    /// A node that goes on alone does not write that down.
    ForkUnwritten,
    /// A node that has gone on alone acts by the record all the same, and speaks to the other copy.
    ForkFollowsRecord,
    /// A node that has gone on alone gives leases to who is a member of what it has left.
    ForkLends,
    /// A node that starts goes on without having heard whether the other one has gone on alone.
    GoOnUnheard,
    /// A node gives up what it has written alone, as if no host had been served.
    ForkUnused,
    /// A node gives up what it has written alone by a word that was spoken while it still served hosts.
    ForkWordEarly,
    /// A fork that may be written down, and was not acted in, is forgotten without a word.
    ForkHalfWritten,
    /// A node whose own record was set back does not ask the cluster's whether it has gone on alone.
    ForkForgotten,
}

base::canary_switch!(Canary);
