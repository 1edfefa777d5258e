//! Meaningful inputs, for targets in which random bytes would not get far.
//!
//! What a target takes before its bytes comes first here, too: one byte for a Boolean, two for a length.

use base::{Chain, SendBatch};
use cluster::Transaction;
use cluster::record::Record;
use export::{Header, Snapshot, Writer};
use link::Frame;
use proto::iscsi::wire::{
    Ahs, Framing, InitiatorTag, LoginRequestPdu, NopOut, ScsiCommand, Serial, Stage, TargetTag, TaskAttribute,
};
use replica::{
    Blocks, Digest, Envelope, Epoch, Incarnation, Message, Payload, RoundId, Slot, SyncId, Timestamp,
};

/// For targets in which random inputs get far.
pub fn none() -> Vec<Vec<u8>> {
    Vec::new()
}

/// A login, a command with additional header segments and a ping; with and without digests.
pub fn streams() -> Vec<Vec<u8>> {
    let (initiator_tag, cmd_sn, exp_stat_sn) = (InitiatorTag(1), Serial(1), Serial(1));
    let text = b"InitiatorName=iqn.a\0";
    let login = LoginRequestPdu {
        transit: Some(Stage::OperationalNegotiation),
        more: false,
        stage: Stage::SecurityNegotiation,
        version_max: 0,
        version_min: 0,
        isid: [0, 2, 0x3d, 0, 0, 1],
        tsih: 0,
        initiator_tag,
        cid: 0,
        cmd_sn,
        exp_stat_sn,
    };
    let command = ScsiCommand {
        immediate: false,
        is_final: true,
        read: true,
        write: false,
        attribute: TaskAttribute::Ordered,
        lun: [0; 8],
        initiator_tag,
        expected_length: 512,
        cmd_sn,
        exp_stat_sn,
        cdb: [0x28; 16],
    };
    let ping = NopOut {
        immediate: true,
        lun: [0; 8],
        initiator_tag,
        target_tag: TargetTag::RESERVED,
        cmd_sn,
        exp_stat_sn,
    };
    let stream = |digests: bool| {
        let framing = Framing { header_digest: digests, data_digest: digests, data_max: 4096 };
        let mut batch = SendBatch::new();
        framing.push(&mut batch, &login.encode(text.len() as u32), text);
        framing.push(&mut batch, &ping.encode(4), b"ping");
        let mut bytes = vec![u8::from(digests); 2];
        bytes.extend(batch.to_vec());
        bytes
    };
    let segments = [Ahs::BidirectionalReadLength(512), Ahs::ExtendedCdb(&[1, 2, 3])];
    let long = [vec![0, 0], command.encode_with_ahs(0, &segments)].concat();
    vec![stream(false), stream(true), long]
}

/// Texts of a login.
pub fn texts() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 3] = [
        b"InitiatorName=iqn.2026-11.a:b\0HeaderDigest=CRC32C,None\0MaxBurstLength=262144\0",
        b"CHAP_N=alice\0CHAP_R=0x00112233445566778899aabbccddeeff\0CHAP_I=5\0CHAP_C=0bAAAA\0",
        b"ImmediateData=Yes\0TargetName=eui.0123456789abcdef\0X-a.b=c\0",
    ];
    texts.map(<[u8]>::to_vec).into()
}

/// Saved mode parameters and two registrations, the second of which holds a reservation
/// (`docs/formats/lu-state.md`).
pub fn unit_states() -> Vec<Vec<u8>> {
    let mut bytes = b"ULUS\x01\0\x01\x05\x01\0\x02\0".to_vec();
    for (number, name) in [(1_u8, b"iqn.a"), (2, b"iqn.b")] {
        bytes.extend([0, 0, 0, 0, 0, 0, 0, number]);
        bytes.extend([1, 0, 1, 0, 2, 0x3d, 0, 0, number]);
        bytes.extend([name.len() as u8, 0]);
        bytes.extend(name);
    }
    vec![bytes]
}

