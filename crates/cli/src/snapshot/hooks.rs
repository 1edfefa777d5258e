//! Commands that are executed before and after a snapshot is taken: the first one freezes file systems or
//! prepares a database, the second one lets them continue.
//!
//! They are executed by the command line, as whoever calls it, and never by a node. Once the first one has
//! been started, the second one is executed whatever happens: if the first one fails, or ends too late, if
//! the snapshot is refused, and if a signal asks this process to end, also while a node does not answer.
//! Otherwise a guest would stay frozen.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use api::ClientError;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use terms::signals;
use tokio::signal::unix::SignalKind;

use super::super::error::CliError;
use super::super::table::age;
use crate::duration::parse_duration;

/// How soon the end of a command, or a signal, is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a command that ends too late may take to clean up before it is killed.
const KILL_AFTER: Duration = Duration::from_secs(2);
/// How long standard error is read after the end of a command: what it has started may keep it open.
const READ_WITHIN: Duration = Duration::from_millis(500);
/// How much of standard error is remembered, to name its last line.
const TAIL_BYTES: usize = 4096;
/// How much of that line is shown.
const LINE_CHARS: usize = 200;

/// The commands before and after a snapshot.
#[derive(Args, Debug)]
pub struct Hooks {
    /// Execute this command before, with `sh -c` on this machine; no snapshot is taken if it fails
    #[arg(long, value_name = "COMMAND")]
    before: Option<String>,
    /// Execute this command afterwards, even if the snapshot was not taken or --before has failed
    #[arg(long, value_name = "COMMAND")]
    after: Option<String>,
    /// Time limit for each of the two commands
    #[arg(long, value_parser = parse_duration, value_name = "TIME", default_value = "30s")]
    hook_timeout: Duration,
}

/// Why a command failed. Continues a sentence that begins with "the command".
#[derive(Debug, thiserror::Error)]
pub enum HookFailure {
    #[error("cannot be executed: {0}")]
    System(io::Error),
    #[error("failed with exit code {code}{}", line(.last))]
    Exit { code: i32, last: String },
    #[error("was killed by signal {signal}{}", line(.last))]
    Killed { signal: i32, last: String },
    #[error("did not end within {} and was stopped{}", age(.limit.as_secs()), line(.last))]
    Late { limit: Duration, last: String },
    #[error("was interrupted")]
    Interrupted,
}

/// The last line of standard error, as the end of a sentence.
fn line(last: &str) -> String {
    if last.is_empty() { String::new() } else { format!(": {last}") }
}

impl Hooks {
    /// Takes a snapshot with this name, of these volumes, between the two commands. Returns it, and whether
    /// the second command succeeded.
    ///
    /// # Errors
    /// No snapshot was taken: that of the first command, or of `take`. If the second one failed as well,
    /// standard error says so. [`CliError::SnapshotUnknown`] if a signal has arrived before the node
    /// answered.
    pub fn around<T: Send + 'static>(
        &self,
        about: (&str, &[String]),
        take: impl FnOnce() -> Result<T, ClientError> + Send + 'static,
    ) -> Result<(T, Result<(), HookFailure>), CliError> {
        if self.before.is_none() && self.after.is_none() {
            return Ok((take()?, Ok(())));
        }
        // From now on these signals do not end this process.
        let over = signals::flag(&[SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]);
        let over = over.map_err(CliError::Signals)?;
        self.around_until(&over, about, take)
    }

    /// As [`Hooks::around`]: when `over` becomes true, the first command is stopped, and the snapshot is not
    /// waited for.
    fn around_until<T: Send + 'static>(
        &self,
        over: &AtomicBool,
        (name, volumes): (&str, &[String]),
        take: impl FnOnce() -> Result<T, ClientError> + Send + 'static,
    ) -> Result<(T, Result<(), HookFailure>), CliError> {
        let volumes = volumes.join(",");
        let about = [("URSA_SNAPSHOT", name), ("URSA_VOLUMES", volumes.as_str())];
        let before = self.before.as_ref().map_or(Ok(()), |command| {
            execute(command, about, self.hook_timeout, || over.load(Ordering::Relaxed))
        });
        let before = before.and_then(|()| match over.load(Ordering::Relaxed) {
            true => Err(HookFailure::Interrupted),
            false => Ok(()),
        });
        let taken = before.map_err(CliError::HookBefore).and_then(|()| {
            let taken = unless_over(over, take).ok_or_else(|| CliError::SnapshotUnknown(name.to_owned()))?;
            Ok(taken?)
        });
        // Whatever asks this process to end: what was frozen must continue.
        let after = self.after.as_ref();
        let after = after.map_or(Ok(()), |command| execute(command, about, self.hook_timeout, || false));
        match (taken, after) {
            (Ok(taken), after) => Ok((taken, after)),
            (Err(error), Ok(())) => Err(error),
            (Err(error), Err(failure)) => {
                // There may be no snapshot, but something may still be frozen, and that is worse.
                eprintln!(
                    "ATTENTION: the command after the snapshot {failure}: check that what --before froze continues"
                );
                Err(error)
            }
        }
    }
}

