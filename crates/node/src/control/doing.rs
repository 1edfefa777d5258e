//! What changes do.

use std::fmt;

macro_rules! doings {
    ($($name:ident = $words:literal;)+) => {
        /// What a change does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    MakeVolume = "making volume";
    GrowVolume = "growing volume";
    RenameVolume = "renaming volume";
    DeleteVolume = "deleting volume";
    MakeCopy = "making a copy of volume";
    GrowCopy = "growing the copy of volume";
    RenameCopy = "renaming the copy of volume";
    CloseCopy = "closing the copy of volume";
    DeleteCopy = "deleting the copy of volume";
    DropCopy = "deleting a copy of volume";
    WriteFork = "going on alone, or not any more, with volume";
    MakeTarget = "making target";
    ChangeTarget = "changing target";
    DeleteTarget = "deleting target";
    MapVolume = "mapping volume";
    Unmap = "taking a LUN from target";
    MakeHost = "making host";
    ChangeHost = "changing host";
    DeleteHost = "deleting host";
    ChangeUser = "changing user";
    MakeToken = "making token";
    DeleteToken = "deleting token";
    LookAtDisks = "looking at disks for pool";
    OpenPool = "opening pool";
    MakePool = "making pool";
    ImportPool = "importing the pool of";
    GrowPool = "adding a disk to pool";
    ExportPool = "exporting pool";
    ReopenPool = "reopening pool";
    ForgetPool = "forgetting pool";
    MakeCluster = "making a cluster of";
    JoinCluster = "joining a cluster with";
    ForceCluster = "making a new cluster of";
    ReturnToCluster = "going on in the cluster with";
    LeaveCluster = "leaving the cluster with";
    MoveAccess = "moving targets, hosts and users of";
    KeepAccess = "keeping the access rules of";
    TakeAccessOver = "taking over the access rules of";
    WriteIdentity = "writing the identity of";
    EndLife = "giving up a life of";
    WriteReadErrors = "writing down failed reads of";
    AcknowledgeReadErrors = "acknowledging read errors of pool";
    RepairRecord = "repairing the record of";
}
