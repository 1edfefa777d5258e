//! `ursa attach`: a unit as a file of this host.
//!
//! For hosts whose kernel has no SCSI: `disk` in a FUSE mount is as long as the unit, and `losetup` makes a block device of it.
//! Three parties: the kernel asks on the thread that `fuser` has (`file`), a core of our runtime has the sessions and does what is
//! asked (`disk`), and the main thread waits for signals (`detach`).

mod detach;
mod disk;
mod file;
mod mount;
mod turns;

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use bench::{PortalName, UnitUrl};
use clap::Args;
use initiator::multipath::OpenError;
use initiator::{Lun, Multipath, MultipathOptions, Search, Wanted};
use rt::CoreId;
use rt::sync::{Receiver, Sender, oneshot};
use rt::uring::{Config, Running, StartError};
use rustix::process::{getegid, geteuid};

use self::disk::Disk;
use self::file::File;
use self::mount::{MountError, Place};
use crate::cli::{CliError, LoginArgs, Outcome};

const EXAMPLES: &str = "\
Example, as root:
  ursa attach iscsi://10.0.0.7,10.0.1.7/iqn.2026-11.io.ursa:db/0 --path /run/db &
  losetup --find --show --direct-io=on --sector-size 4096 /run/db/disk
  mkfs.ext4 /dev/loop0
It goes on until SIGTERM, or until the directory is unmounted.";

/// Where files are shown if nothing is said, for root and for others.
const RUNTIME_DIR: &str = "/run";

/// How long a lost target may be waited for at the end, before it is left without a word.
const CLOSE_LIMIT: Duration = Duration::from_secs(15);

/// Show a unit of any iSCSI target as a file.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Attach {
    /// `iscsi://PORTAL[:PORT][,PORTAL...]/IQN/LUN`: all portals are used, and the loss of one is a short stall
    #[arg(value_name = "URL")]
    unit: UnitUrl,
    /// The directory in which there will be the file `disk` [default: ursa/IQN-LUN in /run, or in $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "DIRECTORY")]
    path: Option<PathBuf>,
    /// Use the portals that the given ones tell of, too
    #[arg(long)]
    discover: bool,
    /// Let nobody write
    #[arg(long)]
    read_only: bool,
    /// Seconds that reads and writes wait when no portal can be reached, before they fail
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    queue_for: u64,
    #[command(flatten)]
    login: LoginArgs,
}

