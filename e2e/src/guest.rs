//! A Linux guest with the kernel's own initiator, as a client of a server outside of it (see
//! `e2e/guest/README.md`).

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

use crate::Export;
use crate::node;
use crate::program::{self, Finished};

/// The build of the image takes 90 seconds on a busy machine, and another test process may be building it.
const BUILD_LIMIT: Duration = Duration::from_secs(900);
/// A guest's boot takes a minute on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(720);
/// For the creation of a disk with our own program.
const PACK_LIMIT: Duration = Duration::from_secs(120);
/// For one script. Emulation is slow: they take seconds on an idle machine.
const SCRIPT_LIMIT: Duration = Duration::from_secs(600);
/// A running guest.
pub struct Guest {
    name: String,
    _turn: Turn,
}

/// A guest's turn: as many guests run at a time as there are processors.
///
/// Each occupies one, and the other tests measure times.
struct Turn;

static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

impl Turn {
    fn take() -> Turn {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let running = RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = RUNNING.1.wait_while(running, |running| *running >= processors);
        *room.unwrap_or_else(PoisonError::into_inner) += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        RUNNING.1.notify_one();
    }
}

impl Guest {
    /// Starts a guest with two network cards when it has its turn, and builds the image first if necessary.
    ///
    /// `None` if `URSA_E2E_SKIP` is `guest`.
    pub fn start(name: &str) -> Option<Guest> {
        Guest::start_as(name, &["--nics", "2"])
    }

    /// The same without a network, and with a clock that stops while the guest gets no processor.
    ///
    /// So timeouts in the guest do not depend on how busy the machine is.
    pub fn start_with_own_time(name: &str) -> Option<Guest> {
        Guest::start_as(name, &["--own-time"])
    }

    fn start_as(name: &str, how: &[&str]) -> Option<Guest> {
        if env::var("URSA_E2E_SKIP").is_ok_and(|what| what == "guest") {
            println!("skipped: URSA_E2E_SKIP=guest");
            return None;
        }
        static BUILT: Once = Once::new();
        BUILT.call_once(|| {
            program::run(&mut Command::new(dir().join("build")), BUILD_LIMIT).expect_ok();
        });
        let turn = Turn::take();
        let name = format!("{name}-{}", std::process::id());
        let guest = Guest { name, _turn: turn };
        program::run(vm().args(["start", &guest.name]).args(how), START_LIMIT).expect_ok();
        Some(guest)
    }

    /// Brings the program under test into the guest, as `ursa` on the squashfs of `/dev/vdb`, without debug
    /// information.
    #[track_caller]
    pub fn bring_program(&self) {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let (folder, image) = (dir.path().join("program"), dir.path().join("program.img"));
        std::fs::create_dir(&folder).expect("a directory can be made");
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(folder.join("ursa")).arg(node::binary());
        program::run(&mut strip, PACK_LIMIT).expect_ok();
        let mut pack = Command::new("mksquashfs");
        pack.args([&folder, &image]).args(["-all-root", "-comp", "lz4", "-quiet", "-no-progress"]);
        program::run(&mut pack, PACK_LIMIT).expect_ok();
        // Once plugged in, the image is open, and needs no name any more.
        program::run(vm().args(["disk", &self.name]).arg(&image), START_LIMIT).expect_ok();
    }

    /// The portals as the guest reaches them, each through its own network card.
    pub fn portals(export: &Export) -> Vec<String> {
        let portals = export.portals.iter().enumerate();
        portals.map(|(i, portal)| format!("10.0.{}.2:{}", 2 + i, portal.port())).collect()
    }

    /// Runs a script with the shell variables TARGET and PORTALS set to `export`, as the guest reaches it.
    pub fn run(&self, export: &Export, variables: &str, script: &str) -> Finished {
        let portals = Guest::portals(export).join(" ");
        let variables = format!("TARGET={} PORTALS='{portals}'\n{variables}", export.target);
        self.run_alone(&variables, script)
    }

    /// Runs a script that needs no server outside.
    pub fn run_alone(&self, variables: &str, script: &str) -> Finished {
        let mut file = tempfile::tempfile().expect("a temporary file can be made");
        write!(file, "{variables}\n{script}").expect("it can be written");
        std::io::Seek::rewind(&mut file).expect("a file can be rewound");
        let limit = SCRIPT_LIMIT.as_secs().to_string();
        let mut command = vm();
        command.args(["run", &self.name, "-t", &limit]);
        let finished = program::run_with_input(&mut command, Stdio::from(file), SCRIPT_LIMIT * 2);
        println!("{}", finished.output);
        finished
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = program::run(vm().args(["kill", &self.name]), START_LIMIT);
    }
}

fn vm() -> Command {
    Command::new(dir().join("vm.py"))
}

fn dir() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("guest")
}
