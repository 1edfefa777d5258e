//! What each core does: CPU time, turns of its loop, calls of io_uring.

use rt::uring::{CoreStats, Turns, turn_bound};

use super::text::{Kind, Text};

pub(super) fn write(text: &mut Text, cores: &[CoreStats]) {
    let mut seconds = |name, help, value: fn(&CoreStats) -> f64| {
        let mut family = text.family(name, Kind::Counter, help);
        for (core, stats) in cores.iter().enumerate() {
            family.sample(&[("core", &core.to_string())], value(stats));
        }
    };
    seconds("ursa_core_cpu_seconds_total", "CPU time of the core's thread.", |core| core.cpu.as_secs_f64());
    let help = "CPU time that the core's thread spent polling for work.";
    seconds("ursa_core_polling_seconds_total", help, |core| core.polling.as_secs_f64());

    let mut count = |name, help, value: fn(&CoreStats) -> u64| {
        let mut family = text.family(name, Kind::Counter, help);
        for (core, stats) in cores.iter().enumerate() {
            family.sample(&[("core", &core.to_string())], value(stats));
        }
    };
    count("ursa_core_busy_turns_total", "Turns of the core's loop that found work.", |core| core.busy_turns);
    count("ursa_core_enters_total", "Calls to io_uring_enter.", |core| core.enters);
    count("ursa_core_completions_total", "Completions taken from the ring.", |core| core.completions);
    turns(text, cores);
}

fn turns(text: &mut Text, cores: &[CoreStats]) {
    let help = "Duration of turns of the core's loop that found work. A request waits for at most one turn before the core sees it.";
    let mut family = text.family("ursa_core_turn_seconds", Kind::Histogram, help);
    for (core, stats) in cores.iter().enumerate() {
        let Turns { counts, time, .. } = &stats.turns;
        let buckets = counts.iter().enumerate();
        let buckets =
            buckets.map(|(index, count)| (turn_bound(index).map(|bound| bound.as_secs_f64()), *count));
        family.histogram(&[("core", &core.to_string())], buckets, time.as_secs_f64());
    }
    let help = "The longest turn of the core's loop in the last 30 to 60 seconds.";
    let mut family = text.family("ursa_core_longest_turn_seconds", Kind::Gauge, help);
    for (core, stats) in cores.iter().enumerate() {
        family.sample(&[("core", &core.to_string())], stats.turns.longest.as_secs_f64());
    }
}
