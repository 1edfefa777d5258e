//! The events that exist. Their codes are part of the interface and never change. `docs/use/events.md`
//! explains each.

use super::condition::Condition;

/// How urgent it is for an administrator of the cluster (`docs/use/alerts.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For information, or advice.
    Info,
    /// Everything is served, but with less redundancy than configured, or something else is wrong: act in
    /// working hours.
    Warning,
    /// Hosts are not served, or data is lost; or a part has failed, and the next failure can do that: act
    /// now.
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
    ($($constant:ident = $name:literal, $severity:expr $(, $action:literal)?;)*) => {
        $(
            #[allow(missing_docs)] // `docs/use/events.md` explains each.
            pub const $constant: Code = Code { name: $name, severity: $severity, action: codes!(@ $($action)?) };
        )*

        /// All codes of a node.
        pub const ALL: &[Code] = &[$($constant),*];
    };
    (@) => { None };
    (@ $action:literal) => { Some($action) };
}

// An event that begins a condition has its severity; other events have one of their own.
codes! {
    NODE_LOST = "node_lost", Condition::NodeDown.severity(), "check the node, its power and its links";
    NODE_STOPPED = "node_stopped", Severity::Warning, "start it again when the work is done";
    NODE_RETURNED = "node_returned", Severity::Info;
    RECORD_LOST = "record_lost", Condition::RecordLost.severity(), "bring etcd back: volumes keep running, but nothing can be changed and a lost node cannot be excluded";
    RECORD_RETURNED = "record_returned", Severity::Info;
    RECORD_STALLED = "record_stalled", Condition::RecordStalled.severity(), "free space on the file system of its data directory, or replace the disk; it then recovers automatically. Update a node whose version of Ursa is too old";
    RECORD_RESUMED = "record_resumed", Severity::Info;
    LOGINS_REFUSED = "logins_refused", Condition::LoginsRefused.severity(), "see its `record_stalled` event for what stops it; hosts use their other paths";
    LOGINS_ALLOWED = "logins_allowed", Severity::Info;
    NODE_SET_BACK = "node_set_back", Condition::NodeSetBack.severity(), "make sure that the node does not run twice, then restart it: `systemctl restart ursa`";
    CLUSTER_FAILED = "cluster_failed", Condition::ClusterFailed.severity(), "run `ursa status` for the cause";
    CLUSTER_LEFT = "cluster_left", Severity::Warning;
    CLUSTER_RECOVERED = "cluster_recovered", Severity::Info;
    PORTAL_GROUP_CHANGED = "portal_group_changed", Severity::Warning, "on each Linux host that uses the node, delete its node records and discover its targets again (docs/use/cluster.md, *Three nodes*)";
    NODE_JOINED = "node_joined", Severity::Info;
    NODE_REMOVED = "node_removed", Severity::Info;
    MAINTENANCE_STARTED = "maintenance_started", Condition::NodeMaintenance.severity();
    MAINTENANCE_ENDED = "maintenance_ended", Severity::Info;

    VOLUME_CREATED = "volume_created", Severity::Info;
    VOLUME_DELETED = "volume_deleted", Severity::Info;
    VOLUME_RENAMED = "volume_renamed", Severity::Info;
    VOLUME_RESIZED = "volume_resized", Severity::Info;
    VOLUME_SPACE_CHANGED = "volume_space_changed", Severity::Info;
    CONVERSION_STARTED = "conversion_started", Severity::Info;
    VOLUME_CONVERTED = "volume_converted", Severity::Info;
    SNAPSHOT_CREATED = "snapshot_created", Severity::Info;
    SNAPSHOT_DELETED = "snapshot_deleted", Severity::Info;
    SNAPSHOT_EXPIRED = "snapshot_expired", Severity::Info;
    SNAPSHOT_RESTORED = "snapshot_restored", Severity::Info;
    SNAPSHOT_SCHEDULE_MISSED = "snapshot_schedule_missed", Condition::SnapshotScheduleMissed.severity(), "run `ursa snapshot schedule show` for the cause; a snapshot is taken automatically as soon as one can be";
    SNAPSHOT_SCHEDULE_RECOVERED = "snapshot_schedule_recovered", Severity::Info;
    VOLUME_UNAVAILABLE = "volume_unavailable", Condition::VolumeUnavailable.severity(), "run `ursa volume show` for the cause";
    VOLUME_AVAILABLE = "volume_available", Severity::Info;

    COPY_ADDED = "copy_added", Severity::Info;
    COPY_REMOVED = "copy_removed", Severity::Info;
    COPY_OUT_OF_SYNC = "copy_out_of_sync", Condition::CopyOutOfSync.severity(), "check the node of the copy; the resync starts automatically";
    RESYNC_STARTED = "resync_started", Severity::Info;
    RESYNC_COMPLETED = "resync_completed", Severity::Info;
    RESYNC_PAUSED = "resync_paused", Condition::ResyncPaused.severity(), "run `ursa job resume` to resume it: until the copy is in sync, the volume has reduced redundancy";
    RESYNC_RESUMED = "resync_resumed", Severity::Info;

    SPLIT_BRAIN_POLICY_CHANGED = "split_brain_policy_changed", Severity::Info;
    CONTINUED_ALONE = "continued_alone", Condition::ContinuedAlone.severity(), "bring back the other node, or the links to it";
    SPLIT_BRAIN_DETECTED = "split_brain_detected", Condition::SplitBrain.severity(), "choose which data to keep: `ursa volume resolve-split-brain`";
    SPLIT_BRAIN_RESOLVED = "split_brain_resolved", Severity::Info;
    SPLIT_BRAIN_ENDED = "split_brain_ended", Severity::Info;

    COPIES_MISMATCH = "copies_mismatch", Condition::CopiesMismatch.severity(), "find the copies that differ (`ursa volume verify`), then rebuild the wrong one: `ursa volume copy rebuild`";

    SCRUB_FOUND_BAD_BLOCKS = "scrub_found_bad_blocks", Severity::Warning, "check the disk (`ursa pool show`, SMART, kernel log) and replace it if errors continue; restore what cannot be read from a backup";

    DISK_FAILED = "disk_failed", Condition::DiskFailed.severity(), "check the disk, then run `ursa pool reopen`";
    READ_FAILED = "read_failed", Condition::ReadFailed.severity(), "check the disk (SMART, kernel log) and replace it if errors continue; acknowledge with `ursa pool acknowledge`";
    BLOCK_REPAIRED = "block_repaired", Severity::Info;
    BLOCKS_LOST = "blocks_lost", Condition::BlocksLost.severity(), "restore these blocks from a backup: hosts can read them again once they are written";
    LOG_DAMAGED = "log_damaged", Severity::Warning, "check the disk (SMART, kernel log) and replace it if errors continue; the resync starts automatically";
    DISK_RETURNED = "disk_returned", Severity::Info;
    POOL_CLOSED = "pool_closed", Condition::PoolClosed.severity(), "run `ursa pool show` for the cause; check its disks";
    POOL_OPENED = "pool_opened", Severity::Info;
    POOL_READ_ONLY = "pool_read_only", Condition::PoolReadOnly.severity(), "check its disks, then run `ursa pool reopen`";
    POOL_SET_BACK = "pool_set_back", Condition::PoolSetBack.severity(), "find out who restored or reverted its disks; copies resync automatically, volumes without copies hold the older data";
    POOL_FILLING = "pool_filling", Condition::LogPoolFilling.severity(), "unmap (`fstrim`), delete volumes, or add a disk: `ursa pool add-disk`; `ursa pool forecast` estimates when the pool will be full";
    POOL_NEARLY_FULL = "pool_nearly_full", Condition::LogPoolNearlyFull.severity(), "unmap (`fstrim`), delete volumes, or add a disk now: `ursa pool add-disk`; when the pool is full, writes to its log volumes fail";
    POOL_HAS_SPACE = "pool_has_space", Severity::Info;
    POOL_CREATED = "pool_created", Severity::Info;
    POOL_IMPORTED = "pool_imported", Severity::Info;
    POOL_EXPORTED = "pool_exported", Severity::Info;
    POOL_EXTENDED = "pool_extended", Severity::Info;
    POOL_REDUCED = "pool_reduced", Severity::Info;
    POOL_REOPENED = "pool_reopened", Severity::Info;
    POOL_FORGOTTEN = "pool_forgotten", Severity::Warning;

    TARGET_CREATED = "target_created", Severity::Info;
    TARGET_CHANGED = "target_changed", Severity::Info;
    TARGET_DELETED = "target_deleted", Severity::Info;
    MAPS_CHANGED = "maps_changed", Severity::Info;
    HOST_CREATED = "host_created", Severity::Info;
    HOST_CHANGED = "host_changed", Severity::Info;
    HOST_DELETED = "host_deleted", Severity::Info;

    FLOATING_IP_ADDED = "floating_ip_added", Severity::Info;
    FLOATING_IP_REMOVED = "floating_ip_removed", Severity::Info;
    FLOATING_IP_MOVED = "floating_ip_moved", Severity::Info;
    FLOATING_IP_LOST = "floating_ip_lost", Condition::FloatingIpLost.severity(), "run `ursa floating-ip list` to see which nodes cannot hold it, and why; otherwise bring back a node that may hold it, or end its maintenance";
    FLOATING_IP_RESTORED = "floating_ip_restored", Severity::Info;
    FLOATING_IP_FAILED = "floating_ip_failed", Severity::Warning, "run `ursa floating-ip list` for the cause: usually Ursa lacks permission to change addresses, or the device has another name on this node";

    SESSION_OPENED = "session_opened", Severity::Info;
    SESSION_ENDED = "session_ended", Severity::Info;
    SESSION_LOST = "session_lost", Severity::Warning, "check the initiator's log, and the network between host and node";
    INITIATOR_DENIED = "initiator_denied", Severity::Warning, "run `ursa host list` for the allowed initiators, `ursa target show` for the host groups a volume is mapped to";

    JOIN_REFUSED = "join_refused", Severity::Warning, "find out who sends the initiator's name from that address; give each host group on the target its own initiator names";
    LOGINS_CROWDED = "logins_crowded", Severity::Warning, "find out what opens connections to the iSCSI portals without logging in; block it with a firewall";
    CONNECTION_ADDED = "connection_added", Severity::Info;
    CONNECTION_REPLACED = "connection_replaced", Severity::Info;

    CLUSTER_CREATED = "cluster_created", Severity::Info;
    CLUSTER_JOINED = "cluster_joined", Severity::Info;
    CLUSTER_FORCED = "cluster_forced", Severity::Warning;
    CHANGE_SLOW = "change_slow", Condition::ChangeStuck.severity(), "run `ursa node show` to see what it waits for";
    CHANGE_FAILED = "change_failed", Severity::Warning, "fix the cause, then repeat the change";
}
