//! REPORT LUNS (SPC-4 6.33).

use base::Buf;
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{Command, Effect, u32_at};
use crate::{Error, Lun, Session};

/// Room for all LUNs of flat space addressing: 16,384 of 8 bytes, and the header.
const LEN: u32 = 8 + 16_384 * 8;

/// Asks for the LUNs that the target presents to us.
#[derive(Clone, Copy, Debug)]
pub struct ReportLuns;

impl Command for ReportLuns {
    type Answer = Vec<Lun>;
    const NAME: &'static str = "REPORT LUNS";

    fn cdb(&self) -> Cdb {
        let mut cdb = [0; 16];
        cdb[0] = 0xa0;
        cdb[6..10].copy_from_slice(&LEN.to_be_bytes());
        Cdb(cdb)
    }

    fn transfer(&self) -> Transfer {
        Transfer::In(LEN)
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, data: Option<Buf>) -> Option<Vec<Lun>> {
        parse(&data?)
    }
}

/// SPC-4 6.33.3. Ignores LUNs with other addressing methods than ours.
fn parse(data: &[u8]) -> Option<Vec<Lun>> {
    let len = u32_at(data, 0)? as usize;
    let luns = data.get(8..)?;
    let luns = &luns[..len.min(luns.len())];
    Some(luns.as_chunks().0.iter().filter_map(|bytes| Lun::from_bytes(*bytes)).collect())
}

impl Session {
    /// The LUNs that the target presents to us.
    pub async fn report_luns(&self) -> Result<Vec<Lun>, Error> {
        self.send(Lun(0), &ReportLuns).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luns_of_both_methods() {
        let mut data = vec![0, 0, 0, 24, 0, 0, 0, 0];
        for lun in [[0, 3, 0, 0, 0, 0, 0, 0], [0x41, 2, 0, 0, 0, 0, 0, 0], [0xc1, 1, 0, 0, 0, 0, 0, 0]] {
            data.extend(lun);
        }
        data.extend([0, 9, 0, 0, 0, 0, 0, 0]); // behind the list
        assert_eq!(parse(&data), Some(vec![Lun(3), Lun(258)]));
        assert_eq!(parse(&data[..12]), Some(vec![]), "cut short");
        assert_eq!(parse(&[0; 7]), None);
    }
}
