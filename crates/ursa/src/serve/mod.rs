//! `ursa serve`: settings, threads, signals.
//!
//! The node's cores are threads of their own, and nothing else runs on them. The thread `control` has tokio: signals, the
//! HTTP interface, and all that is asked of the node from outside, by messages. The first thread waits for the cores.

mod cores;
mod data_dir;
mod first_volume;
mod given;
mod limits;
mod logging;
mod settings;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use node::control::StartError;
use node::{DefaultPool, Handle};
use rt::CoreId;
use rt::sync::{Receiver, oneshot};
use rt::uring::{self, Running};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::data_dir::DataDirError;
use self::first_volume::FirstVolumeError;
use self::given::FileError;
pub use self::given::Given;

use self::settings::{Settings, SettingsError};
use crate::cli::{Outcome, attach_lines};
use crate::size::Size;

/// `ursa serve` ended otherwise than by a signal.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The file of settings.
    #[error(transparent)]
    File(#[from] FileError),
    /// The settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The log filter.
    #[error("{0:?} is not a log filter: write info, or info,node=debug")]
    Log(String, #[source] tracing_subscriber::filter::ParseError),
    /// The data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The cores.
    #[error(transparent)]
    Cores(#[from] uring::StartError),
    /// The control thread.
    #[error("cannot start the control thread")]
    Control(#[source] std::io::Error),
    /// Somebody else serves from this directory.
    #[error("another ursa runs on {0}: stop that one, or start this one with another --data-dir")]
    Running(std::path::PathBuf),
    /// The node.
    #[error(transparent)]
    Node(StartError),
    /// A volume of `--volume`.
    #[error(transparent)]
    Volume(#[from] FirstVolumeError),
    /// A core panicked.
    #[error(
        "the node has stopped by a defect of the program: please report the panic above; what was acknowledged as durable is on the disks"
    )]
    Panicked,
}

impl Outcome for ServeError {
    fn code(&self) -> u8 {
        match self {
            ServeError::Panicked => 4,
            ServeError::File(_) | ServeError::Settings(_) | ServeError::Log(..) => 2,
            _ => 1,
        }
    }
}

/// Serves until a signal.
///
/// # Errors
/// See [`ServeError`].
pub fn main(given: Given) -> Result<(), ServeError> {
    let print_config = given.print_config;
    let settings = Settings::of(given.with_file()?)?;
    if print_config {
        print!("{}", settings.to_toml());
        return Ok(());
    }
    logging::start(&settings.log, settings.log_format)
        .map_err(|error| ServeError::Log(settings.log.clone(), error))?;
    limits::raise();
    data_dir::prepare(&settings.node.data_dir)?;
    let default_pool = default_pool(&settings)?;
    run(settings, default_pool)
}

fn default_pool(settings: &Settings) -> Result<Option<DefaultPool>, ServeError> {
    let path = settings.default_pool_path();
    let size = match settings.pool_size {
        Some(Size(0)) => return Ok(None),
        Some(Size(size)) => base::ByteLen(size),
        // It will not be made again; how much is free by now does not matter.
        None if path.exists() => base::ByteLen(store::DISK_BYTES_MIN),
        None => data_dir::first_pool_size(&settings.node.data_dir)?,
    };
    Ok(Some(DefaultPool { path, size }))
}

fn run(settings: Settings, default_pool: Option<DefaultPool>) -> Result<(), ServeError> {
    let (ready, started) = oneshot();
    // The cores' main is made on each of them; what only core 0 gets waits here for it.
    let start = Arc::new(Mutex::new(Some((default_pool, ready))));
    let config = Arc::new(settings.node.clone());
    let main = move |core| {
        let config = Arc::clone(&config);
        let start = match core {
            CoreId(0) => start.lock().ok().and_then(|mut start| start.take()),
            _ => None,
        };
        node::run(config, start)
    };
    let (processors, pin) = settings.cores.processors();
    let running = Running::start(uring::Config { processors, pin, poll: settings.poll }, main)?;
    let cores = running.handle();
    let control = std::thread::Builder::new()
        .name("control".into())
        .spawn(move || control(&settings, &cores, started))
        .map_err(ServeError::Control)?;
    // A panic was printed when it happened.
    let cores = catch_unwind(AssertUnwindSafe(|| running.join()));
    let control = control.join();
    match (cores, control) {
        (Ok(()), Ok(result)) => result,
        _ => Err(ServeError::Panicked),
    }
}

/// What the control thread does. The node runs on if this ends early with a panic; it does not by an error.
fn control(settings: &Settings, cores: &rt::Handle, started: Started) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let node = Handle::new(cores.clone());
    let result = match runtime {
        Ok(runtime) => runtime.block_on(async {
            let served = serve(settings, cores, &node, started).await;
            // Only a start that failed half-way finds the node running.
            if served.is_err() {
                node.drain().await;
            }
            served
        }),
        Err(error) => Err(ServeError::Control(error)),
    };
    if let Err(ServeError::Control(_)) = result {
        // Nobody could stop the node any more.
        std::process::abort();
    }
    result
}

type Started = Receiver<Result<Vec<SocketAddr>, StartError>>;

async fn serve(
    settings: &Settings,
    cores: &rt::Handle,
    node: &Handle,
    started: Started,
) -> Result<(), ServeError> {
    let mut signals = Signals::new().map_err(ServeError::Control)?;
    let portals = match started.await {
        Ok(Ok(portals)) => portals,
        Ok(Err(error)) => return Err(start_error(settings, error)),
        // The cores have stopped, and the first thread knows why.
        Err(_) => return Ok(()),
    };
    for volume in settings.volumes.clone() {
        volume.make(node).await?;
    }
    greet(settings, &portals);
    let stopped = cores.call(CoreId(0), std::future::pending::<()>);
    tokio::select! {
        () = signals.next() => {}
        _ = stopped => return Ok(()),
    }
    tracing::info!("stopping: sessions are asked to log out; a second signal stops at once");
    tokio::select! {
        () = node.drain() => Ok(()),
        () = signals.next() => {
            tracing::warn!("stopped by a second signal, without waiting for sessions");
            std::process::exit(STOPPED_AT_ONCE);
        }
    }
}

/// As a shell reports a program that a signal has ended: 128 and SIGINT.
const STOPPED_AT_ONCE: i32 = 130;

fn start_error(settings: &Settings, error: StartError) -> ServeError {
    match error {
        StartError::Record(node::RecordError::Open(rt::OpenError::InUse(_))) => {
            ServeError::Running(settings.node.data_dir.clone())
        }
        error => ServeError::Node(error),
    }
}

/// Tells people where the node is and what they can do now. Programs read the log, or ask the API.
fn greet(settings: &Settings, portals: &[SocketAddr]) {
    let portals: Vec<String> = portals.iter().map(SocketAddr::to_string).collect();
    println!("ursa {} serves as {:?}", env!("CARGO_PKG_VERSION"), settings.node.name);
    println!("  iSCSI  {}", portals.join(", "));
    println!("  API    http://{}", settings.api_listen);
    println!("  state  {}", settings.node.data_dir.display());
    for volume in &settings.volumes {
        println!("\nVolume {} for this machine:", volume.name);
        print!("{}", attach_lines(&portals, &api::default_target(&volume.name), true));
    }
    // The command line finds a node at the usual address by itself.
    let usual = settings.api_listen.to_string() == api::DEFAULT_LISTEN;
    let api = if usual { String::new() } else { format!(" --api http://{}", settings.api_listen) };
    println!("\nTo make a volume and learn how to attach it:\n  ursa volume create db --size 10G{api}");
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
