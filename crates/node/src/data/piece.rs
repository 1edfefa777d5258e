//! A piece of an operation: executed on a slice of this core, or by message on another core.

use base::{ByteLen, ByteOffset, Chain, Instant};
use rt::{CoreId, Durability};
use std::rc::Rc;
use store::{Piece, SliceError};

use super::slice::TakenRange;
use super::{ClaimRole, Slice, Volume, core_of};
use crate::shard::Shard;

/// What to do with a piece.
#[derive(Debug)]
pub(super) enum PieceOp {
    Read { len: ByteLen, role: ClaimRole },
    Write { came: Instant, data: Chain, durability: Durability, role: ClaimRole },
    Zero { came: Instant, len: ByteLen },
    Flush,
    TestReady,
}

/// A range of another core's slice that was taken there.
///
/// It exists from the moment at which the range is taken, so that the range is released even if the command
/// is gone when the message with it arrives.
struct TakenThere {
    core: CoreId,
    entry: usize,
}

impl Drop for TakenThere {
    fn drop(&mut self) {
        let TakenThere { core, entry } = *self;
        rt::send(core, move || drop(Shard::current().give_back(entry)));
    }
}

impl Volume {
    /// Runs `work` on a slice, on the core that it lives on.
    ///
    /// # Errors
    /// Those of `work`; [`SliceError::Offline`] if the slice is not open.
    pub async fn on_owner<T, F>(
        &self,
        number: u16,
        work: impl FnOnce(Rc<Slice>) -> F + Send + 'static,
    ) -> Result<T, SliceError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SliceError>> + 'static,
    {
        if let Some(slice) = self.slice(number) {
            return work(slice).await;
        }
        let id = self.id;
        rt::call(core_of(number, rt::cores()), move || async move {
            // The volume may have been deleted while the message was on its way.
            let slice = Shard::current().volume(id).and_then(|volume| volume.slice(number));
            work(slice.ok_or(SliceError::Offline)?).await
        })
        .await
    }

    /// Executes `op` on the slice of `piece`. Returns the data of a read; otherwise nothing.
    pub(super) async fn carry_out_piece(&self, piece: Piece, op: PieceOp) -> Result<Chain, SliceError> {
        self.on_owner(piece.slice, move |slice| async move { on_slice(&slice, piece, op).await }).await
    }

    /// Takes `piece` for a read-modify-write.
    pub(super) async fn take_piece(&self, piece: Piece) -> Result<TakenRange, SliceError> {
        self.take_piece_until(piece, None).await
    }

    /// Takes `piece`, and gives up at a time: newer operations wait behind what is being taken. If the caller
    /// stops waiting, a task on another core does not.
    async fn take_piece_until(&self, piece: Piece, until: Option<Instant>) -> Result<TakenRange, SliceError> {
        let Piece { slice, offset, len, .. } = piece;
        if let Some(slice) = self.slice(slice) {
            return take_until(&slice, offset, len, until).await;
        }
        let take = move |owner: Rc<Slice>| async move {
            let taken = take_until(&owner, offset, len, until).await?;
            Ok(TakenThere { core: rt::core(), entry: Shard::current().keep_taken(taken) })
        };
        Ok(TakenRange::held_by(self.on_owner(slice, take).await?))
    }

