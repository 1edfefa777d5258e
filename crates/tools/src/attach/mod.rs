//! `ursa attach`: a unit as a file or as a block device of this host.
//!
//! For hosts whose kernel has no SCSI. The file `disk` in a FUSE mount is as long as the unit, and `losetup`
//! turns it into a block device; the kernel's ublk provides a block device directly.
//!
//! A core of our runtime has the sessions (`runtime`) and executes requests (`disk`); the main thread waits
//! for signals (`detach`). The kernel's requests for the file arrive on a thread of `fuser` (`file`), those
//! for the block device on the core itself (`ublk`).

mod detach;
mod disk;
mod file;
mod mount;
mod runtime;
mod turns;
mod ublk;

use base::ByteLen;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use bench::{PortalName, UnitUrl};
use clap::Args;
use cli::CliError;
use initiator::multipath::OpenError;
use initiator::{Lun, MultipathOptions, Search, UnitSelector};
use rt::uring::StartError;
use rustix::process::{getegid, geteuid};
use terms::exit::Outcome;

use self::detach::Watch;
use self::file::File;
use self::mount::{MountError, Place};
use self::runtime::Core;
use self::ublk::{Device, Ublk, UblkError};
use crate::login::LoginArgs;

const EXAMPLES: &str = "\
Examples (as root):
  ursa attach iscsi://10.0.0.7,10.0.1.7/iqn.2026-11.io.ursa:db/0 --path /run/db &
  losetup --find --show --direct-io=on --sector-size 4096 /run/db/disk
  mkfs.ext4 /dev/loop0
With a kernel that has ublk:
  ursa attach iscsi://10.0.0.7,10.0.1.7/iqn.2026-11.io.ursa:db/0 --ublk &
  mkfs.ext4 /dev/ublkb0
It runs until SIGTERM, or until the directory is unmounted or the device deleted.";

/// Where the directories of mounts are created by default for root, and for users without `XDG_RUNTIME_DIR`.
const RUNTIME_DIR: &str = "/run";

/// Attach a LUN of any iSCSI target as a file or a block device.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Attach {
    /// LUN to attach, as `iscsi://PORTAL[:PORT][,PORTAL...]/IQN/LUN`; all portals are used as paths
    #[arg(value_name = "URL")]
    unit: UnitUrl,
    /// Directory in which the file `disk` appears [default: ursa/IQN-LUN in /run, or in $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "DIRECTORY")]
    path: Option<PathBuf>,
    /// Create the block device `/dev/ublkbN` instead of a file; requires root and Linux 6.5 or newer with the
    /// module `ublk_drv`
    #[arg(long, conflicts_with = "path")]
    ublk: bool,
    /// Number N of `/dev/ublkbN` [default: any free one]
    #[arg(long, value_name = "N", requires = "ublk", value_parser = clap::value_parser!(u32).range(..=ublk::ID_MAX))]
    ublk_id: Option<u32>,
    /// Also use the portals that the given ones report
    #[arg(long)]
    discover: bool,
    /// Attach read-only
    #[arg(long)]
    read_only: bool,
    /// Seconds to queue I/O while no portal is reachable, before it fails
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    queue_for: u64,
    #[command(flatten)]
    login: LoginArgs,
}

