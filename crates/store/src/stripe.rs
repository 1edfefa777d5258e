//! Where a byte of a volume lies: in which slice, and at which offset there.
//!
//! A volume is cut into stripe units that go round its slices: unit `u` is unit `u / slices` of slice `u %
//! slices`. The map never changes, so a volume grows by making every slice longer.
//!
//! The unit is 1 MiB. An aligned request of up to 1 MiB, which is what hosts send when they read or write
//! sequentially, is served by one slice without a split. And a volume of any useful size has enough units for
//! random requests to spread. Half the unit would split every 1 MiB request; four times the unit would keep a
//! sequential stream of depth 4 on a single core.

use base::{ByteLen, ByteOffset};

/// The stripe unit of a volume, unless its pool's extents are smaller.
pub const STRIPE_UNIT: ByteLen = ByteLen(1 << 20);

/// How a volume is striped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The number of slices, a power of two.
    slices: u16,
    /// log2 of the unit in bytes.
    unit_shift: u32,
}

/// A part of a request that lies in one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The slice.
    pub slice: u16,
    /// The offset in the slice.
    pub offset: ByteOffset,
    /// The length.
    pub len: ByteLen,
    /// The offset in the volume.
    pub volume_offset: ByteOffset,
}

impl Stripe {
    /// Stripes a volume over `slices` slices in units of `unit` bytes. Both are powers of two.
    ///
    /// # Panics
    /// If one of them is not: they come from a catalog that was checked.
    pub fn new(slices: u16, unit: ByteLen) -> Stripe {
        assert!(slices.is_power_of_two() && unit.0.is_power_of_two(), "{slices} slices of {unit:?}");
        Stripe { slices, unit_shift: unit.0.trailing_zeros() }
    }

    /// The number of slices.
    pub fn slices(self) -> u16 {
        self.slices
    }

    /// The size of the unit.
    pub fn unit(self) -> ByteLen {
        ByteLen(1 << self.unit_shift)
    }

    /// The slice in which a byte of the volume lies, and the byte's offset there.
    pub fn locate(self, offset: ByteOffset) -> (u16, ByteOffset) {
        let unit = offset.0 >> self.unit_shift;
        let within = offset.0 & (self.unit().0 - 1);
        let slice = unit & u64::from(self.slices - 1);
        let row = unit >> self.slices.trailing_zeros();
        (slice as u16, ByteOffset((row << self.unit_shift) + within))
    }

    /// The byte of the volume that lies at `offset` of `slice`: the inverse of [`Stripe::locate`].
    pub fn volume_offset(self, slice: u16, offset: ByteOffset) -> ByteOffset {
        let row = offset.0 >> self.unit_shift;
        let within = offset.0 & (self.unit().0 - 1);
        let unit = (row << self.slices.trailing_zeros()) + u64::from(slice);
        ByteOffset((unit << self.unit_shift) + within)
    }

    /// The pieces of `len` bytes from `offset` on, in the order of the volume.
    ///
    /// Adjacent pieces of one slice are merged only if they are adjacent in the volume, too: with several
    /// slices, a piece is at most a unit.
    pub fn pieces(self, offset: ByteOffset, len: ByteLen) -> Pieces {
        Pieces { stripe: self, at: offset, end: offset + len }
    }

    /// The length of `slice` in a volume of `capacity`.
    pub fn slice_len(self, slice: u16, capacity: ByteLen) -> ByteLen {
        let whole_units = capacity.0 >> self.unit_shift;
        let rest = capacity.0 & (self.unit().0 - 1);
        let slices = u64::from(self.slices);
        let slice = u64::from(slice);
        let rows = whole_units / slices + u64::from(slice < whole_units % slices);
        let tail = if whole_units % slices == slice { rest } else { 0 };
        ByteLen((rows << self.unit_shift) + tail)
    }
}

/// See [`Stripe::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces {
    stripe: Stripe,
    at: ByteOffset,
    end: ByteOffset,
}

impl Iterator for Pieces {
    type Item = Piece;
    fn next(&mut self) -> Option<Piece> {
        if self.at >= self.end {
            return None;
        }
        let (slice, offset) = self.stripe.locate(self.at);
        let left = self.end.0 - self.at.0;
        let in_unit = self.stripe.unit().0 - (self.at.0 & (self.stripe.unit().0 - 1));
        let len = ByteLen(if self.stripe.slices == 1 { left } else { left.min(in_unit) });
        let piece = Piece { slice, offset, len, volume_offset: self.at };
        self.at = self.at + len;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_go_round_the_slices() {
        let stripe = Stripe::new(4, ByteLen(1 << 20));
        assert_eq!(stripe.locate(ByteOffset(0)), (0, ByteOffset(0)));
        assert_eq!(stripe.locate(ByteOffset((1 << 20) + 5)), (1, ByteOffset(5)));
        assert_eq!(stripe.locate(ByteOffset(4 << 20)), (0, ByteOffset(1 << 20)));
        assert_eq!(stripe.locate(ByteOffset(7 << 20)), (3, ByteOffset(1 << 20)));
    }

    #[test]
    fn aligned_requests_of_a_unit_are_not_split() {
        let stripe = Stripe::new(8, STRIPE_UNIT);
        assert_eq!(stripe.pieces(ByteOffset(3 << 20), ByteLen(1 << 20)).count(), 1);
        let pieces: Vec<Piece> = stripe.pieces(ByteOffset((3 << 20) - 512), ByteLen(1024)).collect();
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0].offset, ByteOffset((1 << 20) - 512));
        assert_eq!((pieces[1].slice, pieces[1].offset), (3, ByteOffset(0)));
        assert_eq!(stripe.pieces(ByteOffset(9), ByteLen(0)).count(), 0);
    }

    #[test]
    fn one_slice_is_the_volume() {
        let stripe = Stripe::new(1, STRIPE_UNIT);
        assert_eq!(stripe.pieces(ByteOffset(512), ByteLen(10 << 20)).count(), 1);
        assert_eq!(stripe.slice_len(0, ByteLen(12345)), ByteLen(12345));
    }

    /// Every byte has exactly one place, and the places fill the slices: checked byte by byte with small
    /// units.
    #[test]
    fn the_map_is_one_to_one_and_onto() {
        for slices in [1, 2, 4, 8] {
            for capacity in [1u64, 7, 8, 9, 63, 64, 65, 200] {
                let stripe = Stripe::new(slices, ByteLen(8));
                let mut filled: Vec<Vec<bool>> = (0..slices)
                    .map(|slice| vec![false; stripe.slice_len(slice, ByteLen(capacity)).0 as usize])
                    .collect();
                for byte in 0..capacity {
                    let (slice, offset) = stripe.locate(ByteOffset(byte));
                    assert_eq!(stripe.volume_offset(slice, offset), ByteOffset(byte));
                    let place = &mut filled[slice as usize][offset.0 as usize];
                    assert!(!std::mem::replace(place, true));
                }
                assert!(filled.iter().flatten().all(|filled| *filled), "{slices} {capacity}");
                let total: u64 =
                    stripe.pieces(ByteOffset(3), ByteLen(capacity)).map(|piece| piece.len.0).sum();
                assert_eq!(total, capacity);
            }
        }
    }
}
