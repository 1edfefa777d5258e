//! Vital product data pages (SPC-4 7.8, SBC-3 6.6): the unit's identity, and the limits of a command.

use super::inquiry::ascii;
use super::limits;
use super::{LuConfig, RelativePort, TargetPort, Thresholds, commands};

const SUPPORTED_PAGES: u8 = 0x00;
const UNIT_SERIAL_NUMBER: u8 = 0x80;
const DEVICE_IDENTIFICATION: u8 = 0x83;
const EXTENDED_INQUIRY: u8 = 0x86;
const MODE_PAGE_POLICY: u8 = 0x87;
const SCSI_PORTS: u8 = 0x88;
const THIRD_PARTY_COPY: u8 = 0x8f;
const BLOCK_LIMITS: u8 = 0xb0;
const BLOCK_CHARACTERISTICS: u8 = 0xb1;
const LOGICAL_BLOCK_PROVISIONING: u8 = 0xb2;

/// All pages, in ascending order as SPC-4 7.8.18 requires.
const PAGES: [u8; 10] = [
    SUPPORTED_PAGES,
    UNIT_SERIAL_NUMBER,
    DEVICE_IDENTIFICATION,
    EXTENDED_INQUIRY,
    MODE_PAGE_POLICY,
    SCSI_PORTS,
    THIRD_PARTY_COPY,
    BLOCK_LIMITS,
    BLOCK_CHARACTERISTICS,
    LOGICAL_BLOCK_PROVISIONING,
];

/// The page with its header, as seen through `port`; `None` if there is no such page.
pub(super) fn page(config: &LuConfig, port: Option<RelativePort>, code: u8) -> Option<Vec<u8>> {
    let body = match code {
        SUPPORTED_PAGES => PAGES.to_vec(),
        UNIT_SERIAL_NUMBER => printable(&config.identity.serial),
        DEVICE_IDENTIFICATION => device_identification(config, port),
        EXTENDED_INQUIRY => extended_inquiry(),
        // SPC-4 7.8.10: all mode pages are shared by all nexuses.
        MODE_PAGE_POLICY => vec![0x3f, 0xff, 0x00, 0],
        SCSI_PORTS => scsi_ports(config),
        THIRD_PARTY_COPY => commands::third_party_copy(),
        BLOCK_LIMITS => block_limits(config),
        BLOCK_CHARACTERISTICS => block_characteristics(config),
        LOGICAL_BLOCK_PROVISIONING => logical_block_provisioning(config),
        _ => return None,
    };
    let mut bytes = vec![0x00, code];
    bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&body);
    Some(bytes)
}

/// The page list of a LUN without a unit.
pub(super) fn pages_without_unit(peripheral: u8) -> Vec<u8> {
    vec![peripheral, SUPPORTED_PAGES, 0, 1, SUPPORTED_PAGES]
}

fn printable(text: &str) -> Vec<u8> {
    text.bytes().map(|byte| if (0x20..0x7f).contains(&byte) { byte } else { b'?' }).collect()
}

/// CODE SET (SPC-4 table 23).
const BINARY: u8 = 1;
const ASCII: u8 = 2;
const UTF_8: u8 = 3;
/// ASSOCIATION (SPC-4 table 24), shifted to its position.
const UNIT: u8 = 0 << 4;
const PORT: u8 = 1 << 4;
const DEVICE: u8 = 2 << 4;
/// PIV, and the protocol identifier of iSCSI.
const PIV: u8 = 0x80;
const ISCSI: u8 = 5 << 4;

/// A designation descriptor (SPC-4 7.8.6).
fn designator(bytes: &mut Vec<u8>, code_set: u8, association_and_type: u8, designator: &[u8]) {
    let of_protocol = association_and_type & 0x30 != UNIT;
    let (protocol, piv) = if of_protocol { (ISCSI, PIV) } else { (0, 0) };
    bytes.extend_from_slice(&[protocol | code_set, piv | association_and_type, 0, designator.len() as u8]);
    bytes.extend_from_slice(designator);
}

/// A SCSI name string: UTF-8, padded with at least one zero to a multiple of four bytes, at most 256 (SPC-4
/// 7.8.6.11).
fn name_string(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes()[..name.len().min(NAME_BYTES_MAX)].to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
}

/// An iSCSI name has at most 223 bytes (RFC 7143 4.2.7.1), and a port adds ",t,0x0001". The length field has
/// eight bits.
const NAME_BYTES_MAX: usize = 251;
const _: () = assert!((NAME_BYTES_MAX + 1).next_multiple_of(4) <= 255);

