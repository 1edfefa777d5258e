//! The progress of a verification, on a terminal.

use std::io::Write;

use api::Verification;

use super::super::table::size;

/// Shows the progress on a terminal, always on the same line, which ends when this is dropped.
pub(super) struct Progress<W: Write> {
    onto: W,
    shows: bool,
    /// The line was begun.
    began: bool,
}

impl<W: Write> Progress<W> {
    pub(super) fn new(onto: W, shows: bool) -> Progress<W> {
        Progress { onto, shows, began: false }
    }

    pub(super) fn tell(&mut self, found: &Verification) {
        if self.shows {
            let percent = found.checked_bytes * 100 / found.total_bytes.max(1);
            // Progress is optional, so errors are ignored.
            let _ = write!(self.onto, "\r{percent} % of {} compared ", size(found.total_bytes));
            let _ = self.onto.flush();
            self.began = true;
        }
    }
}

impl<W: Write> Drop for Progress<W> {
    fn drop(&mut self) {
        if self.began {
            let _ = writeln!(self.onto);
        }
    }
}

#[cfg(test)]
mod tests {
    use api::VerificationState;

    use super::*;

    fn told(shows: bool, percents: &[u64]) -> String {
        let mut line = Vec::new();
        let mut progress = Progress::new(&mut line, shows);
        for percent in percents {
            progress.tell(&Verification {
                state: VerificationState::Running,
                equal: false,
                checked_bytes: percent << 20,
                total_bytes: 100 << 20,
                unchecked_bytes: 0,
                different_bytes: 0,
                problem: None,
                differences: Vec::new(),
                nodes: vec![1, 2],
                age_s: 0,
                took_s: 0,
            });
        }
        drop(progress);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn the_progress_is_one_line_that_ends() {
        assert_eq!(told(true, &[0, 50]), "\r0 % of 100M compared \r50 % of 100M compared \n");
        assert_eq!(told(true, &[]), "", "what is over at once has no line");
        assert_eq!(told(false, &[0, 50]), "", "nobody looks on");
    }
}
