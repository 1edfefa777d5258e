//! tgt, a target that we did not write: the tests are validated with it before they judge ours.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::{Export, VolumeSpec, node, ports, program};

/// A running `tgtd` with its own control socket and ports.
pub struct Tgt {
    process: Option<Child>,
    portals: Vec<SocketAddr>,
    /// The number that selects tgtd's control socket: the first port, which is free.
    control: String,
    volumes: Vec<VolumeSpec>,
    data: TempDir,
}

impl Tgt {
    /// Starts it with two portals.
    pub fn start() -> Tgt {
        let portals = vec![ports::free(), ports::free()];
        let control = portals[0].port().to_string();
        let data = TempDir::new().expect("a temporary directory can be made");
        let mut tgt = Tgt { process: None, portals, control, volumes: Vec::new(), data };
        tgt.restart();
        tgt
    }

    /// Creates a target with one unit.
    pub fn create(&mut self, spec: &VolumeSpec) -> Export {
        let file = std::fs::File::create(self.data.path().join(&spec.name)).expect("a file can be made");
        file.set_len(spec.size).expect("a file can be sparse");
        self.volumes.push(spec.clone());
        self.show(self.volumes.len(), spec);
        Export { portals: self.portals.clone(), target: target_name(spec), lun: 1, chap: spec.chap.clone() }
    }

    /// Kills it.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().expect("it runs");
        process.wait().expect("it can be waited for");
    }

    /// Starts it again with the same targets.
    pub fn restart(&mut self) {
        let mut command = Command::new("tgtd");
        command.args(["-f", "-C", &self.control]);
        let portals: Vec<String> = self.portals.iter().map(|portal| format!("portal={portal}")).collect();
        command.args(["--iscsi", &portals.join(",")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("tgtd starts (apt-get install tgt)"));
        while !self.admin(&["--mode", "system", "--op", "show"]).ok() {
            thread::sleep(Duration::from_millis(50));
        }
        for (index, spec) in self.volumes.iter().enumerate() {
            self.show(index + 1, spec);
        }
    }

    /// The directory of its backing files.
    pub fn data_dir(&self) -> &Path {
        self.data.path()
    }

    /// Its resident memory, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        node::resident_bytes(self.process.as_ref().expect("it runs").id())
    }

    fn show(&self, id: usize, spec: &VolumeSpec) {
        let id = &id.to_string();
        let file = self.data.path().join(&spec.name);
        let file = file.to_str().expect("our own path");
        let block_size = &spec.block_size.to_string();
        let target = &target_name(spec);
        let new = ["--mode", "logicalunit", "--op", "new", "--tid", id, "--lun", "1"];
        self.admin(&["--mode", "target", "--op", "new", "--tid", id, "-T", target]).expect_ok();
        self.admin(&[&new[..], &["--blocksize", block_size, "-b", file]].concat()).expect_ok();
        let update = ["--mode", "logicalunit", "--op", "update", "--tid", id, "--lun", "1"];
        self.admin(&[&update[..], &["--params", "thin_provisioning=1"]].concat()).expect_ok();
        if let Some(chap) = &spec.chap {
            let account = ["--mode", "account", "--user", &chap.name];
            self.admin(&[&account[..], &["--op", "new", "--password", &chap.secret]].concat()).expect_ok();
            self.admin(&[&account[..], &["--op", "bind", "--tid", id]].concat()).expect_ok();
        }
        self.admin(&["--mode", "target", "--op", "bind", "--tid", id, "-I", "ALL"]).expect_ok();
    }

    fn admin(&self, arguments: &[&str]) -> program::Finished {
        let mut command = Command::new("tgtadm");
        command.args(["-C", &self.control, "--lld", "iscsi"]).args(arguments);
        program::run(&mut command, Duration::from_secs(10))
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}

fn target_name(spec: &VolumeSpec) -> String {
    format!("iqn.2026-11.e2e.tgt:{}", spec.name)
}