fn device_identification(config: &LuConfig, port: Option<RelativePort>) -> Vec<u8> {
    let identity = &config.identity;
    let mut bytes = Vec::with_capacity(256);
    designator(&mut bytes, BINARY, UNIT | 3, &identity.naa);
    designator(&mut bytes, BINARY, UNIT | 2, &identity.eui64);
    let mut t10 = ascii::<8>(&identity.vendor).to_vec();
    t10.extend_from_slice(&ascii::<16>(&identity.product));
    t10.extend(printable(&identity.serial).into_iter().take(64));
    designator(&mut bytes, ASCII, UNIT | 1, &t10);
    if let Some((group, port)) = port.and_then(|port| config.port(port)) {
        let [high, low] = port.relative.0.to_be_bytes();
        designator(&mut bytes, BINARY, PORT | 4, &[0, 0, high, low]);
        let [high, low] = group.id.to_be_bytes();
        designator(&mut bytes, BINARY, PORT | 5, &[0, 0, high, low]);
        if let Some(name) = port.name() {
            designator(&mut bytes, UTF_8, PORT | 8, &name_string(&name));
        }
        designator(&mut bytes, UTF_8, DEVICE | 8, &name_string(&port.target));
    }
    bytes
}

/// SPC-4 7.8.7.
fn extended_inquiry() -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[1] = 0x01; // SIMPSUP; no HEADSUP and ORDSUP: other attributes are carried out as SIMPLE
    bytes[2] = 0x01; // V_SUP: there is a volatile cache
    bytes
}

/// SPC-4 7.8.15: all ports, with their names where these are known.
fn scsi_ports(config: &LuConfig) -> Vec<u8> {
    let port = |port: &TargetPort| {
        let mut name = Vec::new();
        if let Some(known) = port.name() {
            designator(&mut name, UTF_8, PORT | 8, &name_string(&known));
        }
        let [high, low] = port.relative.0.to_be_bytes();
        let mut bytes = vec![0, 0, high, low, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&(name.len() as u16).to_be_bytes());
        bytes.extend(name);
        bytes
    };
    config.ports().take(PORTS_SHOWN_MAX).flat_map(port).collect()
}

/// The page's length has 16 bits; a port takes at most 12 + 4 + 252 bytes.
const PORTS_SHOWN_MAX: usize = 240;
const _: () = assert!(PORTS_SHOWN_MAX * (12 + 4 + NAME_BYTES_MAX + 1) <= u16::MAX as usize);

/// SBC-3 6.6.3, with the atomic lengths of SBC-4 6.6.4.
fn block_limits(config: &LuConfig) -> Vec<u8> {
    let blocks = |bytes| limits::blocks_of(bytes, config.block_size).0;
    let blocks_32 = |bytes| u32::try_from(blocks(bytes)).unwrap_or(u32::MAX);
    let if_unmap = |value| if config.unmap { value } else { 0 };
    let mut page = vec![u8::from(limits::WRITE_SAME_NON_ZERO), limits::COMPARE_AND_WRITE_BLOCKS_MAX];
    // OPTIMAL TRANSFER LENGTH GRANULARITY: the physical block.
    page.extend_from_slice(&(1u16 << config.physical_exponent.min(15)).to_be_bytes());
    let fields = [
        blocks_32(limits::TRANSFER_BYTES_MAX),
        limits::TRANSFER_BLOCKS_OPTIMAL,
        blocks_32(limits::PREFETCH_BYTES_MAX),
        if_unmap(limits::UNMAP_BLOCKS_MAX),
        if_unmap(limits::UNMAP_DESCRIPTORS_MAX),
        if_unmap(blocks_32(limits::UNMAP_BYTES_OPTIMAL)),
        if_unmap(1 << 31), // UGAVALID: aligned to block zero
    ];
    fields.iter().for_each(|field| page.extend_from_slice(&field.to_be_bytes()));
    page.extend_from_slice(&blocks(limits::WRITE_SAME_BYTES_MAX).to_be_bytes());
    let atomic = &config.atomic;
    // Atomic writes have no boundaries inside.
    for field in [atomic.blocks_max, atomic.alignment, atomic.granularity, 0, 0] {
        page.extend_from_slice(&field.to_be_bytes());
    }
    page
}

/// SBC-3 6.6.2.
fn block_characteristics(config: &LuConfig) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[1] = u8::from(config.solid_state); // MEDIUM ROTATION RATE: 1 is none, 0 is not told
    bytes
}

/// SBC-3 6.6.4, with THRESHOLD PERCENTAGE of SBC-4: unmapped blocks read as zeros, and all three commands can
/// unmap.
fn logical_block_provisioning(config: &LuConfig) -> Vec<u8> {
    if !config.unmap {
        return vec![0, 0, 0, 0];
    }
    let told = |thresholds: Thresholds| (Thresholds::exponent(config.block_size), thresholds.range());
    let (exponent, percentage) = config.thresholds.map_or((0, 0), told);
    vec![exponent, 0xe4, 0x02, percentage] // LBPU, LBPWS, LBPWS10, LBPRZ; thin
}
