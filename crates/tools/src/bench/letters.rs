//! Translates DISKSPD's letters into long options, according to DISKSPD's documentation.
//!
//! A letter's value follows immediately (`-b4K`) or, as many users write it, as the next argument (`-b 4K`).
//! If the value is optional, only what follows immediately is taken, or digits: `-r FILE` names a file. Sizes
//! end with K, M, G, or b for blocks of `-b`.

use std::ffi::OsString;

use terms::size::Size;

/// Why a letter cannot be translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum LetterError {
    #[error("-{0} needs a value, as in -{0}{1}")]
    NoValue(char, &'static str),
    #[error("-{letter}{value}: {reason}")]
    Value { letter: char, value: String, reason: &'static str },
    /// DISKSPD has the letter, but this program does not.
    #[error("-{0} of DISKSPD is not supported: {1}")]
    Unavailable(char, &'static str),
}

/// What a letter means.
enum Letter {
    /// A value must follow: the option, and an example.
    Value(&'static str, &'static str),
    /// A size must follow, which may be in blocks.
    Bytes(&'static str, &'static str),
    /// Digits may follow.
    Digits(&'static str, &'static str),
    Random,
    Sequential,
    Caching,
    Content,
    /// The default, or always the case.
    Nothing,
    Unavailable(&'static str),
    /// No letter of DISKSPD, or one that has another meaning on every command line.
    Other,
}

fn letter(letter: char) -> Letter {
    match letter {
        'b' => Letter::Value("block", "4K"),
        't' => Letter::Value("threads", "4"),
        'o' => Letter::Value("depth", "32"),
        'd' => Letter::Value("duration", "60"),
        'W' => Letter::Value("warm-up", "5"),
        'a' => Letter::Value("processors", "0,1"),
        'B' => Letter::Bytes("base", "1G"),
        'f' => Letter::Bytes("span", "10G"),
        'T' => Letter::Bytes("thread-stride", "1G"),
        'c' => Letter::Bytes("create", "10G"),
        'w' => Letter::Digits("write", "0"),
        'z' => Letter::Digits("seed", "random"),
        'r' => Letter::Random,
        's' => Letter::Sequential,
        'S' => Letter::Caching,
        'Z' => Letter::Content,
        // Latencies and series are always recorded; only -a binds threads to processors.
        'L' | 'D' | 'n' => Letter::Nothing,
        'F' => Letter::Unavailable("-t sets the threads per target"),
        'g' => Letter::Unavailable("use --rate, a total rate that counts delays"),
        'R' => Letter::Unavailable("use --json or --html to write results to a file"),
        'C' | 'i' | 'I' | 'j' | 'l' | 'O' | 'p' | 'P' | 'v' | 'x' | 'X' | 'y' | 'e' => {
            Letter::Unavailable("see ursa bench run --help")
        }
        _ => Letter::Other,
    }
}

/// Translates the letters after `bench`; all other arguments stay unchanged.
pub fn expand(arguments: Vec<OsString>) -> Result<Vec<OsString>, LetterError> {
    let Some(bench) = arguments.iter().position(|argument| argument == "bench") else {
        return Ok(arguments);
    };
    // After another command, `bench` is a name; the same goes for an option's value.
    if arguments[1..bench].iter().any(|argument| !argument.as_encoded_bytes().starts_with(b"-")) {
        return Ok(arguments);
    }
    let (head, tail) = arguments.split_at(bench + 1);
    let mut expanded = head.to_vec();
    let block = block(tail);
    let mut rest = tail.iter();
    while let Some(argument) = rest.next() {
        let Some((name, value)) = argument.to_str().and_then(split) else {
            expanded.push(argument.clone());
            // No argument after it is an option.
            if argument == "--" {
                expanded.extend(rest.by_ref().cloned());
            }
            continue;
        };
        let next = rest.as_slice().first().and_then(|next| next.to_str());
        let translated = translate(name, value, next, block)?;
        expanded.extend(translated.options.into_iter().map(OsString::from));
        if translated.used_next {
            rest.next();
        }
    }
    Ok(expanded)
}

/// A letter and what follows it immediately; `None`: no letter of DISKSPD.
fn split(argument: &str) -> Option<(char, &str)> {
    let rest = argument.strip_prefix('-')?;
    let name = rest.chars().next().filter(|name| !matches!(letter(*name), Letter::Other))?;
    Some((name, &rest[name.len_utf8()..]))
}

/// The value of `-b`, for sizes in blocks.
fn block(arguments: &[OsString]) -> u64 {
    let texts: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let value = texts.iter().enumerate().find_map(|(at, text)| match text.strip_prefix("-b")? {
        "" => texts.get(at + 1).copied(),
        value => Some(value),
    });
    value.and_then(|value| value.parse().ok()).map_or(64 << 10, |Size(bytes)| bytes)
}

struct Translated {
    options: Vec<String>,
    /// Whether the value was the next argument.
    used_next: bool,
}

fn translate(name: char, value: &str, next: Option<&str>, block: u64) -> Result<Translated, LetterError> {
    let wrong = |reason| LetterError::Value { letter: name, value: value.to_owned(), reason };
    let one = |option: String| Ok(Translated { options: vec![option], used_next: false });
    match letter(name) {
        // Hints for a page cache, which is bypassed.
        Letter::Bytes("span", _) if !value.is_empty() && value.chars().all(|hint| "rst".contains(hint)) => {
            Ok(Translated { options: Vec::new(), used_next: false })
        }
        Letter::Value(option, example) => {
            let (value, used_next) = given(name, value, next, example)?;
            Ok(Translated { options: vec![format!("--{option}={value}")], used_next })
        }
        Letter::Bytes(option, example) => {
            let (value, used_next) = given(name, value, next, example)?;
            Ok(Translated { options: vec![format!("--{option}={}", in_bytes(value, block))], used_next })
        }
        Letter::Digits(option, without) => {
            let digits = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let next = next.filter(|_| value.is_empty()).filter(digits);
            let value = if value.is_empty() { next.unwrap_or(without) } else { value };
            Ok(Translated { options: vec![format!("--{option}={value}")], used_next: next.is_some() })
        }
        Letter::Random if value.is_empty() => one("--random".to_owned()),
        Letter::Random if value.starts_with("dpct") => {
            one(format!("--distribution={}", &value["dpct".len()..]))
        }
        Letter::Random if value.starts_with('d') => Err(wrong("use percentages, such as -rdpct80/20")),
        Letter::Random if value.starts_with('s') => {
            Err(wrong("a mix of random and sequential requests is not supported"))
        }
        Letter::Random => one(format!("--random={}", in_bytes(value, block))),
        Letter::Sequential => {
            let (stride, interlocked) = match value.strip_prefix('i') {
                Some(stride) => (stride, true),
                None => (value, false),
            };
            let mut options = match stride {
                "" => vec!["--sequential".to_owned()],
                stride => vec![format!("--sequential={}", in_bytes(stride, block))],
            };
            options.extend(interlocked.then(|| "--interlocked".to_owned()));
            Ok(Translated { options, used_next: false })
        }
        Letter::Caching => {
            if !value.chars().all(|flag| "bhruw".contains(flag)) {
                return Err(wrong("-S takes h, u and w"));
            }
            if value.contains(['b', 'r']) {
                return Err(wrong("the page cache is always bypassed; use -Su, or -Sh for write-through"));
            }
            let through = value.contains(['h', 'w']).then(|| "--write-through".to_owned());
            Ok(Translated { options: through.into_iter().collect(), used_next: false })
        }
        Letter::Content if value.is_empty() => one("--data=zero".to_owned()),
        Letter::Content if value.contains(',') => Err(wrong("data from a file is not supported; see --data")),
        Letter::Content => one("--data=random".to_owned()),
        Letter::Nothing => Ok(Translated { options: Vec::new(), used_next: false }),
        Letter::Unavailable(hint) => Err(LetterError::Unavailable(name, hint)),
        Letter::Other => unreachable!("split has sorted it out"),
    }
}

/// A required value: immediately after the letter, or the next argument.
fn given<'a>(
    name: char,
    value: &'a str,
    next: Option<&'a str>,
    example: &'static str,
) -> Result<(&'a str, bool), LetterError> {
    match (value, next) {
        ("", Some(next)) if !next.starts_with('-') => Ok((next, true)),
        ("", _) => Err(LetterError::NoValue(name, example)),
        (value, _) => Ok((value, false)),
    }
}

/// A size; `64b` is 64 blocks.
fn in_bytes(value: &str, block: u64) -> String {
    let blocks = value.strip_suffix(['b', 'B']).and_then(|count| count.parse::<u64>().ok());
    match blocks.and_then(|count| count.checked_mul(block)) {
        Some(bytes) => bytes.to_string(),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> Result<String, LetterError> {
        let arguments = std::iter::once("ursa").chain(line.split(' ')).map(OsString::from).collect();
        let expanded: Vec<String> =
            expand(arguments)?.into_iter().skip(1).map(|text| text.into_string().unwrap()).collect();
        Ok(expanded.join(" "))
    }

    /// From DISKSPD's usage text, from Microsoft's page on testing the storage of a cluster with it, and from
    /// VMFleet.
    #[test]
    fn published_command_lines() {
        for (letters, options) in [
            (
                "-b4K -t2 -r -o32 -d10 -Sh testfile.dat",
                "--block=4K --threads=2 --random --depth=32 --duration=10 --write-through testfile.dat",
            ),
            (
                "-t2 -o32 -b4k -r4k -w0 -d120 -Sh -D -L -c5G io.dat",
                "--threads=2 --depth=32 --block=4k --random=4k --write=0 --duration=120 --write-through --create=5G io.dat",
            ),
            (
                "-c1G -b4K -t2 -d10 -a0,1 one.dat two.dat",
                "--create=1G --block=4K --threads=2 --duration=10 --processors=0,1 one.dat two.dat",
            ),
            ("-z -t1 -o16 -b4k -r4k -w10 -W120 -d600 -C30 x", "-C"),
            (
                "-b 4K -t 4 -o 32 -w 30 -r -d 60 -W 5 -Sh -f 10G -z 7 iscsi://h/iqn/0",
                "--block=4K --threads=4 --depth=32 --write=30 --random --duration=60 --warm-up=5 --write-through --span=10G --seed=7 iscsi://h/iqn/0",
            ),
        ] {
            match run(&format!("bench run {letters}")) {
                Ok(expanded) => assert_eq!(expanded, format!("bench run {options}")),
                Err(error) => assert_eq!(error, LetterError::Unavailable('C', "see ursa bench run --help")),
            }
        }
    }

    #[test]
    fn values_that_may_be_left_out() {
        for (letters, options) in [
            ("-w file", "--write=0 file"),
            ("-w 100 file", "--write=100 file"),
            ("-z file", "--seed=random file"),
            ("-z12 file", "--seed=12 file"),
            ("-r file", "--random file"),
            ("-r4K -rdpct80/20:10/30 file", "--random=4K --distribution=80/20:10/30 file"),
            ("-s file", "--sequential file"),
            ("-si file", "--sequential --interlocked file"),
            ("-si128K file", "--sequential=128K --interlocked file"),
            ("-S file", "file"),
            ("-Suw -Z file", "--write-through --data=zero file"),
            ("-Zr -Z20M -fs file", "--data=random --data=random file"),
        ] {
            assert_eq!(run(&format!("bench run {letters}")), Ok(format!("bench run {options}")), "{letters}");
        }
    }

    #[test]
    fn sizes_may_be_in_blocks() {
        assert_eq!(run("bench run -f64b -b8K x"), Ok("bench run --span=524288 --block=8K x".into()));
        assert_eq!(run("bench run -T 2b x"), Ok("bench run --thread-stride=131072 x".into()));
        assert_eq!(run("bench run -f4KB x"), Ok("bench run --span=4KB x".into()));
    }

    #[test]
    fn other_arguments_stay_unchanged() {
        for line in [
            "bench run --block 4K -h",
            "bench run --verify -- -b4K",
            "volume create bench --size 1G -o json",
            "-o json status",
            "bench compare a.json b.json",
        ] {
            assert_eq!(run(line), Ok(line.to_owned()));
        }
        assert_eq!(
            run("--api=http://x bench run -o32 x"),
            Ok("--api=http://x bench run --depth=32 x".into())
        );
    }

    #[test]
    fn letters_that_cannot_be_meant_are_refused() {
        assert_eq!(run("bench run -b"), Err(LetterError::NoValue('b', "4K")));
        assert_eq!(run("bench run -t -o32"), Err(LetterError::NoValue('t', "4")));
        for letters in ["-Sb", "-Sr", "-Sx", "-rs30", "-rdabs80/1G", "-Z1M,file"] {
            assert!(matches!(run(&format!("bench run {letters} x")), Err(LetterError::Value { .. })));
        }
        let message = run("bench run -g500 x").unwrap_err().to_string();
        assert!(message.contains("--rate"), "{message}");
    }
}
