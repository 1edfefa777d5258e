use base::{Buf, Chain, SendBatch};
use proptest::prelude::{ProptestConfig, any, proptest};

use super::*;

/// Parses hexadecimal digits; the rest of a line after `#` is a comment.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .lines()
        .flat_map(|line| line.split('#').next().unwrap().chars())
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap() as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn header(text: &str) -> [u8; HEADER_LEN] {
    hex(text).try_into().unwrap()
}

const NUMBERS: SerialNumbers =
    SerialNumbers { stat_sn: Serial(0x11), exp_cmd_sn: Serial(0x22), max_cmd_sn: Serial(0x33) };

/// Asserts that a request's bytes decode to `expected`, and that it encodes to them.
fn is_request(text: &str, expected: RequestPdu) {
    let bytes = header(text);
    assert_eq!(RequestPdu::decode(&bytes), Ok(expected));
    assert_eq!(encode_request(&expected, data_segment_length(&bytes)), bytes);
}

fn is_response(text: &str, expected: ResponsePdu) {
    let bytes = header(text);
    assert_eq!(ResponsePdu::decode(&bytes), Ok(expected));
    assert_eq!(encode_response(&expected, data_segment_length(&bytes)), bytes);
}

fn encode_request(pdu: &RequestPdu, data_len: u32) -> [u8; HEADER_LEN] {
    match pdu {
        RequestPdu::NopOut(pdu) => pdu.encode(data_len),
        RequestPdu::ScsiCommand(pdu) => pdu.encode(data_len),
        RequestPdu::Task(pdu) => pdu.encode(),
        RequestPdu::Login(pdu) => pdu.encode(data_len),
        RequestPdu::Text(pdu) => pdu.encode(data_len),
        RequestPdu::DataOut(pdu) => pdu.encode(data_len),
        RequestPdu::Logout(pdu) => pdu.encode(),
        RequestPdu::Snack(pdu) => pdu.encode(),
    }
}

fn encode_response(pdu: &ResponsePdu, data_len: u32) -> [u8; HEADER_LEN] {
    match pdu {
        ResponsePdu::NopIn(pdu) => pdu.encode(data_len),
        ResponsePdu::ScsiResponse(pdu) => pdu.encode(data_len),
        ResponsePdu::Task(pdu) => pdu.encode(),
        ResponsePdu::Login(pdu) => pdu.encode(data_len),
        ResponsePdu::Text(pdu) => pdu.encode(data_len),
        ResponsePdu::DataIn(pdu) => pdu.encode(data_len),
        ResponsePdu::Logout(pdu) => pdu.encode(),
        ResponsePdu::R2t(pdu) => pdu.encode(),
        ResponsePdu::Async(pdu) => pdu.encode(data_len),
        ResponsePdu::Reject(pdu) => pdu.encode(data_len),
    }
}

#[test]
fn login() {
    is_request(
        "43 87 00 00  00 000123    # immediate login, T=1 CSG=1 NSG=3, versions 0 to 0, 0x123 bytes of data
         80 123456 0000  0000      # ISID, TSIH
         00000005  0001 0000       # ITT, CID
         00000001  00000002        # CmdSN, ExpStatSN
         00000000 00000000 00000000 00000000",
        RequestPdu::Login(LoginRequestPdu {
            transit: Some(Stage::FullFeaturePhase),
            more: false,
            stage: Stage::OperationalNegotiation,
            version_max: 0,
            version_min: 0,
            isid: [0x80, 0x12, 0x34, 0x56, 0, 0],
            tsih: 0,
            initiator_tag: InitiatorTag(5),
            cid: 1,
            cmd_sn: Serial(1),
            exp_stat_sn: Serial(2),
        }),
    );
    is_response(
        "23 44 00 00  00 000000    # C=1 CSG=1
         80 123456 0000  0007      # ISID, TSIH
         00000005  00000000        # ITT
         00000011 00000022 00000033
         02 01 0000                # class 2: initiator error, detail 1: authentication failure
         00000000 00000000",
        ResponsePdu::Login(LoginResponsePdu {
            transit: None,
            more: true,
            stage: Stage::OperationalNegotiation,
            version_max: 0,
            version_active: 0,
            isid: [0x80, 0x12, 0x34, 0x56, 0, 0],
            tsih: 7,
            initiator_tag: InitiatorTag(5),
            numbers: NUMBERS,
            status: 0x0201,
        }),
    );
}

