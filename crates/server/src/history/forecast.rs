//! When a pool will be full if it grows as in the time that was kept: a straight line, and its uncertainty.
//!
//! The time is divided into equal parts. The mean growth of a part gives the forecast; the spread of the
//! parts gives its confidence interval (Student's t).

use serde::{Deserialize, Serialize};

/// The number of parts of the time, at least and at most.
const PARTS_MIN: u64 = 4;
const PARTS_MAX: u64 = 7;
/// The half width of the 80 % confidence interval of the mean, in standard errors, by the number of parts
/// from [`PARTS_MIN`] on.
const LIKELY: [f64; (PARTS_MAX - PARTS_MIN + 1) as usize] = [1.64, 1.53, 1.48, 1.44];

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// With less history there is no forecast.
const KNOWN_MIN: u64 = 4 * HOUR;
/// With less history the forecast warns that it is unreliable over weeks.
const KNOWN_LITTLE: u64 = 2 * DAY;
/// A pool that will be full within this time causes a warning.
const SOON: u64 = 30 * DAY;
/// A time beyond this is not named.
const FAR: f64 = 3.0 * YEAR;
const YEAR: f64 = 365.0 * DAY as f64;
/// Growth below this part of the pool's size per year counts as none.
const NOTHING: f64 = 0.001;

/// How full a pool was over time.
#[derive(Clone, Copy, Debug)]
pub struct Filling<'a> {
    /// Seconds between two values.
    pub step: u64,
    /// Bytes that volumes took; `None`: nothing was kept at that time.
    pub used: &'a [Option<f64>],
    /// Bytes that volumes can take now.
    pub size: f64,
}

/// The forecast of a pool. Nodes report it to each other as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// Seconds between the first and the last known value.
    pub known: u64,
    /// How the pool's usage will continue.
    pub outlook: Outlook,
}

/// How a pool's usage will continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outlook {
    /// There is too little history.
    Unknown,
    /// Nothing was added or removed.
    Still,
    /// At least as much was removed as was added.
    NotFuller,
    /// The pool is filling up.
    Fuller {
        /// Bytes per day.
        growth: u64,
        /// Seconds until the pool is full.
        likely: u64,
        /// Seconds until then at the fast end of the 80 % confidence interval.
        soonest: u64,
        /// The same at the slow end; `None`: the pool may not fill up at all.
        latest: Option<u64>,
    },
}

impl Filling<'_> {
    /// The forecast if usage continues like this.
    pub fn forecast(&self) -> Forecast {
        let at = |(n, used): (u64, &Option<f64>)| Some((n * self.step, (*used)?));
        let known: Vec<(u64, f64)> = (0..).zip(self.used).filter_map(at).collect();
        let (Some(&(from, _)), Some(&(to, used))) = (known.first(), known.last()) else {
            return Forecast { known: 0, outlook: Outlook::Unknown };
        };
        let span = to - from;
        let outlook = match span < KNOWN_MIN || known.len() as u64 <= PARTS_MIN {
            true => Outlook::Unknown,
            false => self.outlook(&growth_of_parts(&known, from, span), span, used),
        };
        Forecast { known: span, outlook }
    }

    /// The outlook that follows from the growth of each part.
    fn outlook(&self, growth: &[f64], span: u64, used: f64) -> Outlook {
        let parts = growth.len() as f64;
        let seconds = span as f64 / parts;
        let least = self.size * NOTHING / YEAR * seconds;
        if growth.iter().all(|one| one.abs() <= least) {
            return Outlook::Still;
        }
        let mean = growth.iter().sum::<f64>() / parts;
        if mean <= least {
            return Outlook::NotFuller;
        }
        let squares: f64 = growth.iter().map(|one| (one - mean).powi(2)).sum();
        let margin = (squares / (parts - 1.0) / parts).sqrt() * LIKELY[growth.len() - PARTS_MIN as usize];
        let left = (self.size - used).max(0.0);
        let time = |rate: f64| (left / rate * seconds).round() as u64;
        Outlook::Fuller {
            growth: (mean / seconds * DAY as f64).round() as u64,
            likely: time(mean),
            soonest: time(mean + margin),
            latest: (mean > margin).then(|| time(mean - margin)),
        }
    }
}

