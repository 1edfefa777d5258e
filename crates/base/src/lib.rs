//! What every crate of Ursa builds on: quantities with units, time, checksums, aligned buffers and seeded
//! random numbers. Apart from the allocator, nothing here makes a system call.

mod buf;
pub mod calendar;
mod canary;
mod crc;
mod enums;
mod error;
mod rng;
mod send_batch;
mod shows;
mod time;
mod units;

pub use buf::{ALIGNMENT, Buf, Chain, SharedBuf, pool_bytes, prefetch};
pub use crc::{Crc32c, crc32c};
pub use error::chain;
pub use rng::Rng;
pub use send_batch::SendBatch;
pub use time::Instant;
pub use units::{BlockCount, BlockSize, ByteLen, ByteOffset, Lba, LbaRange};
