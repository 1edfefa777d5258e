//! What a node has its machine do with an address. Nothing here touches the system: `ursa` does, and a
//! simulated world does not.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An address and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressOn {
    /// The address.
    pub address: IpAddr,
    /// How many bits of it are its network's.
    pub prefix: u8,
    /// The network device; `None`: the one that has an address of the same network.
    pub device: Option<String>,
}

/// What is to be done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressWork {
    /// Put it on the device, or have it stay there.
    PutOn {
        /// Which.
        on: AddressOn,
        /// The kernel takes it off by itself after so long from when this is handed over, or earlier: a node
        /// that hangs or was killed does not keep it. At least a second; kernels count whole ones.
        lasts: Duration,
        /// Tell the neighbours where it is.
        announce: bool,
    },
    /// Take it off. That it is not there is no error.
    TakeOff(AddressOn),
}

/// What became of it: an error says what to do.
pub type DevicesAnswer = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// See [`Config::devices`](crate::Config::devices).
#[derive(Clone)]
pub struct Devices(Arc<dyn Fn(AddressWork) -> DevicesAnswer + Send + Sync>);

impl Devices {
    /// By this function, on core 0.
    pub fn new(work: impl Fn(AddressWork) -> DevicesAnswer + Send + Sync + 'static) -> Devices {
        Devices(Arc::new(work))
    }

    /// Has it done.
    pub fn work(&self, work: AddressWork) -> DevicesAnswer {
        (self.0)(work)
    }
}

impl Default for Devices {
    /// None: the node may be asked to hold an address, and never does.
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

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Devices")
    }
}
