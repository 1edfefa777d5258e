//! Messages as bytes: `docs/formats/replication-link.md`.
//!
//! A message is a head (32 bytes and a body), and for messages with data a payload, which is never copied.
//! What a peer sends is checked here once: ranges are inside the slice, lists are bounded, payloads are as
//! long as their blocks, and the CRC32C matches.

use base::{Chain, Crc32c};

use crate::{
    Blocks, Digest, Envelope, Epoch, Geometry, Incarnation, LOST_UNITS_MAX, LostBlocks, Message, Payload,
    ProbeId, Regions, RoundId, Slot, Slots, SyncId, Timestamp,
};

/// Bytes of the header, which precedes a message's body.
pub const HEADER_BYTES: usize = 32;
/// The maximum length of a payload: the largest write that a volume takes in one piece.
pub const PAYLOAD_MAX: u32 = 8 << 20;
/// The maximum length of a body: a list that names each region of 2 TiB, the maximum length of a slice.
pub const BODY_MAX: u32 = 256 << 20;

/// The lengths of a message's parts, its epoch, and what else precedes its body.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    kind: u8,
    zeros: bool,
    epoch: Epoch,
    incarnation: Incarnation,
    /// Bytes of the body, which follows the header.
    pub body_bytes: u32,
    /// Bytes of the payload, which follows the body.
    pub payload_bytes: u32,
    crc: u32,
    /// The CRC32C of the header's own bytes, to be continued with the body.
    crc_so_far: Crc32c,
}

/// Why bytes are not a message. The link over which they came is unusable then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Malformed {
    #[error("a message with a wrong length")]
    Length,
    #[error("a message of unknown kind {0}")]
    Kind(u8),
    #[error("a message with a wrong CRC32C")]
    Checksum,
    #[error("a message with a value out of range")]
    Value,
}

mod kind {
    pub(super) const INVALIDATE: u8 = 1;
    pub(super) const ACKNOWLEDGE: u8 = 2;
    pub(super) const VALIDATE: u8 = 3;
    pub(super) const ACTIVATED: u8 = 4;
    pub(super) const FLOOR: u8 = 5;
    pub(super) const SYNC_OPEN: u8 = 6;
    pub(super) const SYNC_CLEAN: u8 = 7;
    pub(super) const SYNC_REGION: u8 = 8;
    pub(super) const SYNC_DONE: u8 = 9;
    pub(super) const SYNC_END: u8 = 10;
    pub(super) const SYNCED: u8 = 11;
    pub(super) const SYNC_WAIT: u8 = 12;
    pub(super) const SYNC_PROBE: u8 = 13;
    pub(super) const SYNC_WANT: u8 = 14;
    pub(super) const ASK_VALIDATION: u8 = 15;
    pub(super) const CONFIRM_READS: u8 = 16;
    pub(super) const READS_CONFIRMED: u8 = 17;
    pub(super) const SYNC_LATER: u8 = 18;
}

/// The flag for a payload of zeros, which takes no bytes.
const ZEROS: u8 = 1;

