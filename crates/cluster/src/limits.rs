//! The limits of the cluster's record, with their arithmetic.

use std::time::Duration;

/// Bytes of a key, which is UTF-8 and not empty.
pub const KEY_BYTES_MAX: usize = 512;
/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 256 << 10;
/// Preconditions of a transaction. etcd takes 128 comparisons, and one is for the transaction's own identity.
pub const PRECONDITIONS_MAX: usize = 100;
/// Writes of a transaction; see [`PRECONDITIONS_MAX`].
pub const WRITES_MAX: usize = 100;
/// Bytes of keys and values of a transaction: four of the largest values. etcd takes requests of 1.5 MiB.
pub const TRANSACTION_BYTES_MAX: usize = 1 << 20;
/// Bytes of keys and values of the whole record.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// Transactions whose results are remembered, so that one that arrives twice takes effect once. 64 bytes
/// each: 1 MiB. At a hundred transactions a second, more than a cluster makes, it is what happened in the
/// last two minutes.
pub const REMEMBERED_MAX: u64 = 16_384;
/// The longest time a call may wait: within it a cluster makes fewer than [`REMEMBERED_MAX`] transactions.
pub const DEADLINE_MAX: Duration = Duration::from_secs(60);
/// How long after its deadline a call that was not answered at all is given up: the engine's disk hangs.
pub const GRACE: Duration = Duration::from_secs(1);
/// Calls that wait for an answer at one node.
pub const CALLS_MAX: usize = 4096;
/// Bytes of transactions that wait for an answer at one node.
pub const CALL_BYTES_MAX: usize = 64 << 20;

/// Changes that are kept for watches that begin in the past.
pub const HISTORY_CHANGES_MAX: usize = 4096;
/// Bytes of keys and values of these changes.
pub const HISTORY_BYTES_MAX: usize = 8 << 20;
/// Changes that wait to be taken from one watch; beyond it, it starts again.
pub const WATCH_CHANGES_MAX: usize = 4096;
/// Watches of one node.
pub const WATCHES_MAX: usize = 1024;

/// What the successors of a dead leader wait for each other, in ticks: an election takes a message there and
/// back, and two flushes. Three of them are over before the first who knows of no death would stand.
pub const SUCCESSION_TICKS: u64 = 3;
/// The engine's unit of time.
pub const TICK: Duration = Duration::from_millis(50);
/// Between heartbeats of a leader: 100 ms.
pub const HEARTBEAT_TICKS: usize = 2;
/// The shortest time without a leader after which a voter stands for election: 500 ms.
pub const ELECTION_TICKS_MIN: usize = 10;
/// What that time stays below: 1 s.
pub const ELECTION_TICKS_MAX: usize = 20;
const _: () =
    assert!(HEARTBEAT_TICKS * 5 <= ELECTION_TICKS_MIN, "four lost heartbeats are no reason for an election");
/// How long a witness waits for another voter to lead before it stands like one of them: 5 s.
pub const WITNESS_PATIENCE_TICKS: u64 = 100;
/// How long a node that starts waits for voters that do not say what they remember of its promises, if a
/// quorum has: 2 s, in which nodes that start together are linked.
pub const DOUBT_TICKS: u64 = 40;
/// How often it asks them: every 100 ms.
pub const QUESTION_TICKS: u64 = 2;
/// When a transaction that was handed on without an answer is handed on again: 1 s.
pub const RETRY_TICKS: u64 = 20;
/// When a change of members that was not made is handed on again: 200 ms. It may wait for a node that catches
/// up, or for a new leader.
pub const MEMBER_RETRY_TICKS: u64 = 4;
/// A node has caught up when it lacks no more entries than this.
pub const PROMOTION_LAG_MAX: u64 = 64;
/// When a read that was not confirmed is asked for again: 200 ms.
pub const READ_RETRY_TICKS: u64 = 4;
/// When a snapshot that was sent without an answer is taken to be lost: 10 s.
pub const SNAPSHOT_TICKS: u64 = 200;
/// How long what was applied may wait for the next transaction of the disk: 100 ms. It is in the log
/// meanwhile.
pub const DEFERRED_TICKS: u64 = 2;

/// How often it is tried to write a record's file again that could not be written: long enough that a full
/// disk is not kept busy, short against an operator's patience.
pub const REOPEN_EVERY: Duration = Duration::from_secs(1);

/// Entries of the log above which it is shortened.
pub const LOG_ENTRIES_MAX: usize = 2048;
/// Bytes of the log above which it is shortened.
pub const LOG_BYTES_MAX: usize = 16 << 20;
/// One in so many of these stays when it is (512), so that a node that was away for a moment needs no
/// snapshot.
pub const LOG_KEPT_PART: usize = 4;
/// Bytes of entries in a message, if they are not one entry.
pub const APPEND_BYTES_MAX: u64 = 1 << 20;
/// Messages with entries on their way to a node.
pub const APPENDS_MAX: usize = 64;
/// Bytes of entries that no quorum has yet; above it, transactions wait at who proposes them.
pub const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
/// Bytes of entries that are applied at once.
pub const COMMITTED_BYTES_MAX: u64 = 8 << 20;
/// Bytes of a message between engines: a snapshot of a full record, whose framing is less than
/// [`ENTRY_BYTES`] a key, with results of 27 bytes, and members.
pub const MESSAGE_BYTES_MAX: usize = RECORD_BYTES_MAX + (2 << 20);
const _: () =
    assert!(REMEMBERED_MAX * 27 + 65_536 * 2 * 3 + 4096 < 2 << 20, "a snapshot fits into a message");
/// Bytes of bookkeeping that each key counts beside its own and its value's, so that small keys cannot
/// outgrow a message.
pub const ENTRY_BYTES: usize = 64;
/// What waits at the door of an engine's thread.
pub const INBOX_MAX: usize = 8192;
/// Bytes of messages among it: two snapshots of a full record.
pub const INBOX_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
