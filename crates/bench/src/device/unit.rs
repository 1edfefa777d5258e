//! A logical unit over one session.

use std::net::SocketAddr;
use std::time::Duration;

use base::{BlockCount, Buf, Lba, SharedBuf};
use initiator::command::Write;
use initiator::{Capacity, Error, Lun, Options, Session};

/// How long a logout may take: the run is over, and so nothing depends on it.
const LOGOUT_LIMIT: Duration = Duration::from_secs(2);

/// Where a unit is, and how to log in.
pub(crate) struct UnitAddress {
    pub(crate) portal: SocketAddr,
    pub(crate) name: String,
    pub(crate) lun: Lun,
    pub(crate) options: Options,
}

/// A logical unit.
pub(crate) struct Unit {
    session: Session,
    lun: Lun,
    capacity: Capacity,
    request_max: u64,
    identity: String,
}

impl Unit {
    /// Logs in and asks the unit what it is.
    pub(crate) async fn open(address: &UnitAddress) -> Result<Unit, Error> {
        let session = Session::connect(address.portal, &address.name, &address.options).await?;
        let lun = address.lun;
        session.make_ready(lun).await?;
        let capacity = session.read_capacity(lun).await?;
        let identity = identity(&session.inquiry(lun, None, 96).await?);
        // Not every target has the page; one that refuses it has no limit to tell.
        let limits = session.inquiry(lun, Some(0xb0), 64).await.unwrap_or_default();
        let request_max = request_max(&limits, capacity.block_size.bytes());
        Ok(Unit { session, lun, capacity, request_max, identity })
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

    pub(crate) async fn read(&self, offset: u64, len: u32) -> Result<Buf, Error> {
        let size = self.capacity.block_size;
        let count = BlockCount(u64::from(len) >> size.shift());
        self.session.read(self.lun, self.lba(offset), count, size).await
    }

    pub(crate) async fn write(&self, offset: u64, data: SharedBuf, durable: bool) -> Result<(), Error> {
        let (lba, size) = (self.lba(offset), self.capacity.block_size);
        self.session.send(self.lun, &Write { lba, data: data.into(), size, durable }).await
    }

    pub(crate) async fn flush(&self) -> Result<(), Error> {
        self.session.flush(self.lun).await
    }

    pub(crate) async fn close(self) {
        // Whoever does not answer is left alone: closing the connection ends the session as well.
        let _ = rt::timeout(LOGOUT_LIMIT, self.session.logout()).await;
    }

    fn lba(&self, offset: u64) -> Lba {
        Lba(offset >> self.capacity.block_size.shift())
    }
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