/// What `take` returns; `None` if `over` becomes true before. A node that hangs may take minutes to answer.
fn unless_over<T: Send + 'static>(over: &AtomicBool, take: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = mpsc::channel();
    // It ends with the call, or with this process.
    thread::spawn(move || {
        // Nobody may wait for it any more.
        let _ = answer.send(take());
    });
    loop {
        match answered.recv_timeout(LOOK_EVERY) {
            Ok(taken) => return Some(taken),
            Err(RecvTimeoutError::Timeout) if !over.load(Ordering::Relaxed) => {}
            Err(_) => return None,
        }
    }
}

/// Executes a command with these variables in its environment. What it prints goes to standard error.
fn execute(
    command: &str,
    variables: [(&str, &str); 2],
    limit: Duration,
    is_over: impl Fn() -> bool,
) -> Result<(), HookFailure> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).envs(variables);
    shell.stdin(Stdio::null()).stdout(io::stderr()).stderr(Stdio::piped());
    // Ctrl-C on the terminal must not end a command that lets a guest continue. And all that a command has
    // started can be ended with it.
    shell.process_group(0);
    let mut child = shell.spawn().map_err(HookFailure::System)?;
    let tail = Tail::follow(child.stderr.take());
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(HookFailure::System)? {
            return outcome(status, &tail);
        }
        let is_over = is_over();
        if is_over || began.elapsed() >= limit {
            end(&mut child);
            return Err(match is_over {
                true => HookFailure::Interrupted,
                false => HookFailure::Late { limit, last: tail.last_line() },
            });
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn outcome(status: ExitStatus, tail: &Tail) -> Result<(), HookFailure> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(HookFailure::Exit { code, last: tail.last_line() }),
        (None, signal) => {
            Err(HookFailure::Killed { signal: signal.unwrap_or_default(), last: tail.last_line() })
        }
    }
}

