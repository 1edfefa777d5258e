//! Of each volume: latencies of operations, bytes moved, errors.

use node::{Operation, UnitStats, bucket_bound};
use store::InLogs;

use super::snapshot::{Measured, Snapshot};
use super::text::{Kind, Text};

pub(super) fn write(text: &mut Text, snapshot: &Snapshot) {
    let measured: Vec<(&Measured, &UnitStats)> = snapshot
        .volumes
        .iter()
        .filter_map(|volume| Some((volume, snapshot.stats.get(&volume.id)?)))
        .collect();
    capacities(text, &snapshot.volumes);
    compression(text, &snapshot.volumes);
    serving(text, &snapshot.volumes);
    latencies(text, &measured);
    bytes(text, &measured);
    errors(text, &measured);
}

fn capacities(text: &mut Text, volumes: &[Measured]) {
    let mut family = text.family("ursa_volume_capacity_bytes", Kind::Gauge, "Size of the volume.");
    for volume in volumes {
        family.sample(&[("volume", &volume.name), ("pool", &volume.pool)], volume.capacity);
    }
}

fn compression(text: &mut Text, volumes: &[Measured]) {
    let in_logs: Vec<(&str, InLogs)> =
        volumes.iter().filter_map(|volume| Some((volume.name.as_str(), volume.in_logs?))).collect();
    if in_logs.is_empty() {
        return;
    }
    let help = "Size of the blocks of the log volume that are not zeros.";
    let mut family = text.family("ursa_volume_mapped_bytes", Kind::Gauge, help);
    in_logs.iter().for_each(|(name, taken)| family.sample(&[("volume", name)], taken.mapped.0));
    let help = "Space that these blocks take: less than their size if they are compressed.";
    let mut family = text.family("ursa_volume_stored_bytes", Kind::Gauge, help);
    in_logs.iter().for_each(|(name, taken)| family.sample(&[("volume", name)], taken.stored.0));
}

fn serving(text: &mut Text, volumes: &[Measured]) {
    let help = "Whether hosts can read and write the volume through this node; `id` distinguishes volumes of the same name on nodes that have not joined each other.";
    let mut family = text.family("ursa_volume_serving", Kind::Gauge, help);
    for volume in volumes {
        let labels = [("volume", volume.name.as_str()), ("id", &volume.id.to_string())];
        family.sample(&labels, u8::from(volume.serving));
    }
}

fn latencies(text: &mut Text, measured: &[(&Measured, &UnitStats)]) {
    let help = "Latency of commands: from the arrival of all data of a command to its answer.";
    let mut family = text.family("ursa_volume_operation_duration_seconds", Kind::Histogram, help);
    for (volume, stats) in measured {
        for operation in Operation::ALL {
            let latency = &stats.latency[operation as usize];
            if latency.count() == 0 {
                continue;
            }
            let buckets = latency.counts.iter().enumerate();
            let buckets =
                buckets.map(|(index, count)| (bucket_bound(index).map(|bound| bound.as_secs_f64()), *count));
            let labels = [("volume", volume.name.as_str()), ("operation", operation.name())];
            family.histogram(&labels, buckets, latency.sum as f64 / 1e9);
        }
    }
}

fn bytes(text: &mut Text, measured: &[(&Measured, &UnitStats)]) {
    let help = "Bytes in the blocks that successful commands addressed.";
    let mut family = text.family("ursa_volume_bytes_total", Kind::Counter, help);
    for (volume, stats) in measured {
        for operation in Operation::ALL {
            let bytes = stats.bytes[operation as usize];
            if bytes > 0 {
                family.sample(&[("volume", &volume.name), ("operation", operation.name())], bytes);
            }
        }
    }
}

fn errors(text: &mut Text, measured: &[(&Measured, &UnitStats)]) {
    let help = "Commands that ended with CHECK CONDITION, by sense key and additional sense code/qualifier.";
    let mut family = text.family("ursa_volume_errors_total", Kind::Counter, help);
    for (volume, stats) in measured {
        for ((key, code), count) in &stats.errors {
            let code = format!("{:02x}/{:02x}", code >> 8, code & 0xff);
            family
                .sample(&[("volume", &volume.name), ("sense_key", sense_key(*key)), ("code", &code)], count);
        }
    }
}

/// The names of sense keys (SPC-4 table 27).
fn sense_key(key: u8) -> &'static str {
    match key {
        0x0 => "no_sense",
        0x1 => "recovered_error",
        0x2 => "not_ready",
        0x3 => "medium_error",
        0x4 => "hardware_error",
        0x5 => "illegal_request",
        0x6 => "unit_attention",
        0x7 => "data_protect",
        0x8 => "blank_check",
        0x9 => "vendor_specific",
        0xa => "copy_aborted",
        0xb => "aborted_command",
        0xd => "volume_overflow",
        0xe => "miscompare",
        0xf => "completed",
        _ => "reserved",
    }
}