    /// Takes a part of a slice on all nodes that have a copy of it: no other write to it begins until the
    /// result is dropped.
    pub async fn take_part(
        &self,
        slice: u16,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<TakenRange, SliceError> {
        self.take_piece(self.part(slice, offset, len)).await
    }

    fn part(&self, slice: u16, offset: ByteOffset, len: ByteLen) -> Piece {
        Piece { slice, offset, len, volume_offset: self.stripe.volume_offset(slice, offset) }
    }

    /// Takes all of the volume on all nodes that have a copy of it, slice by slice in their order, as
    /// commands do. Slices without bytes are left out. From `until` on, no command waits behind this any more
    /// on any core, whether or not the caller still waits.
    ///
    /// # Errors
    /// As for [`Slice::take`]; [`SliceError::Unavailable`]: not until then.
    pub async fn take_all(&self, until: Instant) -> Result<Vec<(u16, TakenRange)>, SliceError> {
        let size = self.blocks() * self.block_size;
        let mut taken = Vec::new();
        for slice in 0..self.stripe.slices() {
            let len = self.stripe.slice_len(slice, size);
            if len.0 > 0 {
                let part = self.part(slice, ByteOffset(0), len);
                taken.push((slice, self.take_piece_until(part, Some(until)).await?));
            }
        }
        Ok(taken)
    }
}

async fn take_until(
    slice: &Slice,
    offset: ByteOffset,
    len: ByteLen,
    until: Option<Instant>,
) -> Result<TakenRange, SliceError> {
    let take = slice.take(offset, len);
    match until {
        None => take.await,
        Some(until) => rt::timeout_at(until, take).await.unwrap_or(Err(SliceError::Unavailable)),
    }
}

async fn on_slice(slice: &Slice, piece: Piece, op: PieceOp) -> Result<Chain, SliceError> {
    match op {
        PieceOp::Read { len, role } => slice.read(piece.offset, len, role).await,
        PieceOp::Write { came, data, durability, role } => {
            slice.write(came, piece.offset, data, durability, role).await.map(|()| Chain::new())
        }
        PieceOp::Zero { came, len } => slice.zero(came, piece.offset, len).await.map(|()| Chain::new()),
        PieceOp::Flush => slice.flush().await.map(|()| Chain::new()),
        PieceOp::TestReady => slice.test_ready().map(|()| Chain::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base::BlockSize;
    use store::{Compression, NewDisk, VolumeKind};

    use super::*;
    use crate::Control;
    use crate::control::{NewVolume, PoolSpec};
    use crate::single_node::single_node;

    /// The length of a range of the other core's slice.
    const LEN: ByteLen = ByteLen(4096);

    async fn new_volume(control: Rc<Control>) -> Rc<Volume> {
        let disks = vec![NewDisk { path: "/dev/disk".into(), create: None, reserve: false }];
        control.create_pool(PoolSpec { name: "pool".into(), disks, wipe: false }).await.unwrap();
        let new = NewVolume {
            name: "db".into(),
            pool: None,
            kind: VolumeKind::Thick,
            size: ByteLen(8 << 20),
            block_size: BlockSize::B4096,
            native_512: false,
            slices: Some(2),
            created: 0,
            map: None,
            copies: None,
            space: store::SpacePolicy::default(),
            compression: Compression::default(),
            checksums: false,
        };
        let id = control.create_volume(new).await.unwrap();
        Shard::current().volume(id).unwrap()
    }

    /// Whoever waits for a command may give up at any moment: before its message arrives, before the answer
    /// arrives, and later.
    #[test]
    fn a_range_of_another_core_is_released_when_its_taker_is_gone() {
        let (world, server) = single_node(2);
        world.add_disk(server, "/dev/disk", 64 << 20, 512);
        let (given_up, taken) = world.block_on(server, CoreId(0), || async {
            let volume = new_volume(Control::current()).await;
            let take = || volume.take_part(1, ByteOffset(0), LEN);
            assert!(volume.slice(1).is_none(), "the slice is of the other core");
            let (mut given_up, mut taken) = (0, 0);
            for after in (0..100).map(Duration::from_micros) {
                match rt::timeout(after, take()).await {
                    Ok(range) => {
                        drop(range.unwrap());
                        taken += 1;
                    }
                    Err(rt::Elapsed) => given_up += 1,
                }
                let again = rt::timeout(Duration::from_secs(1), take()).await;
                drop(again.expect("nobody has the range").unwrap());
            }
            (given_up, taken)
        });
        assert!(given_up > 0 && taken > 0, "{given_up} were given up, {taken} had their range");
    }

    /// What waits for a command on another core holds back what comes later, but not for longer than allowed.
    #[test]
    fn nothing_waits_for_long_behind_a_volume_that_could_not_be_taken() {
        let (world, server) = single_node(2);
        world.add_disk(server, "/dev/disk", 64 << 20, 512);
        world.block_on(server, CoreId(0), || async {
            let volume = new_volume(Control::current()).await;
            let _older = volume.take_part(1, ByteOffset(0), LEN).await.unwrap();
            let limit = Duration::from_millis(500);
            let began = rt::now();
            // The caller gives up even earlier.
            let given_up = rt::timeout(limit / 2, volume.take_all(began + limit)).await;
            assert!(given_up.is_err(), "a command has a part of it");
            let newer = volume.take_part(1, ByteOffset(LEN.0), LEN);
            let newer = rt::timeout(Duration::from_secs(10), newer).await;
            drop(newer.expect("it waits for nothing that is there").unwrap());
            assert!(rt::now().since(began) < limit * 2);
            let late = volume.take_all(rt::now() + limit).await;
            assert!(matches!(late, Err(SliceError::Unavailable)));
        });
    }
}