#[test]
fn login_stages_only_go_forward() {
    let flags = |flags: u8| {
        let mut bytes = [0; HEADER_LEN];
        (bytes[0], bytes[1]) = (0x43, flags);
        RequestPdu::decode(&bytes)
    };
    assert!(flags(0x81).is_ok()); // security to operational
    assert_eq!(flags(0x84), Err(HeaderError::Field("CSG and NSG"))); // operational to security
    assert_eq!(flags(0x82), Err(HeaderError::Field("NSG"))); // 2 is reserved
    assert_eq!(flags(0x08), Err(HeaderError::Field("CSG")));
    assert_eq!(flags(0x0c), Err(HeaderError::Field("CSG and NSG"))); // login in the full feature phase
    assert_eq!(flags(0xc1), Err(HeaderError::Field("T and C bits")));
}

#[test]
fn scsi_command() {
    is_request(
        "01 a1 0000  00 001000     # F=1 W=1 simple, 4096 bytes of immediate data
         0001 0000 0000 0000       # LUN 1
         00000010  00001000        # ITT, expected data transfer length
         00000007  00000009        # CmdSN, ExpStatSN
         2a 00 00000800 00 0008 00 000000000000 # WRITE(10)",
        RequestPdu::ScsiCommand(ScsiCommand {
            immediate: false,
            is_final: true,
            read: false,
            write: true,
            attribute: TaskAttribute::Simple,
            lun: [0, 1, 0, 0, 0, 0, 0, 0],
            initiator_tag: InitiatorTag(0x10),
            expected_length: 4096,
            cmd_sn: Serial(7),
            exp_stat_sn: Serial(9),
            cdb: [0x2a, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0],
        }),
    );
    let mut bytes = [0; HEADER_LEN];
    (bytes[0], bytes[1]) = (0x01, 0x87);
    assert_eq!(RequestPdu::decode(&bytes), Err(HeaderError::Field("ATTR")));
}

#[test]
fn a_long_cdb_has_its_tail_in_a_segment() {
    let RequestPdu::ScsiCommand(command) =
        RequestPdu::decode(&header(&format!("01 80 {}", "00".repeat(46)))).unwrap()
    else {
        unreachable!()
    };
    let bytes = command.encode_with_ahs(0, &[Ahs::ExtendedCdb(&[1, 2, 3, 4, 5])]);
    assert_eq!(bytes[4], 3); // 4 + 5 bytes, padded to three words
    assert_eq!(bytes[48..], [0x00, 0x06, 0x01, 0x00, 1, 2, 3, 4, 5, 0, 0, 0]);
    assert_eq!(ScsiCommand::ahs(&bytes[48..]).collect::<Vec<_>>(), [Ok(Ahs::ExtendedCdb(&[1, 2, 3, 4, 5]))]);
}

#[test]
fn scsi_response() {
    is_response(
        "21 82 00 02  00 000014    # underflow, completed, CHECK CONDITION, 20 bytes of sense segment
         0000000000000000
         00000010  00000000        # ITT, SNACK tag
         00000011 00000022 00000033
         00000000  00000000        # ExpDataSN, bidirectional read residual
         00000200                  # residual count",
        ResponsePdu::ScsiResponse(ScsiResponse {
            response: ServiceResponse::Completed { status: 2 },
            residual: Residual::Underflow(512),
            read_residual: Residual::None,
            initiator_tag: InitiatorTag(0x10),
            snack_tag: 0,
            numbers: NUMBERS,
            exp_data_sn: 0,
        }),
    );
    is_response(
        "21 8c 01 00  00 000000  0000000000000000  00000010  00000000  00000011 00000022 00000033
         00000002  00000003  00000004 # bidirectional read underflow of 3, overflow of 4",
        ResponsePdu::ScsiResponse(ScsiResponse {
            response: ServiceResponse::TargetFailure(1),
            residual: Residual::Overflow(4),
            read_residual: Residual::Underflow(3),
            initiator_tag: InitiatorTag(0x10),
            snack_tag: 0,
            numbers: NUMBERS,
            exp_data_sn: 2,
        }),
    );
    assert_eq!(sense_segment(&[0, 2, 0x70, 0x00, 9, 9]), [0x70, 0x00]);
    assert_eq!(sense_segment(&[0, 9, 0x70]), [0x70]);
    assert_eq!(sense_segment(&[0]), []);
}

