//! The events that exist. Their codes are part of the interface and never change. `docs/use/events.md`
//! explains each.

/// How important an event is to an administrator of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For information.
    Info,
    /// An administrator should look at it in the next days, or it explains what follows.
    Warning,
    /// Something is lost, or one fault away from being lost: act now.
    Critical,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code {
    name: &'static str,
    severity: Severity,
    action: Option<&'static str>,
}

impl Code {
    /// The code, as programs know it.
    pub const fn as_str(self) -> &'static str {
        self.name
    }

    /// The severity.
    pub const fn severity(self) -> Severity {
        self.severity
    }

    /// The recommended action, if any.
    pub const fn action(self) -> Option<&'static str> {
        self.action
    }

    /// A code for events outside of the node's own control.
    pub const fn new(name: &'static str, severity: Severity, action: Option<&'static str>) -> Code {
        Code { name, severity, action }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $constant:ident = $name:literal, $severity:ident $(, $action:literal)?;)*) => {
        $($(#[$doc])* pub const $constant: Code = Code { name: $name, severity: Severity::$severity, action: codes!(@ $($action)?) };)*

        /// All codes of a node.
        pub const ALL: &[Code] = &[$($constant),*];
    };
    (@) => { None };
    (@ $action:literal) => { Some($action) };
}

codes! {
    /// A node's heartbeats time out, or its process is known to be dead: the cause says which.
    NODE_LOST = "node_lost", Critical, "check the node, its power and its links";
    /// A node has announced that it stops.
    NODE_STOPPED = "node_stopped", Warning, "start it again when the work is done";
    /// A node's heartbeats are back.
    NODE_RETURNED = "node_returned", Info;
    /// etcd, which has the cluster's record, is unavailable.
    RECORD_LOST = "record_lost", Critical, "bring etcd back: volumes keep running, but nothing can be changed and a lost node cannot be excluded";
    /// etcd is available again.
    RECORD_RETURNED = "record_returned", Info;
    /// A node's copy of the cluster's record cannot be written: its vote is missing, and it receives no
    /// changes.
    RECORD_STALLED = "record_stalled", Critical, "free space on the file system of its data directory, or replace the disk; it then recovers automatically";
    /// The node's copy of the record can be written again.
    RECORD_RESUMED = "record_resumed", Info;
    /// A node refuses new logins because its access rules may be outdated.
    LOGINS_REFUSED = "logins_refused", Critical, "free space on the file system of its data directory, or replace the disk; hosts use their other paths";
    /// The node accepts logins again.
    LOGINS_ALLOWED = "logins_allowed", Info;
    /// A node has started with a life that an earlier start of it has already used: it was set back to an
    /// earlier state, or runs twice.
    NODE_SET_BACK = "node_set_back", Critical, "make sure that the node does not run twice, then restart it: `systemctl restart ursa`";
    /// This node cannot take part in its cluster: it serves only the volumes that no other node has, and
    /// retries.
    CLUSTER_FAILED = "cluster_failed", Critical, "run `ursa status` for the cause";
    /// This node has left its cluster, and serves only the volumes that no other node has.
    CLUSTER_LEFT = "cluster_left", Warning;
    /// This node takes part in its cluster again.
    CLUSTER_RECOVERED = "cluster_recovered", Info;
    /// This node has got another portal group, because another node of the cluster that it has joined has its
    /// own.
    PORTAL_GROUP_CHANGED = "portal_group_changed", Warning, "on each Linux host that uses the node, delete its node records and discover its targets again (docs/use/cluster.md, *Three nodes*)";
    /// A node was admitted to the cluster.
    NODE_JOINED = "node_joined", Info;
    /// A node was removed from the cluster.
    NODE_REMOVED = "node_removed", Info;
    /// A node is to be stopped, and has given up its copies in sync.
    MAINTENANCE_STARTED = "maintenance_started", Info;
    /// A node's copies may be in sync again.
    MAINTENANCE_ENDED = "maintenance_ended", Info;

    /// A volume was created.
    VOLUME_CREATED = "volume_created", Info;
    /// A volume was deleted.
    VOLUME_DELETED = "volume_deleted", Info;
    /// A volume was renamed.
    VOLUME_RENAMED = "volume_renamed", Info;
    /// A volume was enlarged.
    VOLUME_RESIZED = "volume_resized", Info;
    /// What a volume does when its pool is full, or its reserve, was changed.
    VOLUME_SPACE_CHANGED = "volume_space_changed", Info;
    /// A conversion of a volume to another kind was started, or cancelled.
    CONVERSION_STARTED = "conversion_started", Info;
    /// This node has converted its copy of a volume.
    VOLUME_CONVERTED = "volume_converted", Info;
    /// This node does not serve a volume that it should serve.
    VOLUME_UNAVAILABLE = "volume_unavailable", Critical, "run `ursa volume show` for the cause";
    /// This node serves the volume again.
    VOLUME_AVAILABLE = "volume_available", Info;

    /// A copy of a volume is being added.
    COPY_ADDED = "copy_added", Info;
    /// A copy was removed from its node.
    COPY_REMOVED = "copy_removed", Info;
    /// A copy is no longer in sync; the cause says why.
    COPY_OUT_OF_SYNC = "copy_out_of_sync", Warning, "check the node of the copy; the resync starts automatically";
    /// A node begins to bring copies up to date.
    RESYNC_STARTED = "resync_started", Info;
    /// A copy is up to date and in sync.
    RESYNC_COMPLETED = "resync_completed", Info;
    /// A resync was paused.
    RESYNC_PAUSED = "resync_paused", Warning, "run `ursa job resume` to resume it: until the copy is in sync, the volume has reduced redundancy";
    /// A resync was resumed.
    RESYNC_RESUMED = "resync_resumed", Info;

    /// The split-brain policy of a volume was changed.
    SPLIT_BRAIN_POLICY_CHANGED = "split_brain_policy_changed", Info;
    /// This node continues alone with a volume, as its split-brain policy allows.
    CONTINUED_ALONE = "continued_alone", Warning, "bring back the other node, or the links to it";
    /// Two nodes have continued alone with a volume, and their copies have diverged.
    SPLIT_BRAIN_DETECTED = "split_brain_detected", Critical, "choose which data to keep: `ursa volume resolve-split-brain`";
    /// An administrator has decided which data is kept.
    SPLIT_BRAIN_RESOLVED = "split_brain_resolved", Info;
    /// A volume's split brain has ended.
    SPLIT_BRAIN_ENDED = "split_brain_ended", Info;

    /// Copies in sync of a volume were compared, and differ.
    COPIES_MISMATCH = "copies_mismatch", Critical, "find the copies that differ (`ursa volume verify`), then rebuild the wrong one: `ursa volume copy rebuild`";

    /// A scrub has ended, and has found bad blocks: the text says how many were repaired.
    SCRUB_FOUND_BAD_BLOCKS = "scrub_found_bad_blocks", Warning, "check the disk (`ursa pool show`, SMART, kernel log) and replace it if errors continue; restore what cannot be read from a backup";

    /// A disk is out of service because a write or a flush failed.
    DISK_FAILED = "disk_failed", Critical, "check the disk, then run `ursa pool reopen`";
    /// A disk failed to read a block: the cause says whether the medium or the device is at fault.
    READ_FAILED = "read_failed", Warning, "check the disk (SMART, kernel log) and replace it if errors continue; acknowledge with `ursa pool acknowledge`";
    /// A bad block was rewritten with another copy's data, and can be read.
    BLOCK_REPAIRED = "block_repaired", Info;
    /// No copy in sync could read some blocks of a volume during a resync: the resynced copy is in sync
    /// without them.
    BLOCKS_LOST = "blocks_lost", Critical, "restore these blocks from a backup: hosts can read them again once they are written";
    /// A disk is in service again.
    DISK_RETURNED = "disk_returned", Info;
    /// A pool cannot be opened.
    POOL_CLOSED = "pool_closed", Critical, "run `ursa pool show` for the cause; check its disks";
    /// A pool is open again.
    POOL_OPENED = "pool_opened", Info;
    /// A pool accepts no changes because its metadata could not be written.
    POOL_READ_ONLY = "pool_read_only", Critical, "check its disks, then run `ursa pool reopen`";
    /// A pool has an earlier state than before: its disks were set back.
    POOL_SET_BACK = "pool_set_back", Critical, "find out who restored or reverted its disks; copies resync automatically, volumes without copies hold the older data";
    /// A pool with log volumes has reached 80 or 90 %.
    POOL_FILLING = "pool_filling", Warning, "unmap (`fstrim`), delete volumes, or add a disk: `ursa pool add-disk`; `ursa pool forecast` estimates when the pool will be full";
    /// A pool with log volumes has reached 95 %.
    POOL_NEARLY_FULL = "pool_nearly_full", Critical, "unmap (`fstrim`), delete volumes, or add a disk now: `ursa pool add-disk`; when the pool is full, writes to its log volumes fail";
    /// A pool is below all of these levels again.
    POOL_HAS_SPACE = "pool_has_space", Info;
    /// A pool was created.
    POOL_CREATED = "pool_created", Info;
    /// A pool was imported.
    POOL_IMPORTED = "pool_imported", Info;
    /// A pool was exported.
    POOL_EXPORTED = "pool_exported", Info;
    /// A disk was added to a pool.
    POOL_EXTENDED = "pool_extended", Info;
    /// A disk was removed from a pool.
    POOL_REDUCED = "pool_reduced", Info;
    /// A pool was reopened.
    POOL_REOPENED = "pool_reopened", Info;
    /// A pool was forgotten.
    POOL_FORGOTTEN = "pool_forgotten", Warning;

    /// A target was created.
    TARGET_CREATED = "target_created", Info;
    /// A target's alias or secret was changed.
    TARGET_CHANGED = "target_changed", Info;
    /// A target was deleted.
    TARGET_DELETED = "target_deleted", Info;
    /// A target's LUN maps were changed.
    MAPS_CHANGED = "maps_changed", Info;
    /// A host group was created.
    HOST_CREATED = "host_created", Info;
    /// A host group was changed.
    HOST_CHANGED = "host_changed", Info;
    /// A host group was deleted.
    HOST_DELETED = "host_deleted", Info;

    /// A floating IP was added.
    FLOATING_IP_ADDED = "floating_ip_added", Info;
    /// A floating IP was removed.
    FLOATING_IP_REMOVED = "floating_ip_removed", Info;
    /// Another node, or another life of a node, holds a floating IP: the cause says why.
    FLOATING_IP_MOVED = "floating_ip_moved", Info;
    /// No node has held a floating IP for long: the cause says why.
    FLOATING_IP_LOST = "floating_ip_lost", Critical, "run `ursa floating-ip list` to see which nodes cannot hold it, and why; otherwise bring back a node that may hold it, or end its maintenance";
    /// A node holds the floating IP again.
    FLOATING_IP_RESTORED = "floating_ip_restored", Info;
    /// This node could not add a floating IP to a device, or remove it.
    FLOATING_IP_FAILED = "floating_ip_failed", Warning, "run `ursa floating-ip list` for the cause: usually Ursa lacks permission to change addresses, or the device has another name on this node";

    /// An initiator has logged in to a target.
    SESSION_OPENED = "session_opened", Info;
    /// A session has ended in an orderly way.
    SESSION_ENDED = "session_ended", Info;
    /// A session has ended in any other way: the cause says which.
    SESSION_LOST = "session_lost", Warning, "check the initiator's log, and the network between host and node";
    /// An initiator was denied access.
    INITIATOR_DENIED = "initiator_denied", Warning, "run `ursa host list` for the allowed initiators, `ursa target show` for the host groups a volume is mapped to";

    /// A login was refused access to an existing session.
    JOIN_REFUSED = "join_refused", Warning, "find out who sends the initiator's name from that address; give each host group on the target its own initiator names";
    /// Connections in login are closed to make room for new ones.
    LOGINS_CROWDED = "logins_crowded", Warning, "find out what opens connections to the iSCSI portals without logging in; block it with a firewall";
    /// A connection was added to a session.
    CONNECTION_ADDED = "connection_added", Info;
    /// A new connection has replaced one of the same session.
    CONNECTION_REPLACED = "connection_replaced", Info;

    /// This node has created a cluster.
    CLUSTER_CREATED = "cluster_created", Info;
    /// This node has joined a cluster.
    CLUSTER_JOINED = "cluster_joined", Info;
    /// This node was made a cluster of its own, without the consent of the other nodes.
    CLUSTER_FORCED = "cluster_forced", Warning;
    /// A change takes longer than its caller waits for it.
    CHANGE_SLOW = "change_slow", Warning, "run `ursa node show` to see what it waits for";
    /// A change that took long has failed.
    CHANGE_FAILED = "change_failed", Warning, "fix the cause, then repeat the change";
}
