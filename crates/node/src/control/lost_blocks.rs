//! Lost blocks in this node's copies: no copy in sync could read them (R27 in `docs/why/replication.md`).

use std::cell::RefCell;
use std::collections::BTreeMap;

use base::{ByteLen, ByteOffset};

use super::read_errors::{with_control, with_volume};
use super::{Control, Fault, FaultKind};
use crate::copies::Address;
use crate::data::VolumeId;
use crate::events::code::BLOCKS_LOST;
use crate::events::{Event, tell};

/// By slice: the first lost byte, as an offset in the volume, and how many bytes are lost in total.
#[derive(Default)]
pub(super) struct LostBlocks(RefCell<BTreeMap<Address, (ByteOffset, ByteLen)>>);

/// Sets what a copy's slice has lost: offset in the volume and length; `None` for nothing. From any core.
pub(crate) fn set_lost_of_copy(slice: Address, lost: Option<(ByteOffset, ByteLen)>) {
    with_control(move |control| {
        let mut all = control.lost_blocks.0.borrow_mut();
        match lost {
            Some(lost) => all.insert(slice, lost),
            None => all.remove(&slice),
        };
    });
}

/// Reports that a copy of the volume with this number has lost `len` bytes at this offset. From any core.
pub(crate) fn note_lost_of_copy(number: u32, of_volume: ByteOffset, len: ByteLen) {
    with_volume(number, move |control, id| control.note_lost(id, of_volume.0, len.0));
}

impl Control {
    /// The volumes whose copies on this node have lost blocks.
    pub(super) fn lost_blocks(&self) -> Vec<Fault> {
        let Ok(reconciler) = self.reconciler() else { return Vec::new() };
        let mut volumes = BTreeMap::<u32, (u64, u64)>::new();
        for (slice, (first, len)) in &*self.lost_blocks.0.borrow() {
            let (lowest, bytes) = volumes.entry(slice.volume).or_insert((u64::MAX, 0));
            (*lowest, *bytes) = (first.0.min(*lowest), *bytes + len.0);
        }
        let fault = |(number, (first, bytes)): (u32, (u64, u64))| {
            let id = reconciler.id_of(number)?;
            // If the copy is gone from this node, its lost blocks do not matter.
            let (_, info) = self.volume_named(&id.to_string()).ok()?;
            let block = u64::from(info.block_size.bytes());
            let volume = self.shown_name(&info);
            let (blocks, lba) = (bytes / block, first / block);
            Some(FaultKind::BlocksLost { id: id.to_string(), volume, blocks, lba }.into())
        };
        volumes.into_iter().filter_map(fault).collect()
    }

    /// Emits the event that this node's copy of a volume has lost a range.
    fn note_lost(&self, volume: VolumeId, of_volume: u64, len: u64) {
        let Ok((_, info)) = self.volume_named(&volume.to_string()) else { return };
        let block = u64::from(info.block_size.bytes());
        let (first, last) = (of_volume / block, (of_volume + len).div_ceil(block) - 1);
        let name = self.shown_name(&info);
        let (lost, lbas) = match last - first + 1 {
            1 => (format!("1 block of volume {name} is lost"), format!("LBA {first}")),
            count => (format!("{count} blocks of volume {name} are lost"), format!("LBA {first} to {last}")),
        };
        let text =
            format!("{lost} ({lbas}): no copy in sync could read this while this node's copy resynced");
        tell(Event::new(BLOCKS_LOST, name, text).of_volume(volume));
    }
}
