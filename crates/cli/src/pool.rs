//! `ursa pool`.

use std::path::{Path, PathBuf};

use api::{
    Client, DiskFailure, DiskLeaving, Forecast, NewDisk, Overcommit, Pool, PoolAddDisk, PoolCreate,
    PoolForget, PoolImport, PoolRemoveDisk, PoolState,
};
use clap::{Args, Subcommand};
use terms::clock::{unix_now, utc};
use terms::size::Size;

use super::confirm::Confirm;
use super::error::CliError;
use super::job;
use super::output::Output;
use super::table::{Table, age as age_text, fields, list, size};
use super::volume::bad_blocks;

/// On which node.
#[derive(Args, Clone, Copy, Debug)]
pub struct OfNode {
    /// Node that has the pool and its disks, by number [default: the queried node]
    #[arg(long, value_name = "NUMBER")]
    node: Option<u16>,
}

impl OfNode {
    /// The node in a sentence, or nothing.
    fn text(self) -> String {
        self.node.map(|node| format!(" on node {node}")).unwrap_or_default()
    }
}

/// A pool, and what every change of a pool takes.
#[derive(Args, Debug)]
pub struct Changed {
    /// Pool name
    name: String,
    #[command(flatten)]
    of: OfNode,
    #[command(flatten)]
    confirm: Confirm,
}