/// Encodes a message: its head, and the data that follows it.
pub fn encode(envelope: &Envelope) -> (Vec<u8>, Chain) {
    let mut body = Writer(vec![0; HEADER_BYTES]);
    let mut payload = None;
    let kind = match &envelope.message {
        Message::Invalidate { round, ts, blocks, payload: data } => {
            body.u64(round.0).timestamp(*ts).blocks(*blocks).payload_crc(data);
            payload = Some(data);
            kind::INVALIDATE
        }
        Message::Acknowledge { rounds } => {
            body.u32(rounds.len() as u32);
            for round in rounds {
                body.u64(round.0);
            }
            kind::ACKNOWLEDGE
        }
        Message::Validate { writes } => {
            body.known(writes);
            kind::VALIDATE
        }
        Message::AskValidation => kind::ASK_VALIDATION,
        Message::ConfirmReads { probe } => {
            body.u64(probe.0);
            kind::CONFIRM_READS
        }
        Message::ReadsConfirmed { probe } => {
            body.u64(probe.0);
            kind::READS_CONFIRMED
        }
        Message::Activated => kind::ACTIVATED,
        Message::Floor { floor } => {
            body.timestamp(*floor);
            kind::FLOOR
        }
        Message::SyncOpen { sync, dirty, lost } => {
            body.u64(sync.0).regions(dirty).u32(lost.len() as u32);
            for (region, units) in lost {
                body.u64(*region).u32(*units);
            }
            kind::SYNC_OPEN
        }
        Message::SyncClean { sync, known, inherit } => {
            body.u64(sync.0).known(known).u32(inherit.len() as u32);
            for (slot, regions) in inherit {
                body.u32(slot.index() as u32).regions(regions);
            }
            kind::SYNC_CLEAN
        }
        Message::SyncRegion { sync, region, payload: data, known, moving, lost, inherit } => {
            body.u64(sync.0).u64(*region).u32(u32::from(inherit.bits()));
            body.known(known).known(moving).u32(lost.len() as u32);
            for LostBlocks { blocks, holders } in lost {
                body.blocks(*blocks).u32(u32::from(holders.bits()));
            }
            body.payload_crc(data);
            payload = Some(data);
            kind::SYNC_REGION
        }
        Message::SyncProbe { sync, region, digest, inherit } => {
            body.u64(sync.0).u64(*region).u32(u32::from(inherit.bits()));
            body.0.extend_from_slice(&digest.0);
            kind::SYNC_PROBE
        }
        Message::SyncWant { sync, region } => {
            body.u64(sync.0).u64(*region);
            kind::SYNC_WANT
        }
        Message::SyncDone { sync, region } => {
            body.u64(sync.0).u64(*region);
            kind::SYNC_DONE
        }
        Message::SyncLater { sync, region } => {
            body.u64(sync.0).u64(*region);
            kind::SYNC_LATER
        }
        Message::SyncWait { sync } => {
            body.u64(sync.0);
            kind::SYNC_WAIT
        }
        Message::SyncEnd { sync } => {
            body.u64(sync.0);
            kind::SYNC_END
        }
        Message::Synced => kind::SYNCED,
    };
    let data = match payload {
        Some(Payload::Data(data)) => data.clone(),
        Some(Payload::Zeros) | None => Chain::new(),
    };
    let flags = if matches!(payload, Some(Payload::Zeros)) { ZEROS } else { 0 };
    let Writer(mut head) = body;
    let body_bytes = (head.len() - HEADER_BYTES) as u32;
    head[0] = kind;
    head[1] = flags;
    head[4..8].copy_from_slice(&(data.len() as u32).to_le_bytes());
    head[8..16].copy_from_slice(&envelope.epoch.0.to_le_bytes());
    head[16..24].copy_from_slice(&envelope.incarnation.0.to_le_bytes());
    head[24..28].copy_from_slice(&body_bytes.to_le_bytes());
    let crc = head_crc(&head);
    head[28..32].copy_from_slice(&crc.to_le_bytes());
    (head, data)
}

impl Header {
    /// Parses the header of a message.
    ///
    /// # Errors
    /// [`Malformed::Value`] if a length is above its maximum: then none of the message is read.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Header, Malformed> {
        let mut reader = Reader(bytes);
        let (kind, flags) = (reader.u8()?, reader.u8()?);
        let reserved = reader.take(2)?;
        let payload_bytes = reader.u32()?;
        let header = Header {
            kind,
            zeros: flags == ZEROS,
            epoch: Epoch(reader.u64()?),
            incarnation: Incarnation(reader.u64()?),
            body_bytes: reader.u32()?,
            payload_bytes,
            crc: reader.u32()?,
            crc_so_far: crc_of(&bytes[..28]),
        };
        let fits = header.payload_bytes <= PAYLOAD_MAX && header.body_bytes <= BODY_MAX;
        if !fits || flags & !ZEROS != 0 || reserved != [0, 0] || header.zeros && payload_bytes != 0 {
            return Err(Malformed::Value);
        }
        Ok(header)
    }

    /// The epoch in which the message was sent.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

