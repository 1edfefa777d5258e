//! A catalog as bytes, and back: the byte table is in `docs/formats/pool.md`.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{BlockSize, ByteLen};

use super::{
    CAPACITY_MAX, Catalog, Compression, DiskEntry, Host, LU_STATE_BYTES_MAX, LogEntry, Logs, Malformed,
    OtherLayout, SLICES_MAX, SpacePolicy, VOLUMES_MAX, VolumeEntry, VolumeKind, WhenFull, is_name,
};
use crate::copy::{COPIES_MAX, CopyOf, CopyState, PoolMark};
use crate::cursor::{Cursor, put_text};
use crate::extent::ExtentRun;
use crate::geometry::DISKS_MAX;
use crate::id::{ClusterId, DiskId, HostId, VolumeId};
use crate::log::marks::Origin;
use crate::stripe::Stripe;

/// The bit of a disk's number of extents that says that the disk is leaving.
const LEAVING: u32 = 1 << 31;

/// Set in the number of the kind of a volume that is being converted to another one.
const CONVERTING: u8 = 0x80;
/// Set in the number of the kind of a thick volume with checksums.
const CHECKSUMS: u8 = 0x40;
/// Set in the number of the kind of a volume that is being converted to a thick one with checksums.
const CHECKSUMS_NEXT: u8 = 0x20;

/// The encoding of [`CopyState`] in the catalog.
const COPY_NONE: u8 = 0;
const COPY_BLANK: u8 = 1;
const COPY_TRUSTED: u8 = 2;
const COPY_SET_BACK: u8 = 3;
const COPY_SOLE: u8 = 4;
const COPY_NEW: u8 = 5;

impl Catalog {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_text(&mut bytes, &self.name);
        bytes.extend_from_slice(&self.host.id.0);
        put_text(&mut bytes, &self.host.name);
        bytes.push(u8::from(self.exported));
        bytes.extend_from_slice(&(self.disks.len() as u16).to_le_bytes());
        for disk in &self.disks {
            bytes.extend_from_slice(&disk.id.0);
            bytes.extend_from_slice(&disk.bytes.to_le_bytes());
            let leaving = if disk.leaving { LEAVING } else { 0 };
            bytes.extend_from_slice(&(disk.extents | leaving).to_le_bytes());
        }
        bytes.extend_from_slice(&(self.volumes.len() as u32).to_le_bytes());
        for (id, volume) in &self.volumes {
            bytes.extend_from_slice(&id.0);
            volume.encode(&mut bytes);
        }
        bytes.extend_from_slice(&self.mark.count.to_le_bytes());
        bytes.extend_from_slice(&self.mark.at.to_le_bytes());
        bytes.extend_from_slice(&self.sealed.to_le_bytes());
        self.logs.encode(&mut bytes);
        bytes
    }

    /// Decodes what [`Catalog::encode`] wrote, and checks that it is possible, with extents of
    /// `extent_bytes`.
    pub(crate) fn decode(bytes: &[u8], extent_bytes: u64) -> Result<Catalog, Malformed> {
        let mut fields = Cursor::new(bytes);
        let mut catalog = Catalog::decode_pool(&mut fields)?;
        let count = fields.u32().ok_or(Malformed::Length)?;
        if count as usize > VOLUMES_MAX {
            return Err(Malformed::Pool);
        }
        for _ in 0..count {
            let id = VolumeId(fields.id().ok_or(Malformed::Length)?);
            let volume = VolumeEntry::decode(&mut fields).ok_or(Malformed::Volume(id))?;
            if catalog.volumes.insert(id, Rc::new(volume)).is_some() {
                return Err(Malformed::Twice(id));
            }
        }
        let mut number = || fields.u64().ok_or(Malformed::Length);
        catalog.mark = PoolMark { count: number()?, at: number()? };
        catalog.sealed = number()?;
        // A pool that never had a log has no such part; nor had any pool before there were logs.
        if !fields.is_at_end() {
            catalog.logs = Logs::decode(&mut fields).ok_or(Malformed::Length)?;
        }
        if !fields.is_at_end() {
            return Err(Malformed::Length);
        }
        catalog.check(extent_bytes)?;
        Ok(catalog)
    }

    fn decode_pool(fields: &mut Cursor<'_>) -> Result<Catalog, Malformed> {
        let name = fields.text().ok_or(Malformed::Length)?.to_owned();
        let id = HostId(fields.id().ok_or(Malformed::Length)?);
        let host = Host { id, name: fields.text().ok_or(Malformed::Length)?.to_owned() };
        let exported = fields.u8().ok_or(Malformed::Length)? != 0;
        let count = fields.u16().ok_or(Malformed::Length)?;
        if count == 0 || usize::from(count) > DISKS_MAX {
            return Err(Malformed::Pool);
        }
        let disk = |fields: &mut Cursor<'_>| {
            let (id, bytes, extents) = (DiskId(fields.id()?), fields.u64()?, fields.u32()?);
            Some(DiskEntry { id, bytes, extents: extents & !LEAVING, leaving: extents & LEAVING != 0 })
        };
        let disks = (0..count).map(|_| disk(fields)).collect::<Option<Vec<DiskEntry>>>();
        let disks = disks.ok_or(Malformed::Length)?;
        let is_leaving = |disk: &&DiskEntry| disk.leaving;
        if disks.iter().all(DiskEntry::is_vacant) || disks.iter().filter(is_leaving).count() > 1 {
            return Err(Malformed::Pool);
        }
        Ok(Catalog {
            name,
            host,
            exported,
            disks,
            volumes: BTreeMap::new(),
            mark: PoolMark::default(),
            sealed: 0,
            logs: Logs::default(),
        })
    }
}

