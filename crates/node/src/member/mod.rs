//! This node as a member of its cluster.
//!
//! The [`reconciler`] follows the cluster's record, makes this node's copies act by it, and proposes changes
//! of volumes. [`floating`] decides which node holds a floating IP.

pub mod floating;
mod reconciler;

pub(crate) use self::reconciler::HEARTBEAT;
pub use self::reconciler::{
    ClonedFrom, ClusterError, CopiesStatus, Counted, Engine, Expelled, ForkShown, ForkState, Frozen,
    RECORD_DEADLINE, Reconciler, json,
};
