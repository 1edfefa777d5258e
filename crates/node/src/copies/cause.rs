//! Why a volume's configuration was changed, and why a copy misses writes: what the cluster's record has of that, what events call it, and what people read.

use std::fmt;

use replica::Reason;
use serde::{Deserialize, Serialize};

macro_rules! causes {
    ($($(#[$attribute:meta])+ $name:ident = $code:literal, $text:literal;)+) => {
        /// Why a volume's configuration was changed, or why a copy misses writes.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Cause {
            $($(#[$attribute])+ #[serde(rename = $code)] $name,)+
        }

        impl Cause {
            /// What the record and events call it.
            pub fn code(self) -> &'static str {
                match self { $(Cause::$name => $code,)+ }
            }
        }

        impl fmt::Display for Cause {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Cause::$name => $text,)+ })
            }
        }
    };
}

causes! {
    /// The volume was made.
    VolumeMade = "volume_made", "the volume was made";
    /// The volume was made larger.
    VolumeGrown = "volume_grown", "the volume was made larger";
    /// Somebody wanted another copy.
    CopyAdded = "copy_added", "a copy was added";
    /// The copy was never in sync.
    #[default]
    NewCopy = "new_copy", "it is a new copy";
    /// [`Reason::Restarted`]
    Restarted = "restarted", "its node was restarted";
    /// [`Reason::Died`]
    Died = "died", "its process died";
    /// [`Reason::Silent`]
    Silent = "silent", "nothing was heard of its node";
    /// [`Reason::Overdue`]
    Overdue = "overdue", "it did not finish writes";
    /// [`Reason::Leaves`]: its node was stopped.
    Stopped = "stopped", "its node was stopped";
    /// [`Reason::Leaves`]: its node is in maintenance.
    Maintenance = "maintenance", "its node is in maintenance";
    /// [`Reason::Leaves`]: somebody wanted the copy off its node.
    TakenOff = "taken_off", "it was taken off its node";
    /// [`Reason::Unreadable`]
    Unreadable = "unreadable", "the only copy in sync cannot read all that it misses";
    /// [`Reason::DiskFailed`]
    DiskFailed = "disk_failed", "a disk of it failed";
    /// [`Reason::NoSpace`]
    NoSpace = "no_space", "the file system of its pool is full";
    /// [`Reason::Unrepaired`]
    BlockUnrepaired = "block_unrepaired", "a block of its disk cannot be read, and could not be rewritten";
    /// [`Reason::DiskFailing`]
    DiskFailing = "disk_failing", "too many blocks of its disk cannot be read";
    /// [`Reason::DiskSilent`]
    DiskSilent = "disk_silent", "its disk does not answer";
    /// [`Reason::SourceFailed`]
    SourceFailed = "source_failed", "a disk failed of the only copy that could bring it up to date";
    /// [`Reason::Complete`]
    Complete = "complete", "it has all that it missed";
    /// [`Reason::CaughtUp`]
    CaughtUp = "caught_up", "it has nearly all that it missed and takes new writes";
    /// [`Reason::Alone`], of the copy that was back first.
    Alone = "alone", "it was in sync when it was lost, and nobody else that was is there";
    /// [`Reason::Alone`], of the others.
    LeftBehind = "left_behind", "all copies were lost, and another one was back first";
    /// Of two nodes the other one went on alone.
    WentOnAlone = "went_on_alone", "its node was not there, and the other one went on alone";
    /// Of two nodes that had each gone on alone one has what counts.
    ForkDecided = "fork_decided", "it was decided whose data is kept";
    /// One that only later versions know.
    #[serde(other)]
    Other = "other", "a later version knows why";
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
    fn a_cause_of_a_later_version_can_be_read() {
        let read = |code: &str| serde_json::from_value::<Cause>(code.into()).unwrap();
        assert_eq!((read("silent"), read("of_a_later_version")), (Cause::Silent, Cause::Other));
        assert_eq!(serde_json::to_value(Cause::Other).unwrap(), "other");
    }
}
