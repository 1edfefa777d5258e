//! Cuts a byte stream into PDUs, and writes PDUs to a stream (RFC 7143 11.1, 13.1).
//!
//! | part | length |
//! |---|---|
//! | basic header segment | 48 |
//! | additional header segments | TotalAHSLength x 4 |
//! | header digest, if negotiated | 4: CRC32C of the two above, least significant byte first |
//! | data segment | DataSegmentLength |
//! | padding | to a multiple of four |
//! | data digest, if negotiated and there is data | 4: CRC32C of the two above |

use base::{Chain, Crc32c, SendBatch, crc32c};
use thiserror::Error;

use super::header::ahs_length;
use super::{HEADER_LEN, data_segment_length};

const DIGEST_LEN: usize = 4;

/// Why the stream cannot be cut any further. Nothing after such an error can be trusted.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// The header is damaged: its length fields cannot be trusted either.
    #[error("the header digest does not match")]
    HeaderDigest,
    /// The other side sends more in one PDU than we declared to accept.
    #[error("a data segment of {length} bytes exceeds the declared maximum of {limit}")]
    DataTooLong { length: u32, limit: u32 },
}

/// How PDUs are framed on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    pub header_digest: bool,
    pub data_digest: bool,
    /// The longest data segment that this side accepts.
    pub data_max: u32,
}

/// The offsets of a PDU's parts, from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub header_end: usize,
    pub data_start: usize,
    /// The end of the data segment, without padding.
    pub data_end: usize,
    pub padding_end: usize,
    /// The start of the next PDU.
    pub end: usize,
}

/// A complete PDU in received bytes.
#[derive(Clone, Copy, Debug)]
pub struct Pdu<'a> {
    pub header: &'a [u8; HEADER_LEN],
    pub ahs: &'a [u8],
    /// The data segment without padding.
    pub data: &'a [u8],
    /// Whether the data digest matches; true without digests.
    pub data_intact: bool,
}

/// The number of zero bytes that follow `len` bytes of data.
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

impl Framing {
    /// The framing before anything has been negotiated: no digests.
    pub const fn without_digests(data_max: u32) -> Framing {
        Framing { header_digest: false, data_digest: false, data_max }
    }

    /// The offsets of the parts of a PDU with this header.
    ///
    /// With a header digest, the lengths are valid only after [`Framing::check_header`].
    #[inline]
    pub fn extent(&self, header: &[u8; HEADER_LEN]) -> Extent {
        let header_end = HEADER_LEN + ahs_length(header);
        let data_start = header_end + if self.header_digest { DIGEST_LEN } else { 0 };
        let data_end = data_start + data_segment_length(header) as usize;
        let padding_end = data_end + padding(data_end - data_start);
        let end = padding_end + if self.data_digest && data_end > data_start { DIGEST_LEN } else { 0 };
        Extent { header_end, data_start, data_end, padding_end, end }
    }

    /// Checks the head of a PDU. Returns `None` until all headers and their digest have arrived.
    ///
    /// # Errors
    /// A wrong header digest, or a data segment that is longer than allowed.
    #[inline]
    pub fn check_header(&self, bytes: &[u8]) -> Result<Option<Extent>, FrameError> {
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let extent = self.extent(header);
        let Some(head) = bytes.get(..extent.data_start) else { return Ok(None) };
        if self.header_digest {
            let (headers, digest) = head.split_at(extent.header_end);
            if crc32c(headers).to_le_bytes() != digest {
                return Err(FrameError::HeaderDigest);
            }
        }
        let length = data_segment_length(header);
        if length > self.data_max {
            return Err(FrameError::DataTooLong { length, limit: self.data_max });
        }
        Ok(Some(extent))
    }

    /// Returns the first PDU in `bytes` and its total length, or `None` if it has not arrived completely.
    #[inline]
    pub fn split<'a>(&self, bytes: &'a [u8]) -> Result<Option<(Pdu<'a>, usize)>, FrameError> {
        let Some(extent) = self.check_header(bytes)? else { return Ok(None) };
        Ok(self.pdu(bytes, extent).map(|pdu| (pdu, extent.end)))
    }

    /// The PDU with this extent, if `bytes` contains all of it.
    #[inline]
    pub fn pdu<'a>(&self, bytes: &'a [u8], extent: Extent) -> Option<Pdu<'a>> {
        let whole = bytes.get(..extent.end)?;
        Some(Pdu {
            header: whole.first_chunk()?,
            ahs: &whole[HEADER_LEN..extent.header_end],
            data: &whole[extent.data_start..extent.data_end],
            data_intact: !self.data_digest
                || extent.data_start == extent.data_end
                || crc32c(&whole[extent.data_start..extent.padding_end]).to_le_bytes()
                    == whole[extent.padding_end..],
        })
    }

    /// Sends a PDU with little data, which is copied. `header` contains the length of `data`.
    #[inline]
    pub fn push(&self, batch: &mut SendBatch, header: &[u8; HEADER_LEN], data: &[u8]) {
        self.push_header(batch, header, data.len());
        if !data.is_empty() {
            batch.push(data);
            let mut crc = Crc32c::new();
            if self.data_digest {
                crc.update(data);
            }
            self.push_tail(batch, data.len(), crc);
        }
    }

    /// Sends a PDU whose data is passed by reference. `header` contains the length of `data`.
    #[inline]
    pub fn push_chain(&self, batch: &mut SendBatch, header: &[u8; HEADER_LEN], data: &Chain) {
        self.push_header(batch, header, data.len());
        if !data.is_empty() {
            let mut crc = Crc32c::new();
            for part in data.parts() {
                if self.data_digest {
                    crc.update(part);
                }
                batch.push_shared(part.clone());
            }
            self.push_tail(batch, data.len(), crc);
        }
    }

    fn push_header(&self, batch: &mut SendBatch, header: &[u8; HEADER_LEN], data_len: usize) {
        debug_assert_eq!(data_segment_length(header) as usize, data_len);
        batch.push(header);
        if self.header_digest {
            batch.push(&crc32c(header).to_le_bytes());
        }
    }

    fn push_tail(&self, batch: &mut SendBatch, data_len: usize, mut crc: Crc32c) {
        let zeros = &[0; 4][..padding(data_len)];
        batch.push(zeros);
        if self.data_digest {
            crc.update(zeros);
            batch.push(&crc.value().to_le_bytes());
        }
    }
}
