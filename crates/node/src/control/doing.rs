//! The kinds of changes, with the words for them.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! doings {
    ($($name:ident = $words:literal;)+) => {
        /// The kind of a change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Doing {
            $(#[doc = concat!("\"", $words, "\", and then a name.")] $name,)+
        }

        impl fmt::Display for Doing {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Doing::$name => $words,)+ })
            }
        }
    };
}

doings! {
    MakeVolume = "creating volume";
    GrowVolume = "growing volume";
    RenameVolume = "renaming volume";
    ConvertVolume = "converting volume";
    BeginConversion = "preparing to convert the copy of volume";
    SwitchLayout = "switching to its new kind the copy of volume";
    FreeLayout = "freeing the former space of the copy of volume";
    SetSpace = "changing the space policy of volume";
    SetCompression = "changing the compression of volume";
    DeleteVolume = "deleting volume";
    AdoptVolume = "adding to the cluster's record: volume";
    MakeCopy = "creating a copy of volume";
    GrowCopy = "growing the copy of volume";
    RenameCopy = "renaming the copy of volume";
    SetSpaceOfCopy = "changing the space policy of the copy of volume";
    SetCompressionOfCopy = "changing the compression of the copy of volume";
    CloseCopy = "closing the copy of volume";
    DeleteCopy = "deleting the copy of volume";
    DropCopy = "deleting a copy of volume";
    ResyncCopies = "marking for a full resync the copies in a damaged log of pool";
    TakeSnapshot = "taking snapshot";
    TakeScheduledSnapshot = "taking scheduled snapshot";
    DeleteSnapshot = "deleting snapshot";
    ChangeSnapshot = "changing snapshot";
    RestoreSnapshot = "restoring volumes to snapshot";
    CloneSnapshot = "cloning snapshot";
    WriteFork = "recording whether this node continues alone with volume";
    MakeTarget = "creating target";
    ChangeTarget = "changing target";
    DeleteTarget = "deleting target";
    MapVolume = "mapping volume";
    Unmap = "unmapping a LUN from target";
    MakeHost = "creating host";
    ChangeHost = "changing host";
    DeleteHost = "deleting host";
    ChangeUser = "changing user";
    MakeToken = "creating token";
    DeleteToken = "deleting token";
    LookAtDisks = "checking disks for pool";
    OpenPool = "opening pool";
    MakePool = "creating pool";
    ImportPool = "importing the pool on";
    GrowPool = "adding a disk to pool";
    ShrinkPool = "removing a disk from pool";
    LetDiskLeave = "starting to empty a disk of pool";
    EmptyDisk = "emptying a disk of pool";
    KeepDisk = "keeping a disk of pool";
    GrowDisks = "growing the disks of pool";
    ExportPool = "exporting pool";
    ReopenPool = "reopening pool";
    ForgetPool = "forgetting pool";
    MakeCluster = "creating a cluster on";
    PrepareToJoin = "preparing to join a cluster as";
    JoinCluster = "joining a cluster as";
    ForceCluster = "forcing a new cluster on";
    ReturnToCluster = "returning to the cluster as";
    LeaveCluster = "leaving the cluster as";
    KeepAccess = "saving the access rules of";
    TakeAccessOver = "taking over the access rules of";
    WriteIdentity = "writing the identity of";
    EndLife = "retiring a start of";
    WriteReadErrors = "recording failed reads of";
    WriteScrubs = "recording scrubs of";
    AcknowledgeReadErrors = "acknowledging read errors of pool";
    RepairRecord = "repairing the record of";
}
