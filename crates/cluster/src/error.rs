use thiserror::Error;

/// Why a call of the cluster's record failed. Nothing was changed, except where a variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Error {
    #[error(
        "the cluster's record had no leader before the deadline: are more than half of its voters up and connected?"
    )]
    NoLeader,
    /// Only for reads.
    #[error("the leader of the cluster's record did not respond before the deadline, or has no quorum")]
    NoQuorum,
    /// The change was forwarded and may take effect, now or later. The caller may send the same transaction
    /// (with its `op_id`) again.
    #[error("the change may have been made: its result did not arrive before the deadline")]
    OutcomeUnknown,
    #[error("too many requests are waiting for the cluster's record")]
    Busy,
    #[error("the cluster's record is full: {} MiB at most", crate::limits::RECORD_BYTES_MAX >> 20)]
    Full,
    #[error("not a transaction: {0}")]
    Invalid(#[from] Invalid),
    #[error("the members of the cluster were not changed: {0}")]
    Membership(#[from] crate::members::Refusal),
    #[error("etcd has its own members: change them with etcd's own tools")]
    Foreign,
    #[error("etcd, which holds the cluster's record, did not respond: run `ursa status` for the cause")]
    Etcd,
    #[error("etcd does not hold the cluster's record as this node knows it: run `ursa status` for details")]
    WrongEtcd,
    #[error("this node's copy of the cluster's record accepts no changes: {0}")]
    Stalled(crate::Stall),
    /// A transaction may have taken effect.
    #[error("the cluster's record has stopped on this node")]
    Stopped,
}

/// What is wrong with a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Invalid {
    #[error("a key is empty or longer than {} bytes", crate::limits::KEY_BYTES_MAX)]
    Key,
    #[error("a value is longer than {} KiB", crate::limits::VALUE_BYTES_MAX >> 10)]
    Value,
    #[error("more than {} preconditions or writes", crate::limits::WRITES_MAX)]
    Count,
    #[error("larger than {} KiB", crate::limits::TRANSACTION_BYTES_MAX >> 10)]
    Size,
    #[error("a key is written twice")]
    Twice,
}
