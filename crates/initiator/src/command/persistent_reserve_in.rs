//! PERSISTENT RESERVE IN (SPC-4 6.15): who is registered, and who holds the reservation.

use base::Buf;
use proto::iscsi::initiator::Transfer;
use proto::scsi::Cdb;

use super::{Command, Effect, ReservationType, u16_at, u32_at, u64_at};
use crate::{Error, Lun, Session};

/// PRGENERATION and ADDITIONAL LENGTH.
const HEADER_LEN: usize = 8;

/// The most that the 16-bit length allows: some thousand keys, or some hundred TransportIDs.
const LEN: u16 = 0xfff8;

fn cdb(action: u8) -> Cdb {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x5e, action);
    cdb[7..9].copy_from_slice(&LEN.to_be_bytes());
    Cdb(cdb)
}

/// The data behind the header.
fn list(data: &[u8]) -> Option<&[u8]> {
    let len = u32_at(data, 4)? as usize;
    let list = data.get(HEADER_LEN..)?;
    Some(&list[..len.min(list.len())])
}

/// READ KEYS.
#[derive(Clone, Copy, Debug)]
pub struct ReadKeys;

impl Command for ReadKeys {
    type Answer = Vec<u64>;
    const NAME: &'static str = "PERSISTENT RESERVE IN, READ KEYS";

    fn cdb(&self) -> Cdb {
        cdb(0)
    }

    fn transfer(&self) -> Transfer {
        Transfer::In(u32::from(LEN))
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, data: Option<Buf>) -> Option<Vec<u64>> {
        Some(list(&data?)?.as_chunks().0.iter().map(|key| u64::from_be_bytes(*key)).collect())
    }
}

/// READ RESERVATION.
#[derive(Clone, Copy, Debug)]
pub struct ReadReservation;

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The holder's key; zero if all registrants hold it.
    pub key: u64,
    /// Its type.
    pub kind: ReservationType,
}

impl Command for ReadReservation {
    type Answer = Option<Reservation>;
    const NAME: &'static str = "PERSISTENT RESERVE IN, READ RESERVATION";

    fn cdb(&self) -> Cdb {
        cdb(1)
    }

    fn transfer(&self) -> Transfer {
        Transfer::In(u32::from(LEN))
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, data: Option<Buf>) -> Option<Option<Reservation>> {
        let data = data?;
        let list = list(&data)?;
        if list.is_empty() {
            return Some(None);
        }
        let kind = ReservationType::from_number(list.get(13)? & 0x0f)?;
        Some(Some(Reservation { key: u64_at(list, 0)?, kind }))
    }
}

/// READ FULL STATUS.
#[derive(Clone, Copy, Debug)]
pub struct ReadFullStatus;

/// One registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registrant {
    /// Its key.
    pub key: u64,
    /// The reservation that it holds, if any.
    pub holds: Option<ReservationType>,
    /// The relative identifier of the target's port.
    pub port: u16,
    /// The initiator's TransportID (SPC-4 7.6.4), unparsed.
    pub transport_id: Vec<u8>,
}

impl Command for ReadFullStatus {
    type Answer = Vec<Registrant>;
    const NAME: &'static str = "PERSISTENT RESERVE IN, READ FULL STATUS";

    fn cdb(&self) -> Cdb {
        cdb(3)
    }

    fn transfer(&self) -> Transfer {
        Transfer::In(u32::from(LEN))
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, data: Option<Buf>) -> Option<Vec<Registrant>> {
        full_status(&data?)
    }
}

/// SPC-4 6.15.5.
fn full_status(data: &[u8]) -> Option<Vec<Registrant>> {
    const DESCRIPTOR_LEN: usize = 24;
    let mut rest = list(data)?;
    let mut registrants = Vec::new();
    while let Some(key) = u64_at(rest, 0) {
        let holds = rest.get(12)? & 0x01 != 0;
        let id_len = u32_at(rest, 20)? as usize;
        let end = DESCRIPTOR_LEN.checked_add(id_len)?;
        let kind = ReservationType::from_number(rest.get(13)? & 0x0f);
        registrants.push(Registrant {
            key,
            holds: kind.filter(|_| holds),
            port: u16_at(rest, 18)?,
            transport_id: rest.get(DESCRIPTOR_LEN..end)?.to_vec(),
        });
        rest = &rest[end..];
    }
    Some(registrants)
}

impl Session {
    /// The registered keys.
    pub async fn read_keys(&self, lun: Lun) -> Result<Vec<u64>, Error> {
        self.send(lun, &ReadKeys).await
    }

    /// The reservation, if there is one.
    pub async fn read_reservation(&self, lun: Lun) -> Result<Option<Reservation>, Error> {
        self.send(lun, &ReadReservation).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer<C: Command>(command: &C, data: &[u8]) -> Option<C::Answer> {
        command.answer(Some(Buf::copy_of(data)))
    }

    #[test]
    fn keys_and_reservation() {
        let mut data = vec![0, 0, 0, 9, 0, 0, 0, 16];
        data.extend([1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0x05, 0, 0]);
        assert_eq!(answer(&ReadKeys, &data), Some(vec![0x0102_0304_0506_0708, 0x0005_0000]));
        let reservation =
            Reservation { key: 0x0102_0304_0506_0708, kind: ReservationType::WriteExclusiveRegistrantsOnly };
        assert_eq!(answer(&ReadReservation, &data), Some(Some(reservation)));
        assert_eq!(answer(&ReadReservation, &[0; 8]), Some(None));
        assert_eq!(answer(&ReadKeys, &[0; 7]), None);
        assert_eq!(ReadReservation.cdb().0[..10], [0x5e, 1, 0, 0, 0, 0, 0, 0xff, 0xf8, 0]);
    }

    #[test]
    fn registrants() {
        let mut data = vec![0, 0, 0, 9, 0, 0, 0, 56];
        for (key, holds) in [(1, 1), (2, 0)] {
            data.extend([0, 0, 0, 0, 0, 0, 0, key, 0, 0, 0, 0, holds, holds, 0, 0, 0, 0, 0, 7]);
            data.extend([0, 0, 0, 4, 0x45, 0, 0, key]);
        }
        let expected = [(1, Some(ReservationType::WriteExclusive)), (2, None)].map(|(key, holds)| {
            Registrant { key: u64::from(key), holds, port: 7, transport_id: vec![0x45, 0, 0, key] }
        });
        assert_eq!(answer(&ReadFullStatus, &data).unwrap(), expected);
        assert_eq!(answer(&ReadFullStatus, &data[..60]), None, "cut short");
    }
}