#[test]
fn data() {
    is_request(
        "05 80 0000  00 000200     # F=1, 512 bytes
         0001 0000 0000 0000       # LUN of the R2T
         00000010  00000020        # ITT, TTT
         00000000  00000009  00000000 # ExpStatSN
         00000001  00000200  00000000 # DataSN, buffer offset",
        RequestPdu::DataOut(DataOut {
            is_final: true,
            lun: [0, 1, 0, 0, 0, 0, 0, 0],
            initiator_tag: InitiatorTag(0x10),
            target_tag: TargetTag(0x20),
            exp_stat_sn: Serial(9),
            data_sn: 1,
            buffer_offset: 512,
        }),
    );
    is_response(
        "25 83 00 00  00 000200    # F=1 U=1 S=1, GOOD, 512 bytes
         0000000000000000
         00000010  ffffffff        # ITT, no TTT
         00000011 00000022 00000033
         00000001  00000200        # DataSN, buffer offset
         00000c00                  # residual count",
        ResponsePdu::DataIn(DataIn {
            is_final: true,
            acknowledge: false,
            status: Some(DataInStatus { status: 0, residual: Residual::Underflow(3072) }),
            lun: [0; 8],
            initiator_tag: InitiatorTag(0x10),
            target_tag: TargetTag::RESERVED,
            numbers: NUMBERS,
            data_sn: 1,
            buffer_offset: 512,
        }),
    );
    is_response(
        "31 80 0000  00 000000
         0001 0000 0000 0000
         00000010  00000020        # ITT, TTT
         00000011 00000022 00000033
         00000002  00010000  00040000 # R2TSN, buffer offset, desired length",
        ResponsePdu::R2t(R2t {
            lun: [0, 1, 0, 0, 0, 0, 0, 0],
            initiator_tag: InitiatorTag(0x10),
            target_tag: TargetTag(0x20),
            numbers: NUMBERS,
            r2t_sn: 2,
            buffer_offset: 65536,
            desired_length: 262144,
        }),
    );
}

#[test]
fn task_management() {
    is_request(
        "42 81 0000  00 000000     # immediate ABORT TASK
         0001 0000 0000 0000
         00000030  00000010        # ITT, referenced task tag
         00000008  00000009        # CmdSN, ExpStatSN
         00000007  00000000        # RefCmdSN, ExpDataSN
         0000000000000000",
        RequestPdu::Task(TaskRequest {
            immediate: true,
            function: TaskManagementFunction::AbortTask,
            lun: [0, 1, 0, 0, 0, 0, 0, 0],
            initiator_tag: InitiatorTag(0x30),
            referenced_tag: InitiatorTag(0x10),
            cmd_sn: Serial(8),
            exp_stat_sn: Serial(9),
            referenced_cmd_sn: Serial(7),
            exp_data_sn: 0,
        }),
    );
    is_response(
        "22 80 05 00  00 000000 0000000000000000 00000030 00000000 00000011 00000022 00000033 000000000000000000000000",
        ResponsePdu::Task(TaskResponsePdu {
            response: 5,
            initiator_tag: InitiatorTag(0x30),
            numbers: NUMBERS,
        }),
    );
}

