//! INQUIRY (SPC-4 6.6).

use base::Buf;
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{Command, Effect};
use crate::{Error, Lun, Session};

/// Asks for the unit's INQUIRY data.
#[derive(Clone, Copy, Debug)]
pub struct Inquiry {
    /// A page of vital product data; `None` means the standard data.
    pub page: Option<u8>,
    /// The most bytes to return.
    pub len: u16,
}

impl Command for Inquiry {
    type Answer = Vec<u8>;
    const NAME: &'static str = "INQUIRY";

    fn cdb(&self) -> Cdb {
        let mut cdb = [0; 16];
        cdb[..3].copy_from_slice(&[0x12, u8::from(self.page.is_some()), self.page.unwrap_or(0)]);
        cdb[3..5].copy_from_slice(&self.len.to_be_bytes());
        Cdb(cdb)
    }

    fn transfer(&self) -> Transfer {
        Transfer::In(u32::from(self.len))
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, data: Option<Buf>) -> Option<Vec<u8>> {
        Some(data.map(|data| data.to_vec()).unwrap_or_default())
    }
}

impl Session {
    /// The standard INQUIRY data, or a VPD page: at most `len` bytes.
    pub async fn inquiry(&self, lun: Lun, page: Option<u8>, len: u16) -> Result<Vec<u8>, Error> {
        self.send(lun, &Inquiry { page, len }).await
    }
}
