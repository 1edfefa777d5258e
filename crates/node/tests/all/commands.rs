//! SCSI commands that tests send and that the initiator has no method for (SPC-4, SBC-3).

use base::Chain;
use initiator::{CommandResult, Error, Lun, Session, Transfer};
use proto::scsi::Cdb;

/// The type "Write Exclusive" of a persistent reservation (SPC-4 table 61).
pub(crate) const WRITE_EXCLUSIVE: u8 = 1;

/// RESERVATION CONFLICT (SAM-5 table 40).
pub(crate) const CONFLICT: u8 = 0x18;

/// Service actions of PERSISTENT RESERVE OUT (SPC-4 table 219).
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Action {
    Register = 0,
    Reserve = 1,
    Release = 2,
    PreemptAndAbort = 5,
}

/// The fields of a PERSISTENT RESERVE OUT that tests use.
#[derive(Clone, Copy)]
pub(crate) struct ReserveOut {
    pub(crate) action: Action,
    pub(crate) key: u64,
    pub(crate) service_key: u64,
    pub(crate) aptpl: bool,
}

impl ReserveOut {
    pub(crate) fn register(key: u64) -> ReserveOut {
        ReserveOut { action: Action::Register, key: 0, service_key: key, aptpl: false }
    }

    pub(crate) fn of(action: Action, key: u64) -> ReserveOut {
        ReserveOut { action, key, service_key: 0, aptpl: false }
    }
}

pub(crate) async fn reserve_out(session: &Session, lun: u16, out: ReserveOut) -> Result<(), Error> {
    let mut cdb = [0; 16];
    cdb[..3].copy_from_slice(&[0x5f, out.action as u8, WRITE_EXCLUSIVE]);
    cdb[8] = 24;
    let mut list = [0; 24];
    list[..8].copy_from_slice(&out.key.to_be_bytes());
    list[8..16].copy_from_slice(&out.service_key.to_be_bytes());
    list[20] = u8::from(out.aptpl);
    session.command(Lun(lun), Cdb(cdb), Transfer::Out(Chain::copy_of(&list))).await.map(drop)
}

/// PERSISTENT RESERVE IN, READ KEYS: the registered keys.
pub(crate) async fn read_keys(session: &Session, lun: u16) -> Result<Vec<u64>, Error> {
    let mut cdb = [0; 16];
    cdb[..2].copy_from_slice(&[0x5e, 0]);
    cdb[7..9].copy_from_slice(&512_u16.to_be_bytes());
    let data = data_in(session.command(Lun(lun), Cdb(cdb), Transfer::In(512)).await?);
    Ok(data[8..].chunks_exact(8).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect())
}

/// PERSISTENT RESERVE IN, READ RESERVATION: the key of the holder.
pub(crate) async fn read_reservation(session: &Session, lun: u16) -> Result<Option<u64>, Error> {
    let mut cdb = [0; 16];
    cdb[..2].copy_from_slice(&[0x5e, 1]);
    cdb[7..9].copy_from_slice(&64_u16.to_be_bytes());
    let data = data_in(session.command(Lun(lun), Cdb(cdb), Transfer::In(64)).await?);
    Ok(data.get(8..16).map(|key| u64::from_be_bytes(key.try_into().unwrap())))
}

/// WRITE (16) with FUA.
pub(crate) async fn write_durably(
    session: &Session,
    lun: u16,
    lba: u64,
    data: Chain,
    block: u32,
) -> Result<(), Error> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x8a, 0x08);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&(data.len() as u32 / block).to_be_bytes());
    session.command(Lun(lun), Cdb(cdb), Transfer::Out(data)).await.map(drop)
}

/// COMPARE AND WRITE of one block.
pub(crate) async fn compare_and_write(
    session: &Session,
    lun: u16,
    lba: u64,
    compare: Chain,
    write: Chain,
) -> Result<(), Error> {
    let mut cdb = [0; 16];
    cdb[0] = 0x89;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[13] = 1;
    let mut data = compare;
    data.append(write);
    session.command(Lun(lun), Cdb(cdb), Transfer::Out(data)).await.map(drop)
}

/// Turns the write cache on or off: MODE SENSE and MODE SELECT of the caching page (SBC-3 6.5.5).
pub(crate) async fn set_write_cache(session: &Session, lun: u16, on: bool) -> Result<(), Error> {
    let mut cdb = [0; 16];
    cdb[..5].copy_from_slice(&[0x1a, 0x08, 0x08, 0, 64]);
    let mut data = data_in(session.command(Lun(lun), Cdb(cdb), Transfer::In(64)).await?);
    assert_eq!((data[3], data[4] & 0x3f), (0, 0x08), "no block descriptor, the caching page");
    (data[0], data[2]) = (0, 0);
    data[4] &= 0x3f;
    data[6] = data[6] & !0x04 | u8::from(on) << 2;
    let mut cdb = [0; 16];
    cdb[..5].copy_from_slice(&[0x15, 0x10, 0, 0, data.len() as u8]);
    session.command(Lun(lun), Cdb(cdb), Transfer::Out(Chain::copy_of(&data))).await.map(drop)
}

/// The NAA name of a unit, from the VPD page 83h.
pub(crate) async fn naa(session: &Session, lun: u16) -> [u8; 16] {
    let page = session.inquiry(Lun(lun), Some(0x83), 512).await.unwrap();
    let mut rest = &page[4..];
    loop {
        let len = usize::from(rest[3]);
        if rest[1] & 0x3f == 0x03 && len == 16 {
            return rest[4..20].try_into().unwrap();
        }
        rest = &rest[4 + len..];
    }
}

/// A block-to-block segment of EXTENDED COPY.
#[derive(Clone, Copy)]
pub(crate) struct Copy {
    pub(crate) source: [u8; 16],
    pub(crate) source_lba: u64,
    pub(crate) target: [u8; 16],
    pub(crate) target_lba: u64,
    pub(crate) blocks: u16,
    pub(crate) block: u32,
}

/// EXTENDED COPY (LID1) of one segment (SPC-4 6.4), sent to `lun`.
pub(crate) async fn extended_copy(session: &Session, lun: u16, copy: Copy) -> Result<(), Error> {
    let mut list = vec![0; 16 + 2 * 32 + 28];
    list[2..4].copy_from_slice(&64_u16.to_be_bytes());
    list[8..12].copy_from_slice(&28_u32.to_be_bytes());
    for (at, name) in [(16, copy.source), (48, copy.target)] {
        let descriptor = &mut list[at..at + 32];
        // An identification descriptor of a direct access device: binary, NAA, 16 bytes.
        descriptor[0] = 0xe4;
        (descriptor[4], descriptor[5], descriptor[7]) = (1, 3, 16);
        descriptor[8..24].copy_from_slice(&name);
        descriptor[28..32].copy_from_slice(&copy.block.to_be_bytes());
    }
    let segment = &mut list[80..];
    (segment[0], segment[3], segment[7]) = (2, 24, 1);
    segment[10..12].copy_from_slice(&copy.blocks.to_be_bytes());
    segment[12..20].copy_from_slice(&copy.source_lba.to_be_bytes());
    segment[20..28].copy_from_slice(&copy.target_lba.to_be_bytes());
    let mut cdb = [0; 16];
    cdb[0] = 0x83;
    cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
    session.command(Lun(lun), Cdb(cdb), Transfer::Out(Chain::copy_of(&list))).await.map(drop)
}

fn data_in(result: CommandResult) -> Vec<u8> {
    result.data.as_ref().map(|data| data.to_vec()).unwrap_or_default()
}