/// Decodes a message for a slice of this geometry. Body and payload must be as long as the header says.
pub fn decode(
    header: Header,
    body: &[u8],
    payload: Chain,
    geometry: &Geometry,
) -> Result<Envelope, Malformed> {
    if body.len() != header.body_bytes as usize || payload.len() != header.payload_bytes as usize {
        return Err(Malformed::Length);
    }
    let mut crc = header.crc_so_far;
    crc.update(body);
    if crc.value() != header.crc {
        return Err(Malformed::Checksum);
    }
    let mut reader = Reader(body);
    let message = match header.kind {
        kind::INVALIDATE => {
            let round = RoundId(reader.u64()?);
            let ts = reader.timestamp()?;
            let blocks = reader.blocks(geometry)?;
            let payload = reader.payload(header, payload, blocks, geometry)?;
            Message::Invalidate { round, ts, blocks, payload }
        }
        kind::ACKNOWLEDGE => {
            Message::Acknowledge { rounds: reader.list(8, |reader| Ok(RoundId(reader.u64()?)))? }
        }
        kind::VALIDATE => Message::Validate { writes: reader.known(geometry)? },
        kind::ASK_VALIDATION => Message::AskValidation,
        kind::CONFIRM_READS => Message::ConfirmReads { probe: ProbeId(reader.u64()?) },
        kind::READS_CONFIRMED => Message::ReadsConfirmed { probe: ProbeId(reader.u64()?) },
        kind::ACTIVATED => Message::Activated,
        kind::FLOOR => Message::Floor { floor: reader.timestamp()? },
        kind::SYNC_OPEN => {
            let sync = SyncId(reader.u64()?);
            let dirty = reader.regions(geometry)?;
            let lost = reader.list(12, |reader| Ok((reader.region(geometry)?, reader.u32()?)))?;
            let is_possible = |units: u32| (1..=LOST_UNITS_MAX).contains(&units);
            if !lost.is_sorted_by(|(one, _), (next, _)| one < next)
                || !lost.iter().all(|(_, units)| is_possible(*units))
            {
                return Err(Malformed::Value);
            }
            let lost = lost.into_iter().collect();
            Message::SyncOpen { sync, dirty, lost }
        }
        kind::SYNC_CLEAN => {
            let sync = SyncId(reader.u64()?);
            let known = reader.known(geometry)?;
            let inherit = reader.list(8, |reader| Ok((reader.slot()?, reader.regions(geometry)?)))?;
            Message::SyncClean { sync, known, inherit }
        }
        kind::SYNC_REGION => {
            let sync = SyncId(reader.u64()?);
            let region = reader.region(geometry)?;
            let inherit = reader.slots()?;
            let (known, moving) = (reader.known(geometry)?, reader.known(geometry)?);
            let blocks = geometry.blocks_of(region);
            let lost = reader.lost(blocks)?;
            let payload = reader.payload(header, payload, blocks, geometry)?;
            Message::SyncRegion { sync, region, payload, known, moving, lost, inherit }
        }
        kind::SYNC_DONE => {
            Message::SyncDone { sync: SyncId(reader.u64()?), region: reader.region(geometry)? }
        }
        kind::SYNC_PROBE => {
            let sync = SyncId(reader.u64()?);
            let region = reader.region(geometry)?;
            let inherit = reader.slots()?;
            let digest = reader.take(32)?.try_into().expect("as long as was asked for");
            Message::SyncProbe { sync, region, digest: Digest(digest), inherit }
        }
        kind::SYNC_WANT => {
            Message::SyncWant { sync: SyncId(reader.u64()?), region: reader.region(geometry)? }
        }
        kind::SYNC_LATER => {
            Message::SyncLater { sync: SyncId(reader.u64()?), region: reader.region(geometry)? }
        }
        kind::SYNC_WAIT => Message::SyncWait { sync: SyncId(reader.u64()?) },
        kind::SYNC_END => Message::SyncEnd { sync: SyncId(reader.u64()?) },
        kind::SYNCED => Message::Synced,
        unknown => return Err(Malformed::Kind(unknown)),
    };
    let brings_data = matches!(message, Message::Invalidate { .. } | Message::SyncRegion { .. });
    if !reader.0.is_empty() || !brings_data && header.payload_bytes != 0 {
        return Err(Malformed::Length);
    }
    if header.zeros && !brings_data {
        return Err(Malformed::Value);
    }
    Ok(Envelope { epoch: header.epoch, incarnation: header.incarnation, message })
}

/// Parses a head, as [`encode`] creates it, and its payload.
pub fn parse(head: &[u8], payload: Chain, geometry: &Geometry) -> Result<Envelope, Malformed> {
    let (header, body) = head.split_first_chunk().ok_or(Malformed::Length)?;
    decode(Header::parse(header)?, body, payload, geometry)
}

struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, value: u32) -> &mut Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn timestamp(&mut self, ts: Timestamp) -> &mut Writer {
        self.u64(ts.epoch.0).u64(ts.counter).u32(ts.slot.index() as u32)
    }

    fn blocks(&mut self, blocks: Blocks) -> &mut Writer {
        self.u64(blocks.start).u64(blocks.end)
    }

    fn known(&mut self, known: &[(Blocks, Timestamp)]) -> &mut Writer {
        self.u32(known.len() as u32);
        for (blocks, ts) in known {
            self.blocks(*blocks).timestamp(*ts);
        }
        self
    }

    fn regions(&mut self, regions: &Regions) -> &mut Writer {
        let words = regions.words();
        self.u32(words.len() as u32);
        for (at, bits) in words {
            self.u32(at as u32).u64(bits);
        }
        self
    }

    fn payload_crc(&mut self, payload: &Payload) -> &mut Writer {
        self.u32(match payload {
            Payload::Data(data) => data_crc(data),
            Payload::Zeros => 0,
        })
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    fn slot(&mut self) -> Result<Slot, Malformed> {
        Slot::new(self.u32()? as usize).ok_or(Malformed::Value)
    }

    fn slots(&mut self) -> Result<Slots, Malformed> {
        let bits = u8::try_from(self.u32()?).map_err(|_| Malformed::Value)?;
        let slots = Slots::from_bits(bits);
        if slots.bits() == bits { Ok(slots) } else { Err(Malformed::Value) }
    }

    fn timestamp(&mut self) -> Result<Timestamp, Malformed> {
        Ok(Timestamp { epoch: Epoch(self.u64()?), counter: self.u64()?, slot: self.slot()? })
    }

    fn blocks(&mut self, geometry: &Geometry) -> Result<Blocks, Malformed> {
        let (start, end) = (self.u64()?, self.u64()?);
        if start < end && end <= geometry.blocks {
            Ok(Blocks::new(start, end))
        } else {
            Err(Malformed::Value)
        }
    }

    /// Lost blocks of these, in order and apart.
    fn lost(&mut self, blocks: Blocks) -> Result<Vec<LostBlocks>, Malformed> {
        let mut at = blocks.start;
        let parts = self.list(20, |reader| Ok((reader.u64()?, reader.u64()?, reader.slots()?)))?.into_iter();
        let part = |(start, end, holders): (u64, u64, Slots)| {
            let fits = at <= start && start < end && end <= blocks.end;
            at = end;
            fits.then_some(LostBlocks { blocks: Blocks { start, end }, holders }).ok_or(Malformed::Value)
        };
        parts.map(part).collect()
    }

    fn region(&mut self, geometry: &Geometry) -> Result<u64, Malformed> {
        let region = self.u64()?;
        if region < geometry.regions() { Ok(region) } else { Err(Malformed::Value) }
    }

    fn regions(&mut self, geometry: &Geometry) -> Result<Regions, Malformed> {
        let mut regions = Regions::default();
        for (at, bits) in self.list(12, |reader| Ok((u64::from(reader.u32()?), reader.u64()?)))? {
            if bits == 0 || regions.last_word() >= Some(at) {
                return Err(Malformed::Value);
            }
            regions.insert_word(at, bits);
        }
        match regions.last() {
            Some(last) if last >= geometry.regions() => Err(Malformed::Value),
            _ => Ok(regions),
        }
    }

    /// A list of elements of at least `size` bytes each, so that it cannot claim more elements than there are
    /// bytes.
    fn list<T>(
        &mut self,
        size: usize,
        element: impl Fn(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u32()? as usize;
        if self.0.len() / size < count {
            return Err(Malformed::Length);
        }
        (0..count).map(|_| element(self)).collect()
    }

    fn known(&mut self, geometry: &Geometry) -> Result<Vec<(Blocks, Timestamp)>, Malformed> {
        self.list(36, |reader| Ok((reader.blocks(geometry)?, reader.timestamp()?)))
    }

    fn payload(
        &mut self,
        header: Header,
        payload: Chain,
        blocks: Blocks,
        geometry: &Geometry,
    ) -> Result<Payload, Malformed> {
        let crc = self.u32()?;
        if header.zeros {
            return if crc == 0 { Ok(Payload::Zeros) } else { Err(Malformed::Value) };
        }
        if payload.len() as u64 != blocks.count() * u64::from(geometry.block_bytes) {
            return Err(Malformed::Length);
        }
        if data_crc(&payload) != crc {
            return Err(Malformed::Checksum);
        }
        Ok(Payload::Data(payload))
    }
}

/// The CRC32C of a head, without its own field.
fn head_crc(head: &[u8]) -> u32 {
    let mut crc = crc_of(&head[..28]);
    crc.update(&head[HEADER_BYTES..]);
    crc.value()
}

fn crc_of(bytes: &[u8]) -> Crc32c {
    let mut crc = Crc32c::new();
    crc.update(bytes);
    crc
}

fn data_crc(data: &Chain) -> u32 {
    let mut crc = Crc32c::new();
    data.parts().iter().for_each(|part| crc.update(part));
    crc.value()
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;
    use crate::LostUnits;

    const GEOMETRY: Geometry = Geometry { blocks: 1000, block_bytes: 4, region_blocks: 16 };

    fn slot(number: usize) -> Slot {
        Slot::new(number).unwrap()
    }

    fn ts() -> Timestamp {
        Timestamp { epoch: Epoch(6), counter: 0x1122, slot: slot(3) }
    }

    fn all() -> Vec<Message> {
        let data = |blocks: usize| Payload::Data(Chain::copy_of(&vec![7; blocks * 4]));
        let known = vec![(Blocks::new(3, 5), ts()), (Blocks::new(9, 10), ts())];
        vec![
            Message::Invalidate { round: RoundId(9), ts: ts(), blocks: Blocks::new(2, 5), payload: data(3) },
            Message::Invalidate {
                round: RoundId(9),
                ts: ts(),
                blocks: Blocks::new(2, 900),
                payload: Payload::Zeros,
            },
            Message::Acknowledge { rounds: vec![RoundId(u64::MAX), RoundId(7)] },
            Message::Validate { writes: known.clone() },
            Message::AskValidation,
            Message::ConfirmReads { probe: ProbeId(3) },
            Message::ReadsConfirmed { probe: ProbeId(u64::MAX) },
            Message::Activated,
            Message::SyncProbe {
                sync: SyncId(5),
                region: 62,
                digest: Digest(std::array::from_fn(|at| at as u8)),
                inherit: Slots::from_bits(0b1010),
            },
            Message::SyncWant { sync: SyncId(5), region: 62 },
            Message::Floor { floor: ts() },
            Message::SyncOpen {
                sync: SyncId(1),
                dirty: [0, 7, 62].into_iter().collect(),
                lost: [(7, 3), (62, 1)].into(),
            },
            Message::SyncClean {
                sync: SyncId(1),
                known: known.clone(),
                inherit: vec![(Slot::new(3).unwrap(), [5, 61].into_iter().collect())],
            },
            Message::SyncRegion {
                sync: SyncId(1),
                region: 62,
                payload: data(8),
                known,
                moving: vec![(Blocks::new(995, 996), ts())],
                lost: vec![lost(993, 994), LostBlocks { holders: Slots::ALL, ..lost(998, 1000) }],
                inherit: Slots::NONE,
            },
            Message::SyncDone { sync: SyncId(1), region: 3 },
            Message::SyncLater { sync: SyncId(2), region: 62 },
            Message::SyncWait { sync: SyncId(4) },
            Message::SyncEnd { sync: SyncId(1) },
            Message::Synced,
        ]
    }

    fn parse(head: &[u8], payload: Chain) -> Result<Envelope, Malformed> {
        super::parse(head, payload, &GEOMETRY)
    }

    #[test]
    fn messages_are_decoded_as_encoded() {
        for message in all() {
            let envelope = Envelope { epoch: Epoch(6), incarnation: Incarnation(2), message };
            let (head, payload) = encode(&envelope);
            let again = parse(&head, payload).unwrap();
            assert_eq!(format!("{again:?}"), format!("{envelope:?}"));
        }
    }

    /// The table in docs/formats/replication-link.md.
    #[test]
    fn a_write_is_as_documented() {
        let message = Message::Invalidate {
            round: RoundId(9),
            ts: ts(),
            blocks: Blocks::new(2, 3),
            payload: Payload::Data(Chain::copy_of(b"123\0")),
        };
        let (head, payload) = encode(&Envelope { epoch: Epoch(6), incarnation: Incarnation(2), message });
        assert_eq!(payload.to_vec(), b"123\0");
        let header = [1, 0, 0, 0, 4, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 48, 0, 0, 0];
        assert_eq!(head[..28], header);
        let body = [
            9, 0, 0, 0, 0, 0, 0, 0, // round
            6, 0, 0, 0, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, // timestamp
            2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, // blocks
        ];
        assert_eq!(head[32..76], body);
        assert_eq!(head.len(), 80, "and the CRC32C of the payload");
    }

    #[test]
    fn one_changed_byte_is_noticed_wherever_it_is() {
        for message in all() {
            let (head, payload) = encode(&Envelope { epoch: Epoch(6), incarnation: Incarnation(2), message });
            for at in 0..head.len() {
                let mut broken = head.clone();
                broken[at] ^= 0x40;
                assert!(parse(&broken, payload.clone()).is_err(), "byte {at}");
            }
            if !payload.is_empty() {
                let mut bytes = payload.to_vec();
                bytes[5] ^= 1;
                assert_eq!(parse(&head, Chain::copy_of(&bytes)).unwrap_err(), Malformed::Checksum);
            }
        }
    }

    fn lost(start: u64, end: u64) -> LostBlocks {
        LostBlocks { blocks: Blocks { start, end }, holders: Slots::NONE }
    }

    fn with_lost(lost: Vec<LostBlocks>) -> Message {
        let (known, moving) = (Vec::new(), Vec::new());
        let inherit = Slots::NONE;
        Message::SyncRegion {
            sync: SyncId(1),
            region: 62,
            payload: Payload::Zeros,
            known,
            moving,
            lost,
            inherit,
        }
    }

    /// A peer may run another version, or have a bug.
    #[test]
    fn values_that_are_out_of_range_are_refused_though_their_checksums_are_right() {
        let wrong = [
            Message::Validate { writes: vec![(Blocks::new(999, 1001), ts())] },
            Message::SyncDone { sync: SyncId(1), region: 63 },
            Message::SyncLater { sync: SyncId(1), region: 63 },
            Message::SyncOpen {
                sync: SyncId(1),
                dirty: std::iter::once(63).collect(),
                lost: LostUnits::new(),
            },
            Message::SyncOpen { sync: SyncId(1), dirty: Regions::default(), lost: [(63, 1)].into() },
            Message::SyncOpen { sync: SyncId(1), dirty: Regions::default(), lost: [(5, 63)].into() },
            with_lost(vec![lost(991, 993)]),
            with_lost(vec![lost(996, 998), lost(997, 999)]),
        ];
        for message in wrong {
            let (head, payload) = encode(&Envelope { epoch: Epoch(6), incarnation: Incarnation(2), message });
            assert_eq!(parse(&head, payload).unwrap_err(), Malformed::Value);
        }
        let short = Message::Invalidate {
            round: RoundId(1),
            ts: ts(),
            blocks: Blocks::new(0, 9),
            payload: Payload::Data(Chain::copy_of(b"1234")),
        };
        let (head, payload) =
            encode(&Envelope { epoch: Epoch(6), incarnation: Incarnation(2), message: short });
        assert_eq!(parse(&head, payload).unwrap_err(), Malformed::Length);
        let zeros = Message::Invalidate {
            round: RoundId(1),
            ts: ts(),
            blocks: Blocks::new(0, 9),
            payload: Payload::Zeros,
        };
        let (mut head, payload) =
            encode(&Envelope { epoch: Epoch(6), incarnation: Incarnation(2), message: zeros });
        *head.last_mut().unwrap() = 1;
        let crc = head_crc(&head);
        head[28..32].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(parse(&head, payload).unwrap_err(), Malformed::Value, "the CRC32C of no data");
    }

    #[test]
    fn garbage_is_refused_without_taking_memory_for_it() {
        let mut rng = Rng::new(3);
        for _ in 0..20_000 {
            let mut head = vec![0; HEADER_BYTES + rng.below(60) as usize];
            rng.fill(&mut head);
            head[0] = rng.below(20) as u8;
            head[1..8].fill(0);
            let body = (head.len() - HEADER_BYTES) as u32;
            head[24..28].copy_from_slice(&body.to_le_bytes());
            let crc = head_crc(&head);
            head[28..32].copy_from_slice(&crc.to_le_bytes());
            if let Ok(envelope) = parse(&head, Chain::new()) {
                assert_eq!(encode(&envelope).0, head, "what is understood can be said in one way only");
            }
        }
    }
}
