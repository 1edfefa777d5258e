//! iSCSI byte by byte, for what no well-behaved initiator does.
//!
//! Headers are arrays, digests can be wrong, and reads can wait. It implements as much of RFC 7143 as the
//! tests need, and shares no code with the product.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU32};
use std::time::Duration;

use rustix::net;

use crate::Export;

/// A basic header segment.
pub type Header = [u8; 48];

/// Long enough for a busy machine, short enough to end a hanging test.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The default of MaxRecvDataSegmentLength, which every target must accept: commands here send no more
/// immediate data.
pub const IMMEDIATE_MAX: usize = 8192;

/// One PDU as received.
#[derive(Clone, Debug)]
pub struct Pdu {
    /// The basic header segment.
    pub header: Header,
    /// The data segment without padding.
    pub data: Vec<u8>,
}

impl Pdu {
    /// Opcode without the immediate bit.
    pub fn opcode(&self) -> u8 {
        self.header[0] & 0x3f
    }

    /// SCSI status of a SCSI response, or of Data-In with a status.
    pub fn status(&self) -> u8 {
        self.header[3]
    }

    /// Initiator task tag.
    pub fn tag(&self) -> u32 {
        word(&self.header, 16)
    }
}

/// Why a command failed (SPC-4 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// SENSE KEY.
    pub key: u8,
    /// ADDITIONAL SENSE CODE, and its qualifier.
    pub code: (u8, u8),
}

/// The digests of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// CRC32C over headers.
    pub header: bool,
    /// CRC32C over data.
    pub data: bool,
}

/// The parameters of a login.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// InitiatorName.
    pub initiator: &'a str,
    /// Digests of the connection.
    pub digests: Digests,
    /// MaxConnections.
    pub connections_max: u32,
    /// InitialR2T: no unsolicited data except immediate data.
    pub initial_r2t: bool,
    /// CHAP_N and the secret.
    pub chap: Option<(&'a str, &'a str)>,
    /// The local address to connect from.
    pub from: Option<Ipv4Addr>,
    /// The TSIH to send: that of an existing session, or 0.
    pub tsih: u16,
    /// The connection's number.
    pub cid: u16,
}

impl Default for Login<'_> {
    /// The tests' default name, one connection without digests, data only by R2T.
    fn default() -> Self {
        Login {
            initiator: "iqn.2026-11.e2e:raw",
            digests: Digests::default(),
            connections_max: 1,
            initial_r2t: true,
            chap: None,
            from: None,
            tsih: 0,
            cid: 0,
        }
    }
}

/// One connection of a session.
///
/// Other threads may have the session's other connections: they share the numbering of commands, and the
/// server executes the commands in that order.
pub struct Raw {
    stream: TcpStream,
    digests: Digests,
    lun: u64,
    session: Arc<Session>,
    cid: u16,
    exp_stat_sn: u32,
}

/// What the connections of a session share.
struct Session {
    initiator: String,
    isid: u32,
    /// The server's number for the session, from the first login on.
    tsih: AtomicU16,
    next_tag: AtomicU32,
    cmd_sn: AtomicU32,
}

impl Raw {
    /// Logs in to a normal session as the initiator port `isid` of the tests' default name.
    pub fn login(export: &Export, portal: usize, isid: u32) -> io::Result<Raw> {
        Raw::login_with(export, portal, isid, Login::default())
    }

    /// Logs in with these parameters.
    pub fn login_with(export: &Export, portal: usize, isid: u32, login: Login) -> io::Result<Raw> {
        let session = Session::new(login.initiator, isid);
        session.tsih.store(login.tsih, Relaxed);
        let stream = match login.from {
            None => TcpStream::connect_timeout(&export.portals[portal], PATIENCE)?,
            Some(from) => connect_from(from, export.portals[portal])?,
        };
        Raw::on(stream, Arc::new(session), login.cid)?.log_in(export, login)
    }

    /// Adds a connection to this session, or replaces the one with this number.
    pub fn join(&self, export: &Export, portal: usize, cid: u16) -> io::Result<Raw> {
        self.join_with(export, portal, Login { cid, ..Login::default() })
    }

    /// The same with these parameters, except the session's own: its initiator and its TSIH.
    pub fn join_with(&self, export: &Export, portal: usize, login: Login) -> io::Result<Raw> {
        let raw = Raw::of(Arc::clone(&self.session), export.portals[portal], login.cid)?;
        raw.log_in(export, login)
    }

