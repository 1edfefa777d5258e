//! What a node asks its machine to do with an address. Nothing here touches the system: `ursa` does, and a
//! simulated world does not.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An address and its network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressOn {
    /// The address.
    pub address: IpAddr,
    /// The length of its network prefix, in bits.
    pub prefix: u8,
    /// The network device; `None`: the device that has an address of the same network.
    pub device: Option<String>,
}

/// A change of an address on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressWork {
    /// Set the address on the device, or renew its lifetime there.
    PutOn {
        /// The address and its device.
        on: AddressOn,
        /// After this time from the handover, or earlier, the kernel removes the address automatically, so
        /// that a node that hangs or was killed does not keep it. At least a second; kernels count whole
        /// seconds.
        lasts: Duration,
        /// Whether to announce the address to the neighbors.
        announce: bool,
    },
    /// Remove the address. It is no error if it is not there.
    TakeOff(AddressOn),
}

/// Why an address could not be set, removed or given up. Nodes report it to each other as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
#[serde(rename_all = "kebab-case")]
pub enum DeviceTrouble {
    #[error("this node cannot configure its network devices")]
    NoDevices,
    #[error("the thread that manages network devices has ended; restart the node")]
    ThreadGone,
    #[error("a core of this node was too slow to configure the address in time")]
    CoreSlow,
    #[error("the operating system has not responded for 2 seconds")]
    SystemSilent,
    #[error("too late: setting the address took longer than its lifetime")]
    Late,
    #[error(
        "{address} is configured on this machine's {device}, but a floating IP must not be; remove it from the machine's network settings, or exclude it from DHCP"
    )]
    OfMachine { address: IpAddr, device: String },
    #[error("no network device has an address in {address}/{prefix}; name a device with --device")]
    NoDeviceInNetwork { address: IpAddr, prefix: u8 },
    /// `errno` is the error number of the operating system.
    #[error("cannot listen for iSCSI at {address}: {}", io::Error::from_raw_os_error(*errno))]
    Listen { address: SocketAddr, errno: i32 },
    #[error("`ip {arguments}`: {fault}")]
    Ip { arguments: String, fault: IpFault },
    #[error(
        "commands received through it are still running on a disk of this node. No other node may hold the address until they end: check for a hung disk or volume (`ursa pool list`, `ursa volume list`, the kernel's log)"
    )]
    CommandsRunning,
}

/// What is wrong with the program `ip`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
#[serde(rename_all = "kebab-case")]
pub enum IpFault {
    #[error("command not found; install iproute2")]
    NotFound,
    #[error("timed out after one second")]
    TimedOut,
    #[error("cannot parse its output, in line {line} at column {column}")]
    Output { line: usize, column: usize },
    /// With what it printed.
    #[error(
        "{0}: floating IPs require CAP_NET_ADMIN and CAP_NET_RAW; set AmbientCapabilities= of the node's service"
    )]
    NotPermitted(String),
    /// With what it printed.
    #[error("{0}")]
    Failed(String),
    /// With the error number of the operating system.
    #[error("cannot be run: {}", io::Error::from_raw_os_error(*errno))]
    NotRun { errno: i32 },
}

/// The result.
pub type DevicesAnswer = Pin<Box<dyn Future<Output = Result<(), DeviceTrouble>>>>;

/// See [`Config::devices`](crate::Config::devices).
#[derive(Clone)]
pub struct Devices(Arc<dyn Fn(AddressWork) -> DevicesAnswer + Send + Sync>);

impl Devices {
    /// Calls this function, on core 0.
    pub fn new(work: impl Fn(AddressWork) -> DevicesAnswer + Send + Sync + 'static) -> Devices {
        Devices(Arc::new(work))
    }

    /// Executes `work`.
    pub fn work(&self, work: AddressWork) -> DevicesAnswer {
        (self.0)(work)
    }
}

impl Default for Devices {
    /// Without devices: every attempt to set an address fails.
    fn default() -> Devices {
        Devices::new(|work| {
            let answer = match work {
                AddressWork::PutOn { .. } => Err(DeviceTrouble::NoDevices),
                AddressWork::TakeOff(_) => Ok(()),
            };
            Box::pin(std::future::ready(answer))
        })
    }
}

base::shows!(Debug for Devices, "Devices");