/// The growth in each part of the time.
fn growth_of_parts(known: &[(u64, f64)], from: u64, span: u64) -> Vec<f64> {
    let parts = (span / DAY).clamp(PARTS_MIN, PARTS_MAX);
    // The last value known by then. There always is one, since the time begins with the first known value.
    let edge = |part: u64| {
        let time = from + span * part / parts;
        known[known.partition_point(|(at, _)| *at <= time) - 1].1
    };
    (0..parts).map(|part| edge(part + 1) - edge(part)).collect()
}

impl Forecast {
    /// Whether the pool is likely to be full within 30 days.
    pub fn is_soon(&self) -> bool {
        matches!(self.outlook, Outlook::Fuller { likely, .. } if likely < SOON)
    }

    /// The forecast in one or two sentences.
    pub fn text(&self) -> String {
        let past = format!("Over the last {}", duration(self.known));
        match self.outlook {
            Outlook::Unknown => {
                let has = if self.known == 0 { "hardly any".to_owned() } else { duration(self.known) };
                format!("No forecast yet: it needs {} of history, and has {has}.", duration(KNOWN_MIN))
            }
            Outlook::Still => format!("{past}, nothing was added: it is not filling up."),
            Outlook::NotFuller => format!("{past}, it did not grow: it is not filling up."),
            Outlook::Fuller { growth, likely, soonest, latest } => {
                let rough = match self.known < KNOWN_LITTLE {
                    true => " With so little history, a forecast over weeks is unreliable.",
                    false => "",
                };
                let (growth, likely, soonest) = (size(growth as f64), likely as f64, soonest as f64);
                let latest = latest.map_or(f64::INFINITY, |seconds| seconds as f64);
                if soonest > FAR {
                    return format!(
                        "{past}, it grew by {growth} per day: full in years at this rate.{rough}"
                    );
                }
                let likely = match rounded(likely) {
                    _ if likely > FAR => "years".to_owned(),
                    today if likely < DAY as f64 => today,
                    later => format!("about {later}"),
                };
                let range = range(soonest, latest);
                format!(
                    "{past}, it grew by {growth} per day. At this rate it will be full in {likely} ({range}).{rough}"
                )
            }
        }
    }
}

fn range(soonest: f64, latest: f64) -> String {
    let (soonest, until) = (rounded(soonest), rounded(latest));
    if latest > FAR {
        return format!("perhaps in {soonest}, perhaps never: growth was too uneven to tell");
    }
    match soonest == until {
        true => "growth was steady".to_owned(),
        false => format!("likely between {soonest} and {until}: growth was uneven"),
    }
}

/// A time in the future, no more precise than the forecast: `9 days`, `5 weeks`, `8 months`.
fn rounded(seconds: f64) -> String {
    let days = seconds / DAY as f64;
    let (many, unit) = match days {
        ..1.0 => return "less than a day".to_owned(),
        ..14.0 => (days, "day"),
        ..90.0 => (days / 7.0, "week"),
        ..730.0 => (days / 30.4, "month"),
        _ => (days / 365.0, "year"),
    };
    let many = many.round();
    format!("{many} {unit}{}", if many == 1.0 { "" } else { "s" })
}

