//! A single change.

use api::{
    Client, ClientError, CopyCreate, FloatingAddressAdd, HostChange, HostCreate, MapCreate, PolicyChoice,
    TargetChange, TargetCreate, VolumeChange, VolumeCreate,
};

use super::super::table::size;

/// A change towards the configuration in the file. `what`: the differences, in words.
#[derive(Debug)]
pub(super) enum Step {
    CreateHost(HostCreate),
    ChangeHost {
        name: String,
        change: HostChange,
        what: String,
    },
    CreateTarget(TargetCreate),
    ChangeTarget {
        name: String,
        change: TargetChange,
        what: String,
    },
    CreateVolume(VolumeCreate),
    Resize {
        volume: String,
        from: u64,
        to: u64,
    },
    ChangeVolume {
        name: String,
        change: VolumeChange,
        what: String,
    },
    /// With `instead_of`, the copy moves.
    AddCopy {
        volume: String,
        copy: CopyCreate,
    },
    SetSplitBrainPolicy {
        volume: String,
        choice: PolicyChoice,
    },
    /// The volume's name is for people.
    DeleteMap {
        target: String,
        lun: u16,
        host: String,
        volume: String,
    },
    CreateMap {
        target: String,
        map: MapCreate,
    },
    RemoveCopy {
        volume: String,
        node: u16,
    },
    DeleteVolume {
        id: String,
        name: String,
        size: u64,
    },
    DeleteTarget(String),
    DeleteHost(String),
    AddAddress(FloatingAddressAdd),
    /// The address is without its prefix length, which is only shown to people.
    RemoveAddress {
        address: String,
        shown: String,
    },
}

impl Step {
    /// The step in one line: `+` creates, `~` changes, `-` deletes.
    pub(super) fn line(&self) -> String {
        match self {
            Step::CreateHost(host) => format!("+ host {}", host.name),
            Step::ChangeHost { name, what, .. } => format!("~ host {name}: {what}"),
            Step::CreateTarget(target) => format!("+ target {}", target.name),
            Step::ChangeTarget { name, what, .. } => format!("~ target {name}: {what}"),
            Step::CreateVolume(volume) => {
                let copies = match (&volume.nodes, volume.copies) {
                    (Some(nodes), _) if nodes.len() == 1 => {
                        format!(", a single copy on node {}", numbers(nodes))
                    }
                    (Some(nodes), _) => format!(" on nodes {}", numbers(nodes)),
                    (None, Some(1)) => ", a single copy".to_owned(),
                    (None, Some(copies)) => format!(", {copies} copies"),
                    (None, None) => String::new(),
                };
                format!("+ volume {}: {}{copies}", volume.name, size(volume.size))
            }
            Step::Resize { volume, from, to } => {
                format!("~ volume {volume}: from {} to {}", size(*from), size(*to))
            }
            Step::ChangeVolume { name, what, .. } => format!("~ volume {name}: {what}"),
            Step::AddCopy { volume, copy: CopyCreate { node, instead_of: None, .. } } => {
                format!("+ copy of volume {volume} on node {node}")
            }
            Step::AddCopy { volume, copy: CopyCreate { node, instead_of: Some(from), .. } } => {
                format!("~ copy of volume {volume}: from node {from} to node {node}")
            }
            Step::SetSplitBrainPolicy { volume, choice } => {
                format!("~ volume {volume}: split-brain policy {}", choice.policy)
            }
            Step::DeleteMap { target, lun, host, volume } => {
                format!("- map of volume {volume}: LUN {lun} of {target} for host {host}")
            }
            Step::CreateMap { target, map } => {
                let lun = map.lun.map_or("a LUN".into(), |lun| format!("LUN {lun}"));
                let host = map.host.as_deref().unwrap_or(api::DEFAULT_HOST);
                format!("+ map of volume {}: {lun} of {target} for host {host}", map.volume)
            }
            Step::RemoveCopy { volume, node } => format!("- copy of volume {volume} on node {node}"),
            Step::DeleteVolume { name, size: bytes, .. } => {
                format!("- volume {name}: {} with all its data", size(*bytes))
            }
            Step::DeleteTarget(name) => format!("- target {name}"),
            Step::DeleteHost(name) => format!("- host {name}"),
            Step::AddAddress(address) => format!("+ address {}", address.address),
            Step::RemoveAddress { shown, .. } => format!("- address {shown}"),
        }
    }

    /// What the step removes, in words that follow "which will"; `None`: nothing.
    pub(super) fn destroys(&self) -> Option<String> {
        match self {
            Step::AddCopy { volume, copy: CopyCreate { instead_of: Some(from), .. } }
            | Step::RemoveCopy { volume, node: from } => {
                Some(format!("delete the copy of volume {volume} on node {from}"))
            }
            Step::DeleteMap { target, lun, host, .. } => {
                Some(format!("unmap LUN {lun} of {target} from host group {host}"))
            }
            Step::DeleteVolume { name, size: bytes, .. } => {
                Some(format!("DELETE VOLUME {name} ({}) WITH ALL ITS DATA", size(*bytes)))
            }
            Step::DeleteTarget(name) => Some(format!("delete target {name}")),
            Step::DeleteHost(name) => Some(format!("delete host group {name}")),
            Step::ChangeTarget { name, change: TargetChange { chap: Some(None), .. }, .. } => Some(format!(
                "remove the CHAP secret of target {name}, which hosts may require for mutual CHAP"
            )),
            Step::RemoveAddress { shown, .. } => {
                Some(format!("remove the floating IP {shown} and end the sessions through it"))
            }
            _ => None,
        }
    }

    /// Makes the change. What an earlier deletion has already removed is not an error.
    pub(super) fn run(&self, client: &Client) -> Result<(), ClientError> {
        match self {
            Step::CreateHost(host) => client.create_host(host).map(drop),
            Step::ChangeHost { name, change, .. } => client.change_host(name, change).map(drop),
            Step::CreateTarget(target) => client.create_target(target).map(drop),
            Step::ChangeTarget { name, change, .. } => client.change_target(name, change).map(drop),
            Step::CreateVolume(volume) => client.create_volume(volume).map(drop),
            Step::Resize { volume, to, .. } => {
                let change = VolumeChange { size: Some(*to), ..VolumeChange::default() };
                client.change_volume(volume, &change).map(drop)
            }
            Step::ChangeVolume { name, change, .. } => client.change_volume(name, change).map(drop),
            Step::AddCopy { volume, copy } => client.add_copy(volume, copy).map(drop),
            Step::SetSplitBrainPolicy { volume, choice } => {
                client.set_split_brain_policy(volume, choice).map(drop)
            }
            Step::DeleteMap { target, lun, host, .. } => gone(client.delete_map(target, *lun, Some(host))),
            Step::CreateMap { target, map } => client.create_map(target, map).map(drop),
            Step::RemoveCopy { volume, node } => gone(client.remove_copy(volume, *node)),
            Step::DeleteVolume { id, .. } => gone(client.delete_volume(id, false)),
            Step::DeleteTarget(name) => gone(client.delete_target(name, false)),
            Step::DeleteHost(name) => gone(client.delete_host(name)),
            Step::AddAddress(address) => client.add_address(address).map(drop),
            Step::RemoveAddress { address, .. } => gone(client.remove_address(address)),
        }
    }
}

fn gone(result: Result<(), ClientError>) -> Result<(), ClientError> {
    match result {
        Err(error) if error.problem().is_some_and(|problem| problem.code.ends_with("_not_found")) => Ok(()),
        other => other,
    }
}

pub(super) fn numbers(nodes: &[u16]) -> String {
    nodes.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
