//! A piece of an operation: on a slice of this core, or by message on another.

use base::{ByteLen, ByteOffset, Chain, Instant};
use rt::{CoreId, Durability};
use std::rc::Rc;
use store::{Piece, SliceError};

use super::slice::TakenRange;
use super::{Slice, Standing, Volume, core_of};
use crate::shard::Shard;

/// What is to be done with a piece.
#[derive(Debug)]
pub(super) enum PieceOp {
    Read { len: ByteLen, standing: Standing },
    Write { came: Instant, data: Chain, durability: Durability, standing: Standing },
    Zero { came: Instant, len: ByteLen },
    Flush,
    TestReady,
}

/// A piece that a command has taken; given back when this is dropped.
pub enum Taken {
    Here { _range: TakenRange },
    There { _range: TakenThere },
}

/// A range of a slice of another core, taken there. It is one from the moment at which it was taken: the command may be gone when the message that tells it so
/// arrives.
pub struct TakenThere {
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
    /// Has `work` done by a slice, wherever it lives.
    ///
    /// # Errors
    /// What `work` gives; [`SliceError::Offline`] if the slice is not open.
    pub async fn on_owner<T, F>(
        &self,
        number: u16,
        work: impl FnOnce(Rc<Slice>) -> F + Send + 'static,
    ) -> Result<T, SliceError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SliceError>> + 'static,
    {
        if let Some(slice) = self.slice_here(number) {
            return work(slice).await;
        }
        let id = self.id;
        rt::call(core_of(number, rt::cores()), move || async move {
            // The volume may have been deleted while the message was on its way.
            let slice = Shard::current().volume(id).and_then(|volume| volume.slice_here(number));
            work(slice.ok_or(SliceError::Offline)?).await
        })
        .await
    }

    /// Carries out `op` on the slice of `piece`. What was read, or nothing.
    pub(super) async fn carry_out_piece(&self, piece: Piece, op: PieceOp) -> Result<Chain, SliceError> {
        self.on_owner(piece.slice, move |slice| async move { on_slice(&slice, piece, op).await }).await
    }

    /// Takes `piece` for a read-modify-write.
    pub(super) async fn take_piece(&self, piece: Piece) -> Result<Taken, SliceError> {
        if let Some(slice) = self.slice_here(piece.slice) {
            return Ok(Taken::Here { _range: slice.take(piece.offset, piece.len).await? });
        }
        let Piece { slice, offset, len, .. } = piece;
        let take = move |owner: Rc<Slice>| async move {
            let taken = owner.take(offset, len).await?;
            Ok(TakenThere { core: rt::core(), entry: Shard::current().keep_taken(taken) })
        };
        Ok(Taken::There { _range: self.on_owner(slice, take).await? })
    }

    /// Takes a part of a slice on all nodes that have a copy of it: nothing is written to it until this is dropped.
    ///
    /// # Errors
    /// As [`Slice::take`].
    pub async fn take_part(&self, slice: u16, offset: ByteOffset, len: ByteLen) -> Result<Taken, SliceError> {
        self.take_piece(Piece { slice, offset, len, volume_offset: self.stripe.volume_offset(slice, offset) })
            .await
    }

    fn slice_here(&self, slice: u16) -> Option<Rc<Slice>> {
        self.slices.get(usize::from(slice))?.clone()
    }
}

async fn on_slice(slice: &Slice, piece: Piece, op: PieceOp) -> Result<Chain, SliceError> {
    match op {
        PieceOp::Read { len, standing } => slice.read(piece.offset, len, standing).await,
        PieceOp::Write { came, data, durability, standing } => {
            slice.write(came, piece.offset, data, durability, standing).await.map(|()| Chain::new())
        }
        PieceOp::Zero { came, len } => slice.zero(came, piece.offset, len).await.map(|()| Chain::new()),
        PieceOp::Flush => slice.flush().await.map(|()| Chain::new()),
        PieceOp::TestReady => slice.test_ready().map(|()| Chain::new()),
    }
}