#[test]
fn nop_text_logout_snack() {
    is_request(
        "40 80 0000  00 000004  0000000000000000  00000040 ffffffff  00000008 00000009  00000000000000000000000000000000",
        RequestPdu::NopOut(NopOut {
            immediate: true,
            lun: [0; 8],
            initiator_tag: InitiatorTag(0x40),
            target_tag: TargetTag::RESERVED,
            cmd_sn: Serial(8),
            exp_stat_sn: Serial(9),
        }),
    );
    is_response(
        "20 80 0000  00 000000  0000000000000000  ffffffff 00000041  00000011 00000022 00000033  000000000000000000000000",
        ResponsePdu::NopIn(NopIn {
            lun: [0; 8],
            initiator_tag: InitiatorTag::RESERVED,
            target_tag: TargetTag(0x41),
            numbers: NUMBERS,
        }),
    );
    is_request(
        "04 80 0000  00 000010  0000000000000000  00000050 ffffffff  00000008 00000009  00000000000000000000000000000000",
        RequestPdu::Text(TextRequest {
            immediate: false,
            is_final: true,
            more: false,
            lun: [0; 8],
            initiator_tag: InitiatorTag(0x50),
            target_tag: TargetTag::RESERVED,
            cmd_sn: Serial(8),
            exp_stat_sn: Serial(9),
        }),
    );
    is_response(
        "24 40 0000  00 000010  0000000000000000  00000050 00000051  00000011 00000022 00000033  000000000000000000000000",
        ResponsePdu::Text(TextResponse {
            is_final: false,
            more: true,
            lun: [0; 8],
            initiator_tag: InitiatorTag(0x50),
            target_tag: TargetTag(0x51),
            numbers: NUMBERS,
        }),
    );
    is_request(
        "06 81 0000  00 000000  0000000000000000  00000060 0002 0000  00000008 00000009  00000000000000000000000000000000",
        RequestPdu::Logout(LogoutRequest {
            immediate: false,
            reason: LogoutReason::CloseConnection,
            initiator_tag: InitiatorTag(0x60),
            cid: 2,
            cmd_sn: Serial(8),
            exp_stat_sn: Serial(9),
        }),
    );
    is_response(
        "26 80 01 00  00 000000  0000000000000000  00000060 00000000  00000011 00000022 00000033  00000000 0002 0014 00000000",
        ResponsePdu::Logout(LogoutResponse {
            result: LogoutResult::CidNotFound,
            initiator_tag: InitiatorTag(0x60),
            numbers: NUMBERS,
            time2wait: 2,
            time2retain: 20,
        }),
    );
    is_request(
        "10 81 0000  00 000000  0000000000000000  00000010 ffffffff  00000000 00000009  0000000000000000 00000003 00000002",
        RequestPdu::Snack(Snack {
            kind: 1,
            lun: [0; 8],
            initiator_tag: InitiatorTag(0x10),
            target_tag: TargetTag::RESERVED,
            exp_stat_sn: Serial(9),
            begin: 3,
            run_length: 2,
        }),
    );
}

#[test]
fn async_and_reject() {
    is_response(
        "32 80 0000  00 000000  0000000000000000  ffffffff 00000000  00000011 00000022 00000033
         01 00 0000 0000 001e 00000000 # logout requested within 30 seconds",
        ResponsePdu::Async(AsyncMessage {
            event: AsyncEvent::LogoutRequested { within: 30 },
            lun: [0; 8],
            numbers: NUMBERS,
        }),
    );
    is_response(
        "32 80 0000  00 000000  0000000000000000  ffffffff 00000000  00000011 00000022 00000033
         02 00 0003 0002 0014 00000000 # connection 3 dropped, wait 2, retain 20",
        ResponsePdu::Async(AsyncMessage {
            event: AsyncEvent::ConnectionDropped { cid: 3, time2wait: 2, time2retain: 20 },
            lun: [0; 8],
            numbers: NUMBERS,
        }),
    );
    is_response(
        "3f 80 09 00  00 000030  0000000000000000  ffffffff 00000000  00000011 00000022 00000033  00000000 0000000000000000",
        ResponsePdu::Reject(Reject { reason: RejectReason::InvalidPduField, numbers: NUMBERS, data_sn: 0 }),
    );
}