/// Why there is no file, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The arguments.
    #[error(transparent)]
    Given(#[from] CliError),
    /// A portal's name.
    #[error("cannot find the portal {0}")]
    Resolve(PortalName, #[source] io::Error),
    /// The core does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The unit.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The directory, or FUSE.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Signals.
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    /// The kernel's side.
    #[error("the connection with the kernel has failed")]
    Kernel(#[source] io::Error),
    /// What was written may not be on stable storage.
    #[error("the last writes could not be made durable: {0}")]
    Flush(String),
    /// A second signal.
    #[error("given up while somebody used the file: what they had not written is lost")]
    GivenUp,
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
    /// Shows the file until it is to go.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn run(self) -> Result<(), AttachError> {
        start_log();
        let place = Place::make(&self.directory())?;
        let core = Core::start(self.search()?, self.options()?)?;
        let owner = (geteuid().as_raw(), getegid().as_raw());
        let file = File::new(core.running.handle(), owner, self.read_only);
        let name = self.unit.to_string();
        let shown = place.mount(file, &name, self.read_only).map_err(AttachError::from);
        let ended = shown.and_then(|session| {
            let size = core.size;
            let (over, ending) = tokio::sync::oneshot::channel();
            // It ends with the mount.
            thread::spawn(move || over.send(session.run()));
            detach::wait(&place, ending, || {
                // Nobody may be there to read it.
                let _ = writeln!(
                    io::stdout(),
                    "{}/{} is {name}, {size} bytes",
                    place.path().display(),
                    file::NAME
                );
            })
        });
        let closed = core.stop();
        ended.and(closed)
    }

    fn directory(&self) -> PathBuf {
        if let Some(path) = &self.path {
            return path.clone();
        }
        let of_user = (!geteuid().is_root()).then(|| std::env::var_os("XDG_RUNTIME_DIR")).flatten();
        let runtime = of_user.map_or_else(|| PathBuf::from(RUNTIME_DIR), PathBuf::from);
        // A name may hold all but this.
        let name = self.unit.name.replace('/', "-");
        runtime.join("ursa").join(format!("{name}-{}", self.unit.lun))
    }

    fn search(&self) -> Result<Search, AttachError> {
        let portals: Result<Vec<SocketAddr>, _> = self.unit.portals.iter().map(resolve).collect();
        Ok(Search {
            portals: portals?,
            target: Some(self.unit.name.clone()),
            unit: Wanted::Lun(Lun(self.unit.lun)),
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
    addresses.next().ok_or_else(|| failed(io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
}

/// What happens to paths is told on standard error, as long as somebody reads that.
fn start_log() {
    tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_max_level(tracing::Level::INFO)
        .with_target(false)
        .with_ansi(false)
        .with_writer(io::stderr)
        .init();
}

/// The core that has the unit.
struct Core {
    running: Running,
    /// Bytes of the unit.
    size: u64,
    stop: Sender<()>,
    /// How the end went.
    closed: mpsc::Receiver<Result<(), AttachError>>,
}

/// What the core is started with.
struct Start {
    search: Search,
    options: MultipathOptions,
    opened: mpsc::Sender<Result<u64, OpenError>>,
    stop: Receiver<()>,
    closed: mpsc::Sender<Result<(), AttachError>>,
}

impl Core {
    /// Opens the unit on a core of its own.
    fn start(search: Search, options: MultipathOptions) -> Result<Core, AttachError> {
        let (opened, opening) = mpsc::channel();
        let (stop, stopping) = oneshot();
        let (close, closed) = mpsc::channel();
        let start = Start { search, options, opened, stop: stopping, closed: close };
        // A function that could be called for several cores; there is one.
        let start = Arc::new(Mutex::new(Some(start)));
        let config = Config { processors: vec![0], pin: false, poll: Duration::ZERO };
        let running = Running::start(config, move |_: CoreId| {
            let start = start.lock().ok().and_then(|mut start| start.take());
            async move {
                if let Some(start) = start {
                    start.carry_out().await;
                }
            }
        })?;
        match opening.recv() {
            Ok(Ok(size)) => Ok(Core { running, size, stop, closed }),
            Ok(Err(error)) => {
                running.join();
                Err(error.into())
            }
            Err(_) => {
                running.join();
                unreachable!("a core that says nothing has panicked, and joining it says so")
            }
        }
    }

    /// Makes all that was written durable, and logs out.
    fn stop(self) -> Result<(), AttachError> {
        self.stop.send(());
        self.running.join();
        self.closed.recv().unwrap_or(Ok(()))
    }
}

impl Start {
    async fn carry_out(self) {
        let unit = match Multipath::open(&self.search, self.options).await {
            Ok(unit) => unit,
            // The other side waits for it.
            Err(error) => return drop(self.opened.send(Err(error))),
        };
        let disk = Rc::new(Disk::new(unit).await);
        rt::set_local(Rc::clone(&disk));
        let _ = self.opened.send(Ok(disk.size()));
        let _ = self.stop.await;
        let flushed = match rt::timeout(CLOSE_LIMIT, disk.flush()).await {
            Ok(result) => result.map_err(|error| AttachError::Flush(error.to_string())),
            Err(_) => Err(AttachError::Flush(format!("no answer within {} s", CLOSE_LIMIT.as_secs()))),
        };
        rt::set_local(Rc::new(()));
        if let Some(disk) = Rc::into_inner(disk) {
            // Whoever does not answer is left without a word.
            let _ = rt::timeout(CLOSE_LIMIT, disk.close()).await;
        }
        let _ = self.closed.send(flushed);
    }
}
