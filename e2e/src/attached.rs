//! A unit as a file of this host, by `ursa attach`, and a file system on it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::{node, program};

/// From the start until the file is present.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// From a signal to the end.
const DETACH_LIMIT: Duration = Duration::from_secs(30);

/// For a program that creates or uses file systems.
const PROGRAM_LIMIT: Duration = Duration::from_secs(120);

/// A file that presents a unit. Dropping it detaches the unit, even if it is in use.
pub struct Attached {
    process: Option<Child>,
    directory: PathBuf,
    log: PathBuf,
}

impl Attached {
    /// Attaches the unit in `directory`, which must be empty or missing.
    #[track_caller]
    pub fn new(url: &str, directory: &Path, options: &[&str]) -> Attached {
        let log = directory.with_extension("log");
        let output = File::options().create(true).append(true).open(&log).expect("a log can be made");
        let mut command = Command::new(node::binary());
        command.args(["attach", url, "--path"]).arg(directory).args(options);
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(output)
            .spawn()
            .expect("the binary was built");
        let stdout = process.stdout.take().expect("it was asked for");
        let attached = Attached { process: Some(process), directory: directory.to_owned(), log };
        // It prints one line when the file is present.
        let (said, line) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(stdout).read_line(&mut line);
            let _ = said.send(line);
        });
        let line = line.recv_timeout(READY_LIMIT).unwrap_or_default();
        assert!(line.contains("/disk is iscsi://"), "{line}\n{}", attached.log());
        attached
    }

    /// The file.
    pub fn file(&self) -> PathBuf {
        self.directory.join("disk")
    }

    /// All that it has printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends SIGTERM.
    pub fn ask_to_end(&self) {
        kill_process(Pid::from_child(self.process.as_ref().expect("it runs")), Signal::TERM)
            .expect("it runs");
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        let process = self.process.as_mut().expect("nobody has waited for it");
        process.try_wait().expect("a child can be waited for").is_none()
    }

    /// Waits for its end, which must be a success.
    #[track_caller]
    pub fn wait(mut self) {
        let mut process = self.process.take().expect("it runs");
        let status = program::wait(&mut process, DETACH_LIMIT);
        if status.is_none() {
            let _ = process.kill();
        }
        assert!(status.is_some_and(|status| status.success()), "{status:?}\n{}", self.log());
        assert!(!self.file().exists(), "the mount is gone");
    }

    /// Asks it to end, and waits until it has.
    #[track_caller]
    pub fn detach(self) {
        self.ask_to_end();
        self.wait();
    }

    /// Kills it, which leaves a mount without a process that serves it.
    pub fn kill(mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().expect("it runs");
        process.wait().expect("it can be waited for");
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        if thread::panicking() {
            eprintln!("--- log of the attachment\n{}\n---", self.log());
        }
        let _ = process.kill();
        let _ = process.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.directory).stderr(Stdio::null()).status();
    }
}

/// Whether loop devices and mounts are possible here: only root may create them. Prints so if not.
pub fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root();
    if !can {
        println!("skipped: only root can make loop devices and mount them");
    }
    can
}

/// A loop device on a file, with direct I/O. Dropping it detaches the device.
pub struct Loop(Option<String>);

impl Loop {
    /// Creates a loop device.
    #[track_caller]
    pub fn new(file: &Path) -> Loop {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--direct-io=on"]).arg(file);
        Loop(Some(program::run(&mut command, PROGRAM_LIMIT).expect_ok().trim().to_owned()))
    }

    /// Its name.
    pub fn device(&self) -> &str {
        self.0.as_deref().expect("it is there")
    }

    /// Detaches it.
    #[track_caller]
    pub fn detach(mut self) {
        let device = self.0.take().expect("it is there");
        run("losetup", &["--detach", &device]);
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(device) = &self.0 {
            let _ = Command::new("losetup").args(["--detach", device]).stderr(Stdio::null()).status();
        }
    }
}

/// A mounted file system. Dropping it unmounts it, even if it is in use.
pub struct Mounted(Option<PathBuf>);

impl Mounted {
    /// Mounts a device.
    #[track_caller]
    pub fn new(device: &str, directory: &Path) -> Mounted {
        let path = directory.to_str().expect("our own path");
        run("mount", &[device, path]);
        Mounted(Some(directory.to_owned()))
    }

    /// Mounts an empty file system in memory with this capacity, in bytes.
    #[track_caller]
    pub fn small(bytes: usize, directory: &Path) -> Mounted {
        let path = directory.to_str().expect("our own path");
        run("mount", &["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs", path]);
        Mounted(Some(directory.to_owned()))
    }

    /// Unmounts it.
    #[track_caller]
    pub fn unmount(mut self) {
        let directory = self.0.take().expect("it is mounted");
        run("umount", &[directory.to_str().expect("our own path")]);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(directory) = &self.0 {
            let _ = Command::new("umount").arg("-l").arg(directory).stderr(Stdio::null()).status();
        }
    }
}

/// Runs a program that must succeed, and returns what it printed.
#[track_caller]
pub fn run(name: &str, arguments: &[&str]) -> String {
    program::run(Command::new(name).args(arguments), PROGRAM_LIMIT).expect_ok()
}