impl Logs {
    fn encode(&self, bytes: &mut Vec<u8>) {
        if self.logs.is_empty() && self.next_branch == 0 {
            return;
        }
        bytes.extend_from_slice(&self.next_branch.to_le_bytes());
        self.roots.iter().for_each(|runs| encode_runs(runs, bytes));
        bytes.extend_from_slice(&(self.logs.len() as u16).to_le_bytes());
        for (number, log) in &self.logs {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(&log.identity);
            bytes.push(log.segment_shift);
            bytes.extend_from_slice(&log.zone_segments.to_le_bytes());
            bytes.extend_from_slice(&(log.zones.len() as u32).to_le_bytes());
            for (zone, run) in &log.zones {
                bytes.extend_from_slice(&zone.to_le_bytes());
                encode_run(run, bytes);
            }
        }
    }

    fn decode(fields: &mut Cursor<'_>) -> Option<Logs> {
        let next_branch = fields.u32()?;
        let roots = [decode_runs(fields)?, decode_runs(fields)?];
        let mut logs = BTreeMap::new();
        for _ in 0..fields.u16()? {
            let number = fields.u16()?;
            let (identity, segment_shift, zone_segments) = (fields.id()?, fields.u8()?, fields.u32()?);
            let mut zones = BTreeMap::new();
            for _ in 0..fields.u32()? {
                let zone = fields.u32()?;
                if zones.insert(zone, decode_run(fields)?).is_some() {
                    return None;
                }
            }
            let log = LogEntry { identity, segment_shift, zone_segments, zones };
            if logs.insert(number, log).is_some() {
                return None;
            }
        }
        Some(Logs { roots, next_branch, logs })
    }
}

