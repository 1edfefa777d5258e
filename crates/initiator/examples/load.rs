//! Generates load on an iSCSI target and measures it: see `--help`.

use std::net::{AddrParseError, SocketAddr};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use initiator::load::{self, Access, Config, Until};
use initiator::{Lun, Policy};
use lexopt::ValueExt;
use rt::uring::{self, Running};

const HELP: &str = "\
usage: load PORTAL[,PORTAL...] TARGET [options]     for example: load 127.0.0.1:3260 iqn.2026-01.org.ursa:db
  --lun N            LUN (0)
  --sessions N       sessions per portal (1)
  --depth N          outstanding requests per session (32)
  --policy NAME      round-robin, queue-depth, service-time, fixed or most-recent (queue-depth)
  --size BYTES       request size (4096)
  --read PERCENT     read percentage (100); anything less DESTROYS the data on the LUN
  --sequential       instead of random
  --seconds N        run time (10)
  --requests N       number of requests, instead of a run time
  --span BYTES       use only the first BYTES of the LUN
  --verify           write data that carries its address, and check it on each read
  --seed N           seed; the same seed gives the same requests (1)
  --header-digest, --data-digest
  --processor N      CPU to run on (0)
  --json             print one line of JSON instead of a table";

struct Arguments {
    config: Config,
    processor: usize,
    json: bool,
}

fn parse() -> Result<Option<Arguments>, lexopt::Error> {
    use lexopt::Arg::{Long, Value};
    let mut target = None;
    let mut config = Config {
        portals: Vec::new(),
        target: String::new(),
        lun: Lun(0),
        depth: 32,
        request_bytes: 4096,
        read_percent: 100,
        access: Access::Random,
        until: Until::Time(Duration::from_secs(10)),
        span_bytes: None,
        verify: false,
        waits_for_space: false,
        seed: 1,
        options: Default::default(),
    };
    let (mut processor, mut json) = (0, false);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("lun") => config.lun = Lun(parser.value()?.parse()?),
            Long("sessions") => config.options.sessions = parser.value()?.parse()?,
            Long("depth") => config.depth = parser.value()?.parse()?,
            Long("policy") => config.options.policy = parser.value()?.parse_with(policy)?,
            Long("size") => config.request_bytes = parser.value()?.parse()?,
            Long("read") => config.read_percent = parser.value()?.parse()?,
            Long("sequential") => config.access = Access::Sequential,
            Long("seconds") => config.until = Until::Time(Duration::from_secs(parser.value()?.parse()?)),
            Long("requests") => config.until = Until::Requests(parser.value()?.parse()?),
            Long("span") => config.span_bytes = Some(parser.value()?.parse()?),
            Long("verify") => config.verify = true,
            Long("seed") => config.seed = parser.value()?.parse()?,
            Long("header-digest") => config.options.login.wish.header_digest = true,
            Long("data-digest") => config.options.login.wish.data_digest = true,
            Long("processor") => processor = parser.value()?.parse()?,
            Long("json") => json = true,
            Long("help") => return Ok(None),
            Value(value) if config.portals.is_empty() => config.portals = value.parse_with(portals)?,
            Value(value) if target.is_none() => target = Some(value.string()?),
            other => return Err(other.unexpected()),
        }
    }
    if config.portals.is_empty() {
        return Err("PORTAL is missing: see --help".into());
    }
    config.target = target.ok_or("TARGET is missing: see --help")?;
    Ok(Some(Arguments { config, processor, json }))
}

fn portals(text: &str) -> Result<Vec<SocketAddr>, AddrParseError> {
    text.split(',').map(str::parse).collect()
}

fn policy(name: &str) -> Result<Policy, String> {
    Ok(match name {
        "round-robin" => Policy::RoundRobin(1),
        "queue-depth" => Policy::LeastQueueDepth,
        "service-time" => Policy::ServiceTime,
        "fixed" => Policy::Fixed(0),
        "most-recent" => Policy::MostRecentlyUsed,
        other => return Err(format!("unknown policy {other}")),
    })
}

/// CPU time of the current thread.
fn cpu_time() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let (done, result) = mpsc::channel();
    let config = arguments.config;
    let running = Running::start(
        uring::Config { processors: vec![arguments.processor], pin: true, poll: Duration::ZERO },
        move |_| {
            let (config, done) = (config.clone(), done.clone());
            async move {
                // The receiver waits until the end.
                let _ = done.send(load::run(&config, cpu_time).await);
            }
        },
    );
    let result = match running {
        Ok(running) => {
            running.join();
            result.recv()
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match result {
        Ok(Ok(report)) if arguments.json => println!("{}", report.to_json()),
        Ok(Ok(report)) => println!("{report}"),
        Ok(Err(error)) => {
            eprintln!("{}", chain(&error));
            return ExitCode::FAILURE;
        }
        Err(_) => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
