//! `ursa map`.

use api::{Client, MapCreate, TargetMap, Volume};
use clap::Subcommand;
use serde::Serialize;

use super::attach::Lun;
use super::confirm::Confirm;
use super::error::CliError;
use super::output::Output;
use super::table::Table;

/// What to do with LUN maps.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Map a volume to a host group, as a LUN of a target
    Create {
        /// Target name (IQN)
        target: String,
        /// Volume name or ID
        volume: String,
        /// Host group to map it to; `any` is every host
        #[arg(long, default_value = api::DEFAULT_HOST)]
        host: String,
        /// LUN [default: the lowest free one]
        #[arg(long, value_name = "N")]
        lun: Option<u16>,
    },
    /// Unmap a LUN
    Delete {
        /// Target name (IQN)
        target: String,
        /// LUN
        lun: u16,
        /// Unmap it from this host group only
        #[arg(long)]
        host: Option<String>,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// List LUN maps
    List,
}

#[derive(Serialize)]
struct Listed {
    target: String,
    #[serde(flatten)]
    map: TargetMap,
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Create { target, volume, host, lun } => {
                let map = client.create_map(&target, &MapCreate { volume, host: Some(host), lun })?;
                output.show(&Listed { target, map }, |listed| created(client, listed))
            }
            Command::Delete { target, lun, host, confirm } => {
                let whose = host.as_ref().map_or(String::new(), |host| format!(" from host group {host}"));
                let what = format!("Unmap LUN {lun} of {target}{whose}");
                let done = format!("LUN {lun} of {target} unmapped{whose}; the volume still exists.");
                let delete = |client: &Client| client.delete_map(&target, lun, host.as_deref());
                confirm.done(client, output, &what, &done, delete)
            }
            Command::List => {
                let all = |target: api::Target| {
                    let name = target.name;
                    target.maps.into_iter().map(move |map| Listed { target: name.clone(), map })
                };
                let mut maps: Vec<Listed> = client.targets()?.into_iter().flat_map(all).collect();
                name_volumes(client, maps.iter_mut().map(|listed| &mut listed.map))?;
                output.show(&maps, |maps| table(maps))
            }
        }
    }
}

/// Sets the names of volumes of which the node that was asked knows only the identity.
pub fn name_volumes<'a>(
    client: &Client,
    maps: impl Iterator<Item = &'a mut TargetMap>,
) -> Result<(), CliError> {
    let mut unnamed = maps.filter(|map| map.volume.is_none()).peekable();
    if unnamed.peek().is_some() {
        let volumes = client.volumes()?.items;
        unnamed.for_each(|map| map.volume = name_of(&volumes, &map.volume_id));
    }
    Ok(())
}

fn name_of(volumes: &[Volume], id: &str) -> Option<String> {
    volumes.iter().find(|volume| volume.id == id).map(|volume| volume.name.clone())
}

/// The volume's name, or its identity while its name is unknown.
pub fn volume(map: &TargetMap) -> String {
    map.volume
        .clone()
        .unwrap_or_else(|| format!("{} (its name is unknown: its pool is not open)", map.volume_id))
}

fn created(client: &Client, Listed { target, map }: &Listed) -> String {
    // The volume is mapped, whether the node can show it now or not.
    let attach = match client.volume(&map.volume_id) {
        Ok(volume) => Lun { volume: &volume, target, host: &map.host }.instructions(client),
        Err(_) => String::new(),
    };
    format!(
        "Volume {} mapped as LUN {} of {target} to host group {}.\n{attach}",
        volume(map),
        map.lun,
        map.host
    )
}

fn table(maps: &[Listed]) -> String {
    let mut table = Table::new(&["TARGET", "LUN", "VOLUME", "HOST"]);
    for Listed { target, map } in maps {
        table.row([target.clone(), map.lun.to_string(), volume(map), map.host.clone()]);
    }
    table.text("No LUN maps. Create one with `ursa map create TARGET VOLUME --host HOST`.")
}
