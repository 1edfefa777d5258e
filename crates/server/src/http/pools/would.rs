//! Dry runs of calls about pools, step by step. The node makes the same checks as for the change itself, and
//! changes nothing.

use std::path::PathBuf;
use std::rc::Rc;

use ::node::Control;
use ::node::control::{ImportSpec, Importable, PoolSpec};
use api::{PoolRemains, RemainingMap, RemainingVolume};
use axum::response::Response;
use base::ByteLen;
use store::{Content, GrownDisk, LookedAt, NewDisk, ProbedContents, RemovableDisk};
use terms::size::Size;

use super::{remaining, text};
use crate::http::dry_run;
use crate::http::refusal::Refusal;
use crate::http::state::State;

pub(super) async fn create(state: &State, node: Option<u16>, spec: PoolSpec) -> Result<Response, Refusal> {
    let name = spec.name.clone();
    let reserved: Vec<bool> = spec.disks.iter().map(|disk| disk.reserve).collect();
    let disks = state.call_on(node, |control| async move { control.check_new_pool(spec).await }).await?;
    let taken = disks.iter().zip(reserved).map(|(disk, reserve)| taking(disk, reserve, &name));
    let made = format!("pool {name} is then available for new volumes");
    Ok(dry_run::would(taken.chain([made]).collect(), Vec::new()))
}

pub(super) async fn import(
    state: &State,
    node: Option<u16>,
    import: ImportSpec,
) -> Result<Response, Refusal> {
    let found = state.call_on(node, |control| async move { control.check_import(import).await }).await?;
    Ok(dry_run::would(importing(&found), Vec::new()))
}

pub(super) async fn export(state: &State, node: Option<u16>, name: String) -> Result<Response, Refusal> {
    let pool = name.clone();
    let volumes = state.call_on(node, move |control| async move { control.check_export(&pool) }).await?;
    let mut steps = vec![format!("pool {name} is closed; another server can then import it")];
    if !volumes.is_empty() {
        let volumes = volumes.join(", ");
        steps.push(format!("this node no longer serves the volumes on it: {volumes}"));
    }
    Ok(dry_run::would(steps, Vec::new()))
}

pub(super) async fn add_disk(
    state: &State,
    node: Option<u16>,
    name: String,
    disk: NewDisk,
    wipe: bool,
) -> Result<Response, Refusal> {
    let (pool, reserve) = (name.clone(), disk.reserve);
    let check = move |control: Rc<Control>| async move { control.check_added_disk(&pool, disk, wipe).await };
    let disk = state.call_on(node, check).await?;
    let steps = vec![
        taking(&disk, reserve, &name),
        format!("pool {name} depends on the disk from then on, until the disk is removed again"),
    ];
    Ok(dry_run::would(steps, Vec::new()))
}

pub(super) async fn remove_disk(
    state: &State,
    node: Option<u16>,
    name: String,
    path: PathBuf,
) -> Result<Response, Refusal> {
    let pool = name.clone();
    let check = move |control: Rc<Control>| async move { control.check_disk_removal(&pool, &path) };
    let disk = state.call_on(node, check).await?;
    Ok(dry_run::would(removing(&disk, &name), Vec::new()))
}

pub(super) async fn keep_disk(
    state: &State,
    node: Option<u16>,
    name: String,
    path: PathBuf,
) -> Result<Response, Refusal> {
    let (pool, disk) = (name.clone(), path.clone());
    let check = move |control: Rc<Control>| async move { control.check_keeping(&pool, &disk) };
    state.call_on(node, check).await?;
    let step = format!("{} stays in pool {name}; data that was moved stays where it is", text(&path));
    Ok(dry_run::would(vec![step], Vec::new()))
}

pub(super) async fn grow(state: &State, node: Option<u16>, name: String) -> Result<Response, Refusal> {
    let grown = state.call_on(node, move |control| async move { control.check_growth(&name) }).await?;
    Ok(dry_run::would(grown.iter().map(growing).collect(), Vec::new()))
}

pub(super) async fn reopen(state: &State, node: Option<u16>, name: String) -> Result<Response, Refusal> {
    let pool = name.clone();
    let volumes = state.call_on(node, move |control| async move { control.check_reopening(&pool) }).await?;
    Ok(dry_run::would(reopening(&name, volumes.as_deref()), Vec::new()))
}

pub(super) async fn accept_older(
    state: &State,
    node: Option<u16>,
    name: String,
) -> Result<Response, Refusal> {
    let pool = name.clone();
    let check = move |control: Rc<Control>| async move { control.check_accepting_older(&pool) };
    let volumes = state.call_on(node, check).await?.join(", ");
    let steps = vec![
        format!(
            "volumes {volumes} are served with the older data in pool {name}: writes made since are lost"
        ),
        "all other copies of them are fully resynced from it, even one that is down and has newer data"
            .to_owned(),
    ];
    Ok(dry_run::would(steps, Vec::new()))
}

