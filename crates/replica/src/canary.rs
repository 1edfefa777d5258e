//! Rules that tests can leave out, to prove that they notice.
//!
//! The explicit-state model has a counterexample for each of these rules of the protocol. Another crate
//! simulates whole nodes with them, so they are not only for this crate's tests.

/// A rule that a test can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// R3: a superseded write is acknowledged before what superseded it is on the disk.
    AckSuperseded,
    /// R4: no bit of the dirty map is set before a write.
    NoIntent,
    /// R4: a write that waits for its bits keeps waiting for those of a copy that was removed.
    IntentOutlives,
    /// R4: only the coordinator sets bits.
    CoordinatorIntent,
    /// R5: a write does not wait for joiners.
    NoJoinerAck,
    /// R2: copies do not check the epoch of a message.
    NoEpoch,
    /// R9: reads need no lease.
    NoLease,
    /// R9: reads need no lease of joiners.
    NoJoinerLease,
    /// R24: where a clock may stop, reads are answered by leases alone.
    Unconfirmed,
    /// R10: a lease counts whatever the revision at which it was granted.
    NoRevision,
    /// R11: a configuration that removes a copy takes effect at once.
    NoWait,
    /// R12: a restarted node acts at once.
    NoBootWait,
    /// R13a: a joiner is promoted before all copies know that it joins.
    NoConfirm,
    /// R13b: a joiner is promoted before what it got is on its disk.
    PromoteEarly,
    /// R14: a restarted process keeps its membership. (The simulator implements this: it assigns
    /// incarnations.)
    #[cfg(test)]
    NoIncarnation,
    /// R17: the source ignores the joiner's own bits.
    NoOwnDirty,
    /// R17: the joiner does not take over its source's bits for third copies.
    NoInherit,
    /// R18: a resync carries no timestamps.
    NoSyncTimestamp,
    /// R19: the joiner does not wait for writes that were under way in a region when it was sent.
    NoMoving,
    /// R15: a copy forgets what it will never send again itself, even if others may.
    NoFloor,
    /// R15: the source of a joiner forgets what all members hold, as others do.
    ForgetAsSource,
    /// R20: members may owe acknowledgements forever.
    NoOverdue,
    /// R9: what was read in an earlier membership counts, even if the write that was read is gone.
    MarksOutlive,
    /// R19: the source gives a region that was read for an earlier resync of the same number.
    AnyRead,
    /// R7: a joiner completes writes that were begun before it joined.
    JoinerReplays,
    /// R10: a node that has not read the record yet grants leases.
    GrantBlind,
    /// R25: blocks are rewritten with what another copy gave, whatever was taken there meanwhile.
    RepairLate,
    /// R25: no bit of the dirty map is set before blocks are rewritten.
    RepairWithoutIntent,
    /// R25: another copy gives what it has read without checking again that it may. (The simulator implements
    /// this: it does the read.)
    #[cfg(test)]
    FetchOnce,
    /// R19: a copy asks for what it misses while a write that was handed out in an earlier membership may
    /// still happen.
    AskEarly,
    /// R18: an older write that is sent again makes a block count as resynced.
    OldWriteFresh,
    /// R8: a copy clears bits before all members have finished what they began before a copy was added.
    NoFinished,
    /// R17: a resync ignores what a slice has grown by.
    GrownUnseen,
    /// R27: a joiner does not note the blocks that its source gives as lost.
    LostUnnoted,
    /// R8: a copy that settles its map before another one stops clears bits of writes that some members may
    /// lack.
    SettleBlind,
    /// R7: what a broken link has lost is not sent again over the next one.
    LostWithLink,
    /// R4: a process that has just started forgets what is noted for slots without a copy in a configuration
    /// that may be old.
    ClearOutside,
}

base::canary_switch!(Canary);
