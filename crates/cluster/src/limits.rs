//! The limits of the cluster's record, and how they are calculated.

use std::time::Duration;

/// Bytes of a key, which is UTF-8 and not empty.
pub const KEY_BYTES_MAX: usize = 512;
/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 256 << 10;
/// Preconditions of a transaction. etcd accepts 128 comparisons, and the transaction's own identity needs
/// one.
pub const PRECONDITIONS_MAX: usize = 100;
/// Writes of a transaction; see [`PRECONDITIONS_MAX`].
pub const WRITES_MAX: usize = 100;
/// Bytes of keys and values of a transaction: four of the largest values. etcd accepts requests of 1.5 MiB.
pub const TRANSACTION_BYTES_MAX: usize = 1 << 20;
/// Bytes of keys and values of the whole record.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// Transactions whose results are remembered, so that one that arrives twice takes effect once. Each takes 64
/// bytes, together 1 MiB. At a hundred transactions per second, more than a cluster makes, they cover the
/// last two minutes.
pub const REMEMBERED_MAX: u64 = 16_384;
/// The longest time that a call may wait. Within it a cluster makes fewer than [`REMEMBERED_MAX`]
/// transactions.
pub const DEADLINE_MAX: Duration = Duration::from_secs(60);
/// A call that has had no answer at all fails this long after its deadline: the engine's disk hangs.
pub const GRACE: Duration = Duration::from_secs(1);
/// Calls that wait for an answer on one node.
pub const CALLS_MAX: usize = 4096;
/// Bytes of transactions that wait for an answer on one node.
pub const CALL_BYTES_MAX: usize = 64 << 20;

/// Changes that are kept for watches that start in the past.
pub const HISTORY_CHANGES_MAX: usize = 4096;
/// Bytes of keys and values of these changes.
pub const HISTORY_BYTES_MAX: usize = 8 << 20;
/// Changes queued for one watch; beyond it, the watch starts again with the whole record.
pub const WATCH_CHANGES_MAX: usize = 4096;
/// Watches of one node.
pub const WATCHES_MAX: usize = 1024;

/// The interval between the elections of a dead leader's successors, in ticks. An election takes one message
/// round trip and two flushes. Three successors have had their turn before the first node that does not know
/// of the death would start an election.
pub const SUCCESSION_TICKS: u64 = 3;
/// The engine's unit of time.
pub const TICK: Duration = Duration::from_millis(50);
/// Between heartbeats of a leader: 100 ms.
pub const HEARTBEAT_TICKS: usize = 2;
/// The shortest time without a leader after which a voter starts an election: 500 ms.
pub const ELECTION_TICKS_MIN: usize = 10;
/// The upper bound of that time: 1 s.
pub const ELECTION_TICKS_MAX: usize = 20;
const _: () =
    assert!(HEARTBEAT_TICKS * 5 <= ELECTION_TICKS_MIN, "four lost heartbeats are no reason for an election");
/// How long a witness waits for another voter to lead before it competes like any other: 5 s.
pub const WITNESS_PATIENCE_TICKS: u64 = 100;
/// How long a starting node waits for the other voters to report what they remember of its promises, once a
/// quorum has: 2 s. By then, nodes that start together are linked.
pub const DOUBT_TICKS: u64 = 40;
/// The interval at which it asks them: 100 ms.
pub const QUESTION_TICKS: u64 = 2;
/// When a transaction that was forwarded without an answer is forwarded again: 1 s.
pub const RETRY_TICKS: u64 = 20;
/// When a change of members that has not taken effect is forwarded again: 200 ms. It may be waiting for a
/// node to catch up, or for a new leader.
pub const MEMBER_RETRY_TICKS: u64 = 4;
/// A node has caught up when it lacks at most this many entries.
pub const PROMOTION_LAG_MAX: u64 = 64;
/// When a read that was not confirmed is requested again: 200 ms.
pub const READ_RETRY_TICKS: u64 = 4;
/// When a snapshot that was sent without an answer counts as lost: 10 s.
pub const SNAPSHOT_TICKS: u64 = 200;
/// How long applied state may wait for the next transaction of the disk: 100 ms. Until then it is in the log.
pub const DEFERRED_TICKS: u64 = 2;

/// For how long messages for the log that a node cannot read have to keep coming until its copy counts as
/// stalled: 5 s, five elections, since another leader may lack the entry.
pub const UNREADABLE_TICKS: u64 = 100;
/// How long after the last of them it still counts as stalled: 15 s. A leader sends such a message again when
/// a heartbeat is answered, a snapshot only once the last one counts as lost.
pub const UNREADABLE_GAP_TICKS: u64 = SNAPSHOT_TICKS + 100;

/// The interval at which a node retries a record's file that could not be written: long enough not to keep a
/// full disk busy, short compared to an operator's patience.
pub const REOPEN_EVERY: Duration = Duration::from_secs(1);

/// Entries above which the log is shortened.
pub const LOG_ENTRIES_MAX: usize = 2048;
/// Bytes above which the log is shortened.
pub const LOG_BYTES_MAX: usize = 16 << 20;
/// Shortening keeps one in this many of them (512 entries), so that a node that was away for a moment needs
/// no snapshot.
pub const LOG_KEPT_PART: usize = 4;
/// Bytes of entries in a message, unless it has only one entry.
pub const APPEND_BYTES_MAX: u64 = 1 << 20;
/// Messages with entries in flight to one node.
pub const APPENDS_MAX: usize = 64;
/// Bytes of entries that no quorum has yet; above it, transactions wait at their proposers.
pub const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
/// Bytes of entries that are applied at a time.
pub const COMMITTED_BYTES_MAX: u64 = 8 << 20;
/// Bytes of a message between engines: a snapshot of a full record (its framing is less than [`ENTRY_BYTES`]
/// per key), results of 27 bytes each, and members.
pub const MESSAGE_BYTES_MAX: usize = RECORD_BYTES_MAX + (2 << 20);
const _: () =
    assert!(REMEMBERED_MAX * 27 + 65_536 * 2 * 3 + 4096 < 2 << 20, "a snapshot fits into a message");
/// Bytes of bookkeeping that count for each key in addition to the key and its value, so that small keys
/// cannot outgrow a message.
pub const ENTRY_BYTES: usize = 64;
/// Inputs queued for an engine's thread.
pub const INBOX_MAX: usize = 8192;
/// Bytes of messages among them: two snapshots of a full record.
pub const INBOX_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
