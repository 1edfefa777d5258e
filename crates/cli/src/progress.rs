//! The progress of long work, on a terminal.

use std::io::{self, IsTerminal, Stderr, Write};

use super::table::size;

/// Shows the progress on a terminal, always on the same line, which ends when this is dropped.
pub(super) struct Progress<W: Write> {
    onto: W,
    shows: bool,
    /// What is done with the bytes: "compared".
    done: &'static str,
    /// The percentage that the line shows.
    shown: Option<u64>,
}

impl Progress<Stderr> {
    /// On standard error, if that is a terminal.
    pub(super) fn on_terminal(done: &'static str) -> Progress<Stderr> {
        Progress::new(io::stderr(), io::stderr().is_terminal(), done)
    }
}

impl<W: Write> Progress<W> {
    fn new(onto: W, shows: bool, done: &'static str) -> Progress<W> {
        Progress { onto, shows, done, shown: None }
    }

    /// Shows how many of all bytes are done.
    pub(super) fn tell(&mut self, bytes: u64, of: u64) {
        let percent = (u128::from(bytes) * 100 / u128::from(of.max(1))) as u64;
        if self.shows && self.shown != Some(percent) {
            // Progress is optional, so errors are ignored.
            let _ = write!(self.onto, "\r{percent} % of {} {} ", size(of), self.done);
            let _ = self.onto.flush();
            self.shown = Some(percent);
        }
    }
}

impl<W: Write> Drop for Progress<W> {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = writeln!(self.onto);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(shows: bool, percents: &[u64]) -> String {
        let mut line = Vec::new();
        let mut progress = Progress::new(&mut line, shows, "compared");
        for percent in percents {
            progress.tell(percent << 20, 100 << 20);
        }
        drop(progress);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn the_progress_is_one_line_that_ends() {
        assert_eq!(told(true, &[0, 50]), "\r0 % of 100M compared \r50 % of 100M compared \n");
        assert_eq!(told(true, &[50, 50]), "\r50 % of 100M compared \n", "it is written once");
        assert_eq!(told(true, &[]), "", "what is over at once has no line");
        assert_eq!(told(false, &[0, 50]), "", "nobody looks on");
    }
}
