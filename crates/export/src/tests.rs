//! Round trips, cuts, and changed bytes.

use base::Rng;

use super::*;

fn snapshot(name: &str, number: u32, size: u64) -> Snapshot {
    Snapshot { name: name.into(), number, time: 1_795_348_984 + u64::from(number), size }
}

fn header(since: Option<Snapshot>) -> Header {
    Header {
        volume: *b"0123456789abcdef",
        volume_name: "db".into(),
        block_bytes: 512,
        snapshot: snapshot("tuesday", 8, 64 << 20),
        since,
    }
}

fn incremental() -> Header {
    header(Some(snapshot("monday", 7, 32 << 20)))
}

/// Bytes that cannot be compressed.
fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(len as u64).fill(&mut bytes);
    bytes
}

/// A record as a value: `None` as data: zeros.
type Owned = (u64, u64, Option<Vec<u8>>);

fn records() -> Vec<Owned> {
    let data = |offset, data: Vec<u8>| (offset, data.len() as u64, Some(data));
    vec![
        data(4096, noise(700)),
        data(8192, vec![7; 9000]),
        (65_536, 16 << 20, None),
        data((20 << 20) + 512, [noise(300), vec![0; 500]].concat()),
        ((64 << 20) - 4096, 4096, None),
    ]
}

fn write_record<W: std::io::Write>(writer: &mut Writer<W>, (offset, len, data): &Owned) {
    match data {
        Some(data) => writer.data(*offset, data).unwrap(),
        None => writer.zeros(*offset, *len).unwrap(),
    }
}

fn stream(header: &Header, records: &[Owned]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    records.iter().for_each(|record| write_record(&mut writer, record));
    writer.finish().unwrap()
}

fn owned(record: Record<'_>) -> Owned {
    match record {
        Record::Data { offset, data } => (offset, data.len() as u64, Some(data.to_vec())),
        Record::Zeros { offset, len } => (offset, len, None),
    }
}

/// The records before the error, and the error, if there is one.
fn read(bytes: &[u8]) -> (Vec<Owned>, Result<(), ReadError>) {
    let mut found = Vec::new();
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (found, Err(error)),
    };
    loop {
        match reader.read_record() {
            Ok(Some(record)) => found.push(owned(record)),
            Ok(None) => return (found, Ok(())),
            Err(error) => return (found, Err(error)),
        }
    }
}

#[test]
fn what_was_written_is_read() {
    for (header, records) in [
        (incremental(), records()),
        (header(None), records().into_iter().filter(|(_, _, data)| data.is_some()).collect()),
        (header(None), Vec::new()),
        (header(None), vec![(0, 1 << 20, Some(noise(1 << 20))), (1 << 20, 1 << 20, Some(vec![1; 1 << 20]))]),
    ] {
        let bytes = stream(&header, &records);
        let mut reader = Reader::new(&bytes[..]).unwrap();
        assert_eq!(*reader.header(), header);
        let mut found = Vec::new();
        while let Some(record) = reader.read_record().unwrap() {
            found.push(owned(record));
        }
        assert!(found == records && reader.is_over());
        assert!(reader.read_record().unwrap().is_none(), "it stays at its end");
    }
}

#[test]
fn the_first_bytes_are_as_the_byte_table_says() {
    let bytes = stream(&incremental(), &[(512, 4, Some(vec![1, 2, 3, 4]))]);
    let head = [
        &b"URSAEXPT"[..],
        &[1, 0, 99, 0, 0, 2, 0, 0],
        b"0123456789abcdef",
        &[0, 0, 0, 4, 0, 0, 0, 0],
        &[0x00, 0xda, 0x02, 0x6b, 0, 0, 0, 0],
        &[8, 0, 0, 0, 1, 2, 7, 6],
        &[0, 0, 0, 2, 0, 0, 0, 0],
        &[0xff, 0xd9, 0x02, 0x6b, 0, 0, 0, 0],
        &[7, 0, 0, 0, 0, 0, 0, 0],
        b"dbtuesdaymonday",
    ]
    .concat();
    assert_eq!(&bytes[..95], &head[..]);
    let record = [
        &[1, 0, 0, 0, 4, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0][..],
        // CRC32C of 1, 2, 3, 4.
        &0x2930_8cf4_u32.to_le_bytes(),
    ]
    .concat();
    assert_eq!(&bytes[99..127], &record[..]);
    assert_eq!(bytes[131..135], [1, 2, 3, 4]);
    let end = [3, 0, 0, 0, 32, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes[135..159], end);
    assert_eq!(bytes.len(), 135 + 32 + 32);
}

/// Wherever a stream is cut, the records before are read, and the cut is noticed.
#[test]
fn every_cut_is_noticed() {
    let (all, bytes) = (records(), stream(&incremental(), &records()));
    for len in 0..bytes.len() {
        let (found, end) = read(&bytes[..len]);
        assert!(matches!(end, Err(ReadError::Cut(_))), "{len}: {end:?}");
        assert!(all.starts_with(&found), "{len}");
    }
    let (found, end) = read(&[&bytes[..], &[0]].concat());
    assert!(found == all && matches!(end, Err(ReadError::Damaged(_))), "more follows: {end:?}");
}

