//! What to do about errors, where these do not say it themselves.

use std::borrow::Cow;

use super::{ControlError, JoinRefusal, StartError, WaitsFor};

impl ControlError {
    /// What to do about it, where the error does not say that itself.
    pub fn hint(&self) -> Option<Cow<'static, str>> {
        use ControlError as E;
        Some(Cow::Borrowed(match self {
            E::NotFound { kind: "map", .. } => "`ursa target show` lists the LUN maps of a target",
            E::Exists { .. } => "choose another name",
            E::Mapped { .. } => {
                "delete the map first, or delete the volume with --force (`force` in the API)"
            }
            E::HasLuns { .. } => "delete them first, or delete the target with --force (`force` in the API)",
            E::HostInUse { .. } => "delete the map first",
            E::BuiltIn(_) => "create a host group of your own",
            E::EntryUnreadable { .. } => "use a node of that version",
            E::LunTaken { .. } => "choose another LUN, or omit it",
            E::ChoosePool(_) => "choose one",
            E::NoPool => "create one with `ursa pool create`",
            E::PoolOpen(_) => "close it with `ursa pool export`",
            E::PoolClosed(..) => {
                "repair its disks and run `ursa pool reopen`. If the pool is lost: `ursa volume copy rebuild` rebuilds this node's copies in another pool, and `ursa pool forget` removes it"
            }
            E::Busy { first, .. } => first.waits_for.advice(),
            E::Unfinished(change) => change.waits_for.advice(),
            E::WouldShrink { .. } => "volumes can only grow",
            E::ClusterFailed(_) => {
                "`ursa status` on this node shows what to do; the node retries automatically, and serves volumes that have never had a copy on another node"
            }
            E::RecordBehind => "repeat the command",
            E::SnapshotUnread { .. } => {
                "try again in a moment; if a node is down, bring it back or repair its links: see `ursa node list`"
            }
            E::SnapshotPreparing(_) | E::SnapshotRestored(_) => "try again in a moment",
            E::NotListening => {
                "`ursa node init` lets it listen for other nodes; `ursa node join` lets it join another one"
            }
            E::Copies { .. } => {
                "request fewer copies, or free up space on more nodes: see `ursa node list` and `ursa pool list --node all`"
            }
            E::NodeNotThere(_) => {
                "it is down, in maintenance, a witness, or not in the cluster: see `ursa node list`"
            }
            E::JoinRefused { reason: JoinRefusal::Collides { .. }, .. } => {
                "nothing was changed: rename or change what is listed, on this node or in the cluster, and join with the same token"
            }
            E::NoAuthority => {
                "the key is on the node that created the cluster (`cluster/CLUSTER-NODE` in its data directory): run the command there, or see *When the majority is lost for good* in docs/use/cluster.md"
            }
            E::ClonesIncomplete { source, .. } => return source.hint(),
            _ => return self.hint_with_names().map(Cow::Owned),
        }))
    }

    fn hint_with_names(&self) -> Option<String> {
        use ControlError as E;
        Some(match self {
            E::NotFound { kind, .. } => format!("`ursa {kind} list` lists them"),
            E::MappedInPool { target, lun, .. } => {
                format!("delete the map first: `ursa map delete {target} {lun}`")
            }
            E::PoolOfThatName(name) => format!(
                "choose another name, or reopen that pool (`ursa pool reopen {name}`) or forget it (`ursa pool forget {name}`)"
            ),
            E::PoolHereAlready(name) => format!(
                "to use them instead, first export that pool (`ursa pool export {name}`) or, if it is not open, forget it (`ursa pool forget {name}`)"
            ),
            E::NoSnapshotsOfKind(volume) => {
                format!("convert it first: `ursa volume convert {volume} --kind log`")
            }
            E::NotInSnapshot { snapshot, .. } => {
                format!("`ursa snapshot show {snapshot}` lists what it has")
            }
            E::CopyLacksSnapshot { volume, node, .. } => format!(
                "remove the copy (`ursa volume copy remove {volume} --on {node}`), restore, and add it again"
            ),
            E::NoCopyHasSnapshot { snapshot, .. } => format!(
                "`ursa snapshot show {snapshot}` lists which copies have it: bring back a pool that has it, or choose another snapshot"
            ),
            E::NoCopyHasBoth { since, snapshot, .. } => format!(
                "`ursa snapshot show {since}` and `ursa snapshot show {snapshot}` list which copies have them: choose snapshots that one copy has, or bring back a node that has both"
            ),
            E::SnapshotHeld(name) => format!("release it first: `ursa snapshot release {name}`"),
            E::SnapshotHasClones { .. } => {
                "delete them first: `ursa volume list` shows which volumes are clones, and of what".into()
            }
            E::HasClones { clone, .. } => format!("delete it first: `ursa volume delete {clone}`"),
            E::HasSnapshots { volume, .. } => {
                format!("delete them first: `ursa snapshot list {volume}` lists them")
            }
            E::TakesPart(node) => format!("to remove it, run `ursa node remove {node}` on another node"),
            E::NodeHasCopies { node, volume } => format!(
                "move the copy (`ursa volume copy move {volume} --from {node} --to OTHER`) or remove it (`ursa volume copy remove {volume} --on {node}`); the volume stays"
            ),
            _ => return None,
        })
    }

    /// The error, and what to do about it: for whoever is not told the two apart.
    pub fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}: {hint}"),
            None => self.to_string(),
        }
    }
}

impl StartError {
    /// What to do about it, where the error does not say that itself.
    pub fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            StartError::Identity(error)
            | StartError::Cluster(error)
            | StartError::DefaultPool(error)
            | StartError::Volume(_, error) => error.hint(),
            StartError::Record(_) | StartError::RecordSilent(_) | StartError::Listen(..) => None,
        }
    }
}

impl WaitsFor {
    /// What to do about a change that waits for this and does not finish.
    fn advice(&self) -> &'static str {
        match self {
            WaitsFor::Disks(_) | WaitsFor::Commands(_) | WaitsFor::Record(_) => {
                "check the disk (`dmesg`): the change finishes when the disk responds; a block device that never does can be removed \
                 with `echo 1 > /sys/block/NAME/device/delete`; `ursa status` shows changes in progress"
            }
            WaitsFor::ClusterRecord | WaitsFor::Nodes(_) => {
                "`ursa node list` shows which nodes are up; `ursa status` shows changes in progress"
            }
            WaitsFor::Turn(_) | WaitsFor::Cores => {
                "try again in a moment; `ursa status` shows changes in progress"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{ConversionWait, NotServed};
    use super::*;

    #[test]
    fn whoever_is_told_one_text_is_told_what_to_do() {
        let text = "no pool exists yet: create one with `ursa pool create`";
        assert_eq!(ControlError::NoPool.with_hint(), text);
        assert_eq!(ConversionWait::from(ControlError::NoPool).to_string(), text);
        assert_eq!(NotServed::Unopened(Arc::new(ControlError::NoPool)).to_string(), text);
        let error = ControlError::LastAdmin("eva".into());
        assert_eq!(error.with_hint(), error.to_string(), "it says that itself");
        let failed = StartError::Volume("demo".into(), ControlError::NoPool);
        assert_eq!(failed.hint().as_deref(), Some("create one with `ursa pool create`"));
    }
}
