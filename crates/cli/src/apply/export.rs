//! The file that describes the present configuration.

use terms::size::Size;

use super::Present;
use super::addresses::is_unreadable;
use super::declared::{AddressDeclared, Declared, HostDeclared, MapDeclared, TargetDeclared, VolumeDeclared};
use super::plan::has_one_pool;

/// The present configuration in the form of a file.
///
/// Omits maps of volumes whose names are unknown because their pool is not open, and floating addresses that
/// a later version has written.
pub(super) fn declared(present: &Present) -> Declared {
    let hosts = present.hosts.iter().filter(|host| !host.built_in).map(|host| HostDeclared {
        name: host.name.clone(),
        initiators: host.initiators.clone(),
        addresses: host.addresses.clone(),
        chap_user: host.chap_user.clone(),
        chap_secret_file: None,
    });
    let targets = present.targets.iter().map(|target| TargetDeclared {
        name: target.name.clone(),
        alias: target.alias.clone(),
        chap_user: target.chap_user.clone(),
        chap_secret_file: None,
    });
    let volumes = present.volumes.iter().map(|volume| {
        let policy = volume.split_brain_policy.as_ref().map(|chosen| chosen.policy);
        // Otherwise omit it, so that the file is the same whichever node exports it.
        let pool = has_one_pool(volume).then(|| volume.pool.clone());
        VolumeDeclared {
            name: volume.name.clone(),
            size: Size(volume.size),
            pool,
            kind: Some(volume.kind),
            block_size: Some(volume.block_size),
            physical_block_size: Some(volume.physical_block_size),
            slices: Some(volume.slices),
            compression: volume.compression,
            checksums: volume.checksums.filter(|has| *has && !volume.kind.has_checksums()),
            when_full: volume.when_full,
            // Of other volumes, `reserved` is what they take from their pool.
            reserve: volume.kind.is_thin().then_some(Size(volume.reserved)),
            on: volume.copies.iter().filter(|copy| !copy.leaves).map(|copy| copy.node).collect(),
            copies: None,
            split_brain_policy: policy,
            accept_split_brain: policy == Some(api::SplitBrainPolicy::Heartbeat),
        }
    });
    let maps = present.targets.iter().flat_map(|target| {
        target.maps.iter().filter_map(|map| {
            Some(MapDeclared {
                target: target.name.clone(),
                volume: map.volume.clone()?,
                host: map.host.clone(),
                lun: Some(map.lun),
            })
        })
    });
    let readable = present.addresses.iter().filter(|address| !is_unreadable(address));
    let addresses = readable.map(|address| AddressDeclared {
        address: address.address.clone(),
        device: address.device.clone(),
        nodes: address.nodes.clone(),
        prefer: address.prefer,
    });
    Declared {
        hosts: hosts.collect(),
        targets: targets.collect(),
        volumes: volumes.collect(),
        maps: maps.collect(),
        addresses: addresses.collect(),
    }
}

/// The text of the file.
pub(super) fn text(declared: &Declared) -> String {
    let secret = declared.hosts.iter().any(|host| host.chap_user.is_some())
        || declared.targets.iter().any(|target| target.chap_user.is_some());
    let secret = match secret {
        true => {
            "# CHAP secrets are not exported: to create one again, add chap-secret-file = \"FILE\" next to chap-user.\n"
        }
        false => "",
    };
    let body = toml::to_string(declared).unwrap_or_else(|error| format!("# {error}\n"));
    format!(
        "# Created by `ursa export`. Compare it with `ursa diff -f FILE`, apply it with `ursa apply -f FILE`.\n{secret}\n{body}"
    )
}
