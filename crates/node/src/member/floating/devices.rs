//! What a node asks its machine to do with an address. Nothing here touches the system: `ursa` does, and a
//! simulated world does not.

use std::net::IpAddr;
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

/// The result. An error says what to do.
pub type DevicesAnswer = Pin<Box<dyn Future<Output = Result<(), String>>>>;

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
                AddressWork::PutOn { .. } => Err("this node cannot configure its network devices".into()),
                AddressWork::TakeOff(_) => Ok(()),
            };
            Box::pin(std::future::ready(answer))
        })
    }
}

base::shows!(Debug for Devices, "Devices");