/// Whichever byte is changed, nothing else is read than what was written, and the change is noticed.
#[test]
fn every_changed_byte_is_noticed() {
    let (all, bytes) = (records(), stream(&incremental(), &records()));
    for at in 0..bytes.len() {
        for mask in [1, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= mask;
            let (found, end) = read(&changed);
            assert!(end.is_err() && all.starts_with(&found), "byte {at}: {end:?}");
        }
    }
}

/// A record that is left out, moved or repeated is noticed, although each one is whole.
#[test]
fn records_of_another_order_are_noticed() {
    let (all, header) = (records(), incremental());
    let bytes = stream(&header, &all);
    let until = |records: usize| {
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        all[..records].iter().for_each(|record| write_record(&mut writer, record));
        writer.progress().bytes() as usize
    };
    let without = [&bytes[..until(1)], &bytes[until(2)..]].concat();
    assert!(read(&without).1.is_err());
    let twice = [&bytes[..until(2)], &bytes[until(1)..]].concat();
    assert!(read(&twice).1.is_err());
    let moved =
        [&bytes[..until(1)], &bytes[until(2)..until(3)], &bytes[until(1)..until(2)], &bytes[until(3)..]];
    assert!(read(&moved.concat()).1.is_err());
}

/// An interrupted stream is continued behind its last whole record, and is the same then.
#[test]
fn a_stream_is_continued_wherever_it_was_cut() {
    let (all, header) = (records(), incremental());
    let bytes = stream(&header, &all);
    let begun = Writer::new(Vec::new(), &header).unwrap().progress().bytes() as usize;
    for len in begun..bytes.len() {
        let mut reader = Reader::new(&bytes[..len]).unwrap();
        let mut count = 0;
        let error = loop {
            match reader.read_record() {
                Ok(Some(_)) => count += 1,
                Ok(None) => panic!("it was cut at {len}"),
                Err(error) => break error,
            }
        };
        assert!(error.is_of_stream(), "{error}");
        let progress = reader.progress().clone();
        let whole = progress.bytes() as usize;
        assert!(whole <= len);
        let mut writer = Writer::resume(bytes[..whole].to_vec(), progress);
        all[count..].iter().for_each(|record| write_record(&mut writer, record));
        assert!(writer.finish().unwrap() == bytes, "cut at {len}");
    }
}

#[test]
fn what_does_not_fit_is_not_written() {
    let mut writer = Writer::new(Vec::new(), &incremental()).unwrap();
    writer.data(4096, &[1; 4096]).unwrap();
    let end: u64 = 64 << 20;
    for (offset, len) in [(4096, 1), (8191, 1), (end, 1), (end - 1, 2), (u64::MAX, 2), (9000, 0)] {
        assert!(matches!(writer.zeros(offset, len), Err(WriteError::Range { .. })), "{len} at {offset}");
    }
    for data in [vec![], vec![0; RECORD_BYTES_MAX + 1]] {
        assert!(matches!(writer.data(8192, &data), Err(WriteError::Range { .. })));
    }
    let mut full = Writer::new(Vec::new(), &header(None)).unwrap();
    assert!(matches!(full.zeros(0, 1), Err(WriteError::Range { .. })), "all that is not named is zeros");
    for name in [String::new(), "n".repeat(NAME_BYTES_MAX + 1), "d\u{1b}[2Jb".into()] {
        let header = Header { volume_name: name, ..header(None) };
        assert!(matches!(Writer::new(Vec::new(), &header), Err(WriteError::Name)));
    }
}

#[test]
fn other_files_and_versions_are_told_apart() {
    assert!(matches!(read(b"PK\x03\x04 and more than twelve bytes").1, Err(ReadError::NotExport)));
    assert!(matches!(read(b"").1, Err(ReadError::Cut(0))));
    let mut bytes = stream(&header(None), &[]);
    bytes[8] = 2;
    assert!(matches!(read(&bytes).1, Err(ReadError::Version(2))));
}

/// A stream may come from anywhere, and its names are printed on terminals.
#[test]
fn a_name_with_control_characters_is_not_read() {
    let mut bytes = stream(&header(None), &[]);
    let len = 84 + "db".len() + "tuesday".len();
    bytes[80] = 0x1b;
    let crc = base::crc32c(&bytes[..len - 4]);
    bytes[len - 4..len].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(read(&bytes).1, Err(ReadError::Damaged(0))));
}

#[test]
fn data_is_compressed_if_that_pays() {
    let bytes = stream(&header(None), &[(0, 1 << 20, Some(vec![5; 1 << 20]))]);
    assert!(bytes.len() < 10_000, "{}", bytes.len());
    let bytes = stream(&header(None), &[(0, 1 << 20, Some(noise(1 << 20)))]);
    assert!(bytes.len() < (1 << 20) + 300, "{}", bytes.len());
}