/// Why the attachment failed or ended.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum AttachError {
    #[error(transparent)]
    Given(#[from] CliError),
    #[error("cannot resolve portal {0}")]
    Resolve(PortalName, #[source] io::Error),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Ublk(#[from] UblkError),
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    #[error("the connection to the kernel failed")]
    Kernel(#[source] io::Error),
    #[error("the final flush failed; the last writes may be lost: {0}")]
    Flush(String),
    /// A second signal detached a unit that was in use.
    #[error("detached while in use: unwritten data is lost")]
    GivenUp,
    #[error("internal error: a thread of this program failed; see the messages above")]
    Crashed,
}

impl Outcome for AttachError {
    fn code(&self) -> u8 {
        match self {
            AttachError::Given(error) => error.code(),
            _ => 1,
        }
    }
}

impl Attach {
    /// Attaches the LUN, and serves the device until it is detached.
    pub fn run(self) -> Result<(), AttachError> {
        start_log();
        if self.ublk { self.show_device() } else { self.show_file() }
    }

    fn show_file(self) -> Result<(), AttachError> {
        let place = Place::make(&self.directory())?;
        let core = Core::start(self.search()?, self.options()?)?;
        let owner = (geteuid().as_raw(), getegid().as_raw());
        let file = File::new(core.handle(), owner, self.read_only);
        let name = self.unit.to_string();
        let shown = place.mount(file, &name, self.read_only).map_err(AttachError::from);
        let ended = shown.and_then(|session| {
            let size = core.geometry().size;
            let (over, ending) = tokio::sync::oneshot::channel();
            // The thread ends with the mount.
            thread::spawn(move || over.send(session.run()));
            Watch::start()?.wait(&place, ending, || {
                tell(&format!("{}/{} is {name}, {}", place.path().display(), file::NAME, ByteLen(size)));
            })
        });
        let closed = core.stop();
        ended.and(closed)
    }

    fn show_device(self) -> Result<(), AttachError> {
        // Check this host before any portal is contacted.
        let ublk = Ublk::open()?;
        let core = Core::start(self.search()?, self.options()?)?;
        let (name, size) = (self.unit.to_string(), core.geometry().size);
        // Handle signals first: one that arrives while the device is created would otherwise leave half of it
        // behind.
        let made = Watch::start().and_then(|watch| {
            let (device, ending) = Device::make(ublk, &core, self.ublk_id, self.read_only)?;
            Ok((watch, device, ending))
        });
        let (watch, device, ending) = match made {
            Ok(made) => made,
            Err(error) => {
                let _ = core.leave();
                return Err(error);
            }
        };
        let ended = watch.wait(&device, ending, || {
            tell(&format!("{} is {name}, {}", device.path().display(), ByteLen(size)));
        });
        let is_over = ended.is_ok() || device.is_stopped();
        if !is_over {
            return ended.and(core.leave());
        }
        // All requests have ended with the device. Delete what is left of it before the flush and the logout,
        // which take time: the device's number may belong to another program by then.
        device.delete();
        ended.and(core.stop())
    }

    fn directory(&self) -> PathBuf {
        if let Some(path) = &self.path {
            return path.clone();
        }
        let of_user = (!geteuid().is_root()).then(|| std::env::var_os("XDG_RUNTIME_DIR")).flatten();
        let runtime = of_user.map_or_else(|| PathBuf::from(RUNTIME_DIR), PathBuf::from);
        // A file name cannot contain a slash.
        let name = self.unit.name.replace('/', "-");
        runtime.join("ursa").join(format!("{name}-{}", self.unit.lun))
    }

    fn search(&self) -> Result<Search, AttachError> {
        let portals: Result<Vec<SocketAddr>, _> = self.unit.portals.iter().map(resolve).collect();
        Ok(Search {
            portals: portals?,
            target: Some(self.unit.name.clone()),
            unit: UnitSelector::Lun(Lun(self.unit.lun)),
            discover: self.discover,
        })
    }

    fn options(&self) -> Result<MultipathOptions, AttachError> {
        let queue_for = Duration::from_secs(self.queue_for);
        Ok(MultipathOptions { login: self.login.options()?, queue_for, ..MultipathOptions::default() })
    }
}

fn resolve(portal: &PortalName) -> Result<SocketAddr, AttachError> {
    let failed = |error| AttachError::Resolve(portal.clone(), error);
    let mut addresses = (portal.host.as_str(), portal.port).to_socket_addrs().map_err(failed)?;
    addresses.next().ok_or_else(|| {
        failed(io::Error::new(io::ErrorKind::NotFound, "the name does not resolve to an address"))
    })
}

/// Writes to standard output, which may be closed.
fn tell(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Logs path changes to standard error, which may be closed.
fn start_log() {
    tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_max_level(tracing::Level::INFO)
        .with_target(false)
        .with_ansi(false)
        .with_writer(io::stderr)
        .init();
}
