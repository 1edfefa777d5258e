//! Mode parameters (SPC-4 7.5): what initiators may set, and the pages that contain it.
//!
//! Three bits can be set: WCE, D_SENSE and SWP. Everything else in the pages is fixed. The mask of changeable
//! bits is not defined separately: it is the difference between a page with all three set and one with none
//! set.

mod select;
mod sense;

use serde::{Deserialize, Serialize};

use super::LuConfig;

pub(super) use select::{MODE_SELECT_6, MODE_SELECT_10, ModeChange};
pub(super) use sense::{MODE_SENSE_6, MODE_SENSE_10};

/// What MODE SELECT can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mode {
    /// WCE: a write may be answered before it is durable.
    pub(super) write_cache: bool,
    /// D_SENSE: sense data is sent in descriptor format.
    pub(super) descriptor_sense: bool,
    /// SWP: writes are refused.
    pub(super) write_protected: bool,
}

impl Default for Mode {
    fn default() -> Mode {
        Mode { write_cache: true, descriptor_sense: false, write_protected: false }
    }
}

const NONE: Mode = Mode { write_cache: false, descriptor_sense: false, write_protected: false };
const ALL: Mode = Mode { write_cache: true, descriptor_sense: true, write_protected: true };

struct Page {
    code: u8,
    /// The subpage code; zero for the page_0 format.
    subpage: u8,
    /// PS: MODE SELECT can save it.
    saveable: bool,
    /// The page without its header.
    body: fn(&LuConfig, &Mode) -> Vec<u8>,
}

/// All pages, in the order in which 3Fh returns them (SPC-4 6.11.1: ascending, page 0 last).
static PAGES: [Page; 7] = [
    Page { code: 0x01, subpage: 0, saveable: false, body: error_recovery },
    Page { code: 0x02, subpage: 0, saveable: false, body: |_, _| vec![0; 14] },
    Page { code: 0x08, subpage: 0, saveable: true, body: caching },
    Page { code: 0x0a, subpage: 0, saveable: true, body: control },
    Page { code: 0x0a, subpage: 0x01, saveable: false, body: control_extension },
    Page { code: 0x1c, subpage: 0, saveable: false, body: informational_exceptions },
    Page { code: 0x1c, subpage: THRESHOLDS, saveable: false, body: logical_block_provisioning },
];

/// The subpage that only units with thresholds have.
const THRESHOLDS: u8 = 0x02;

/// The pages of a unit.
fn pages_of(config: &LuConfig) -> impl Iterator<Item = &'static Page> {
    PAGES.iter().filter(move |page| page.subpage != THRESHOLDS || config.thresholds.is_some())
}

/// Read-write error recovery (SBC-3 6.5.8): AWRE and ARRE, since the disks below reallocate. LBPERE:
/// thresholds are reported.
fn error_recovery(config: &LuConfig, _: &Mode) -> Vec<u8> {
    let thresholds = u8::from(config.thresholds.is_some()) << 7;
    vec![0xc0, 0, 0, 0, 0, thresholds, 0, 0, 0, 0]
}

/// Caching (SBC-3 6.5.5).
fn caching(_: &LuConfig, mode: &Mode) -> Vec<u8> {
    let mut body = vec![0; 18];
    body[0] = u8::from(mode.write_cache) << 2;
    body
}

/// Control (SPC-4 7.5.8). TST 0, GLTSD, unrestricted reordering, QERR 0. TAS: commands that another nexus
/// aborts are answered TASK ABORTED.
fn control(_: &LuConfig, mode: &Mode) -> Vec<u8> {
    vec![
        u8::from(mode.descriptor_sense) << 2 | 0x02,
        0x10,
        u8::from(mode.write_protected) << 3,
        0x40,
        0,
        0,
        0xff, // BUSY TIMEOUT PERIOD: unlimited
        0xff,
        0,
        0,
    ]
}

/// Control extension (SPC-4 7.5.9). IALUAE: implicit asymmetric access is enabled.
fn control_extension(_: &LuConfig, _: &Mode) -> Vec<u8> {
    let mut body = vec![0; 28];
    body[0] = 0x01;
    body
}

/// Informational exceptions control (SPC-4 7.5.13). DEXCPT: none are reported.
fn informational_exceptions(_: &LuConfig, _: &Mode) -> Vec<u8> {
    vec![0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Bytes of the Logical Block Provisioning page before the threshold descriptors, header included, and of a
/// descriptor.
const THRESHOLDS_OFFSET: u8 = 16;
const THRESHOLD_BYTES: u8 = 8;

/// Logical Block Provisioning (SBC-4 clause 6). SITUA 0: every nexus is notified.
fn logical_block_provisioning(config: &LuConfig, _: &Mode) -> Vec<u8> {
    let mut body = vec![0; usize::from(THRESHOLDS_OFFSET) - 4];
    for available in config.thresholds.iter().flat_map(|thresholds| thresholds.available) {
        // ENABLED; a percentage, reached when it decreases; of the resource 03h, the available space.
        body.extend_from_slice(&[0x88, 0x03, 0, 0, 0, 0, 0, *available]);
    }
    body
}

/// The offset of a threshold's descriptor in its page, by its index in
/// [`Thresholds::available`](super::Thresholds).
///
/// INFORMATION of the unit attention (SBC-4 clause 4, Logical block provisioning threshold notification).
pub(super) fn threshold_offset(index: u8) -> u64 {
    u64::from(THRESHOLDS_OFFSET) + u64::from(THRESHOLD_BYTES) * u64::from(index)
}

impl Page {
    /// The page with its header (SPC-4 tables 460 and 461).
    fn encode(&self, config: &LuConfig, mode: &Mode) -> Vec<u8> {
        self.with_header((self.body)(config, mode))
    }

    /// The mask of changeable bits, with the header.
    fn changeable(&self, config: &LuConfig) -> Vec<u8> {
        let (all, none) = ((self.body)(config, &ALL), (self.body)(config, &NONE));
        self.with_header(all.iter().zip(none).map(|(all, none)| all ^ none).collect())
    }

    fn with_header(&self, body: Vec<u8>) -> Vec<u8> {
        let saveable = u8::from(self.saveable) << 7;
        let mut page = if self.subpage == 0 {
            vec![saveable | self.code, body.len() as u8]
        } else {
            let [high, low] = (body.len() as u16).to_be_bytes();
            vec![saveable | 0x40 | self.code, self.subpage, high, low]
        };
        page.extend(body);
        page
    }
}
