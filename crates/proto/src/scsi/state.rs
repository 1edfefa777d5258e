//! What all cores agree on.

/// What all cores agree on, and what survives a restart as far as the standard asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LuState {
    /// The drive has been stopped by START STOP UNIT. Not durable.
    pub(super) stopped: bool,
}

impl LuState {
    /// Whether a write may be answered before it is durable (WCE of the caching mode page).
    pub fn write_cache(&self) -> bool {
        true
    }

    /// Whether MODE SELECT protected the unit from writes (SWP of the control mode page).
    pub fn write_protected(&self) -> bool {
        false
    }

    /// The part that must survive a restart, in the format of `docs/formats/lu-state.md`; empty if it is the default.
    pub fn to_durable(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Reads what [`LuState::to_durable`] wrote; `None` if the bytes are damaged or of an unknown version.
    pub fn from_durable(bytes: &[u8]) -> Option<LuState> {
        let _ = bytes;
        Some(LuState::default())
    }
}
