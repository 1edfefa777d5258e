//! The progress display of a measurement, and Ctrl-C, which ends it.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::report::text::Style;
use bench::{Phase, Progress, grouped, short_size};

/// Shows progress on standard error, if that is a terminal, always on the same line.
pub struct ProgressLine {
    terminal: bool,
    /// The current step: `3 of 12: `.
    title: String,
    interrupted: Arc<AtomicBool>,
}

impl ProgressLine {
    /// From now on, the first Ctrl-C ends the measurement, and the second one the program.
    pub fn start() -> ProgressLine {
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&interrupted);
        let spawned =
            std::thread::Builder::new().name("signals".into()).spawn(move || wait_for_ctrl_c(&flag));
        // If this fails, Ctrl-C ends the program as usual.
        drop(spawned);
        ProgressLine { terminal: io::stderr().is_terminal(), title: String::new(), interrupted }
    }

    /// Sets the title of the next step.
    pub fn begin(&mut self, title: String) {
        self.title = title;
    }

    pub fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    pub fn show(&mut self, progress: &Progress) -> ControlFlow<()> {
        if self.interrupted() {
            return ControlFlow::Break(());
        }
        if self.terminal {
            let line = format!("{}{}", self.title, describe(progress));
            // Progress is optional, so errors are ignored.
            let _ = write!(io::stderr(), "\r\x1b[K{line}");
        }
        ControlFlow::Continue(())
    }

    pub fn clear(&self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The style of standard output: plain if it is no terminal, or if `NO_COLOR` asks for that (no-color.org).
pub fn style() -> Style {
    let wished = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wished && io::stdout().is_terminal() { Style::Terminal } else { Style::Plain }
}

fn describe(progress: &Progress) -> String {
    let Progress { phase, elapsed, of, fill: (filled, to_fill), iops, mb_per_s } = progress;
    let seconds = elapsed.as_secs();
    let of = of.map(|of| format!(" of {}", of.as_secs())).unwrap_or_default();
    let phase = match phase {
        Phase::Preparing => return format!("checking the targets, {seconds} s"),
        Phase::Filling => {
            let percent = 100.0 * *filled as f64 / (*to_fill).max(1) as f64;
            let whole = |bytes: u64| short_size(bytes - bytes % (1 << 20));
            return format!("filling {} of {}, {percent:.0} %, {seconds} s", whole(*filled), whole(*to_fill));
        }
        Phase::WarmUp => "warm-up",
        Phase::Measuring => "measuring",
        Phase::Draining | Phase::Over => return "waiting for the last responses".to_owned(),
    };
    let [reads, writes] = iops.map(grouped);
    format!("{phase} {seconds}{of} s: {reads} reads/s, {writes} writes/s, {mb_per_s:.0} MB/s")
}

fn wait_for_ctrl_c(interrupted: &AtomicBool) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        while tokio::signal::ctrl_c().await.is_ok() {
            if interrupted.swap(true, Ordering::Relaxed) {
                // 128 plus the number of SIGINT, as in shells.
                std::process::exit(130);
            }
        }
    });
}
