//! Scrubs of volumes by this node.

use node::control::ScrubStatus;

use super::snapshot::{Measured, Snapshot};
use super::text::{Kind, Text};

pub(super) fn write(text: &mut Text, snapshot: &Snapshot) {
    let help = "Bytes that this node has read for scrubs.";
    text.family("ursa_scrub_read_bytes_total", Kind::Counter, help).sample(&[], snapshot.scrubbed_bytes);
    let of = |volume: &Measured| Some((volume.name.clone(), volume.scrub?));
    let scrubs: Vec<(String, ScrubStatus)> = snapshot.volumes.iter().filter_map(of).collect();
    if scrubs.is_empty() {
        return;
    }
    let mut gauge = |name, help, value: fn(&ScrubStatus) -> Option<u64>| {
        let mut family = text.family(name, Kind::Gauge, help);
        for (volume, scrub) in &scrubs {
            if let Some(value) = value(scrub) {
                family.sample(&[("volume", volume)], value);
            }
        }
    };
    let help = "When the last scrub of the volume on this node ended, in seconds since 1970; absent if it was never scrubbed.";
    gauge("ursa_scrub_last_timestamp_seconds", help, |scrub| scrub.last.map(|last| last.at));
    let help = "Bad blocks that the last scrub found.";
    gauge("ursa_scrub_bad_blocks", help, |scrub| Some(scrub.last.map_or(0, |last| last.found.bad)));
    let help = "Those of them that were not repaired and cannot be read.";
    gauge("ursa_scrub_unrepaired_blocks", help, |scrub| {
        Some(scrub.last.map_or(0, |last| last.found.unrepaired()))
    });
    let help = "Whether a scrub of the volume is running, waiting or interrupted.";
    gauge("ursa_scrub_unfinished", help, |scrub| Some(u64::from(scrub.done.is_some())));
    let help = "Whether a scrub of the volume has been due for two weeks.";
    gauge("ursa_scrub_overdue", help, |scrub| Some(u64::from(scrub.is_overdue)));
}