/// A superblock, and a catalog.
pub fn pools() -> Vec<Vec<u8>> {
    let (superblock, catalog) = (store::fuzzing::superblock_seed(), store::fuzzing::catalog_seed());
    vec![[vec![1], superblock].concat(), [vec![0], catalog].concat()]
}

/// A closed page of checksums.
pub fn checksum_pages() -> Vec<Vec<u8>> {
    vec![store::fuzzing::checksum_page_seed()]
}

/// A list with lost and held blocks.
pub fn lost_lists() -> Vec<Vec<u8>> {
    vec![store::fuzzing::lost_blocks_seed()]
}

/// The head of a record, a root, a leaf and a state.
pub fn logs() -> Vec<Vec<u8>> {
    (0..).zip(store::fuzzing::log_seeds()).map(|(which, seed)| [vec![which], seed].concat()).collect()
}

/// A full export and an incremental one.
pub fn exports() -> Vec<Vec<u8>> {
    let snapshot = |name: &str, number| Snapshot { name: name.into(), number, time: 1, size: 1 << 20 };
    let header = |since| Header {
        volume: [7; 16],
        volume_name: "db".into(),
        block_bytes: 4096,
        snapshot: snapshot("b", 2),
        since,
    };
    let stream = |since: Option<Snapshot>| {
        let is_incremental = since.is_some();
        let mut writer = Writer::new(Vec::new(), &header(since)).expect("names fit");
        writer.data(0, &[1, 2, 3, 4]).expect("it is the first one");
        if is_incremental {
            writer.zeros(4096, 8192).expect("it is behind that");
        }
        writer.data(65_536, &[5; 4096]).expect("it is behind that");
        writer.finish().expect("a vector takes it")
    };
    vec![stream(None), stream(Some(snapshot("a", 1)))]
}

