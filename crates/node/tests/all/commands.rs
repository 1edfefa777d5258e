//! SCSI commands as tests send them (SPC-4, SBC-3).

use base::{BlockCount, BlockSize, Chain, Lba};
use initiator::command::{
    CopySegment, ExtendedCopy, PersistentReserveOut, ReservationType, ServiceAction, Write,
};
use initiator::{CommandResult, Error, Lun, Session, Transfer};
use proto::scsi::Cdb;

/// RESERVATION CONFLICT (SAM-5).
pub(crate) const CONFLICT: u8 = 0x18;

pub(crate) async fn register(session: &Session, lun: u16, key: u64, survives: bool) -> Result<(), Error> {
    session.reserve(Lun(lun), PersistentReserveOut { survives, ..PersistentReserveOut::register(key) }).await
}

/// RESERVE, RELEASE and similar actions for the type "Write Exclusive", with the session's registered key.
pub(crate) async fn reserve(
    session: &Session,
    lun: u16,
    action: ServiceAction,
    key: u64,
    action_key: u64,
) -> Result<(), Error> {
    let kind = ReservationType::WriteExclusive;
    session.reserve(Lun(lun), PersistentReserveOut { action, kind, key, action_key, survives: false }).await
}

/// WRITE (16) with FUA.
pub(crate) async fn write_durably(
    session: &Session,
    lun: u16,
    lba: u64,
    data: Chain,
    size: BlockSize,
) -> Result<(), Error> {
    session.send(Lun(lun), &Write { lba: Lba(lba), data, size, durable: true }).await
}

/// Turns the write cache on or off: WCE of the caching page (SBC-3).
pub(crate) async fn set_write_cache(session: &Session, lun: u16, on: bool) -> Result<(), Error> {
    set_mode(session, lun, 0x08, (2, 0x04), on).await
}

/// Turns the write protection on or off: SWP of the control page (SPC-4).
pub(crate) async fn set_write_protection(session: &Session, lun: u16, on: bool) -> Result<(), Error> {
    set_mode(session, lun, 0x0a, (4, 0x08), on).await
}

/// Sets or clears a bit of a mode page (its byte and its mask) by MODE SENSE and MODE SELECT.
async fn set_mode(
    session: &Session,
    lun: u16,
    page: u8,
    (byte, bit): (usize, u8),
    on: bool,
) -> Result<(), Error> {
    let mut cdb = [0; 16];
    cdb[..5].copy_from_slice(&[0x1a, 0x08, page, 0, 64]);
    let mut data = data_in(session.command(Lun(lun), Cdb(cdb), Transfer::In(64)).await?);
    assert_eq!((data[3], data[4] & 0x3f), (0, page), "no block descriptor, the page");
    (data[0], data[2]) = (0, 0);
    data[4] &= 0x3f;
    let place = &mut data[4 + byte];
    *place = if on { *place | bit } else { *place & !bit };
    let mut cdb = [0; 16];
    cdb[..5].copy_from_slice(&[0x15, 0x10, 0, 0, data.len() as u8]);
    session.command(Lun(lun), Cdb(cdb), Transfer::Out(Chain::copy_of(&data))).await.map(drop)
}

/// START STOP UNIT (SBC-3).
pub(crate) async fn start_stop(session: &Session, lun: u16, start: bool) -> Result<(), Error> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[4]) = (0x1b, u8::from(start));
    session.command(Lun(lun), Cdb(cdb), Transfer::None).await.map(drop)
}

/// The NAA name of a unit.
pub(crate) async fn naa(session: &Session, lun: u16) -> [u8; 16] {
    session.identify(Lun(lun)).await.unwrap().unit.naa().unwrap()
}

/// A block-to-block segment of EXTENDED COPY between units of blocks of 4096 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Copy {
    pub(crate) source: [u8; 16],
    pub(crate) source_lba: u64,
    pub(crate) target: [u8; 16],
    pub(crate) target_lba: u64,
    pub(crate) blocks: u16,
}

/// EXTENDED COPY (LID1) of one segment, sent to `lun`.
pub(crate) async fn extended_copy(session: &Session, lun: u16, copy: Copy) -> Result<(), Error> {
    let segment = CopySegment {
        source: Lba(copy.source_lba),
        destination: Lba(copy.target_lba),
        count: BlockCount(u64::from(copy.blocks)),
    };
    let (source, destination) = (copy.source, copy.target);
    let size = BlockSize::B4096;
    session.extended_copy(Lun(lun), ExtendedCopy { source, destination, size, segments: &[segment] }).await
}

fn data_in(result: CommandResult) -> Vec<u8> {
    result.data.as_ref().map(|data| data.to_vec()).unwrap_or_default()
}