    fn log_in(mut self, export: &Export, login: Login) -> io::Result<Raw> {
        self.lun = export.lun;
        if let Some(chap) = login.chap {
            self.prove(export, chap)?;
        }
        let raw = &mut self;
        let digest = |wanted| if wanted { "CRC32C" } else { "None" };
        let keys = [
            format!("InitiatorName={}", raw.session.initiator),
            format!("TargetName={}", export.target),
            "SessionType=Normal".to_owned(),
            format!("HeaderDigest={}", digest(login.digests.header)),
            format!("DataDigest={}", digest(login.digests.data)),
            "ImmediateData=Yes".to_owned(),
            format!("InitialR2T={}", if login.initial_r2t { "Yes" } else { "No" }),
            "MaxRecvDataSegmentLength=262144".to_owned(),
            "MaxBurstLength=1048576".to_owned(),
            "FirstBurstLength=65536".to_owned(),
            "ErrorRecoveryLevel=0".to_owned(),
            format!("MaxConnections={}", login.connections_max),
        ];
        let text: String = keys.iter().flat_map(|key| [key.as_str(), "\0"]).collect();
        raw.send(&raw.login_header(), text.as_bytes())?;
        let answer = raw.receive()?;
        let status = u16::from_be_bytes([answer.header[36], answer.header[37]]);
        if answer.opcode() != 0x23 || status != 0 || answer.header[1] != 0x87 {
            let text = String::from_utf8_lossy(&answer.data).replace('\0', " ");
            return Err(io::Error::other(format!(
                "login: status {status:#06x}, {:02x?} {text}",
                answer.header
            )));
        }
        raw.exp_stat_sn = word(&answer.header, 24).wrapping_add(1);
        let agreed = |key: &str| {
            answer.data.split(|&byte| byte == 0).any(|pair| pair == format!("{key}=CRC32C").as_bytes())
        };
        raw.digests = Digests { header: agreed("HeaderDigest"), data: agreed("DataDigest") };
        raw.session.tsih.store(u16::from_be_bytes([answer.header[14], answer.header[15]]), Relaxed);
        Ok(self)
    }

    /// The security stage with CHAP and MD5 (RFC 7143 12.1.3).
    fn prove(&mut self, export: &Export, (name, secret): (&str, &str)) -> io::Result<()> {
        let names = format!(
            "InitiatorName={}\0TargetName={}\0SessionType=Normal\0AuthMethod=CHAP\0",
            self.session.initiator, export.target
        );
        self.exchange(&names, false)?;
        let challenge = self.exchange("CHAP_A=5\0", false)?;
        let value = |key: &str| {
            let pair = challenge.split('\0').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
            pair.ok_or_else(|| io::Error::other(format!("no {key} in {challenge:?}")))
        };
        let mut hashed = vec![value("CHAP_I")?.parse().map_err(io::Error::other)?];
        hashed.extend_from_slice(secret.as_bytes());
        hashed.extend(binary(value("CHAP_C")?)?);
        let response = md5(&hashed)?;
        self.exchange(&format!("CHAP_N={name}\0CHAP_R=0x{response}\0"), true).map(drop)
    }

    /// Sends a request of the security stage, which ends with it if `transit`; returns the text of the
    /// response.
    fn exchange(&mut self, text: &str, transit: bool) -> io::Result<String> {
        let mut header = self.login_header();
        header[1] = if transit { 0x81 } else { 0 };
        self.send(&header, text.as_bytes())?;
        let answer = self.receive()?;
        let status = u16::from_be_bytes([answer.header[36], answer.header[37]]);
        if answer.opcode() != 0x23 || status != 0 {
            return Err(io::Error::other(format!("login: status {status:#06x}, {:02x?}", answer.header)));
        }
        Ok(String::from_utf8_lossy(&answer.data).into_owned())
    }

    /// The server's number for the session.
    pub fn tsih(&self) -> u16 {
        self.session.tsih.load(Relaxed)
    }

    /// A connection without a login.
    pub fn connect(portal: SocketAddr, isid: u32) -> io::Result<Raw> {
        Raw::of(Arc::new(Session::new(Login::default().initiator, isid)), portal, 0)
    }

    fn of(session: Arc<Session>, portal: SocketAddr, cid: u16) -> io::Result<Raw> {
        Raw::on(TcpStream::connect_timeout(&portal, PATIENCE)?, session, cid)
    }

