//! Mistakes that tests and simulations can switch on in a store, to prove that they notice them.

/// A mistake that can be switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A write of part of a disk block does not lock the rest of the block.
    PartUnlocked,
    /// A root is written before what it names is durable.
    RootWithoutFlush,
    /// Segments are reused before the root that frees them.
    FreeBeforeRoot,
    /// A record is replayed although its data is not intact.
    TakeWithoutChecksum,
    /// A block that was written after the cleaner copied it reverts to its old content.
    MoveWithoutLooking,
    /// The cleaner writes blocks that it has gathered although their segment may have been freed and reused.
    MoveLate,
    /// A record that must be durable is written like any other.
    RecordCached,
    /// A block of a log is returned although it does not match its checksum.
    RotReturned,
    /// A record that was known to be durable counts as never written because its data has rotted.
    RotDropped,
    /// A log is opened although a record that was known to be durable is missing.
    HoleIgnored,
    /// Data of a host that looks like the head of a record is stored as it is.
    DataAsHead,
    /// A segment that is used again keeps its generation.
    GenerationKept,
    /// A leaf counts although an earlier use of its segment has left it there.
    LeafOfEarlierUse,
    /// Recovery reads only the first copy of a log's state.
    StateOnce,
    /// Recovery reads only the first mirror of a log's roots.
    RootOnce,
    /// Hosts' data gets the segments that are kept for the cleaner and for UNMAP.
    ReserveToHosts,
    /// A place is freed although a snapshot needs it.
    FreeKept,
    /// A snapshot is noted before what it holds is durable.
    SnapshotUnflushed,
    /// What a deleted snapshot had replaces what the one before it has.
    FoldOver,
    /// A snapshot is deleted although a clone is read through it.
    PinForgotten,
    /// A former line is folded before all that was written to it has been merged.
    SettleUnmerged,
    /// Operations on a part are not held back while it moves to another disk.
    MoveUnheld,
    /// A part that moves to another disk is not copied.
    MoveUncopied,
    /// A slice stays at the former place of a part that has moved to another disk.
    MoveUnfollowed,
    /// What has been copied to the other layout is written only to the present one.
    ConvertOnce,
    /// Writes to a range are not held back while it is copied to the other layout.
    ConvertUnheld,
    /// When both layouts count, only the present one is written.
    EqualOnce,
    /// Units are written although their page of checksums is closed.
    ChecksumsUnopened,
    /// A page of checksums is closed before what it says is durable.
    ChecksumsUnflushed,
}

base::canary_switch!(Canary);