pub(super) async fn forget(
    state: &State,
    node: Option<u16>,
    name: String,
    unmap: bool,
) -> Result<Response, Refusal> {
    let pool = name.clone();
    let check = move |control: Rc<Control>| async move { control.check_forgetting(&pool, unmap).await };
    let remains = remaining(state.call_on(node, check).await?);
    Ok(dry_run::would(forgetting(&name, &remains, unmap), Vec::new()))
}

/// What happens to a disk that is added to a pool.
fn taking(disk: &LookedAt, reserve: bool, pool: &str) -> String {
    let (path, size) = (text(&disk.path), Size(disk.size.0));
    let becomes = format!("{path} ({size}) becomes a disk of pool {pool}");
    match (&disk.holds, &disk.pool) {
        (None, _) if reserve => {
            format!("{path} is created for pool {pool}, a preallocated file of {size}")
        }
        (None, _) => format!("{path} is created for pool {pool}, a file of {size}"),
        (Some(Content::Nothing), _) => format!("{becomes}; it is empty"),
        (Some(_), Some(held)) => format!("{becomes}; its content is destroyed: {}", of_pool(held)),
        (Some(held), None) => format!("{becomes}; its content is destroyed: {held}"),
    }
}

/// What happens to a disk that is removed from a pool.
fn removing(RemovableDisk { path, total, left, moves }: &RemovableDisk, pool: &str) -> Vec<String> {
    let (path, total, left) = (text(path), Size(total.0), Size(left.0));
    let first = match moves.0 {
        0 => format!("nothing is moved: {path} holds no data"),
        moves => format!(
            "{} are moved from {path} to the other disks of pool {pool} while hosts use the volumes; nothing new is stored on {path} meanwhile",
            Size(moves)
        ),
    };
    vec![
        first,
        format!("{path} is removed from pool {pool}, and its metadata is wiped"),
        format!("volumes can then use {left}, {total} less than now"),
    ]
}

fn growing(GrownDisk { path, before, after }: &GrownDisk) -> String {
    let (before, after) = (Size(before.0), Size(after.0));
    format!("volumes can then use {after} of {} instead of {before}", text(path))
}

/// A disk of a pool, as described by its metadata.
fn of_pool(ProbedContents { name, host, exported, volumes }: &ProbedContents) -> String {
    let used = if *exported { "has exported" } else { "used last" };
    let volumes = match volumes.iter().map(|volume| volume.name.as_str()).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "without volumes".to_owned(),
        volumes => format!("with volumes {volumes}"),
    };
    format!("a disk of pool {name}, which {} {used}, {volumes}", host.name)
}

fn importing(Importable { pool, name, used_by }: &Importable) -> Vec<String> {
    let paths = pool.paths.iter().map(|path| text(path)).collect::<Vec<_>>().join(", ");
    let called = match pool.contents.name == *name {
        true => String::new(),
        false => format!(", and renamed to {name}"),
    };
    let before = &pool.contents.name;
    let mut steps = vec![format!("pool {before} on {paths} is imported to this node{called}")];
    steps.extend(used_by.iter().map(|host| {
        format!(
            "{host} used it last and has not exported it: if that server is still running, both write to the pool and destroy its content"
        )
    }));
    let volumes = &pool.contents.volumes;
    steps.extend(volumes.iter().map(|volume| format!("volume {} becomes available with it", volume.name)));
    steps
}

/// The steps of reopening a pool; `volumes`: those on it if it is open.
fn reopening(name: &str, volumes: Option<&[String]>) -> Vec<String> {
    let Some(volumes) = volumes else { return vec![format!("pool {name} is opened, if its disks respond")] };
    let mut steps = vec![format!("pool {name} is closed and reopened, as after a power failure")];
    if !volumes.is_empty() {
        let volumes = volumes.join(", ");
        steps.push(format!("hosts stay logged in, and see the LUNs of volumes {volumes} busy meanwhile"));
        steps.push("writes that hosts have not flushed may be lost, and hosts are notified".to_owned());
    }
    steps
}

/// The steps of forgetting a pool, and what remains of it.
fn forgetting(name: &str, remains: &PoolRemains, unmap: bool) -> Vec<String> {
    let mut steps = vec![format!(
        "this node forgets pool {name}; its disks are not touched, and it can be imported again"
    )];
    let mute = remains.disks.iter().filter_map(|disk| {
        Some(format!("the content of {} cannot be read: {}", disk.path, disk.problem.as_ref()?))
    });
    steps.extend(mute);
    match &remains.volumes {
        None => steps
            .push("it is unknown which volumes are forgotten with it: none of its disks can be read".into()),
        Some(volumes) => {
            let of = |volume: &RemainingVolume| {
                format!("volume {} is forgotten with it ({})", volume.name, ByteLen(volume.size))
            };
            steps.extend(volumes.iter().map(of));
        }
    }
    let what = match unmap {
        true => "is unmapped",
        false => "stays, without effect until the pool is imported again",
    };
    let map = |map: &RemainingMap| {
        let RemainingMap { target, lun, host, .. } = map;
        format!("LUN {lun} of target {target} for host group {host} {what}")
    };
    steps.extend(remains.maps.iter().map(map));
    steps
}

