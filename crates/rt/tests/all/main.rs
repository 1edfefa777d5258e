//! The runtime on the real kernel: threads, rings, loopback sockets, files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cross_core;
mod disk;
mod stream;
mod tasks;

use std::sync::mpsc;
use std::time::Duration;

use rt::CoreId;
use rt::uring::{Config, Running};

/// Runs `main` on core 0 of a node of `cores`, and returns its result after everything has ended.
fn run_on<T: Send + 'static, F: Future<Output = T> + 'static>(
    cores: usize,
    main: impl Fn() -> F + Send + Clone + 'static,
) -> T {
    let (result, results) = mpsc::channel();
    let config = Config { processors: (0..cores).collect(), pin: false, poll: Duration::from_micros(20) };
    let running = Running::start(config, move |core| {
        let (main, result) = (main.clone(), result.clone());
        async move {
            if core == CoreId(0) {
                result.send(main().await).unwrap();
            } else {
                std::future::pending::<()>().await;
            }
        }
    });
    running.unwrap().join();
    results.recv().unwrap()
}

/// As [`run_on`], on one core.
fn run<T: Send + 'static, F: Future<Output = T> + 'static>(
    main: impl Fn() -> F + Send + Clone + 'static,
) -> T {
    run_on(1, main)
}
