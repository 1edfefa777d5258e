//! Literal messages for the tests of [`super`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use proto::scsi::{Abort, LuState};
use replica::{Epoch, NodeId};

use super::{Agreed, Members, Offer, Version};
use crate::canary::{Canary, make};

/// A state that a restart preserves, with these flags of saved mode parameters; 1 is the default.
pub(super) fn saved(flags: u8) -> LuState {
    LuState::from_durable(&durable(flags)).unwrap()
}

/// What a pool stores of [`saved`].
pub(super) fn durable(flags: u8) -> Vec<u8> {
    if flags == 1 {
        return Vec::new();
    }
    let mut bytes = b"ULUS\x01\x00".to_vec();
    bytes.extend_from_slice(&[flags, 0, 0xff, 0xff, 0, 0]);
    bytes.extend_from_slice(&base::crc32c(&bytes).to_le_bytes());
    bytes
}

pub(super) fn version(epoch: u64, number: u64, by: u16) -> Version {
    Version { epoch, number, by }
}

/// A change that raises and aborts nothing, with `contains` beneath it.
pub(super) fn agreed(version: Version, flags: u8, contains: &[Version]) -> Agreed {
    let contains = contains.iter().copied().chain([version]).collect();
    Agreed { version, state: saved(flags), notices: Vec::new(), abort: Abort::NONE, contains }
}

pub(super) fn offer(epoch: u64, expected: Option<Version>, agreed: Agreed) -> Offer {
    Offer { epoch: Epoch(epoch), expected, agreed }
}

/// An epoch in which the copies on these nodes are in sync.
pub(super) fn members(epoch: u64, nodes: &[u16]) -> Members {
    let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
    Members { epoch: Epoch(epoch), in_sync: nodes.clone(), nodes }
}

/// Checks that a test fails without a rule.
pub(super) fn assert_noticed(canary: Canary, test: fn()) {
    make(Some(canary));
    let noticed = catch_unwind(AssertUnwindSafe(test)).is_err();
    make(None);
    assert!(noticed, "{canary:?} was not noticed");
}
