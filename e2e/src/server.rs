//! The server of a test's clients.

use std::env;
use std::net::SocketAddr;

use crate::{Node, tgt::Tgt};

/// How the bytes of a volume are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On a disk, written in place.
    Thick,
    /// In memory.
    Ram,
    /// On a disk, log-structured.
    Log,
}

/// A name and a secret for one-way CHAP.
#[derive(Clone, Debug)]
pub struct Chap {
    /// The name that the initiator sends.
    pub name: String,
    /// At least twelve characters: some initiators refuse shorter ones.
    pub secret: String,
}

/// A volume to be created.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// Its name, unique on the server.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// 512 or 4096.
    pub block_size: u32,
    /// How its bytes are stored.
    pub kind: Kind,
    /// What an initiator needs to log in.
    pub chap: Option<Chap>,
}

impl VolumeSpec {
    /// A thick volume of 512-byte blocks, for all hosts.
    pub fn new(name: &str, size: u64) -> VolumeSpec {
        VolumeSpec { name: name.to_owned(), size, block_size: 512, kind: Kind::Thick, chap: None }
    }

    /// With another block size.
    pub fn block_size(self, block_size: u32) -> VolumeSpec {
        VolumeSpec { block_size, ..self }
    }

    /// Of another kind.
    pub fn kind(self, kind: Kind) -> VolumeSpec {
        VolumeSpec { kind, ..self }
    }

    /// Only for initiators that know the secret.
    pub fn chap(self, name: &str, secret: &str) -> VolumeSpec {
        VolumeSpec { chap: Some(Chap { name: name.to_owned(), secret: secret.to_owned() }), ..self }
    }
}

/// A volume as initiators reach it.
#[derive(Clone, Debug)]
pub struct Export {
    /// The addresses of the target; two addresses are two paths.
    pub portals: Vec<SocketAddr>,
    /// The target's name.
    pub target: String,
    /// The volume's LUN.
    pub lun: u64,
    /// What an initiator needs to log in.
    pub chap: Option<Chap>,
}

impl Export {
    /// The URL for libiscsi and QEMU, through one of the portals.
    pub fn url(&self, portal: usize) -> String {
        let login = match &self.chap {
            Some(chap) => format!("{}%{}@", chap.name, chap.secret),
            None => String::new(),
        };
        format!("iscsi://{login}{}/{}/{}", self.portals[portal], self.target, self.lun)
    }
}

/// The server under test.
pub enum Server {
    /// Ours.
    Node(Node),
    /// tgt, to validate the tests.
    Tgt(Tgt),
}

impl Server {
    /// Starts `ursa`, or what `URSA_E2E_SERVER` names.
    pub fn start() -> Server {
        match env::var("URSA_E2E_SERVER").as_deref() {
            Ok("tgt") => Server::Tgt(Tgt::start()),
            Ok("ursa") | Err(_) => Server::Node(Node::start()),
            Ok(other) => panic!("URSA_E2E_SERVER is {other}: say ursa or tgt"),
        }
    }

    /// Creates a volume and maps it to every initiator (with CHAP: to those that know the secret).
    pub fn create(&mut self, spec: &VolumeSpec) -> Export {
        match self {
            Server::Node(node) => node.create(spec),
            Server::Tgt(tgt) => tgt.create(spec),
        }
    }

    /// Kills the server and starts it again on the same data and ports.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.restart();
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        match self {
            Server::Node(node) => node.kill(),
            Server::Tgt(tgt) => tgt.kill(),
        }
    }

    /// Starts a killed server again, on the same data and ports.
    pub fn restart(&mut self) {
        match self {
            Server::Node(node) => node.restart(),
            Server::Tgt(tgt) => tgt.restart(),
        }
    }

    /// Bytes that the server's data takes on its disk.
    pub fn disk_bytes(&self) -> u64 {
        match self {
            Server::Node(node) => crate::pattern::disk_bytes(node.data_dir()),
            Server::Tgt(tgt) => crate::pattern::disk_bytes(tgt.data_dir()),
        }
    }

    /// Resident memory of the server's process, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        match self {
            Server::Node(node) => node.resident_bytes(),
            Server::Tgt(tgt) => tgt.resident_bytes(),
        }
    }

    /// Whether it is ours: only then do tests assert what only our server promises.
    pub fn is_ursa(&self) -> bool {
        matches!(self, Server::Node(_))
    }
}