#[cfg(test)]
mod tests {
    use api::RemainingDisk;
    use base::ByteLen;
    use store::{Host, HostId};

    use super::*;

    #[test]
    fn forgetting_a_pool_lists_what_disappears() {
        let remains = |volumes| PoolRemains {
            disks: vec![RemainingDisk {
                path: "/dev/sdb".into(),
                problem: Some("it does not answer".into()),
            }],
            volumes,
            maps: vec![RemainingMap {
                target: "iqn.t".into(),
                lun: 3,
                host: "local".into(),
                volume_id: "v".into(),
            }],
        };
        let untold = forgetting("main", &remains(None), false);
        let said = [
            "this node forgets pool main; its disks are not touched, and it can be imported again",
            "the content of /dev/sdb cannot be read: it does not answer",
            "it is unknown which volumes are forgotten with it: none of its disks can be read",
            "LUN 3 of target iqn.t for host group local stays, without effect until the pool is imported again",
        ];
        assert_eq!(untold, said);
        let volume = RemainingVolume { id: "v".into(), name: "db".into(), size: 4096 };
        let told = forgetting("main", &remains(Some(vec![volume])), true);
        let said =
            ["volume db is forgotten with it (4K)", "LUN 3 of target iqn.t for host group local is unmapped"];
        assert_eq!(told[2..], said);
        assert_eq!(forgetting("main", &remains(Some(Vec::new())), true).len(), 3);
    }

    #[test]
    fn growing_a_pool_shows_by_how_much() {
        let grown = GrownDisk { path: "/dev/sdb".into(), before: ByteLen(4096), after: ByteLen(12288) };
        assert_eq!(growing(&grown), "volumes can then use 12K of /dev/sdb instead of 4K");
    }

    #[test]
    fn who_removes_a_disk_is_told_what_is_left() {
        let disk = |moves| RemovableDisk {
            path: "/dev/sdb".into(),
            total: ByteLen(4096),
            left: ByteLen(12288),
            moves: ByteLen(moves),
        };
        let told = removing(&disk(0), "main");
        let said = [
            "nothing is moved: /dev/sdb holds no data",
            "/dev/sdb is removed from pool main, and its metadata is wiped",
            "volumes can then use 12K, 4K less than now",
        ];
        assert_eq!(told, said);
        assert!(
            removing(&disk(2048), "main")[0].starts_with("2K are moved from /dev/sdb to the other disks")
        );
    }

    fn disk(holds: Option<Content>, pool: Option<ProbedContents>) -> LookedAt {
        LookedAt { path: PathBuf::from("/dev/sdb"), size: ByteLen(4096), holds, pool }
    }

    #[test]
    fn creating_a_pool_shows_what_its_disks_hold() {
        let said = |disk: &LookedAt| taking(disk, false, "main");
        assert_eq!(said(&disk(None, None)), "/dev/sdb is created for pool main, a file of 4K");
        assert!(taking(&disk(None, None), true, "main").ends_with("a preallocated file of 4K"));
        let becomes = "/dev/sdb (4K) becomes a disk of pool main";
        assert_eq!(said(&disk(Some(Content::Nothing), None)), format!("{becomes}; it is empty"));
        let destroyed = format!("{becomes}; its content is destroyed: ");
        let file_system = disk(Some(Content::Known("an XFS file system")), None);
        assert_eq!(said(&file_system), format!("{destroyed}an XFS file system"));
        let held = |exported| ProbedContents {
            name: "old".into(),
            host: Host { id: HostId([1; 16]), name: "san7".into() },
            exported,
            volumes: Vec::new(),
        };
        let of_pool = |exported| said(&disk(Some(Content::Pool), Some(held(exported))));
        let used = format!("{destroyed}a disk of pool old, which san7 used last, without volumes");
        assert_eq!(of_pool(false), used);
        assert!(of_pool(true).contains("which san7 has exported"));
    }

    #[test]
    fn reopening_a_pool_shows_what_hosts_notice() {
        assert_eq!(reopening("main", None), ["pool main is opened, if its disks respond"]);
        assert_eq!(reopening("main", Some(&[])).len(), 1);
        let told = reopening("main", Some(&["db".into()]));
        assert!(told[1].contains("volumes db busy") && told[2].contains("may be lost"), "{told:?}");
    }
}
