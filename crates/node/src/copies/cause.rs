//! Why a volume's configuration was changed, and why a copy misses writes.
//!
//! Each cause has a code, for the cluster's record and events, and a text for people.

use std::borrow::Cow;
use std::fmt;

use replica::Reason;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! causes {
    ($($(#[$attribute:meta])+ $name:ident = $code:literal, $text:literal;)+) => {
        /// Why a volume's configuration was changed, or why a copy misses writes.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub enum Cause {
            $($(#[$attribute])+ $name,)+
            /// A cause of a later version: its code, which the record keeps.
            Other(Box<str>),
        }

        impl Cause {
            /// Its code in events.
            pub fn code(&self) -> &'static str {
                match self {
                    $(Cause::$name => $code,)+
                    Cause::Other(_) => "other",
                }
            }

            /// The cause with this code in the record.
            pub fn of_code(code: &str) -> Cause {
                match code {
                    $($code => Cause::$name,)+
                    other => Cause::Other(other.into()),
                }
            }
        }

        impl fmt::Display for Cause {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Cause::$name => f.write_str($text),)+
                    Cause::Other(code) => f.write_str(code),
                }
            }
        }
    };
}

causes! {
    /// The volume was created.
    VolumeCreated = "volume_created", "volume created";
    /// The volume existed on one node only, and was added to the record with a single copy.
    VolumeAdopted = "volume_adopted", "volume added to the cluster's record";
    /// The volume was grown.
    VolumeResized = "volume_resized", "volume grown";
    /// An administrator added another copy.
    CopyAdded = "copy_added", "copy added";
    /// The copy was never in sync.
    #[default]
    NewCopy = "new_copy", "new copy";
    /// [`Reason::Restarted`]
    Restarted = "restarted", "its node restarted";
    /// [`Reason::Died`]
    Died = "died", "its process died";
    /// [`Reason::Silent`]
    Silent = "silent", "heartbeat timeout";
    /// [`Reason::Overdue`]
    Overdue = "overdue", "write timeout";
    /// [`Reason::Leaves`]: its node was stopped.
    Stopped = "stopped", "its node was stopped";
    /// [`Reason::Leaves`]: its node is in maintenance.
    Maintenance = "maintenance", "its node is in maintenance";
    /// [`Reason::Leaves`]: an administrator removed the copy from its node.
    CopyRemoved = "copy_removed", "copy removed";
    /// [`Reason::Unreadable`]
    Unreadable = "unreadable", "the only copy in sync cannot read some of the blocks to resync";
    /// [`Reason::DiskFailed`]
    DiskFailed = "disk_failed", "its disk failed";
    /// [`Reason::NoSpace`]
    NoSpace = "no_space", "the file system under its pool is full";
    /// [`Reason::Unrepaired`]
    BlockUnrepaired = "block_unrepaired", "a bad block on its disk could not be rewritten";
    /// [`Reason::DiskFailing`]
    DiskFailing = "disk_failing", "too many bad blocks on its disk";
    /// [`Reason::DiskSilent`]
    DiskSilent = "disk_silent", "its disk does not respond";
    /// [`Reason::SourceFailed`]
    SourceFailed = "source_failed", "a disk of the only possible resync source failed";
    /// [`Reason::Complete`]
    Complete = "complete", "resync complete";
    /// [`Reason::CaughtUp`]
    CaughtUp = "caught_up", "caught up, receiving new writes";
    /// [`Reason::Alone`], of the copy that returned first.
    Alone = "alone", "it was in sync when it was lost, and no other in-sync copy has returned";
    /// [`Reason::Alone`], of the other copies.
    LeftBehind = "left_behind", "all copies were lost, and another one returned first";
    /// Of two nodes, the other one continued alone.
    ContinuedAlone = "continued_alone", "its node was unreachable, and the other node continued alone";
    /// Two nodes had each continued alone, and an administrator chose whose data to keep.
    SplitBrainResolved = "split_brain_resolved", "split brain resolved: an administrator chose which data to keep";
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cause::Other(code) => serializer.serialize_str(code),
            known => serializer.serialize_str(known.code()),
        }
    }
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cause, D::Error> {
        Cow::<str>::deserialize(deserializer).map(|code| Cause::of_code(&code))
    }
}

impl From<Reason> for Cause {
    fn from(reason: Reason) -> Cause {
        match reason {
            Reason::Restarted => Cause::Restarted,
            Reason::Died => Cause::Died,
            Reason::Silent => Cause::Silent,
            Reason::Overdue => Cause::Overdue,
            Reason::Leaves => Cause::Stopped,
            Reason::Unreadable => Cause::Unreadable,
            Reason::DiskFailed => Cause::DiskFailed,
            Reason::NoSpace => Cause::NoSpace,
            Reason::Unrepaired => Cause::BlockUnrepaired,
            Reason::DiskFailing => Cause::DiskFailing,
            Reason::DiskSilent => Cause::DiskSilent,
            Reason::SourceFailed => Cause::SourceFailed,
            Reason::Complete => Cause::Complete,
            Reason::CaughtUp => Cause::CaughtUp,
            Reason::Alone => Cause::Alone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_keeps_a_cause_of_a_later_version() {
        for code in ["silent", "of_a_later_version"] {
            let read: Cause = serde_json::from_value(code.into()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), code);
        }
        assert_eq!(Cause::of_code("silent"), Cause::Silent);
        assert_eq!(Cause::of_code("of_a_later_version").code(), "other");
    }

    /// Of version 1. A code may be added, and none may change.
    #[test]
    fn causes_in_the_record_keep_their_codes() {
        let codes = "volume_created volume_adopted volume_resized copy_added new_copy restarted died silent \
            overdue stopped maintenance copy_removed unreadable disk_failed no_space block_unrepaired \
            disk_failing disk_silent source_failed complete caught_up alone left_behind continued_alone \
            split_brain_resolved";
        for code in codes.split_whitespace() {
            assert_eq!(Cause::of_code(code).code(), code);
        }
    }
}
