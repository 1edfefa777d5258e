//! `ursa serve`: settings, threads, signals.
//!
//! Each of the node's cores has a thread, on which nothing else runs. The thread `control` runs tokio:
//! signals, the HTTP interface, and all other requests from outside, which it passes to the node as messages.
//! The main thread waits for the cores.

mod affinity;
mod control;
mod data_dir;
mod first_volume;
mod given;
mod greeting;
mod limits;
mod logging;
mod machine;
mod set_up_link;
mod settings;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use node::control::StartError;
use node::{DefaultPool, Handle, StartSpec};
use rt::CoreId;
use rt::sync::oneshot;
use rt::uring::{self, Running};
use terms::exit::{Outcome, with_causes};
use terms::size::Size;

use self::control::Control;
use self::data_dir::DataDirError;
use self::first_volume::FirstVolume;
use self::given::FileError;
pub use self::given::Given;

use self::settings::{Settings, SettingsError};
use crate::devices;
use crate::http::{CertificateError, Shared};

/// Why `ursa serve` failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum ServeError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("{0:?} is not a log filter: use info, or info,node=debug")]
    Log(String, #[source] tracing_subscriber::filter::ParseError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Cores(#[from] uring::StartError),
    /// The control thread, or the thread for network devices, cannot be started.
    #[error("cannot start the control thread")]
    Control(#[source] std::io::Error),
    #[error("another ursa is running on {0}: stop it, or start this one with another --data-dir")]
    Running(std::path::PathBuf),
    #[error("{}", not_started(.0))]
    Node(StartError),
    #[error(
        "cannot listen for the API at {0}: is another ursa running there? Choose another address with --api-listen"
    )]
    Api(SocketAddr, #[source] std::io::Error),
    /// The audit log, or the thread for passwords, cannot be started.
    #[error("cannot start the API (its audit log is in {0})")]
    Access(std::path::PathBuf, #[source] std::io::Error),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(
        "the node was stopped by a bug in the program: please report the panic above. Data acknowledged as durable is on the disks"
    )]
    Panicked,
}

fn not_started(error: &StartError) -> String {
    let text = with_causes(error);
    match error.hint() {
        Some(hint) => format!("{text}: {hint}"),
        None => text,
    }
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

/// Serves until a signal arrives.
pub fn main(given: Given) -> Result<(), ServeError> {
    let print_config = given.print_config;
    let settings = Settings::of(given.with_file()?)?;
    let filter =
        logging::filter(&settings.log).map_err(|error| ServeError::Log(settings.log.clone(), error))?;
    if print_config {
        print!("{}", settings.to_toml());
        return Ok(());
    }
    logging::start(filter, settings.log_format);
    data_dir::keep_private();
    limits::raise();
    affinity::leave_cores_alone(&settings.cores);
    if let Some(marker) = &settings.state_marker {
        data_dir::check_marker(marker, &settings.node.data_dir)?;
    }
    data_dir::prepare(&settings.node.data_dir)?;
    let volumes = settings.volumes.iter().map(FirstVolume::new_volume).collect();
    let wanted = StartSpec { pool: default_pool(&settings)?, volumes };
    run(settings, wanted)
}

fn default_pool(settings: &Settings) -> Result<Option<DefaultPool>, ServeError> {
    let path = settings.default_pool_path();
    let size = match settings.pool_size {
        Some(Size(0)) => return Ok(None),
        Some(Size(size)) => base::ByteLen(size),
        // The pool exists and is not created again, so the free space does not matter.
        None if path.exists() => base::ByteLen(store::DISK_BYTES_MIN),
        None => data_dir::first_pool_size(&settings.node.data_dir)?,
    };
    Ok(Some(DefaultPool { path, size }))
}

fn run(settings: Settings, wanted: StartSpec) -> Result<(), ServeError> {
    let (ready, started) = oneshot();
    // Each core calls the function below; what only core 0 gets waits here for it.
    let start = Arc::new(Mutex::new(Some((wanted, ready))));
    let shared = Shared::start(&settings.node.data_dir);
    let devices = devices::devices().map_err(ServeError::Control)?;
    let config =
        Arc::new(node::Config { peer_requests: shared.peer_requests(), devices, ..settings.node.clone() });
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
    let control = Control {
        settings,
        node: Handle::new(running.handle()),
        cores: running.handle(),
        shared,
        core_stats: Arc::new(running.stats_reader()),
    };
    let control = std::thread::Builder::new()
        .name("control".into())
        .spawn(move || control.run(started))
        .map_err(ServeError::Control)?;
    // The panic message was printed when it happened.
    let cores = catch_unwind(AssertUnwindSafe(|| running.join()));
    let control = control.join();
    match (cores, control) {
        (Ok(()), Ok(result)) => result,
        _ => Err(ServeError::Panicked),
    }
}

#[cfg(test)]
mod tests {
    use node::control::ControlError;

    use super::*;

    #[test]
    fn a_start_that_failed_says_what_to_do() {
        let failed = StartError::Volume("demo".into(), ControlError::NoPool);
        let said = with_causes(&ServeError::Node(failed));
        let text = "cannot create volume \"demo\": no pool exists yet: create one with `ursa pool create`";
        assert_eq!(said, text);
    }
}
