//! The built `ursa` binary as a process, on free ports, with its own data directory.
//!
//! Only this file knows its command line in detail.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{self, Finished};
use crate::{Chap, Export, Kind, VolumeSpec, ports};

/// The size of the pool that a first start creates, a sparse file.
const POOL_SIZE: &str = "4G";
/// Memory for the data of all commands, in bytes: far below what greedy clients request.
pub const DATA_MAX: u64 = 128 << 20;
/// From start to ready. Recovery of small pools takes far less, but the machine may be busy.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// From SIGTERM to the end.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);
/// For one command of the command line.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// A node of our own.
pub struct Node {
    process: Option<Child>,
    portals: Vec<SocketAddr>,
    api: SocketAddr,
    data: TempDir,
    /// Settings beyond those of every node here.
    settings: Vec<String>,
}

impl Node {
    /// Builds `ursa` if necessary, starts it with two portals, and waits until it is ready.
    pub fn start() -> Node {
        Node::start_with(&[])
    }

    /// The same with further settings, as on the command line.
    pub fn start_with(settings: &[&str]) -> Node {
        let portals = vec![ports::free(), ports::free()];
        let data = TempDir::new().expect("a temporary directory can be made");
        let mut node = Node { process: None, portals, api: ports::free(), data, settings: Vec::new() };
        node.set(settings);
        node.restart();
        node
    }

    /// Sets the further settings that it has from its next start on.
    pub fn set(&mut self, settings: &[&str]) {
        self.settings = settings.iter().map(|&text| text.to_owned()).collect();
    }

    /// Starts it again after [`Node::kill`] or [`Node::stop`], on the same data and ports.
    pub fn restart(&mut self) {
        self.spawn();
        self.wait_until_ready();
    }

    fn spawn(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let log = File::options().create(true).append(true).open(self.log_path()).expect("a log can be made");
        let portals: Vec<String> = self.portals.iter().map(SocketAddr::to_string).collect();
        let mut command = Command::new(binary());
        command.arg("serve").arg("--data-dir").arg(self.data_dir());
        command.args(["--iscsi-listen", &portals.join(",")]);
        command.args(["--api-listen", &self.api.to_string()]);
        command.args(["--pool-size", POOL_SIZE, "--data-max", &DATA_MAX.to_string()]);
        command.args(&self.settings);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file has two owners")).stderr(log);
        self.process = Some(command.spawn().expect("the binary was built"));
    }

    /// Creates a volume with a target and maps it.
    pub fn create(&mut self, spec: &VolumeSpec) -> Export {
        let size = spec.size.to_string();
        let block_size = spec.block_size.to_string();
        let kind = match spec.kind {
            Kind::Thick => "thick",
            Kind::Ram => "ram",
            Kind::Log => "log",
        };
        let mut arguments = vec!["volume", "create", &spec.name, "--size", &size];
        arguments.extend(["--block-size", &block_size, "--kind", kind]);
        let group = format!("{}-users", spec.name);
        if let Some(chap) = &spec.chap {
            self.create_host_group(&group, chap);
            arguments.extend(["--host", &group]);
        }
        let answer = self.ursa_json(&arguments);
        let target = find_string(&answer, &|text| text.starts_with("iqn.")).expect("a target was made");
        let lun = find_key(&answer, "lun").and_then(Value::as_u64).unwrap_or(0);
        Export { portals: self.portals.clone(), target, lun, chap: spec.chap.clone() }
    }

    /// A group that any host with the secret belongs to, whatever its name.
    fn create_host_group(&self, name: &str, chap: &Chap) {
        let file = self.data.path().join("secret");
        fs::write(&file, &chap.secret).expect("a file can be written");
        let file = file.to_str().expect("our own path");
        self.ursa(&["host", "create", name, "--chap-user", &chap.name, "--chap-secret-file", file])
            .expect_ok();
    }

    /// Runs a command of the command line against this node.
    pub fn ursa(&self, arguments: &[&str]) -> Finished {
        let mut command = Command::new(binary());
        command.args(arguments).env("URSA_API", format!("http://{}", self.api));
        program::run(&mut command, COMMAND_LIMIT)
    }