/// The same ping, framed in all four ways.
#[test]
fn digests_are_framed() {
    let nop = NopOut {
        immediate: true,
        lun: [0; 8],
        initiator_tag: InitiatorTag(0x40),
        target_tag: TargetTag::RESERVED,
        cmd_sn: Serial(8),
        exp_stat_sn: Serial(9),
    };
    for (header_digest, data_digest, len) in
        [(false, false, 56), (true, false, 60), (false, true, 60), (true, true, 64)]
    {
        let framing = Framing { header_digest, data_digest, data_max: 8192 };
        let mut batch = SendBatch::new();
        framing.push(&mut batch, &nop.encode(5), b"hello");
        let mut shared = SendBatch::new();
        framing.push_chain(&mut shared, &nop.encode(5), &Chain::from(Buf::copy_of(b"hello")));
        let bytes = batch.to_vec();
        assert_eq!(bytes, shared.to_vec());
        assert_eq!(bytes.len(), len);
        for cut in 0..len {
            assert!(framing.split(&bytes[..cut]).unwrap().is_none());
        }
        let (pdu, used) = framing.split(&bytes).unwrap().unwrap();
        assert_eq!((pdu.data, pdu.data_intact, used), (&b"hello"[..], true, len));
        assert_eq!(RequestPdu::decode(pdu.header), Ok(RequestPdu::NopOut(nop)));

        let mut damaged = bytes.clone();
        damaged[20] ^= 1;
        assert_eq!(framing.split(&damaged).is_err(), header_digest);
        let mut damaged = bytes;
        damaged[if header_digest { 52 } else { 48 }] ^= 1;
        assert_eq!(framing.split(&damaged).unwrap().unwrap().0.data_intact, !data_digest);
    }
}

/// RFC 7143 appendix A.4: a SCSI Read (10) command PDU and its digest, as sent.
#[test]
fn the_digest_example_of_the_rfc() {
    let bytes = hex("01c00000 00000000 00000000 00000000 14000000 00000400 00000014 00000018
         28000000 00000000 02000000 00000000  563a96d9");
    let framing = Framing { header_digest: true, data_digest: true, data_max: 0 };
    let (pdu, used) = framing.split(&bytes).unwrap().unwrap();
    assert_eq!((pdu.data.len(), used), (0, 52));
    let RequestPdu::ScsiCommand(command) = RequestPdu::decode(pdu.header).unwrap() else { unreachable!() };
    assert!(command.read && command.expected_length == 1024);
}

#[test]
fn a_segment_longer_than_declared_is_refused() {
    let mut bytes = [0; HEADER_LEN];
    bytes[5..8].copy_from_slice(&[0x00, 0x20, 0x01]);
    assert_eq!(
        Framing::without_digests(8192).split(&bytes).unwrap_err(),
        FrameError::DataTooLong { length: 8193, limit: 8192 }
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// No decoder panics, and a decoded PDU survives encoding and decoding again.
    #[test]
    fn any_bytes_decode_or_fail(mut bytes in any::<[u8; HEADER_LEN]>(), opcode in 0u8..0x40) {
        bytes[0] = bytes[0] & 0xc0 | opcode;
        let data_len = data_segment_length(&bytes);
        if let Ok(pdu) = RequestPdu::decode(&bytes) {
            assert_eq!(RequestPdu::decode(&encode_request(&pdu, data_len)), Ok(pdu));
        }
        if let Ok(pdu) = ResponsePdu::decode(&bytes) {
            assert_eq!(ResponsePdu::decode(&encode_response(&pdu, data_len)), Ok(pdu));
        }
    }

    #[test]
    fn any_stream_is_cut_or_refused(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        header_digest in any::<bool>(),
        data_digest in any::<bool>(),
    ) {
        if let Some(length) = bytes.get_mut(5..7) {
            length.copy_from_slice(&[0, 1]);
        }
        let framing = Framing { header_digest, data_digest, data_max: 512 };
        if let Ok(Some((pdu, used))) = framing.split(&bytes) {
            assert!(used <= bytes.len() && pdu.data.len() <= 512);
            assert!(ScsiCommand::ahs(pdu.ahs).count() <= pdu.ahs.len());
        }
        let _ = sense_segment(&bytes);
    }
}
