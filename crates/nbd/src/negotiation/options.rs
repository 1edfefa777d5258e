//! What options contain.

use crate::wire::STRING_BYTES_MAX;

/// What `NBD_OPT_INFO` and `NBD_OPT_GO` ask for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InfoRequest<'a> {
    pub(super) name: &'a [u8],
    /// Types of information, two bytes each.
    wanted: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    /// `None`: it is malformed.
    pub(super) fn parse(data: &'a [u8]) -> Option<InfoRequest<'a>> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = fields.u16()?;
        let wanted = fields.rest();
        (wanted.len() == 2 * usize::from(count)).then_some(InfoRequest { name, wanted })
    }

    pub(super) fn wants(&self, info: u16) -> bool {
        self.wanted.chunks_exact(2).any(|wanted| wanted == info.to_be_bytes())
    }
}

/// What `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT` ask for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContextRequest<'a> {
    pub(super) name: &'a [u8],
    /// Each has its length in front. All are whole.
    queries: &'a [u8],
}

impl<'a> ContextRequest<'a> {
    /// `None`: it is malformed.
    pub(super) fn parse(data: &'a [u8]) -> Option<ContextRequest<'a>> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = fields.u32()?;
        let queries = fields.rest();
        let mut rest = Fields(queries);
        // Each takes some of the rest, so a large number is malformed soon.
        for _ in 0..count {
            rest.string()?;
        }
        rest.0.is_empty().then_some(ContextRequest { name, queries })
    }

    pub(super) fn queries(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = Fields(self.queries);
        std::iter::from_fn(move || rest.string())
    }
}

/// Takes fields from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn u16(&mut self) -> Option<u16> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*field))
    }

    fn u32(&mut self) -> Option<u32> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*field))
    }

    /// A string with its length in front.
    fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        let (string, rest) = self.0.split_at_checked(len).filter(|_| len <= STRING_BYTES_MAX)?;
        self.0 = rest;
        Some(string)
    }

    fn rest(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn information_is_asked_for_by_name_and_types() {
        let data = b"\0\0\0\x02db\0\x02\0\x01\0\x03";
        let request = InfoRequest::parse(data).unwrap();
        assert_eq!(request.name, b"db");
        assert_eq!([0, 1, 2, 3].map(|info| request.wants(info)), [false, true, false, true]);
        assert!(InfoRequest::parse(b"\0\0\0\0\0\0").is_some(), "the default export, and nothing else");
        for cut in 0..data.len() {
            assert_eq!(InfoRequest::parse(&data[..cut]), None, "cut at {cut}");
        }
        assert_eq!(InfoRequest::parse(b"\0\0\0\x02db\0\x02\0\x01\0\x03\0"), None, "one byte more");
        assert_eq!(InfoRequest::parse(b"\xff\xff\xff\xffdb\0\0"), None);
    }

    #[test]
    fn contexts_are_asked_for_by_queries() {
        let data = b"\0\0\0\x02db\0\0\0\x02\0\0\0\x05base:\0\0\0\x00";
        let request = ContextRequest::parse(data).unwrap();
        assert_eq!(request.name, b"db");
        assert_eq!(request.queries().collect::<Vec<_>>(), [&b"base:"[..], b""]);
        for cut in 0..data.len() {
            assert_eq!(ContextRequest::parse(&data[..cut]), None, "cut at {cut}");
        }
        let none = ContextRequest::parse(b"\0\0\0\0\0\0\0\0").unwrap();
        assert_eq!(none.queries().count(), 0);
        assert_eq!(ContextRequest::parse(b"\0\0\0\0\xff\xff\xff\xff\0\0\0\0"), None);
        let long = [&[0, 0, 0x10, 0x01][..], &[b'a'; 0x1001], &[0; 4]].concat();
        assert_eq!(ContextRequest::parse(&long), None, "a string is at most 4096 bytes long");
        let longest = [&[0, 0, 0x10, 0x00][..], &[b'a'; 0x1000], &[0; 4]].concat();
        assert!(ContextRequest::parse(&longest).is_some());
    }
}