    fn on(stream: TcpStream, session: Arc<Session>, cid: u16) -> io::Result<Raw> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Raw { stream, digests: Digests::default(), lun: 0, session, cid, exp_stat_sn: 0 })
    }

    /// A login request that goes from operational negotiation to full feature (RFC 7143 11.12).
    pub fn login_header(&self) -> Header {
        let mut header = [0; 48];
        header[0] = 0x43;
        header[1] = 0x87; // T, CSG 1, NSG 3
        header[8] = 0x80; // ISID, random format
        header[9..13].copy_from_slice(&self.session.isid.to_be_bytes());
        header[14..16].copy_from_slice(&self.session.tsih.load(Relaxed).to_be_bytes());
        header[20..22].copy_from_slice(&self.cid.to_be_bytes());
        header[24..28].copy_from_slice(&self.session.cmd_sn.load(Relaxed).to_be_bytes());
        header
    }

    /// A SCSI command (RFC 7143 11.3) with the next number. `direction` is 0x40 to read, 0x20 to write.
    pub fn command_header(&mut self, direction: u8, expected: u32, cdb: [u8; 16]) -> Header {
        let mut header = [0; 48];
        header[0] = 0x01;
        header[1] = 0x80 | direction | 1; // F, simple task
        header[8] = (self.lun >> 8) as u8; // peripheral or flat addressing, both below 16,384
        header[9] = self.lun as u8;
        header[16..20].copy_from_slice(&self.session.next_tag().to_be_bytes());
        header[20..24].copy_from_slice(&expected.to_be_bytes());
        header[24..28].copy_from_slice(&self.session.cmd_sn.fetch_add(1, Relaxed).to_be_bytes());
        header[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        header[32..48].copy_from_slice(&cdb);
        header
    }

    /// A task management request (RFC 7143 11.5) for the unit, immediate.
    pub fn task_header(&self, function: u8) -> Header {
        let mut header = [0; 48];
        header[0] = 0x42;
        header[1] = 0x80 | function;
        header[8] = (self.lun >> 8) as u8;
        header[9] = self.lun as u8;
        header[16..20].copy_from_slice(&self.session.next_tag().to_be_bytes());
        header[20..24].fill(0xff); // refers to no one task
        header[24..28].copy_from_slice(&self.session.cmd_sn.load(Relaxed).to_be_bytes());
        header[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        header
    }

    /// Data-Out (RFC 7143 11.7) with all that this R2T requests.
    pub fn data_out_header(&self, r2t: &Pdu) -> Header {
        let mut header = [0; 48];
        header[0] = 0x05;
        header[1] = 0x80;
        header[8..24].copy_from_slice(&r2t.header[8..24]); // LUN and both tags
        header[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        header[40..44].copy_from_slice(&r2t.header[40..44]); // buffer offset
        header
    }

    /// Sends a PDU; sets the length of the data segment in its header.
    pub fn send(&mut self, header: &Header, data: &[u8]) -> io::Result<()> {
        let bytes = self.encode(header, data);
        self.stream.write_all(&bytes)
    }

    /// The bytes of a PDU with this connection's digests.
    pub fn encode(&self, header: &Header, data: &[u8]) -> Vec<u8> {
        let mut header = *header;
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let mut bytes = header.to_vec();
        if self.digests.header {
            bytes.extend(crc32c::crc32c(&header).to_le_bytes());
        }
        let start = bytes.len();
        bytes.extend(data);
        bytes.resize(start + data.len().next_multiple_of(4), 0);
        if self.digests.data && !data.is_empty() {
            let crc = crc32c::crc32c(&bytes[start..]);
            bytes.extend(crc.to_le_bytes());
        }
        bytes
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Waits until the server closes the connection; discards what it still sends.
    pub fn wait_for_close(&mut self) -> io::Result<()> {
        let mut scrap = [0; 4096];
        loop {
            match self.stream.read(&mut scrap) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Closes the connection for sending.
    pub fn half_close(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// The connection's digests.
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// Sets how long to wait for the server.
    pub fn set_patience(&self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).expect("not zero");
        self.stream.set_write_timeout(Some(patience)).expect("not zero");
    }

    /// Receives the next PDU, checks its digests, and keeps track of StatSN.
    pub fn receive(&mut self) -> io::Result<Pdu> {
        let mut header = [0; 48];
        self.stream.read_exact(&mut header)?;
        if self.digests.header {
            self.check_digest(&header)?;
        }
        let ahs = usize::from(header[4]) * 4;
        let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; ahs + len.next_multiple_of(4)];
        self.stream.read_exact(&mut data)?;
        if self.digests.data && len > 0 {
            self.check_digest(&data)?;
        }
        data.truncate(ahs + len);
        let pdu = Pdu { header, data: data.split_off(ahs) };
        if [0x20, 0x21, 0x22, 0x24, 0x26, 0x3f].contains(&pdu.opcode()) || pdu.is_final_data() {
            self.exp_stat_sn = word(&header, 24).wrapping_add(1);
        }
        Ok(pdu)
    }

    /// Executes a command; returns its data if it ended GOOD.
    pub fn execute(&mut self, cdb: [u8; 16], expected: usize, data_out: &[u8]) -> io::Result<Vec<u8>> {
        let tag = self.begin(cdb, expected, data_out)?;
        self.collect(tag)
    }

    /// Sends a command with all its data; returns its tag.
    fn begin(&mut self, cdb: [u8; 16], expected: usize, data_out: &[u8]) -> io::Result<u32> {
        let direction = match (expected, data_out.len()) {
            (0, 0) => 0,
            (_, 0) => 0x40,
            _ => 0x20,
        };
        assert!(data_out.len() <= IMMEDIATE_MAX, "send it in parts");
        let expected = expected.max(data_out.len()) as u32;
        let header = self.command_header(direction, expected, cdb);
        let tag = word(&header, 16);
        self.send(&header, data_out)?;
        Ok(tag)
    }

    /// Executes a command that must end with CHECK CONDITION; returns the sense.
    pub fn refused(&mut self, cdb: [u8; 16], expected: usize, data_out: &[u8]) -> io::Result<Sense> {
        let tag = self.begin(cdb, expected, data_out)?;
        loop {
            let pdu = self.receive()?;
            match pdu.opcode() {
                0x20 => self.answer_ping(&pdu)?,
                0x21 if pdu.tag() == tag => return sense(&pdu),
                _ => return Err(io::Error::other(format!("unexpected PDU {:02x?}", pdu.header))),
            }
        }
    }

    /// Receives until the command with this tag has ended.
    pub fn collect(&mut self, tag: u32) -> io::Result<Vec<u8>> {
        let mut data_in = Vec::new();
        loop {
            let pdu = self.receive()?;
            match pdu.opcode() {
                0x20 => self.answer_ping(&pdu)?,
                0x25 if pdu.tag() == tag => {
                    let offset = word(&pdu.header, 40) as usize;
                    data_in.resize(data_in.len().max(offset + pdu.data.len()), 0);
                    data_in[offset..offset + pdu.data.len()].copy_from_slice(&pdu.data);
                    if pdu.is_final_data() {
                        return good(&pdu).map(|()| data_in);
                    }
                }
                0x21 if pdu.tag() == tag => return good(&pdu).map(|()| data_in),
                _ => return Err(io::Error::other(format!("unexpected PDU {:02x?}", pdu.header))),
            }
        }
    }

    /// Repeats TEST UNIT READY until the unit is ready: the first responses are unit attentions.
    pub fn wait_until_ready(&mut self) -> io::Result<()> {
        for _ in 0..5 {
            if self.execute([0; 16], 0, &[]).is_ok() {
                return Ok(());
            }
        }
        self.execute([0; 16], 0, &[]).map(|_| ())
    }

    /// WRITE (16) with immediate data.
    pub fn write(&mut self, lba: u64, blocks: u32, data: &[u8], fua: bool) -> io::Result<()> {
        self.execute(cdb16(0x8a, u8::from(fua) << 3, lba, blocks), 0, data).map(|_| ())
    }

    /// READ (16).
    pub fn read(&mut self, lba: u64, blocks: u32, bytes: usize) -> io::Result<Vec<u8>> {
        let data = self.execute(cdb16(0x88, 0, lba, blocks), bytes, &[])?;
        match data.len() == bytes {
            true => Ok(data),
            false => Err(io::Error::other(format!("{} bytes instead of {bytes}", data.len()))),
        }
    }

    /// SYNCHRONIZE CACHE (10) of the whole unit.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut cdb = [0; 16];
        cdb[0] = 0x35;
        self.execute(cdb, 0, &[]).map(|_| ())
    }

    /// Logs out a connection of the session, or with `None` the session; returns the response (RFC 7143
    /// 11.15.1): 0 is success.
    pub fn logout(&mut self, cid: Option<u16>) -> io::Result<u8> {
        let mut header = [0; 48];
        header[0] = 0x46;
        header[1] = 0x80 | u8::from(cid.is_some());
        header[16..20].copy_from_slice(&self.session.next_tag().to_be_bytes());
        header[20..22].copy_from_slice(&cid.unwrap_or(self.cid).to_be_bytes());
        header[24..28].copy_from_slice(&self.session.cmd_sn.load(Relaxed).to_be_bytes());
        header[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        self.send(&header, &[])?;
        let answer = self.receive()?;
        match answer.opcode() {
            0x26 => Ok(answer.header[2]),
            _ => Err(io::Error::other(format!("unexpected PDU {:02x?}", answer.header))),
        }
    }

    fn answer_ping(&mut self, ping: &Pdu) -> io::Result<()> {
        if word(&ping.header, 20) == u32::MAX {
            return Ok(()); // no answer wanted
        }
        let mut header = [0; 48];
        header[0] = 0x40;
        header[1] = 0x80;
        header[8..16].copy_from_slice(&ping.header[8..16]);
        header[16..20].fill(0xff);
        header[20..24].copy_from_slice(&ping.header[20..24]);
        header[24..28].copy_from_slice(&self.session.cmd_sn.load(Relaxed).to_be_bytes());
        header[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        self.send(&header, &[])
    }

    fn check_digest(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut digest = [0; 4];
        self.stream.read_exact(&mut digest)?;
        match u32::from_le_bytes(digest) == crc32c::crc32c(bytes) {
            true => Ok(()),
            false => Err(io::Error::other("the server sent a wrong digest")),
        }
    }
}

impl Session {
    fn new(initiator: &str, isid: u32) -> Session {
        Session {
            initiator: initiator.to_owned(),
            isid,
            tsih: AtomicU16::new(0),
            next_tag: AtomicU32::new(1),
            cmd_sn: AtomicU32::new(1),
        }
    }

    fn next_tag(&self) -> u32 {
        self.next_tag.fetch_add(1, Relaxed)
    }
}

impl Pdu {
    /// Whether it is Data-In with the status (RFC 7143 11.7.1, the S bit).
    fn is_final_data(&self) -> bool {
        self.opcode() == 0x25 && self.header[1] & 1 != 0
    }
}

/// Connects from one of this machine's addresses.
pub fn connect_from(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None)?;
    net::bind(&socket, &SocketAddr::from((from, 0)))?;
    net::connect(&socket, &to)?;
    Ok(socket.into())
}

/// The bytes of a hexadecimal value (RFC 7143 6.1); base64 is not supported.
fn binary(value: &str) -> io::Result<Vec<u8>> {
    let digits =
        value.strip_prefix("0x").ok_or_else(|| io::Error::other(format!("not hexadecimal: {value}")))?;
    let byte = |at| u8::from_str_radix(digits.get(at..at + 2).unwrap_or("?"), 16).map_err(io::Error::other);
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// MD5 in hexadecimal, by coreutils.
fn md5(bytes: &[u8]) -> io::Result<String> {
    let mut process = Command::new("md5sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    process.stdin.take().expect("a pipe").write_all(bytes)?;
    let output = process.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap_or_default().to_owned())
}

/// A 16-byte CDB with LBA and length where READ (16) has them.
pub fn cdb16(operation: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = operation;
    cdb[1] = flags;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// A big-endian word of a header.
pub fn word(header: &Header, at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// Sense data in the fixed format, after its length (SPC-4 4.5.3; RFC 7143 11.4.7.2).
///
/// The first bit of 70h says that INFORMATION is valid.
fn sense(pdu: &Pdu) -> io::Result<Sense> {
    match (pdu.header[2], pdu.status(), pdu.data.get(2..)) {
        (0, 0x02, Some(&[0x70 | 0xf0, _, key, _, _, _, _, _, _, _, _, _, code, qualifier, ..])) => {
            Ok(Sense { key: key & 0x0f, code: (code, qualifier) })
        }
        (response, status, data) => Err(io::Error::other(format!(
            "response {response}, status {status:#04x}, sense {data:02x?}: CHECK CONDITION was due"
        ))),
    }
}

fn good(pdu: &Pdu) -> io::Result<()> {
    match (pdu.header[2], pdu.status()) {
        (_, 0) if pdu.opcode() == 0x25 => Ok(()),
        (0, 0) => Ok(()),
        (response, status) => {
            let sense: &[u8] = pdu.data.get(2..).unwrap_or_default();
            Err(io::Error::other(format!("response {response}, status {status:#04x}, sense {sense:02x?}")))
        }
    }
}

/// Number of unit attentions on a path, at most, when the other node leaves or returns.
const UNIT_ATTENTIONS_MAX: usize = 3;

/// Sends a command, and again after each unit attention.
///
/// # Errors
/// That of the command after all unit attentions.
pub fn in_spite_of_attentions<T>(mut command: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut result = command();
    for _ in 0..UNIT_ATTENTIONS_MAX {
        if result.is_ok() {
            break;
        }
        result = command();
    }
    result
}
