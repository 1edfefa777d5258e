//! Deliberate mistakes of a node, to prove that the simulation detects them. Those of the protocol are in
//! [`replica::canary`].

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A write is answered as soon as it begins.
    AnswerEarly,
    /// A write is reported durable while it is only in the disk's cache.
    NotDurable,
    /// A write that a disk has failed counts as written.
    FaultIgnored,
    /// A read is answered without checking, after the disk has read, that it is still allowed (R9).
    ReadOnce,
    /// A host waits for this node's disk however late its read is, even if another copy has the block.
    LateAwaited,
    /// A node requests no leases while it does not reach the cluster's record.
    RecordNeeded,
    /// A host's read that fails on this disk ends in an error, even if another copy has the block.
    ReadHere,
    /// A block that this disk cannot read is fetched for a host from another copy, and not written again.
    BadLeft,
    /// A node sends another node what its disk holds without checking that a host could still read it here
    /// (R25).
    FetchOnce,
    /// A write of a part of a block whose rest the disk cannot read counts as a write that the disk has
    /// failed (R26).
    MergeFails,
    /// A host's write of a part of a block is accepted although possibly no copy can read the rest (R26).
    RestUnasked,
    /// A copy takes part although one of its slices cannot be opened.
    PartSpeaks,
    /// A hung disk is waited for, by its own node and by the others.
    HangUnseen,
    /// A command continues when this node is a member again, although the others have continued without this
    /// node since the command arrived.
    GoOnAfterLoss,
    /// A write begins no matter how long it has waited for other writes to the same blocks.
    BeginLate,
    /// A full file system counts as a failed disk.
    FullIsBroken,
    /// A write is accepted whether there is room for it or not.
    RoomUnasked,
    /// Each step of a command has an age of its own, without asking whether the initiator is still there.
    AgeByStep,
    /// Other nodes confirm a change of reservations without installing it.
    InstallElsewhere,
    /// The member with the lowest slot accepts a change that was decided against another state.
    InstallUnexpected,
    /// A change of reservations is in force here although the members changed meanwhile, but under the
    /// version of the change before it.
    InstallUnnamed,
    /// A node that receives an aborting change of reservations again does not wait for what lost nodes have
    /// left of the aborted commands.
    OrphansOnce,
    /// A change is decided while another one is being installed here.
    DecideBeside,
    /// A member with a later change of reservations confirms an earlier one.
    TakeOlder,
    /// Reservations that must survive a power loss are not stored.
    NotStored,
    /// A pool that was set back is not recognized as such.
    TrustSetBack,
    /// Starts of a node have no numbers: a life that was used before is taken for this one.
    StartUnnumbered,
    /// A verify finds no mismatch.
    RotUnseen,
    /// A copy for whose conversion there was no space once is not asked again in this life of the node.
    RefusedForGood,
    /// COMPARE AND WRITE locks its range only on its own node.
    LockHere,
    /// A node gives a range although it may have something to finish there.
    GiveUnsettled,
    /// A command gives its range back while its write may be under way.
    ReleaseUnsettled,
    /// What a restarted node says about the ranges that it holds counts for those of its earlier life.
    HoldsOfAnyLife,
    /// What a node says about the ranges that it holds counts for those of another epoch.
    HoldsOfAnyEpoch,
    /// A command gives its range back when its epoch is over, to members that still act in that epoch.
    ReleaseAfterEpoch,
    /// Hosts are not held while a snapshot is taken.
    SnapshotUnheld,
    /// A copy says that it has a snapshot before it takes it, and takes it when hosts are not held any more.
    SnapshotLate,
    /// A copy confirms that a snapshot is deleted, and keeps it.
    SnapshotLeft,
    /// A copy says that it is restored, and is not.
    RestoreSkipped,
    /// A copy that is restored does not note that copies which are not in sync miss everything.
    RestoreUnnoted,
    /// What volumes are before a restore is not kept on their copies.
    RestoreUnkept,
    /// A node continues alone with a volume whose split-brain policy does not allow it.
    ForkUnasked,
    /// A node continues alone although it had no lease when the other node fell silent.
    ForkUnled,
    /// A node continues alone although it has heard the other node again while writing this to its record.
    ForkThoughHeard,
    /// A node continues alone without writing this to its record.
    ForkUnwritten,
    /// A node that has continued alone still acts by the cluster's record, and talks to the other copy.
    ForkFollowsRecord,
    /// A node that has continued alone gives leases to the other member.
    ForkLends,
    /// A node that starts continues before it has heard whether the other node has continued alone.
    GoOnUnheard,
    /// A node discards what it wrote alone as if it had served no host.
    ForkUnused,
    /// A node discards what it wrote alone because of a decision that was made while it still served hosts.
    ForkWordEarly,
    /// A fork that may have been written to the record, and was not acted on, is silently forgotten.
    ForkHalfWritten,
    /// A node whose own record was set back does not check the cluster's record for having continued alone.
    ForkForgotten,
}

base::canary_switch!(Canary);
