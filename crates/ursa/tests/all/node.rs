//! A node as a process, with a directory and ports of its own.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub use e2e::ports::free as free_address;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Limit for a start, a stop or a response: far more than a busy machine needs.
const LIMIT: Duration = Duration::from_secs(60);

/// A running `ursa serve`.
pub struct Node {
    process: Child,
    pub api: SocketAddr,
    pub portal: SocketAddr,
    pub directory: TempDir,
}

impl Node {
    /// Starts a node with a pool of 8 GiB and these arguments.
    pub fn start(arguments: &[&str]) -> Node {
        Node::start_in(TempDir::new().unwrap(), arguments)
    }

    /// Starts a node with the directory of an earlier one.
    pub fn start_in(directory: TempDir, arguments: &[&str]) -> Node {
        let log = File::options().create(true).append(true).open(directory.path().join("log")).unwrap();
        Node::start_with_log(directory, arguments, log)
    }

    /// Starts a node that logs to `log`.
    pub fn start_with_log(directory: TempDir, arguments: &[&str], log: impl Into<Stdio>) -> Node {
        let (api, portal) = (free_address(), free_address());
        let mut command = serve(&directory.path().join("data"), portal, api);
        command.args(arguments).stdout(Stdio::piped()).stderr(log);
        let mut process = command.spawn().unwrap();
        wait_for_greeting(&mut process, directory.path());
        Node { process, api, portal, directory }
    }

    /// Runs a command against this node.
    pub fn ursa(&self, arguments: &[&str]) -> Output {
        ursa(arguments).env("URSA_API", format!("http://{}", self.api)).output().unwrap()
    }

    /// The text of a command that must succeed.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.ursa(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The JSON of a command that must succeed.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// The error message of a command that must fail with this exit code.
    #[track_caller]
    pub fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.ursa(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Kills the node with SIGKILL; returns its directory.
    pub fn kill(mut self) -> TempDir {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        std::mem::replace(&mut self.directory, TempDir::new().unwrap())
    }

    /// Stops the node with SIGTERM; returns its directory and its exit status.
    pub fn stop(mut self) -> (TempDir, ExitStatus) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        let end = Instant::now() + LIMIT;
        let status = loop {
            match self.process.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < end, "it does not stop"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        (std::mem::replace(&mut self.directory, TempDir::new().unwrap()), status)
    }

    /// Resident memory without the pages of files, from /proc/PID/status.
    ///
    /// The kernel reads in more or less of a binary as it has room, and one for tests is large.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// CPU time of all threads so far.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let behind_name: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        // Fields 14 and 15 of proc(5), in hundredths of a second. Field 2 is the name.
        let ticks: u64 = behind_name[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.directory.path().join("log"));
            eprintln!("--- log of the node\n{}---", log.unwrap_or_default());
        }
    }
}

/// The binary with these arguments, without settings from this environment.
pub fn ursa(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ursa"));
    command.args(arguments).env_remove("URSA_API").env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    command
}

/// `ursa serve`, not started yet.
pub fn serve(data: &Path, portal: SocketAddr, api: SocketAddr) -> Command {
    let mut command = ursa(&["serve", "--pool-size", "8G", "--data-dir"]);
    command.arg(data).args(["--iscsi-listen", &portal.to_string(), "--api-listen", &api.to_string()]);
    command
}

fn wait_for_greeting(process: &mut Child, directory: &Path) {
    let stdout = process.stdout.take().unwrap();
    let (greeted, greeting) = mpsc::channel();
    std::thread::spawn(move || {
        // Read all output to its end: a full pipe would block the node.
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if line.contains("ursa volume create") {
                let _ = greeted.send(());
            }
        }
    });
    if greeting.recv_timeout(LIMIT).is_err() {
        let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
        panic!("it does not start ({:?}):\n{log}", process.try_wait());
    }
}
