//! Commands that are mostly valid.

use arbitrary::Arbitrary;

/// The fields of a command.
#[derive(Clone, Debug, Arbitrary)]
pub enum Command {
    /// READ, WRITE and similar ones, with 10-byte CDBs.
    Block10 { operation: u8, flags: u8, lba: u16, blocks: u8 },
    /// The same with 16-byte CDBs.
    Block16 { operation: u8, flags: u8, lba: u32, blocks: u8 },
    /// With an allocation length or a parameter list length in bytes 7 and 8.
    Parameters10 { operation: u8, action: u8, page: u8, length: u16 },
    /// The same in 6 bytes.
    Parameters6 { operation: u8, flags: u8, page: u8, length: u8 },
    /// SERVICE ACTION IN (16), RECEIVE COPY RESULTS and others with a length in bytes 10 to 13.
    Action16 { operation: u8, action: u8, lba: u32, length: u16 },
    /// MAINTENANCE IN.
    Action12 { operation: u8, action: u8, options: u8, length: u16 },
    /// Anything.
    Any([u8; 16]),
}

/// READ, WRITE, WRITE AND VERIFY, VERIFY, SYNCHRONIZE CACHE, PRE-FETCH, WRITE SAME, UNMAP (10).
const BLOCK_10: [u8; 8] = [0x28, 0x2a, 0x2e, 0x2f, 0x35, 0x34, 0x41, 0x42];
/// The same (16), and COMPARE AND WRITE, ORWRITE, WRITE ATOMIC.
const BLOCK_16: [u8; 10] = [0x88, 0x8a, 0x8e, 0x8f, 0x91, 0x90, 0x93, 0x89, 0x8b, 0x9c];
/// PERSISTENT RESERVE IN and OUT, MODE SENSE, MODE SELECT, UNMAP, READ DEFECT DATA.
const PARAMETERS_10: [u8; 6] = [0x5e, 0x5f, 0x5a, 0x55, 0x42, 0x37];
/// INQUIRY, MODE SENSE, MODE SELECT, REQUEST SENSE, START STOP UNIT, RESERVE, RELEASE, TEST UNIT READY, READ,
/// WRITE, PREVENT.
const PARAMETERS_6: [u8; 11] = [0x12, 0x1a, 0x15, 0x03, 0x1b, 0x16, 0x17, 0x00, 0x08, 0x0a, 0x1e];
/// SERVICE ACTION IN, EXTENDED COPY, RECEIVE COPY RESULTS.
const ACTION_16: [u8; 3] = [0x9e, 0x83, 0x84];
/// MAINTENANCE IN, REPORT LUNS, READ, WRITE, WRITE AND VERIFY, VERIFY.
const ACTION_12: [u8; 6] = [0xa3, 0xa0, 0xa8, 0xaa, 0xae, 0xaf];

impl Command {
    /// The CDB.
    pub fn cdb(&self) -> [u8; 16] {
        let mut cdb = [0; 16];
        match *self {
            Command::Block10 { operation, flags, lba, blocks } => {
                cdb[0] = pick(&BLOCK_10, operation);
                cdb[1] = flags & 0xfe;
                cdb[4..6].copy_from_slice(&lba.to_be_bytes());
                cdb[8] = blocks;
            }
            Command::Block16 { operation, flags, lba, blocks } => {
                cdb[0] = pick(&BLOCK_16, operation);
                cdb[1] = flags & 0xfe;
                cdb[6..10].copy_from_slice(&(lba & 0x1_ffff).to_be_bytes());
                cdb[13] = blocks;
            }
            Command::Parameters10 { operation, action, page, length } => {
                cdb[0] = pick(&PARAMETERS_10, operation);
                (cdb[1], cdb[2]) = (action, page);
                cdb[7..9].copy_from_slice(&length.to_be_bytes());
            }
            Command::Parameters6 { operation, flags, page, length } => {
                cdb[0] = pick(&PARAMETERS_6, operation);
                (cdb[1], cdb[2], cdb[4]) = (flags, page, length);
            }
            Command::Action16 { operation, action, lba, length } => {
                cdb[0] = pick(&ACTION_16, operation);
                cdb[1] = action;
                cdb[6..10].copy_from_slice(&lba.to_be_bytes());
                cdb[12..14].copy_from_slice(&length.to_be_bytes());
            }
            Command::Action12 { operation, action, options, length } => {
                cdb[0] = pick(&ACTION_12, operation);
                (cdb[1], cdb[2]) = (action, options);
                cdb[8..10].copy_from_slice(&length.to_be_bytes());
            }
            Command::Any(any) => cdb = any,
        }
        cdb
    }
}

fn pick(operations: &[u8], index: u8) -> u8 {
    operations[usize::from(index) % operations.len()]
}
