//! What the tests in the simulated world share: a machine with disks, and volumes with all their slices.

use std::path::PathBuf;

use base::{BlockSize, Buf, ByteLen, ByteOffset, Chain};
use rt::sim::{DiskImage, NodeId, World};
use rt::{CoreId, Durability};
use store::{
    Compression, CoreDisks, CreateOptions, Host, HostId, NewDisk, OpenPool, Pool, RamBudget, Slice,
    SliceError, VolumeId, VolumeInfo, VolumeKind, VolumeSpec,
};

pub(crate) const CORE: CoreId = CoreId(0);

pub(crate) fn host(number: u8) -> Host {
    Host { id: HostId([number; 16]), name: format!("host-{number}") }
}

pub(crate) fn ram() -> RamBudget {
    RamBudget::new(ByteLen(64 << 20))
}

pub(crate) fn opening(number: u8) -> OpenPool {
    OpenPool { host: host(number), force: false, ram: ram(), uncertain: None }
}

pub(crate) fn creating() -> CreateOptions {
    CreateOptions {
        name: "pool".into(),
        host: host(1),
        extent: Some(ByteLen(64 << 10)),
        wipe: true,
        ram: ram(),
    }
}

pub(crate) fn thick(name: &str, capacity: u64) -> VolumeSpec {
    VolumeSpec {
        name: name.into(),
        kind: VolumeKind::Thick,
        block_size: BlockSize::B512,
        physical_exponent: 0,
        capacity: ByteLen(capacity),
        slices: Some(2),
        stripe_unit: None,
        created: 1_700_000_000,
        id: None,
        copy: None,
        space: store::SpacePolicy::default(),
        compression: Compression::default(),
        checksums: false,
    }
}

pub(crate) fn path(disk: usize) -> PathBuf {
    PathBuf::from(format!("/disk{disk}"))
}

pub(crate) fn existing(count: usize) -> Vec<NewDisk> {
    (0..count).map(|disk| NewDisk { path: path(disk), create: None, reserve: false }).collect()
}

pub(crate) fn paths(count: usize) -> Vec<PathBuf> {
    (0..count).map(path).collect()
}

/// A machine with disks that are full of old data.
pub(crate) fn machine(world: &World, disks: &[(u64, u32)]) -> NodeId {
    let node = world.add_node("node", 1, |_| std::future::pending());
    for (number, (size, block)) in disks.iter().enumerate() {
        let mut image = DiskImage::new(*size, *block);
        let mail: Vec<u8> = b"someone else's mail ".iter().copied().cycle().take(*size as usize).collect();
        image.write(0, &mail);
        world.put_disk(node, path(number), image);
    }
    node
}

/// A volume in a new pool that is full of sevens, and its offset on the disk: in the first 4 MiB.
pub(crate) fn sevens(world: &World, node: NodeId, spec: VolumeSpec) -> (Pool, Volume, u64) {
    let (pool, volume) = world.block_on(node, CORE, move || async move {
        let pool = Pool::create(existing(1), creating()).await.expect("the disk is empty");
        let info = pool.create_volume(spec).await.expect("it has room");
        let volume = Volume::open(&pool, info.id);
        let data = vec![7; info.capacity.0 as usize];
        volume.write(0, &data, Durability::Durable).await.expect("no fault");
        (pool, volume)
    });
    let mut disk = vec![0; 4 << 20];
    world.disk_image(node, path(0)).read(0, &mut disk);
    let start = disk.windows(4096).position(|bytes| bytes.iter().all(|byte| *byte == 7));
    (pool, volume, start.expect("the disk has it") as u64)
}

/// A volume with all its slices on one core.
pub(crate) struct Volume {
    disks: CoreDisks,
    pub(crate) info: VolumeInfo,
    pub(crate) slices: Vec<Slice>,
}

impl Volume {
    pub(crate) fn open(pool: &Pool, id: VolumeId) -> Volume {
        let disks = pool.share_disks().attach();
        let specs = pool.volume_slices(id, CORE, 1).expect("the volume is there");
        let slices = specs.into_iter().map(|spec| spec.open(&disks)).collect();
        Volume { disks, info: pool.volume(id).expect("the volume is there"), slices }
    }

    pub(crate) fn grow(&mut self, pool: &Pool) {
        self.info = pool.volume(self.info.id).expect("the volume is there");
        let specs = pool.volume_slices(self.info.id, CORE, 1).expect("the volume is there");
        self.disks = pool.share_disks().attach_added(&self.disks);
        self.slices.iter().zip(specs).for_each(|(slice, spec)| slice.grow(spec, &self.disks));
    }

    /// Tells the slices that the pool has begun to convert the volume.
    pub(crate) fn begin_conversion(&self, pool: &Pool) {
        let specs = pool.volume_slices(self.info.id, CORE, 1).expect("the volume is there");
        self.slices.iter().zip(&specs).for_each(|(slice, spec)| slice.begin_conversion(spec, &self.disks));
    }

    pub(crate) async fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, SliceError> {
        let mut data = Vec::new();
        for piece in self.info.stripe.pieces(ByteOffset(offset), ByteLen(len)) {
            let slice = &self.slices[usize::from(piece.slice)];
            data.extend(slice.read(piece.offset, piece.len).await?.to_vec());
        }
        Ok(data)
    }

    pub(crate) async fn write(
        &self,
        offset: u64,
        data: &[u8],
        durability: Durability,
    ) -> Result<(), SliceError> {
        for piece in self.info.stripe.pieces(ByteOffset(offset), ByteLen(data.len() as u64)) {
            let from = (piece.volume_offset.0 - offset) as usize;
            let part = &data[from..from + piece.len.0 as usize];
            // In two buffers, the second of which is not aligned.
            let middle = part.len() / 1024 * 512;
            let mut chain = Chain::copy_of(&part[..middle]);
            let mut shifted = Buf::zeroed(part.len() - middle + 8);
            shifted[8..].copy_from_slice(&part[middle..]);
            let len = shifted.len();
            chain.push(shifted.share().slice(8..len));
            self.slices[usize::from(piece.slice)].write(piece.offset, chain, durability).await?;
        }
        Ok(())
    }

    pub(crate) async fn zero(&self, offset: u64, len: u64) -> Result<(), SliceError> {
        for piece in self.info.stripe.pieces(ByteOffset(offset), ByteLen(len)) {
            self.slices[usize::from(piece.slice)].zero(piece.offset, piece.len).await?;
        }
        Ok(())
    }

    pub(crate) async fn flush(&self) -> Result<(), SliceError> {
        for slice in &self.slices {
            slice.flush().await?;
        }
        Ok(())
    }

    /// The allocated sectors of 512 bytes, requested a few extents at a time.
    pub(crate) async fn allocated(&self) -> Vec<bool> {
        const EXTENTS: usize = 3;
        let mut sectors = vec![false; (self.info.capacity.0 / 512) as usize];
        for slice in &self.slices {
            let mut from = ByteOffset(0);
            loop {
                let rest = ByteLen(slice.len().0 - from.0);
                let found = slice.allocated(from, rest, EXTENTS).await.expect("no fault");
                assert!(found.len() <= EXTENTS);
                for (offset, len) in &found {
                    assert!(*offset >= from && len.0 > 0, "in order");
                    from = *offset + *len;
                    for at in (offset.0..from.0).step_by(512) {
                        let at = self.info.stripe.volume_offset(slice.index(), ByteOffset(at));
                        sectors[(at.0 / 512) as usize] = true;
                    }
                }
                if found.len() < EXTENTS {
                    break;
                }
            }
        }
        sectors
    }
}