impl VolumeEntry {
    fn encode(&self, bytes: &mut Vec<u8>) {
        put_text(bytes, &self.name);
        let has_next = self.next.as_ref().is_some_and(|next| next.checksums.is_some());
        let flags = [
            (self.next.is_some(), CONVERTING),
            (self.checksums.is_some(), CHECKSUMS),
            (has_next, CHECKSUMS_NEXT),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
        bytes.push(self.kind as u8 | flags);
        bytes.push(self.block_size.shift() as u8);
        bytes.push(self.physical_exponent);
        bytes.push(self.stripe.unit().0.trailing_zeros() as u8);
        bytes.extend_from_slice(&self.capacity.0.to_le_bytes());
        bytes.extend_from_slice(&self.created.to_le_bytes());
        let epoch = match self.copy.map(|copy| copy.state) {
            None | Some(CopyState::Blank | CopyState::Sole | CopyState::New) => 0,
            Some(CopyState::Trusted { epoch } | CopyState::SetBack { epoch }) => epoch,
        };
        bytes.extend_from_slice(&epoch.to_le_bytes());
        bytes.extend_from_slice(&(self.lu_state.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.lu_state);
        bytes.extend_from_slice(&(self.slices.len() as u16).to_le_bytes());
        self.slices.iter().for_each(|runs| encode_runs(runs, bytes));
        self.encode_copy(bytes);
        self.checksums.iter().for_each(|runs| encode_runs(runs, bytes));
        if self.kind == VolumeKind::Log {
            bytes.extend_from_slice(&self.branch.to_le_bytes());
            bytes.push(self.space.when_full as u8);
            bytes.extend_from_slice(&self.space.reserve.0.to_le_bytes());
            bytes.push(self.compression as u8);
            bytes.push(self.origin.is_some().into());
            if let Some(Origin { branch, snapshot }) = self.origin {
                bytes.extend_from_slice(&branch.to_le_bytes());
                bytes.extend_from_slice(&snapshot.to_le_bytes());
            }
        }
        match &self.next {
            Some(next) if next.kind == VolumeKind::Log => {
                bytes.extend_from_slice(&next.branch.to_le_bytes());
                bytes.push(next.compression as u8);
            }
            Some(next) => next.slices.iter().chain(&next.checksums).for_each(|runs| encode_runs(runs, bytes)),
            None => {}
        }
    }

    fn encode_copy(&self, bytes: &mut Vec<u8>) {
        let Some(copy) = self.copy else {
            bytes.push(COPY_NONE);
            return;
        };
        bytes.push(match copy.state {
            CopyState::Blank => COPY_BLANK,
            CopyState::Sole => COPY_SOLE,
            CopyState::New => COPY_NEW,
            CopyState::Trusted { .. } => COPY_TRUSTED,
            CopyState::SetBack { .. } => COPY_SET_BACK,
        });
        bytes.push(copy.slot);
        bytes.extend_from_slice(&copy.cluster.0);
        encode_runs(&self.map, bytes);
    }

    fn decode(fields: &mut Cursor<'_>) -> Option<VolumeEntry> {
        let name = fields.text()?.to_owned();
        let code = fields.u8()?;
        let kind = VolumeKind::from_number(code & !(CONVERTING | CHECKSUMS | CHECKSUMS_NEXT))?;
        let block_size = BlockSize::from_bytes(1u32.checked_shl(fields.u8()?.into())?)?;
        let physical_exponent = fields.u8()?;
        let unit = 1u64.checked_shl(fields.u8()?.into())?;
        let capacity = ByteLen(fields.u64()?);
        let created = fields.u64()?;
        let epoch = fields.u64()?;
        let lu_state_len = fields.u32()? as usize;
        if lu_state_len > LU_STATE_BYTES_MAX {
            return None;
        }
        let lu_state = fields.take(lu_state_len)?.to_vec();
        let count = fields.u16()?;
        let sound = is_name(&name)
            && count.is_power_of_two()
            && count <= SLICES_MAX
            && capacity.0 > 0
            && capacity <= CAPACITY_MAX
            && capacity.0.is_multiple_of(u64::from(block_size.bytes()))
            && (u64::from(BlockSize::B4096.bytes())..=CAPACITY_MAX.0).contains(&unit);
        if !sound {
            return None;
        }
        let slices = (0..count).map(|_| decode_runs(fields)).collect::<Option<Vec<Vec<ExtentRun>>>>()?;
        let stripe = Stripe::new(count, ByteLen(unit));
        let (copy, map) = decode_copy(epoch, fields)?;
        let checksums = match (code & CHECKSUMS != 0, kind) {
            (false, _) => None,
            (true, VolumeKind::Thick) => Some(decode_runs(fields)?),
            (true, VolumeKind::Ram | VolumeKind::Log) => return None,
        };
        let (mut branch, mut space, mut compression) = (0, SpacePolicy::default(), Compression::Off);
        let mut origin = None;
        if kind == VolumeKind::Log {
            branch = fields.u32()?;
            let when_full = WhenFull::from_number(fields.u8()?)?;
            space = SpacePolicy { when_full, reserve: ByteLen(fields.u64()?) };
            compression = Compression::from_number(fields.u8()?)?;
            origin = match fields.u8()? {
                0 => None,
                1 => Some(Origin { branch: fields.u32()?, snapshot: fields.u64()? }),
                _ => return None,
            };
        }
        if !space.suits(kind, capacity) {
            return None;
        }
        let has_next = code & CHECKSUMS_NEXT != 0;
        let next = match code & CONVERTING != 0 {
            true => Some(OtherLayout::decode(kind, count, has_next, fields)?),
            false if has_next => return None,
            false => None,
        };
        Some(VolumeEntry {
            name,
            kind,
            block_size,
            physical_exponent,
            stripe,
            capacity,
            created,
            copy,
            lu_state,
            slices,
            map,
            checksums,
            branch,
            origin,
            space,
            compression,
            next,
        })
    }
}

impl OtherLayout {
    /// Decodes the layout that a volume of this kind, with `count` slices, is being converted to.
    fn decode(
        from: VolumeKind,
        count: u16,
        has_checksums: bool,
        fields: &mut Cursor<'_>,
    ) -> Option<OtherLayout> {
        let kind = from.other()?;
        let slices = vec![Vec::new(); count.into()];
        let (origin, compression) = (None, Compression::Off);
        let mut next = OtherLayout { kind, slices, checksums: None, branch: 0, origin, compression };
        match kind {
            VolumeKind::Log if has_checksums => return None,
            VolumeKind::Log => {
                next.branch = fields.u32()?;
                next.compression = Compression::from_number(fields.u8()?)?;
            }
            VolumeKind::Thick | VolumeKind::Ram => {
                for runs in &mut next.slices {
                    *runs = decode_runs(fields)?;
                }
                if has_checksums {
                    next.checksums = Some(decode_runs(fields)?);
                }
            }
        }
        Some(next)
    }
}

fn encode_runs(runs: &[ExtentRun], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(runs.len() as u32).to_le_bytes());
    runs.iter().for_each(|run| encode_run(run, bytes));
}

fn encode_run(run: &ExtentRun, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&run.disk.to_le_bytes());
    bytes.extend_from_slice(&run.start.to_le_bytes());
    bytes.extend_from_slice(&run.count.to_le_bytes());
}