/// What to do with pools.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a pool from files or block devices
    Create {
        /// Pool name
        name: String,
        /// Disks: files or block devices of the node
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Create files of this size; they must not exist yet
        #[arg(long)]
        size: Option<Size>,
        /// With --size: preallocate the space, so that the file system cannot run out of it later
        #[arg(long, requires = "size")]
        preallocate: bool,
        /// Overwrite any data on the disks
        #[arg(long)]
        wipe: bool,
        #[command(flatten)]
        of: OfNode,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// List pools
    List {
        /// Another node of the cluster, by number, or all
        #[arg(long, value_name = "NUMBER|all")]
        node: Option<String>,
    },
    /// Show a pool with its disks
    Show {
        /// Pool name
        name: String,
        #[command(flatten)]
        of: OfNode,
    },
    /// Forecast when pools will be full, from their growth in the last days
    Forecast {
        /// Another node of the cluster, by number, or all
        #[arg(long, value_name = "NUMBER|all")]
        node: Option<String>,
    },
    /// Import a pool that was created earlier or on another server
    Import {
        /// All disks of the pool
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Import it under another name
        #[arg(long)]
        name: Option<String>,
        /// Import it even if its last server has not exported it; make sure that the other server is off
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        of: OfNode,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Close a pool so that another server can import it
    Export(Changed),
    /// Close a failed pool and open it again, without restarting the node
    Reopen(Changed),
    /// Accept the older data of a pool that was set back, if no other copy is in sync
    AcceptOlder(Changed),
    /// Acknowledge read errors of a pool's disks; `ursa status` then lists only new ones
    Acknowledge {
        /// Pool name
        name: String,
        #[command(flatten)]
        of: OfNode,
    },
    /// Scrub a pool: read everything that its volumes use, and repair bad blocks from other copies
    Scrub {
        /// Pool name
        name: String,
        #[command(flatten)]
        of: OfNode,
    },
    /// Add a disk to a pool while it is in use
    AddDisk {
        /// Pool name
        name: String,
        /// Disk: a file or block device of the node
        path: PathBuf,
        /// Create a file of this size; it must not exist yet
        #[arg(long)]
        size: Option<Size>,
        /// With --size: preallocate the space, so that the file system cannot run out of it later
        #[arg(long, requires = "size")]
        preallocate: bool,
        /// Overwrite any data on the disk
        #[arg(long)]
        wipe: bool,
        #[command(flatten)]
        of: OfNode,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Remove a disk from a pool while it is in use; first, what lies on it moves to the other disks
    RemoveDisk {
        /// Pool name
        name: String,
        /// Disk: its path, as `ursa pool show` prints it
        path: PathBuf,
        /// Keep the disk, which is leaving; data that was moved stays where it is
        #[arg(long)]
        cancel: bool,
        #[command(flatten)]
        of: OfNode,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Grow a pool after its disks were enlarged (for example with lvextend or truncate), while it is in use
    Grow(Changed),
    /// Forget a pool that can no longer be used; its disks are not touched
    Forget {
        /// Pool name
        name: String,
        /// Also delete the LUN maps of its volumes
        #[arg(long)]
        unmap: bool,
        #[command(flatten)]
        of: OfNode,
        #[command(flatten)]
        confirm: Confirm,
    },
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Create { name, paths, size, preallocate, wipe, of, confirm } => {
                let paths = absolute(&paths, of)?;
                let what = format!("Create pool {name} from {}", paths.join(", ") + &of.text());
                let disk = |path| NewDisk { path, size: size.map(|size| size.0), preallocate };
                let pool = PoolCreate { name, disks: paths.into_iter().map(disk).collect(), wipe };
                let create = |client: &Client| client.create_pool(&pool, of.node);
                confirm.show(client, output, (&what, wipe), create, one)
            }
            Command::List { node: None } => {
                output.show(&client.pools()?, |pools| table(pools, false) + &soon_full(client, None))
            }
            Command::List { node: Some(node) } => {
                let text = |pools: &[Pool]| table(pools, true) + &soon_full(client, Some(&node));
                output.list(&client.pools_of(&node)?, text)
            }
            Command::Show { name, of } => {
                let text = |pool: &Pool| one(pool) + &forecast_of(client, &name, of);
                output.show(&client.pool(&name, of.node)?, text)
            }
            Command::Forecast { node } => output.list(&client.forecasts(node.as_deref())?, forecasts),
            Command::Import { paths, name, force, of, confirm } => {
                let import = PoolImport { paths: absolute(&paths, of)?, name, force };
                let what = format!("Import the pool from {}", import.paths.join(", ") + &of.text());
                let adopt = |client: &Client| client.import_pool(&import, of.node);
                confirm.show(client, output, (&what, force), adopt, one)
            }
            Command::Export(Changed { name, of, confirm }) => {
                let pool = format!("{name}{}", of.text());
                let what = format!("Export pool {pool}");
                let done = format!("Pool {pool} exported; another server can import it now.");
                confirm.done(client, output, &what, &done, |client| client.export_pool(&name, of.node))
            }
            Command::Reopen(Changed { name, of, confirm }) => {
                let what = format!("Reopen pool {name}{}", of.text());
                // A pool that is not open serves no hosts, so no confirmation is needed.
                let is_open = client.pool(&name, of.node)?.state != PoolState::Unavailable;
                let reopen = |client: &Client| client.reopen_pool(&name, of.node);
                confirm.show(client, output, (&what, is_open), reopen, one)
            }
            Command::AcceptOlder(Changed { name, of, confirm }) => {
                let what = format!("Accept the older data of pool {name}{}", of.text());
                let accept = |client: &Client| client.accept_older_pool(&name, of.node);
                confirm.show(client, output, (&what, true), accept, one)
            }
            Command::Acknowledge { name, of } => {
                Ok(output.show(&client.acknowledge_pool(&name, of.node)?, one)?)
            }
            Command::Scrub { name, of } => {
                let jobs = client.scrub_pool(&name, of.node)?;
                output.show(&jobs.items, |jobs| job::table(jobs))
            }
            Command::AddDisk { name, path, size, preallocate, wipe, of, confirm } => {
                let path = absolute_path(&path, of)?;
                let what = format!("Add {path} to pool {name}{}", of.text());
                let disk = PoolAddDisk { path, size: size.map(|size| size.0), preallocate, wipe };
                let add = |client: &Client| client.add_disk(&name, &disk, of.node);
                confirm.show(client, output, (&what, wipe), add, one)
            }
            Command::RemoveDisk { name, path, cancel, of, confirm } => {
                let path = absolute_path(&path, of)?;
                let what = match cancel {
                    true => format!("Keep {path} in pool {name}{}", of.text()),
                    false => format!("Remove {path} from pool {name}{}", of.text()),
                };
                let disk = PoolRemoveDisk { path, cancel };
                let remove = |client: &Client| client.remove_disk(&name, &disk, of.node);
                confirm.show(client, output, (&what, !cancel), remove, one)
            }
            Command::Grow(Changed { name, of, confirm }) => {
                let what = format!("Grow pool {name}{}", of.text());
                let grow = |client: &Client| client.grow_pool(&name, of.node);
                confirm.show(client, output, (&what, false), grow, one)
            }
            Command::Forget { name, unmap, of, confirm } => {
                let how = PoolForget { unmap };
                let pool = format!("{name}{}", of.text());
                let (what, done) = (format!("Forget pool {pool}"), format!("Pool {pool} forgotten."));
                confirm.done(client, output, &what, &done, |client| client.forget_pool(&name, &how, of.node))
            }
        }
    }
}

fn absolute(paths: &[PathBuf], of: OfNode) -> Result<Vec<String>, CliError> {
    paths.iter().map(|path| absolute_path(path, of)).collect()
}

/// Makes the path absolute, since the node may have another working directory.
///
/// A relative path on another node's machine is rejected: it does not depend on our directory.
fn absolute_path(path: &Path, of: OfNode) -> Result<String, CliError> {
    let absolute = match of.node {
        Some(node) if path.is_relative() => return Err(CliError::PathThere(path.to_owned(), node)),
        Some(_) => path.to_owned(),
        None => std::path::absolute(path).map_err(|error| CliError::Path(path.to_owned(), error))?,
    };
    Ok(absolute.to_string_lossy().into_owned())
}

fn table(pools: &[Pool], of_nodes: bool) -> String {
    let mut table = Table::new(&["NODE", "NAME", "STATE", "SIZE", "USED", "FREE", "VOLUMES", "DISKS"]);
    for pool in pools {
        table.row([
            pool.node_name.clone(),
            pool.name.clone(),
            state_of(pool),
            size(pool.total),
            size(pool.used),
            size(pool.total.saturating_sub(pool.used)),
            pool.volumes.to_string(),
            list(pool.disks.iter().map(|disk| &disk.path), "-"),
        ]);
    }
    if of_nodes {
        return table.text("No pools.");
    }
    table.omit("NODE");
    table.text("No pools. Create one with `ursa pool create`.")
}

fn one(pool: &Pool) -> String {
    let disks: Vec<String> = pool
        .disks
        .iter()
        .map(|disk| match (&disk.failure, &disk.leaving) {
            (None, None) => format!("{}  {}, {} free", disk.path, size(disk.total), size(disk.free)),
            (None, Some(DiskLeaving { left, problem: None })) => {
                format!("{}  leaving: {} to be moved", disk.path, size(*left))
            }
            (None, Some(DiskLeaving { left, problem: Some(problem) })) => {
                format!("{}  leaving, but no progress ({} to be moved): {problem}", disk.path, size(*left))
            }
            (Some(DiskFailure { error, since }), _) => {
                let age = unix_now();
                let age = age_text(age.saturating_sub(*since));
                format!("{}  OUT OF SERVICE: a write or a flush failed {age} ago: {error}", disk.path)
            }
        })
        .collect();
    let state = match &pool.reason {
        None => state(pool.state).to_owned(),
        Some(reason) => format!("{}: {reason}", state(pool.state)),
    };
    let overcommit = pool.overcommit.map(|Overcommit { promised, free }| {
        let (free, promised) = (size(free), size(promised));
        let text = format!(
            "the file system has {free} free, but pools on it may still need {promised}: when it is full, writes to new blocks fail"
        );
        fields([("Overcommitted", text)])
    });
    let logs = pool.logs.map(|logs| {
        let (lent, used, room) = (size(logs.lent), size(logs.used), size(logs.room));
        let reserved = match logs.reserved {
            0 => String::new(),
            bytes => format!(", {} reserved", size(bytes)),
        };
        let snapshots = match logs.snapshots {
            0 => String::new(),
            bytes => format!(", {} by snapshots", size(bytes)),
        };
        let freeing = match logs.freeing {
            0 => String::new(),
            bytes => format!(", {} being freed", size(bytes)),
        };
        let text = format!(
            "{used} used{snapshots}{freeing} of {lent} lent{reserved}; log volumes can take {room} more ({} % full)",
            logs.percent
        );
        fields([("Logs", text)])
    });
    let scrub = pool.scrub.map(|scrub| {
        let oldest = scrub.oldest.map_or_else(|| "never".into(), utc);
        let unrepaired = match scrub.unrepaired_blocks {
            0 => String::new(),
            blocks => format!("; {} CANNOT BE READ", bad_blocks(blocks)),
        };
        let unfinished = match scrub.unfinished {
            0 => String::new(),
            1 => "; 1 scrub in progress".into(),
            scrubs => format!("; {scrubs} scrubs in progress"),
        };
        fields([("Oldest scrub", format!("{oldest}{unrepaired}{unfinished}"))])
    });
    fields([
        ("Pool", pool.name.clone()),
        ("State", state),
        ("Size", format!("{}, {} used, {} free", size(pool.total), size(pool.used), size(pool.free))),
        ("Extent", size(pool.extent)),
        ("Volumes", pool.volumes.to_string()),
        ("Disks", disks.join("\n")),
        ("ID", pool.id.clone().unwrap_or_default()),
    ]) + &logs.unwrap_or_default()
        + &overcommit.unwrap_or_default()
        + &scrub.unwrap_or_default()
}

/// A line for each pool that will soon be full; none if the request fails, since the pools are listed anyway.
fn soon_full(client: &Client, node: Option<&str>) -> String {
    let forecasts = client.forecasts(node).map(|list| list.items).unwrap_or_default();
    let line = |forecast: &Forecast| {
        let on = node.map(|_| format!(" on {}", forecast.node_name)).unwrap_or_default();
        format!("\nPool {}{on} is filling up. {}\n", forecast.pool, forecast.text)
    };
    forecasts.iter().filter(|forecast| forecast.soon).map(line).collect()
}

/// The pool's forecast; empty if there is none or the request fails, since the pool is shown anyway.
fn forecast_of(client: &Client, pool: &str, of: OfNode) -> String {
    let node = of.node.map(|node| node.to_string());
    let forecasts = client.forecasts(node.as_deref()).map(|list| list.items).unwrap_or_default();
    let forecast = forecasts.into_iter().find(|forecast| forecast.pool == pool);
    forecast.map(|forecast| fields([("Forecast", forecast.text)])).unwrap_or_default()
}

fn forecasts(forecasts: &[Forecast]) -> String {
    let mut table = Table::new(&["NODE", "NAME", "FORECAST"]);
    for forecast in forecasts {
        let warning = if forecast.soon { "FULL SOON. " } else { "" };
        table.row([forecast.node_name.clone(), forecast.pool.clone(), format!("{warning}{}", forecast.text)]);
    }
    table.text("No data on pools yet: try again in a few seconds.")
}

fn state_of(pool: &Pool) -> String {
    let overcommitted = if pool.overcommit.is_some() { ", overcommitted" } else { "" };
    format!("{}{overcommitted}", state(pool.state))
}

fn state(state: PoolState) -> &'static str {
    match state {
        PoolState::Online => "online",
        PoolState::ReadOnly => "read-only",
        PoolState::DiskFailed => "disk failed",
        PoolState::Exported => "exported",
        PoolState::Unavailable => "unavailable",
    }
}
