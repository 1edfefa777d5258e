//! Runs external programs, with a time limit, and names the package of a missing one.

use std::fmt;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How a program ended.
#[derive(Debug)]
pub struct Finished {
    /// `None`: it was killed at its time limit.
    pub status: Option<ExitStatus>,
    /// All that it printed, standard output first.
    pub output: String,
    /// Standard output alone.
    pub stdout: String,
    /// The command, for messages.
    pub command: String,
}

impl Finished {
    /// Whether it ended in time with status 0.
    pub fn ok(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Standard output of a program that must succeed.
    #[track_caller]
    pub fn expect_ok(self) -> String {
        assert!(self.ok(), "{self}");
        self.stdout
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "`{}` ended with {status}:\n{}", self.command, self.output),
            None => write!(f, "`{}` did not end in time:\n{}", self.command, self.output),
        }
    }
}

/// Runs `command` to its end, for `limit` at most.
///
/// # Panics
/// If the program is not installed: the message names its Debian package.
#[track_caller]
pub fn run(command: &mut Command, limit: Duration) -> Finished {
    run_with_input(command, Stdio::null(), limit)
}

/// As [`run`], with standard input.
///
/// # Panics
/// As [`run`].
#[track_caller]
pub fn run_with_input(command: &mut Command, input: Stdio, limit: Duration) -> Finished {
    let name = format!("{command:?}").replace('"', "");
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let program = command.get_program().to_string_lossy().into_owned();
            panic!("{program} is not installed: apt-get install {}", package_of(&program))
        }
        Err(error) => panic!("{name}: {error}"),
    };
    let stdout = drain(child.stdout.take().expect("it was asked for"));
    let stderr = drain(child.stderr.take().expect("it was asked for"));
    let status = wait(&mut child, limit);
    if status.is_none() {
        // A grandchild may keep the pipes open, but then only the reading threads continue after this call.
        let _ = child.kill();
        let _ = child.wait();
    }
    let stdout = stdout.join().expect("reading does not panic");
    let output = format!("{stdout}{}", stderr.join().expect("reading does not panic"));
    Finished { status, output, stdout, command: name }
}

/// Waits for the end of `child`, for `limit` at most.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        if Instant::now() > end {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn package_of(program: &str) -> &str {
    match program {
        "iscsi-test-cu" | "iscsi-ls" | "iscsi-inq" | "iscsi-swp" | "iscsi-dd" | "iscsi-readcapacity16" => {
            "libiscsi-bin"
        }
        "qemu-img" | "qemu-io" => "qemu-utils qemu-block-extra",
        "qemu-system-x86_64" => "qemu-system-x86",
        "mkfs.ext4" | "e2fsck" => "e2fsprogs",
        "nbdcopy" | "nbdinfo" => "libnbd-bin",
        "losetup" | "mount" | "umount" => "mount",
        "tgtd" | "tgtadm" => "tgt",
        "strip" => "binutils",
        "mksquashfs" => "squashfs-tools",
        other => other,
    }
}
