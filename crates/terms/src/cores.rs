//! Which processors a node runs on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most cores by default: more help only with fast networks, and each takes memory.
const DEFAULT_MAX: usize = 8;

/// The highest processor number in Linux's default CPU mask.
const PROCESSOR_MAX: usize = 1023;

/// How many cores a node has, or on which processors.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Cores {
    /// This many; the kernel places them.
    Count(usize),
    /// One per processor, pinned to it.
    Processors(Vec<usize>),
}

/// The setting in a file: `2`, or `"0-3,6"`.
#[derive(Clone, Deserialize, Serialize)]
#[serde(untagged)]
enum Written {
    Count(usize),
    Text(String),
}

/// The text is no valid setting of cores.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is neither a number of cores nor a list of processors: use 4, or 0-3,6 (a single processor: 3-3)"
)]
pub struct InvalidCores(String);

impl Cores {
    /// The default for this machine.
    pub fn of_this_machine() -> Cores {
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        Cores::Count(available.min(DEFAULT_MAX))
    }

    /// The processors, one per core, and whether the cores are pinned to them.
    pub fn processors(&self) -> (Vec<usize>, bool) {
        match self {
            Cores::Count(count) => ((0..*count).collect(), false),
            Cores::Processors(processors) => (processors.clone(), true),
        }
    }
}

impl FromStr for Cores {
    type Err = InvalidCores;

    fn from_str(text: &str) -> Result<Cores, InvalidCores> {
        let invalid = || InvalidCores(text.to_owned());
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number <= PROCESSOR_MAX);
        if let Some(count) = number(text) {
            return if count > 0 { Ok(Cores::Count(count)) } else { Err(invalid()) };
        }
        let mut processors = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first).ok_or_else(invalid)?, number(last).ok_or_else(invalid)?);
            for processor in first..=last {
                if processors.contains(&processor) {
                    return Err(invalid());
                }
                processors.push(processor);
            }
        }
        if processors.is_empty() { Err(invalid()) } else { Ok(Cores::Processors(processors)) }
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cores::Count(count) => write!(f, "{count}"),
            Cores::Processors(processors) if processors.len() == 1 => {
                write!(f, "{0}-{0}", processors[0])
            }
            Cores::Processors(processors) => {
                let processors: Vec<String> = processors.iter().map(usize::to_string).collect();
                f.write_str(&processors.join(","))
            }
        }
    }
}

impl TryFrom<Written> for Cores {
    type Error = InvalidCores;

    fn try_from(written: Written) -> Result<Cores, InvalidCores> {
        match written {
            Written::Count(count) => count.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
    }
}

impl From<Cores> for Written {
    fn from(cores: Cores) -> Written {
        match cores {
            Cores::Count(count) => Written::Count(count),
            processors => Written::Text(processors.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_counts_and_a_list_names() {
        assert_eq!("2".parse(), Ok(Cores::Count(2)));
        assert_eq!("0,1".parse(), Ok(Cores::Processors(vec![0, 1])));
        assert_eq!("4-6,1".parse(), Ok(Cores::Processors(vec![4, 5, 6, 1])));
        assert_eq!("3-3".parse(), Ok(Cores::Processors(vec![3])));
        assert_eq!(Cores::Processors(vec![3]).to_string(), "3-3");
        for text in ["", "0", "x", "1,1", "3-1", "0-", "9999", "-1"] {
            assert!(text.parse::<Cores>().is_err(), "{text}");
        }
    }
}
