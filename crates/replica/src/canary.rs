//! Rules that can be left out, to prove that the tests notice.
//!
//! Each is one of the protocol's rules whose absence the explicit-state model answers with a counterexample.
//! Whole nodes are simulated by another crate, so these are not only for the tests of this one.

/// A rule that a test can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// R3: a superseded write is acknowledged before what superseded it is on the disk.
    AckSuperseded,
    /// R4: no bit of the dirty map is set before a write.
    NoIntent,
    /// R4: only the coordinator sets bits.
    CoordinatorIntent,
    /// R5: a write does not wait for joiners.
    NoJoinerAck,
    /// R2: the epoch of a message is not looked at.
    NoEpoch,
    /// R9: reads need no lease.
    NoLease,
    /// R9: reads need no lease of joiners.
    NoJoinerLease,
    /// R24: where a clock may stop, reads are answered by leases alone.
    Unconfirmed,
    /// R10: a lease counts whatever revision it was given at.
    NoRevision,
    /// R11: a configuration that removes somebody is acted in at once.
    NoWait,
    /// R12: a restarted node acts at once.
    NoBootWait,
    /// R13a: a joiner is promoted before all know that it joins.
    NoConfirm,
    /// R13b: a joiner is promoted before what it was given is on its disk.
    PromoteEarly,
    /// R14: a restarted process keeps its membership. (The simulator does that: it gives a process its
    /// number.)
    #[cfg(test)]
    NoIncarnation,
    /// R17: the joiner's own bits are not looked at.
    NoOwnDirty,
    /// R17: the joiner does not take over its source's bits for third copies.
    NoInherit,
    /// R18: a sync carries no timestamps.
    NoSyncTimestamp,
    /// R19: the joiner does not wait for writes that were under way in a region when it was sent.
    NoMoving,
    /// R15: a copy forgets what it will never send again itself, whatever others may.
    NoFloor,
    /// R15: the source of a joiner forgets what all members hold, as others do.
    ForgetAsSource,
    /// R20: members may owe acknowledgements for ever.
    NoOverdue,
    /// R9: what was read in an earlier membership counts, whatever became of what was seen.
    MarksOutlive,
    /// R19: a region that was read for an earlier sync of the same number is given.
    AnyRead,
    /// R7: a joiner brings writes to their end that were begun before it joined.
    JoinerReplays,
    /// R10: who has not read the record yet gives leases.
    GrantBlind,
    /// R25: blocks are written again with what another copy gave, whatever was taken there meanwhile.
    RepairLate,
    /// R25: no bit of the dirty map is set before blocks are written again.
    RepairWithoutIntent,
    /// R25: another copy gives what it reads, without a look whether it may still be read. (The simulator
    /// does that: it reads.)
    #[cfg(test)]
    FetchOnce,
    /// R19: a region is compared while a write to it that was handed out in an earlier membership may still
    /// happen. (The simulator does that: it carries out the comparison.)
    #[cfg(test)]
    CompareEarly,
    /// R18: an older write that is sent again makes a block count as synced.
    OldWriteFresh,
    /// R8: a copy clears bits before all members have finished what they began before it was one.
    NoFinished,
    /// R17: what a slice has grown by is not looked at when a copy is brought up to date.
    GrownUnseen,
    /// R27: a joiner does not note what its source gives as lost.
    LostUnnoted,
    /// R8: a copy that settles its map before another one stops clears bits of what not all are known to
    /// have.
    SettleBlind,
    /// R4: a process that has just started forgets what is noted for slots without a copy in a configuration
    /// that may be old.
    ClearOutside,
}

base::canary_switch!(Canary);
