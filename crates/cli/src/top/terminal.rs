//! Takes over the terminal, and restores it however the program ends.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};
use std::{io, thread};

use api::ClientError;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use terms::signals;
use tokio::signal::unix::SignalKind;

use super::super::error::CliError;
use super::super::table::age;
use super::Source;
use super::frame::{Frame, Sample};
use super::screen::{Screen, table_rows};
use super::view::{KeyAction, Views};

/// How soon a signal or a new reading is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Restores the terminal when dropped. After a panic, the hook that [`ratatui::try_init`] sets does so.
struct Taken(DefaultTerminal);

impl Drop for Taken {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows what the node does until the user quits or a signal arrives.
pub(super) fn run(mut source: Source, mut views: Views, interval: Duration) -> Result<(), CliError> {
    if !io::stdout().is_terminal() {
        return Err(CliError::NoTerminal);
    }
    // Before the terminal is taken over, so that an error of the first reading appears on the normal screen.
    let mut before = source.read()?;
    let mut frame = Frame::between(&before, &before);
    let readings = readings(source, interval);
    // They would otherwise end the program without restoring the terminal.
    let ended = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
    let ended = signals::flag(&ended).map_err(CliError::Terminal)?;
    let mut taken = Taken(ratatui::try_init().map_err(CliError::Terminal)?);
    let mut heard = Instant::now();
    let mut failed: Option<ClientError> = None;
    while !ended.load(Ordering::Relaxed) {
        loop {
            match readings.try_recv() {
                Ok(Ok(after)) => {
                    if !views.paused {
                        frame = Frame::between(&before, &after);
                    }
                    (before, heard, failed) = (after, Instant::now(), None);
                }
                Ok(Err(error)) => failed = Some(error),
                Err(TryRecvError::Empty) => break,
                // The reader has panicked, and the hook has restored the terminal: draw nothing more.
                Err(TryRecvError::Disconnected) => panic!("who reads the node's figures has stopped"),
            }
        }
        let silence = heard.elapsed();
        let trouble = match &failed {
            Some(error) => Some(format!("NO ANSWER for {}: {error}", age(silence.as_secs()))),
            None if silence > interval + Duration::from_secs(3) => {
                Some(format!("NO ANSWER for {}", age(silence.as_secs())))
            }
            None => None,
        };
        let drawn = taken.0.draw(|onto| {
            let screen = Screen { frame: &frame, views: &views, trouble: trouble.as_deref(), keys: true };
            onto.render_widget(screen, onto.area());
        });
        let height = drawn.map_err(CliError::Terminal)?.area.height;
        if event::poll(LOOK_EVERY).map_err(CliError::Terminal)?
            && let Event::Key(key) = event::read().map_err(CliError::Terminal)?
            && key.kind != KeyEventKind::Release
        {
            let all = views.grid(&frame).rows.len();
            if views.press(key, table_rows(height), all) == KeyAction::Leave {
                break;
            }
        }
    }
    Ok(())
}

/// Reads at an interval, in a dedicated thread, until the receiver is dropped.
fn readings(mut source: Source, interval: Duration) -> Receiver<Result<Sample, ClientError>> {
    let (taken, readings) = mpsc::channel();
    thread::spawn(move || {
        loop {
            thread::sleep(interval);
            if taken.send(source.read()).is_err() {
                return;
            }
        }
    });
    readings
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::{Command, Stdio};

    use super::*;

    const PANICS: &str = "top::terminal::tests::panics_with_the_terminal_taken";

    #[test]
    #[ignore = "the other test runs it, in a terminal"]
    fn panics_with_the_terminal_taken() {
        let _taken = Taken(ratatui::try_init().unwrap());
        panic!("as a mistake of ours would");
    }

    #[test]
    fn a_panic_gives_the_terminal_back_before_it_says_why() {
        let test = env::current_exe().unwrap();
        let line =
            format!("stty rows 24 cols 100; exec {} --ignored --exact --nocapture {PANICS}", test.display());
        let mut command = Command::new("script");
        command.args(["-qefc", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
        let output = command.output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        let at = |what: &str| shown.find(what).unwrap_or_else(|| panic!("{what:?} is not in {shown:?}"));
        // The alternate screen is entered and left.
        assert!(at("\x1b[?1049h") < at("\x1b[?1049l"));
        assert!(at("\x1b[?1049l") < at("as a mistake of ours would"), "{shown:?}");
        assert_eq!(output.status.code(), Some(101), "{shown:?}");
    }
}