    /// Runs a command that prints JSON.
    #[track_caller]
    pub fn ursa_json(&self, arguments: &[&str]) -> Value {
        let stdout = self.ursa(&[arguments, &["-o", "json"]].concat()).expect_ok();
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("not JSON ({error}): {stdout}"))
    }

    /// The node's metrics, as Prometheus text.
    pub fn metrics(&self) -> String {
        self.http_get("/metrics").expect("it answers")
    }

    /// Kills the process, so that it cannot end in an orderly way.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().expect("it runs");
        process.wait().expect("it can be waited for");
    }

    /// Stops it by SIGSTOP until the returned value is dropped: its connections stay open, but get no
    /// answers.
    pub fn freeze(&mut self) -> Frozen {
        let pid = Pid::from_child(self.process.as_ref().expect("it runs"));
        kill_process(pid, Signal::STOP).expect("it runs");
        Frozen(pid)
    }

    /// Makes its writes beyond this byte of a file fail (EFBIG), as on a disk with bad blocks; `None`: no
    /// more.
    ///
    /// The test limits the size of the process's files. Unlike device mapper's failing disks, that needs
    /// neither root nor kernel modules, and works on any file system and at run time. The process does not
    /// die of the signal that comes with the error: its cores take none. Its record, the largest of its other
    /// files, has 32 MiB.
    pub fn fail_writes_beyond(&self, bytes: Option<u64>) {
        let pid = Pid::from_child(self.process.as_ref().expect("it runs"));
        // The node has the same limits as this process.
        let Rlimit { current, maximum } = getrlimit(Resource::Fsize);
        let limit = Rlimit { current: bytes.or(current), maximum };
        prlimit(Some(pid), Resource::Fsize, limit).expect("it is ours, and the hard limit stays");
    }

    /// Asks it to end, and waits until it has.
    #[track_caller]
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("it runs");
        kill_process(Pid::from_child(&process), Signal::TERM).expect("it runs");
        match program::wait(&mut process, DRAIN_LIMIT) {
            Some(status) => {
                assert!(status.success(), "after SIGTERM it ended with {status}:\n{}", self.log())
            }
            None => {
                let _ = process.kill();
                let _ = process.wait();
                panic!("it did not end within {DRAIN_LIMIT:?} of SIGTERM:\n{}", self.log());
            }
        }
    }

    /// The addresses at which it listens for iSCSI.
    pub fn portals(&self) -> &[SocketAddr] {
        &self.portals
    }

    /// The address of its API.
    pub fn api(&self) -> SocketAddr {
        self.api
    }

    /// The directory of its state.
    pub fn data_dir(&self) -> &Path {
        self.data.path()
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Its resident memory, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(self.pid())
    }

    /// All that it has printed.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.data.path().with_extension("log")
    }

    fn wait_until_ready(&mut self) {
        let end = Instant::now() + READY_LIMIT;
        loop {
            if self.http_get("/v1/health").is_some() {
                return;
            }
            let process = self.process.as_mut().expect("it was started");
            if let Some(status) = process.try_wait().expect("a child can be waited for") {
                self.process = None;
                let log = self.log();
                // The reason comes first, because test reports cut long output in the middle.
                let reason = log.lines().last().unwrap_or_default();
                panic!("ursa serve ended with {status}: {reason}\n{log}");
            }
            assert!(Instant::now() < end, "ursa serve was not ready within {READY_LIMIT:?}:\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The body, if the status was 200.
    fn http_get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.api).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.api);
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
    }
}

/// A stopped node; it continues when this is dropped.
pub struct Frozen(Pid);

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- log of the node\n{}\n---", self.log());
        }
        if self.process.is_some() {
            self.kill();
        }
        let _ = fs::remove_file(self.log_path());
    }
}

/// Resident memory of a process, in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    memory_bytes(pid, "VmRSS:")
}

/// Memory of a process alone, in bytes: without mapped files, like the program, which processes share.
pub fn own_bytes(pid: u32) -> u64 {
    memory_bytes(pid, "RssAnon:")
}

fn memory_bytes(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with(field)).expect("a process has memory");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number");
    kib * 1024
}

/// The `ursa` binary of the profile of these tests, built once per run.
///
/// `URSA_E2E_BIN` names another one.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match env::var_os("URSA_E2E_BIN") {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

fn build() -> PathBuf {
    // TARGET/PROFILE/deps/all-HASH
    let test = env::current_exe().expect("a test knows its path");
    let profile_dir = test.ancestors().nth(2).expect("cargo puts tests in deps");
    let target_dir = profile_dir.parent().expect("cargo puts profiles in the target directory");
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet", "-p", "ursa", "--profile", profile, "--target-dir"]).arg(target_dir);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    program::run(&mut command, Duration::from_secs(1800)).expect_ok();
    profile_dir.join("ursa")
}

/// The first string in `value`, at any depth, that `wanted` accepts.
fn find_string(value: &Value, wanted: &dyn Fn(&str) -> bool) -> Option<String> {
    match value {
        Value::String(text) => wanted(text).then(|| text.clone()),
        Value::Array(items) => items.iter().find_map(|item| find_string(item, wanted)),
        Value::Object(fields) => fields.values().find_map(|field| find_string(field, wanted)),
        _ => None,
    }
}

/// The first field called `key`, at any depth.
fn find_key<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Array(items) => items.iter().find_map(|item| find_key(item, key)),
        Value::Object(fields) => {
            fields.get(key).or_else(|| fields.values().find_map(|field| find_key(field, key)))
        }
        _ => None,
    }
}