/// Ends a command and all that it has started.
fn end(child: &mut Child) {
    let group = Pid::from_child(child);
    for signal in [Signal::TERM, Signal::KILL] {
        // It may just have ended.
        let _ = kill_process_group(group, signal);
        let began = Instant::now();
        // What it has started may clean up for longer than the shell.
        while began.elapsed() < KILL_AFTER
            && (matches!(child.try_wait(), Ok(None)) || test_kill_process_group(group).is_ok())
        {
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// What a command has last written to its standard error, which is passed on to ours.
struct Tail {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Is disconnected at the end of standard error.
    ended: mpsc::Receiver<()>,
}

impl Tail {
    fn follow(from: Option<ChildStderr>) -> Tail {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (open, ended) = mpsc::channel::<()>();
        let kept = Arc::clone(&bytes);
        // It ends with the command and what that has started, or with this process.
        thread::spawn(move || {
            let _open = open;
            if let Some(from) = from {
                pass_on(from, &kept);
            }
        });
        Tail { bytes, ended }
    }

    /// The last line that is not blank.
    fn last_line(&self) -> String {
        let _ = self.ended.recv_timeout(READ_WITHIN);
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes);
        let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        last.chars().filter(|char| !char.is_control()).take(LINE_CHARS).collect()
    }
}

fn pass_on(mut from: ChildStderr, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => &buffer[..count],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        // Nobody may read ours.
        let _ = io::stderr().write_all(read);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(read);
        let surplus = kept.len().saturating_sub(TAIL_BYTES);
        kept.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    static NOT_OVER: AtomicBool = AtomicBool::new(false);

    fn run(command: &str, limit: Duration) -> Result<(), String> {
        let variables = [("URSA_SNAPSHOT", "first"), ("URSA_VOLUMES", "db,logs")];
        execute(command, variables, limit, || false).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_failure_has_its_exit_code_and_the_last_line_of_standard_error() {
        assert_eq!(run("true", LONG), Ok(()));
        let failed = |text: &str| Err(format!("failed with exit code {text}"));
        assert_eq!(run("exit 3", LONG), failed("3"));
        let command = "echo first >&2; printf 'no \\033[1mlock\\n\\n' >&2; echo out; exit 4";
        assert_eq!(run(command, LONG), failed("4: no [1mlock"));
        let missing = run("none-of-this-name", LONG).unwrap_err();
        assert!(
            missing.starts_with("failed with exit code 127: ") && missing.contains("not found"),
            "{missing}"
        );
        assert_eq!(run("kill -9 $$", LONG), Err("was killed by signal 9".into()));
        let long = run("head -c 5000 /dev/zero | tr '\\0' a >&2; exit 1", LONG).unwrap_err();
        assert_eq!(long.len(), "failed with exit code 1: ".len() + LINE_CHARS);
    }

    #[test]
    fn a_command_knows_the_snapshot() {
        assert_eq!(run("test \"$URSA_SNAPSHOT $URSA_VOLUMES\" = 'first db,logs'", LONG), Ok(()));
    }

    #[test]
    fn a_command_that_ends_too_late_is_ended_with_all_that_it_has_started() {
        let directory = TempDir::new().unwrap();
        let left = directory.path().join("left");
        let command = format!("echo waiting >&2; (sleep 3; touch {}) & sleep 60", left.display());
        let began = Instant::now();
        let late = "did not end within 1s and was stopped: waiting";
        assert_eq!(run(&command, Duration::from_secs(1)), Err(late.into()));
        assert!(began.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_secs(3));
        assert!(!left.exists());
        // What it has started in the background does not keep one waiting that has ended.
        let began = Instant::now();
        assert_eq!(run("sleep 30 & exit 2", LONG), Err("failed with exit code 2".into()));
        assert!(began.elapsed() < Duration::from_secs(20));
    }

    /// Takes a snapshot between these commands; `taken` is what `take` returns, if it is called. Returns
    /// which of the three were executed, in order, and the result.
    fn around(
        before: Option<&str>,
        after: Option<&str>,
        taken: Result<(), ClientError>,
        over: &AtomicBool,
    ) -> (String, Result<Option<HookFailure>, CliError>) {
        around_call(before, after, || taken, over)
    }

    /// The same, with what the call does.
    fn around_call(
        before: Option<&str>,
        after: Option<&str>,
        call: impl FnOnce() -> Result<(), ClientError> + Send + 'static,
        over: &AtomicBool,
    ) -> (String, Result<Option<HookFailure>, CliError>) {
        let directory = TempDir::new().unwrap();
        let log = directory.path().join("log");
        let logged = |name: &str, then: &str| format!("printf {name} >> {}; {then}", log.display());
        let hooks = Hooks {
            before: before.map(|then| logged("b", then)),
            after: after.map(|then| logged("a", then)),
            hook_timeout: LONG,
        };
        let taken = log.clone();
        let take = move || {
            let so_far = fs::read_to_string(&taken).unwrap_or_default();
            fs::write(&taken, so_far + "t").unwrap();
            call()
        };
        let result = hooks.around_until(over, ("first", &["db".to_owned()]), take);
        let text = fs::read_to_string(&log).unwrap_or_default();
        (text, result.map(|((), after)| after.err()))
    }

    fn refused() -> Result<(), ClientError> {
        Err(ClientError::NotUrsa { url: "http://127.0.0.1:1".into(), source: "no answer".into() })
    }

    #[test]
    fn what_was_frozen_continues_whatever_happens() {
        let (order, result) = around(Some("true"), Some("true"), Ok(()), &NOT_OVER);
        assert!(order == "bta" && matches!(result, Ok(None)), "{order} {result:?}");
        // The snapshot is refused.
        let (order, result) = around(Some("true"), Some("true"), refused(), &NOT_OVER);
        assert!(order == "bta" && matches!(result, Err(CliError::Client(_))), "{order} {result:?}");
        // The first command fails half-way.
        let (order, result) = around(Some("exit 1"), Some("true"), Ok(()), &NOT_OVER);
        assert!(order == "ba" && matches!(result, Err(CliError::HookBefore(_))), "{order} {result:?}");
        // The second one, too: the first failure is the result.
        let (order, result) = around(Some("exit 1"), Some("exit 2"), Ok(()), &NOT_OVER);
        let text = result.unwrap_err().to_string();
        assert_eq!(
            (order.as_str(), text.as_str()),
            ("ba", "no snapshot was taken: the command before it failed with exit code 1")
        );
        // There is a snapshot, and something may still be frozen.
        let (order, result) = around(Some("true"), Some("exit 2"), Ok(()), &NOT_OVER);
        assert!(
            order == "bta" && matches!(result, Ok(Some(HookFailure::Exit { code: 2, .. }))),
            "{order} {result:?}"
        );
        let (order, _) = around(None, Some("true"), refused(), &NOT_OVER);
        assert_eq!(order, "ta");
    }

    #[test]
    fn an_interruption_leaves_nothing_frozen() {
        let began = Instant::now();
        let (order, result) = around(Some("sleep 60"), Some("true"), Ok(()), &AtomicBool::new(true));
        let is_interrupted = matches!(result, Err(CliError::HookBefore(HookFailure::Interrupted)));
        assert!(is_interrupted && order.ends_with('a') && !order.contains('t'), "{order} {result:?}");
        // The node hangs.
        let over = Arc::new(AtomicBool::new(false));
        let signal = Arc::clone(&over);
        let call = move || {
            signal.store(true, Ordering::Relaxed);
            thread::sleep(LONG);
            Ok(())
        };
        let (order, result) = around_call(Some("true"), Some("true"), call, &over);
        assert!(order == "bta" && matches!(result, Err(CliError::SnapshotUnknown(_))), "{order} {result:?}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
