//! A logical unit, over one session or over all paths to it.
//!
//! With one portal the loss of the session is the loss of the target, and is reported at once. With several,
//! a lost path is only a stall: requests under way there are sent again over another path.

use std::net::SocketAddr;
use std::time::Duration;

use base::{BlockCount, Buf, Lba, SharedBuf};
use initiator::command::{Inquiry, Write};
use initiator::{Capacity, Lun, Multipath, MultipathOptions, Options, Policy, Search, Session, UnitSelector};

use super::{Failure, NoWay};

/// How long a logout may take. The run has ended, so nothing depends on it.
const LOGOUT_LIMIT: Duration = Duration::from_secs(2);

/// The Block Limits page (SBC-3 6.6.4).
const BLOCK_LIMITS: u8 = 0xb0;
const BLOCK_LIMITS_LEN: u16 = 64;

/// The length of the relevant part of standard INQUIRY data.
const INQUIRY_LEN: u16 = 96;

/// The address of a unit, and how to log in.
pub(crate) struct UnitAddress {
    pub(crate) portals: Vec<SocketAddr>,
    pub(crate) name: String,
    pub(crate) lun: Lun,
    pub(crate) options: Options,
}

/// A logical unit.
pub(crate) struct Unit {
    way: Way,
    capacity: Capacity,
    request_max: u64,
    identity: String,
}

/// The connection to the unit.
enum Way {
    Session(Session, Lun),
    Paths(Multipath),
}

impl Unit {
    /// Logs in and asks the unit for its properties.
    pub(crate) async fn open(address: &UnitAddress) -> Result<Unit, NoWay> {
        let (way, capacity, inquiry, limits) = match address.portals.as_slice() {
            [portal] => {
                let session = Session::connect(*portal, &address.name, &address.options).await?;
                let lun = address.lun;
                session.make_ready(lun).await?;
                let capacity = session.read_capacity(lun).await?;
                let inquiry = session.inquiry(lun, None, INQUIRY_LEN).await?;
                let limits = session.inquiry(lun, Some(BLOCK_LIMITS), BLOCK_LIMITS_LEN).await.ok();
                (Way::Session(session, lun), capacity, inquiry, limits)
            }
            _ => {
                let paths = open_paths(address).await?;
                let inquiry = paths.send(&Inquiry { page: None, len: INQUIRY_LEN }).await?;
                let limits = paths.send(&Inquiry { page: Some(BLOCK_LIMITS), len: BLOCK_LIMITS_LEN }).await;
                let capacity = paths.capacity();
                (Way::Paths(paths), capacity, inquiry, limits.ok())
            }
        };
        let identity = identity(&inquiry);
        // Some targets do not have the page; then there is no limit.
        let request_max = request_max(&limits.unwrap_or_default(), capacity.block_size.bytes());
        Ok(Unit { way, capacity, request_max, identity })
    }

    pub(crate) fn size(&self) -> u64 {
        (self.capacity.blocks * self.capacity.block_size).0
    }

    pub(crate) fn block(&self) -> u32 {
        self.capacity.block_size.bytes()
    }

    pub(crate) fn request_max(&self) -> u64 {
        self.request_max
    }

    /// Vendor, product and revision.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    pub(crate) async fn read(&self, offset: u64, len: u32) -> Result<Buf, Failure> {
        let size = self.capacity.block_size;
        let count = BlockCount(u64::from(len) >> size.shift());
        let lba = self.lba(offset);
        match &self.way {
            Way::Session(session, lun) => Ok(session.read(*lun, lba, count, size).await?),
            Way::Paths(paths) => Ok(paths.read(lba, count).await?),
        }
    }

    pub(crate) async fn write(&self, offset: u64, data: SharedBuf, durable: bool) -> Result<(), Failure> {
        let (lba, size) = (self.lba(offset), self.capacity.block_size);
        let write = Write { lba, data: data.into(), size, durable };
        match &self.way {
            Way::Session(session, lun) => Ok(session.send(*lun, &write).await?),
            Way::Paths(paths) => Ok(paths.send(&write).await?),
        }
    }

    pub(crate) async fn flush(&self) -> Result<(), Failure> {
        match &self.way {
            Way::Session(session, lun) => Ok(session.flush(*lun).await?),
            Way::Paths(paths) => Ok(paths.flush().await?),
        }
    }

    pub(crate) async fn close(self) {
        // A target that does not answer is abandoned: closing the connection ends the session as well.
        match self.way {
            Way::Session(session, _) => drop(rt::timeout(LOGOUT_LIMIT, session.logout()).await),
            Way::Paths(paths) => drop(rt::timeout(LOGOUT_LIMIT, paths.close()).await),
        }
    }

    fn lba(&self, offset: u64) -> Lba {
        Lba(offset >> self.capacity.block_size.shift())
    }
}

/// Opens the unit over all portals, used in turn, so that the figures cover all of them. Commands wait for a
/// lost path as long as a command may take.
async fn open_paths(address: &UnitAddress) -> Result<Multipath, NoWay> {
    let search = Search {
        portals: address.portals.clone(),
        target: Some(address.name.clone()),
        unit: UnitSelector::Lun(address.lun),
        discover: false,
    };
    let options = MultipathOptions {
        login: address.options.clone(),
        policy: Policy::RoundRobin(1),
        queue_for: address.options.timeouts.command,
        ..MultipathOptions::default()
    };
    Ok(Multipath::open(&search, options).await?)
}

/// MAXIMUM TRANSFER LENGTH of the Block Limits page (SBC-3 6.6.4), in bytes.
fn request_max(page: &[u8], block: u32) -> u64 {
    let length =
        page.get(8..12).and_then(|field| field.first_chunk()).map(|field| u32::from_be_bytes(*field));
    match length {
        None | Some(0) => u64::MAX,
        Some(blocks) => u64::from(blocks) * u64::from(block),
    }
}

/// Vendor, product and revision of standard INQUIRY data (SPC-4 6.6.2).
fn identity(inquiry: &[u8]) -> String {
    let field = |range| inquiry.get(range).map(String::from_utf8_lossy).unwrap_or_default();
    let fields = [field(8..16), field(16..32), field(32..36)];
    let words: Vec<&str> = fields.iter().flat_map(|field| field.split_whitespace()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_says_what_it_is() {
        let mut inquiry = [b' '; 36];
        inquiry[8..12].copy_from_slice(b"URSA");
        inquiry[16..27].copy_from_slice(b"VIRTUAL-DIS");
        inquiry[32..36].copy_from_slice(b"0100");
        assert_eq!(identity(&inquiry), "URSA VIRTUAL-DIS 0100");
        assert_eq!(identity(&[0; 8]), "");
    }

    #[test]
    fn the_unit_limits_requests() {
        let mut page = [0; 64];
        assert_eq!(request_max(&page, 512), u64::MAX);
        page[10] = 0x08;
        assert_eq!(request_max(&page, 512), 1 << 20);
        assert_eq!(request_max(&[], 512), u64::MAX);
    }
}
