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
    ($($constant:ident = $name:literal, $severity:ident $(, $action:literal)?;)*) => {
        $(
            #[allow(missing_docs)] // `docs/use/events.md` explains each.
            pub const $constant: Code = Code { name: $name, severity: Severity::$severity, action: codes!(@ $($action)?) };
        )*

        /// All codes of a node.
        pub const ALL: &[Code] = &[$($constant),*];
    };
    (@) => { None };
    (@ $action:literal) => { Some($action) };
}

codes! {
    NODE_LOST = "node_lost", Critical, "check the node, its power and its links";
    NODE_STOPPED = "node_stopped", Warning, "start it again when the work is done";
    NODE_RETURNED = "node_returned", Info;
    RECORD_LOST = "record_lost", Critical, "bring etcd back: volumes keep running, but nothing can be changed and a lost node cannot be excluded";
    RECORD_RETURNED = "record_returned", Info;
    RECORD_STALLED = "record_stalled", Critical, "free space on the file system of its data directory, or replace the disk; it then recovers automatically";
    RECORD_RESUMED = "record_resumed", Info;
    LOGINS_REFUSED = "logins_refused", Critical, "free space on the file system of its data directory, or replace the disk; hosts use their other paths";
    LOGINS_ALLOWED = "logins_allowed", Info;
    NODE_SET_BACK = "node_set_back", Critical, "make sure that the node does not run twice, then restart it: `systemctl restart ursa`";
    CLUSTER_FAILED = "cluster_failed", Critical, "run `ursa status` for the cause";
    CLUSTER_LEFT = "cluster_left", Warning;
    CLUSTER_RECOVERED = "cluster_recovered", Info;
    PORTAL_GROUP_CHANGED = "portal_group_changed", Warning, "on each Linux host that uses the node, delete its node records and discover its targets again (docs/use/cluster.md, *Three nodes*)";
    NODE_JOINED = "node_joined", Info;
    NODE_REMOVED = "node_removed", Info;
    MAINTENANCE_STARTED = "maintenance_started", Info;
    MAINTENANCE_ENDED = "maintenance_ended", Info;

    VOLUME_CREATED = "volume_created", Info;
    VOLUME_DELETED = "volume_deleted", Info;
    VOLUME_RENAMED = "volume_renamed", Info;
    VOLUME_RESIZED = "volume_resized", Info;
    VOLUME_SPACE_CHANGED = "volume_space_changed", Info;
    CONVERSION_STARTED = "conversion_started", Info;
    VOLUME_CONVERTED = "volume_converted", Info;
    SNAPSHOT_CREATED = "snapshot_created", Info;
    SNAPSHOT_DELETED = "snapshot_deleted", Info;
    SNAPSHOT_RESTORED = "snapshot_restored", Info;
    VOLUME_UNAVAILABLE = "volume_unavailable", Critical, "run `ursa volume show` for the cause";
    VOLUME_AVAILABLE = "volume_available", Info;

    COPY_ADDED = "copy_added", Info;
    COPY_REMOVED = "copy_removed", Info;
    COPY_OUT_OF_SYNC = "copy_out_of_sync", Warning, "check the node of the copy; the resync starts automatically";
    RESYNC_STARTED = "resync_started", Info;
    RESYNC_COMPLETED = "resync_completed", Info;
    RESYNC_PAUSED = "resync_paused", Warning, "run `ursa job resume` to resume it: until the copy is in sync, the volume has reduced redundancy";
    RESYNC_RESUMED = "resync_resumed", Info;

    SPLIT_BRAIN_POLICY_CHANGED = "split_brain_policy_changed", Info;
    CONTINUED_ALONE = "continued_alone", Warning, "bring back the other node, or the links to it";
    SPLIT_BRAIN_DETECTED = "split_brain_detected", Critical, "choose which data to keep: `ursa volume resolve-split-brain`";
    SPLIT_BRAIN_RESOLVED = "split_brain_resolved", Info;
    SPLIT_BRAIN_ENDED = "split_brain_ended", Info;

    COPIES_MISMATCH = "copies_mismatch", Critical, "find the copies that differ (`ursa volume verify`), then rebuild the wrong one: `ursa volume copy rebuild`";

    SCRUB_FOUND_BAD_BLOCKS = "scrub_found_bad_blocks", Warning, "check the disk (`ursa pool show`, SMART, kernel log) and replace it if errors continue; restore what cannot be read from a backup";

    DISK_FAILED = "disk_failed", Critical, "check the disk, then run `ursa pool reopen`";
    READ_FAILED = "read_failed", Warning, "check the disk (SMART, kernel log) and replace it if errors continue; acknowledge with `ursa pool acknowledge`";
    BLOCK_REPAIRED = "block_repaired", Info;
    BLOCKS_LOST = "blocks_lost", Critical, "restore these blocks from a backup: hosts can read them again once they are written";
    LOG_DAMAGED = "log_damaged", Warning, "check the disk (SMART, kernel log) and replace it if errors continue; the resync starts automatically";
    DISK_RETURNED = "disk_returned", Info;
    POOL_CLOSED = "pool_closed", Critical, "run `ursa pool show` for the cause; check its disks";
    POOL_OPENED = "pool_opened", Info;
    POOL_READ_ONLY = "pool_read_only", Critical, "check its disks, then run `ursa pool reopen`";
    POOL_SET_BACK = "pool_set_back", Critical, "find out who restored or reverted its disks; copies resync automatically, volumes without copies hold the older data";
    POOL_FILLING = "pool_filling", Warning, "unmap (`fstrim`), delete volumes, or add a disk: `ursa pool add-disk`; `ursa pool forecast` estimates when the pool will be full";
    POOL_NEARLY_FULL = "pool_nearly_full", Critical, "unmap (`fstrim`), delete volumes, or add a disk now: `ursa pool add-disk`; when the pool is full, writes to its log volumes fail";
    POOL_HAS_SPACE = "pool_has_space", Info;
    POOL_CREATED = "pool_created", Info;
    POOL_IMPORTED = "pool_imported", Info;
    POOL_EXPORTED = "pool_exported", Info;
    POOL_EXTENDED = "pool_extended", Info;
    POOL_REDUCED = "pool_reduced", Info;
    POOL_REOPENED = "pool_reopened", Info;
    POOL_FORGOTTEN = "pool_forgotten", Warning;

    TARGET_CREATED = "target_created", Info;
    TARGET_CHANGED = "target_changed", Info;
    TARGET_DELETED = "target_deleted", Info;
    MAPS_CHANGED = "maps_changed", Info;
    HOST_CREATED = "host_created", Info;
    HOST_CHANGED = "host_changed", Info;
    HOST_DELETED = "host_deleted", Info;

    FLOATING_IP_ADDED = "floating_ip_added", Info;
    FLOATING_IP_REMOVED = "floating_ip_removed", Info;
    FLOATING_IP_MOVED = "floating_ip_moved", Info;
    FLOATING_IP_LOST = "floating_ip_lost", Critical, "run `ursa floating-ip list` to see which nodes cannot hold it, and why; otherwise bring back a node that may hold it, or end its maintenance";
    FLOATING_IP_RESTORED = "floating_ip_restored", Info;
    FLOATING_IP_FAILED = "floating_ip_failed", Warning, "run `ursa floating-ip list` for the cause: usually Ursa lacks permission to change addresses, or the device has another name on this node";

    SESSION_OPENED = "session_opened", Info;
    SESSION_ENDED = "session_ended", Info;
    SESSION_LOST = "session_lost", Warning, "check the initiator's log, and the network between host and node";
    INITIATOR_DENIED = "initiator_denied", Warning, "run `ursa host list` for the allowed initiators, `ursa target show` for the host groups a volume is mapped to";

    JOIN_REFUSED = "join_refused", Warning, "find out who sends the initiator's name from that address; give each host group on the target its own initiator names";
    LOGINS_CROWDED = "logins_crowded", Warning, "find out what opens connections to the iSCSI portals without logging in; block it with a firewall";
    CONNECTION_ADDED = "connection_added", Info;
    CONNECTION_REPLACED = "connection_replaced", Info;

    CLUSTER_CREATED = "cluster_created", Info;
    CLUSTER_JOINED = "cluster_joined", Info;
    CLUSTER_FORCED = "cluster_forced", Warning;
    CHANGE_SLOW = "change_slow", Warning, "run `ursa node show` to see what it waits for";
    CHANGE_FAILED = "change_failed", Warning, "fix the cause, then repeat the change";
}