/// A client that asks for everything, then reads and asks about ranges; one that begins TLS first; and one
/// that only names an export.
pub fn nbd_clients() -> Vec<Vec<u8>> {
    let option = |code: u32, data: &[u8]| {
        [&b"IHAVEOPT"[..], &code.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
    };
    let request = |flags: u16, kind: u16, offset: u64, len: u32| {
        let (flags, kind) = (flags.to_be_bytes(), kind.to_be_bytes());
        [&b"\x25\x60\x95\x13"[..], &flags, &kind, &[7; 8], &offset.to_be_bytes(), &len.to_be_bytes()].concat()
    };
    let contexts = b"\0\0\0\0\0\0\0\x02\0\0\0\x0fbase:allocation\0\0\0\x13qemu:dirty-bitmap:a";
    let options = [
        option(3, b""),
        option(8, b""),
        option(9, b"\0\0\0\x04db@b\0\0\0\x01\0\0\0\x05qemu:"),
        option(10, contexts),
        option(6, b"\0\0\0\x04db@b\0\x02\0\x01\0\x03"),
        option(7, b"\0\0\0\0\0\0"),
    ];
    let requests = [
        request(0, 0, 4096, 70_000),
        request(4, 0, 0, 65_536),
        request(0, 7, 100, 1 << 20),
        request(8, 7, 0, 4096),
        [request(0, 1, 0, 8), vec![1; 8]].concat(),
        request(0, 2, 0, 0),
    ];
    let all = [options.concat(), requests.concat()].concat();
    let named = [option(1, b"db@b"), request(0, 0, 0, 20_000)].concat();
    [(0, all.clone()), (1, [option(5, b""), all].concat()), (0, named)]
        .map(|(tls, bytes)| [&[tls, 0, 0, 0, 3][..], &bytes].concat())
        .into()
}

/// A record, with an older one and with a newer one.
pub fn node_records() -> Vec<Vec<u8>> {
    let (header, payload) = node::fuzzing::seed();
    let payload_len = u16::try_from(payload.len()).expect("a short record").to_le_bytes();
    let record = |other: u8| [&[other][..], &payload_len, &header, &payload].concat();
    vec![record(6), record(8)]
}

/// A response to each command of the initiator, by the command's number in the target.
pub fn answers() -> Vec<Vec<u8>> {
    let bodies: [&[u8]; 7] = [
        &[0, 0, 0, 0, 0, 0, 0x0f, 0xff, 0, 0, 2, 0],
        &[0, 0, 0, 16, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x41, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8, 1, 0, 0, 0],
        &[0, 0, 0, 1, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0, 0, 0, 1, 0, 0, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 5, 0, 0],
        &[
            0, 0, 0, 1, 0, 0, 0, 28, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 7, 0, 0, 0, 4,
            0x45, 0, 0, 0,
        ],
        &[0, 0, 0, 12, 0x80, 0x0f, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7],
    ];
    let mut all: Vec<Vec<u8>> =
        (0_u8..).zip(bodies).map(|(number, body)| [&[number][..], body].concat()).collect();
    let naa: &[u8] = &[1, 3, 0, 16, 0x62, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let port: &[u8] = &[1, 0x14, 0, 4, 0, 0, 0, 7];
    let vendor: &[u8] = b"\x02\x01\0\x0aURSA    01";
    let designators = [naa, port, vendor].concat();
    all.push([&[7, 0, 0x83, 0, designators.len() as u8][..], &designators].concat());
    all.push([vec![9], vec![0x5a; 1024]].concat());
    all
}

/// Messages of several kinds between copies of a volume.
pub fn copy_messages() -> Vec<Vec<u8>> {
    let slot = Slot::new(1).expect("there is a second slot");
    let ts = Timestamp { epoch: Epoch(2), counter: 7, slot };
    let (sync, blocks) = (SyncId(3), Blocks::new(8, 10));
    let messages = [
        Message::Invalidate {
            round: RoundId(5),
            ts,
            blocks,
            payload: Payload::Data(Chain::copy_of(&[0x5a; 1024])),
        },
        Message::Invalidate { round: RoundId(6), ts, blocks, payload: Payload::Zeros },
        Message::Acknowledge { rounds: vec![RoundId(5), RoundId(6)] },
        Message::Validate { writes: vec![(blocks, ts)] },
        Message::SyncOpen { sync, dirty: [1, 2, 70].into_iter().collect(), lost: [(2, 1), (70, 2)].into() },
        Message::SyncClean {
            sync,
            known: vec![(blocks, ts)],
            inherit: vec![(slot, [3].into_iter().collect())],
        },
        Message::SyncProbe {
            sync,
            region: 2,
            digest: Digest([9; 32]),
            inherit: [slot].into_iter().collect(),
        },
        Message::SyncDone { sync, region: 1 },
        Message::Synced,
    ];
    let bytes = |message| {
        let (head, payload) =
            replica::wire::encode(&Envelope { epoch: Epoch(2), incarnation: Incarnation(4), message });
        let payload_len = u16::try_from(payload.len()).expect("a short payload").to_le_bytes();
        [&payload_len[..], &head, &payload.to_vec()].concat()
    };
    messages.map(bytes).into()
}

/// Two frames, cut often and seldom.
pub fn frames() -> Vec<Vec<u8>> {
    let mut batch = SendBatch::new();
    for (kind, payload) in [(1, &b"payload"[..]), (2, &b""[..])] {
        let frame = Frame { channel: 3, kind, head: b"head".to_vec(), payload: Chain::copy_of(payload) };
        link::encode(&frame, &mut batch);
    }
    let bytes = batch.to_vec();
    vec![[&[0_u8; 4][..], &bytes].concat(), [&[30_u8, 5, 200, 1][..], &bytes].concat()]
}

/// Snapshots of the cluster's record, without their checksums: an empty one, and one with entries.
pub fn snapshots() -> Vec<Vec<u8>> {
    let mut record = Record::default();
    let empty = record.encode();
    record.apply(&Transaction::new(7).put("node/1", *b"{}").put("volume/a", *b"{\"size\":1}"), 0);
    record.apply(&Transaction::new(8).delete("node/1"), 1);
    let without_checksum = |bytes: Vec<u8>| [&[0_u8][..], &bytes[..bytes.len() - 4]].concat();
    vec![without_checksum(empty), without_checksum(record.encode())]
}