/// A time that has passed: `40 min`, `2 h`, `1 d 22 h`.
fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / DAY, seconds / HOUR % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, _) => format!("{minutes} min"),
        (0, _, 0) => format!("{hours} h"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        (_, 0, _) => format!("{days} d"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A number of bytes with at most three digits: `1.5GiB`.
fn size(bytes: f64) -> String {
    let (mut value, mut unit) = (bytes, 0);
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    while value >= 1023.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    format!("{}{}", text.strip_suffix(".0").unwrap_or(&text), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = (1u64 << 30) as f64;

    /// The forecast of a pool of 1000 GiB, from its used GiB hour by hour.
    fn hours(many: u64, used: impl Fn(u64) -> Option<f64>) -> Forecast {
        let used: Vec<Option<f64>> = (0..many).map(|hour| used(hour).map(|gib| gib * GIB)).collect();
        Filling { step: HOUR, used: &used, size: 1000.0 * GIB }.forecast()
    }

    #[test]
    fn a_straight_line_is_followed() {
        let forecast = hours(169, |hour| Some(300.0 + hour as f64 / 24.0 * 10.0));
        let text = "Over the last 7 d, it grew by 10GiB per day. At this rate it will be full in about 9 weeks (growth was steady).";
        assert_eq!(forecast.text(), text);
        assert!(!forecast.is_soon());
        let Outlook::Fuller { growth, likely, soonest, latest } = forecast.outlook else {
            panic!("{forecast:?}")
        };
        assert!((growth as f64 / GIB - 10.0).abs() < 0.01);
        assert!(likely.abs_diff(63 * DAY) < DAY / 10);
        let latest = latest.unwrap();
        assert!(soonest <= likely && likely <= latest && latest - soonest < HOUR);
    }

    #[test]
    fn uneven_growth_widens_the_forecast() {
        let days = [5.0, 15.0, 5.0, 15.0, 10.0, 5.0, 15.0];
        let steps = hours(169, |hour| {
            let (day, of_day) = ((hour / 24) as usize, (hour % 24) as f64 / 24.0);
            let today = days.get(day).copied().unwrap_or_default();
            Some(300.0 + days[..day].iter().sum::<f64>() + of_day * today)
        });
        let text = steps.text();
        assert!(
            text.contains("full in about 9 weeks (likely between 7 weeks and 12 weeks: growth"),
            "{text}"
        );
        let once = hours(169, |hour| Some(if hour < 100 { 300.0 } else { 370.0 })).text();
        assert!(once.contains("perhaps never: growth was too uneven to tell"), "{once}");
    }

    #[test]
    fn a_pool_that_may_be_full_soon_is_marked() {
        assert!(hours(169, |hour| Some(700.0 + hour as f64)).is_soon());
        let full = hours(169, |hour| Some(850.0 + hour as f64));
        assert!(full.is_soon() && full.text().contains("full in less than a day ("), "{}", full.text());
    }

    #[test]
    fn a_forecast_claims_only_what_is_known() {
        let few = hours(3, |_| Some(1.0));
        assert_eq!(few.text(), "No forecast yet: it needs 4 h of history, and has 2 h.");
        assert_eq!((few.outlook, few.is_soon()), (Outlook::Unknown, false));
        for none in [hours(0, |_| None), hours(9, |_| None), hours(1, |_| Some(1.0))] {
            assert_eq!(none.text(), "No forecast yet: it needs 4 h of history, and has hardly any.");
        }
        let half = hours(48, |hour| (hour % 2 == 1).then_some(1.0));
        assert_eq!(half.text(), "Over the last 1 d 22 h, nothing was added: it is not filling up.");
        let less = hours(48, |hour| Some(90.0 - hour as f64));
        assert_eq!(less.text(), "Over the last 1 d 23 h, it did not grow: it is not filling up.");
        let short = hours(13, |hour| Some(hour as f64)).text();
        assert!(short.ends_with("With so little history, a forecast over weeks is unreliable."), "{short}");
        let slow = hours(169, |hour| Some(1.0 + hour as f64 / 1000.0)).text();
        assert!(slow.contains("per day: full in years at this rate."), "{slow}");
    }

    #[test]
    fn quantities_are_short() {
        let sizes = [512.0, 1536.0, 10.0 * GIB, 123.4 * GIB, 1023.9 * GIB].map(size);
        assert_eq!(sizes, ["512B", "1.5KiB", "10GiB", "123GiB", "1TiB"]);
        let day = DAY as f64;
        let times = [0.5, 1.4, 9.0, 20.0, 100.0, 800.0].map(|days| rounded(days * day));
        assert_eq!(times, ["less than a day", "1 day", "9 days", "3 weeks", "3 months", "2 years"]);
    }
}