/// Decodes which copy a volume is, and where its map lies.
fn decode_copy(epoch: u64, fields: &mut Cursor<'_>) -> Option<(Option<CopyOf>, Vec<ExtentRun>)> {
    let state = match fields.u8()? {
        COPY_NONE if epoch == 0 => return Some((None, Vec::new())),
        COPY_BLANK if epoch == 0 => CopyState::Blank,
        COPY_SOLE if epoch == 0 => CopyState::Sole,
        COPY_NEW if epoch == 0 => CopyState::New,
        COPY_TRUSTED => CopyState::Trusted { epoch },
        COPY_SET_BACK => CopyState::SetBack { epoch },
        _ => return None,
    };
    let slot = fields.u8().filter(|slot| *slot < COPIES_MAX)?;
    let cluster = ClusterId(fields.id()?);
    Some((Some(CopyOf { cluster, slot, state }), decode_runs(fields)?))
}

fn decode_runs(fields: &mut Cursor<'_>) -> Option<Vec<ExtentRun>> {
    let count = fields.u32()?;
    // Not allocated in advance: a damaged count must not take that much memory.
    (0..count).map(|_| decode_run(fields)).collect()
}

fn decode_run(fields: &mut Cursor<'_>) -> Option<ExtentRun> {
    Some(ExtentRun { disk: fields.u16()?, start: fields.u32()?, count: fields.u32()? })
}
