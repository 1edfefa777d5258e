//! Runs each target with inputs generated from numbers, for a few seconds.
//!
//! A fuzzer learns from what its inputs reach, and so finds more; but it needs nightly Rust, and hours. Input
//! N of a target is always the same: a failure prints it, and the same command reproduces it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod inputs;
mod seeds;

use std::fmt::Write;
use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Unstructured};

/// Number of inputs that each target runs in any case, which takes less than a second.
const INPUTS_MIN: u64 = 200;
/// For this long a target runs further inputs, up to this number: a fast machine runs no inputs that others
/// never ran. More are a fuzzer's task.
const TIME: Duration = Duration::from_secs(2);
const INPUTS_MAX: u64 = 50_000;
/// Longest time for an input of a few KiB on the busiest machine; a longer one means a loop that does not
/// end.
const INPUT_TIME_MAX: Duration = Duration::from_secs(10);

/// A test per target: its name, the type of its input, and its seeds.
macro_rules! targets {
    ($($name:ident($input:ty) from $seeds:ident;)*) => {$(
        #[test]
        fn $name() {
            take_inputs(stringify!($name), &seeds::$seeds(), |bytes| {
                let input = <$input>::arbitrary_take_rest(Unstructured::new(bytes));
                input.map(fuzzing::$name::run)
            });
        }
    )*};
}

targets! {
    answers((u8, &[u8])) from answers;
    checksum_page(&[u8]) from checksum_pages;
    cluster_bytes((bool, &[u8])) from snapshots;
    commands(fuzzing::commands::Input) from none;
    exports(&[u8]) from exports;
    initiator(fuzzing::initiator::Input) from none;
    link_frames(([u8; 4], &[u8])) from frames;
    link_records(fuzzing::link_records::Input) from none;
    log_formats((u8, &[u8])) from logs;
    login(fuzzing::login::Input) from none;
    lost_blocks(&[u8]) from lost_lists;
    lu_state(&[u8]) from unit_states;
    nbd_client((bool, &[u8])) from nbd_clients;
    node_record((u8, u16, &[u8])) from node_records;
    pool_formats((bool, &[u8])) from pools;
    replica_wire((u16, &[u8])) from copy_messages;
    session(fuzzing::session::Input) from none;
    text_keys(&[u8]) from texts;
    wire((bool, bool, &[u8])) from streams;
}

/// The tests run all targets of the fuzzer.
#[test]
fn no_target_is_left_out() {
    let targets = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/fuzz_targets")).unwrap();
    let tried = include_str!("main.rs");
    let mut count = 0;
    for file in targets {
        let file = file.unwrap().file_name().into_string().unwrap();
        let name = file.strip_suffix(".rs").unwrap();
        assert!(tried.contains(&format!("\n    {name}(")), "{name} is not tried");
        count += 1;
    }
    assert!(count > 0, "no target was found");
}

fn take_inputs(target: &'static str, seeds: &[Vec<u8>], run: impl Fn(&[u8]) -> Result<(), arbitrary::Error>) {
    let start = Instant::now();
    let (mut number, mut taken) = (0, 0);
    while number < INPUTS_MIN || number < INPUTS_MAX && start.elapsed() < TIME {
        let bytes = inputs::input(number, seeds);
        let begun = Instant::now();
        let told = PrintOnPanic { target, number, bytes: &bytes };
        // Too few bytes for the type are no input.
        taken += u64::from(run(&bytes).is_ok());
        assert!(begun.elapsed() < INPUT_TIME_MAX, "an input took {:?}", begun.elapsed());
        drop(told);
        number += 1;
    }
    println!("{target}: {taken} of {number} inputs in {:?}", start.elapsed());
    assert!(taken > number / 2, "{taken} of {number} inputs were long enough: nothing is proven");
}

/// Prints the input if the target panics.
struct PrintOnPanic<'a> {
    target: &'static str,
    number: u64,
    bytes: &'a [u8],
}

impl Drop for PrintOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let PrintOnPanic { target, number, bytes } = self;
            let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            eprintln!("input {number} of target {target}, {} bytes: {hex}", bytes.len());
            eprintln!("once more: cargo test -p fuzzing --test all {target}");
            eprintln!(
                "with a fuzzer: echo {hex} | xxd -r -p > input; cargo +nightly fuzz run {target} input"
            );
        }
    }
}
