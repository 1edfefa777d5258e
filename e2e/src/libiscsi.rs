//! `iscsi-test-cu`, the conformance suite of libiscsi.
//!
//! Each test runs on its own, and is judged against the list of tests that are known not to pass.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::{Export, program};

/// The slowest test takes four seconds on an idle machine.
const TEST_LIMIT: Duration = Duration::from_secs(60);

/// How one test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It ran completely and found no error.
    Pass,
    /// It found an error.
    Fail,
    /// It reported that the target does not support what it tests, or a part of that.
    Skip,
    /// It did not end in time.
    Hang,
    /// It ended before it could judge: a crash, or no login.
    Error,
}

/// A test that is known not to pass.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// Its name in the output of `iscsi-test-cu -l`.
    pub name: String,
    /// How it ends instead of [`Verdict::Pass`]. Several verdicts for a test that is itself broken, and may
    /// even crash.
    pub verdicts: Vec<Verdict>,
    /// Block sizes that it concerns.
    pub block_sizes: Vec<u32>,
    /// Why that is right.
    pub reason: String,
    /// The section of the standard that says so.
    pub section: String,
}

/// The list of exceptions.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    #[serde(default)]
    test: Vec<Exception>,
}

impl Exceptions {
    /// Parses the list.
    ///
    /// # Panics
    /// If the list is invalid: it is part of the tests.
    pub fn parse(text: &str) -> Exceptions {
        let list: Exceptions = toml::from_str(text).expect("the list of exceptions is well-formed");
        for exception in &list.test {
            assert!(
                !exception.reason.is_empty() && !exception.section.is_empty(),
                "{}: say why",
                exception.name
            );
            // A test may pass at times, if the list says why.
            let always_passes = exception.verdicts.iter().all(|verdict| *verdict == Verdict::Pass);
            assert!(!always_passes, "{}: that is no exception", exception.name);
        }
        list
    }

    fn verdicts(&self, name: &str, block_size: u32) -> &[Verdict] {
        let matches =
            |exception: &&Exception| exception.name == name && exception.block_sizes.contains(&block_size);
        self.test.iter().find(matches).map_or(&[Verdict::Pass], |exception| &exception.verdicts)
    }
}

/// The results of a run of the suite.
#[derive(Debug, Default)]
pub struct Report {
    verdicts: BTreeMap<String, Verdict>,
    outputs: BTreeMap<String, String>,
}

impl Report {
    /// Runs every test of the suite on `export`, one after the other.
    ///
    /// Tests of several paths use its second portal.
    pub fn of(export: &Export) -> Report {
        let mut report = Report::default();
        let only = std::env::var("URSA_E2E_TESTS").unwrap_or_default();
        for name in names().into_iter().filter(|name| name.contains(&only)) {
            let mut command = Command::new("iscsi-test-cu");
            command.args(["--dataloss", "--allow-sanitize", "--test", &name]);
            command.arg(export.url(0)).arg(export.url(1));
            let finished = program::run(&mut command, TEST_LIMIT);
            let verdict = judge(finished.status.map(|status| status.code()), &finished.output);
            if verdict != Verdict::Pass {
                report.outputs.insert(name.clone(), finished.output);
            }
            report.verdicts.insert(name, verdict);
        }
        report
    }

    /// The unexpected results, one line per test, followed by the test's output.
    pub fn surprises(&self, exceptions: &Exceptions, block_size: u32) -> Vec<String> {
        let mut surprises = Vec::new();
        for (name, &verdict) in &self.verdicts {
            let expected = exceptions.verdicts(name, block_size);
            if !expected.contains(&verdict) {
                let output = self.outputs.get(name).map_or("", String::as_str);
                surprises.push(format!("{name}: {verdict:?}, expected {expected:?}\n{}", essence(output)));
            }
        }
        surprises
    }
}

impl fmt::Display for Report {
    /// Totals on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |wanted| self.verdicts.values().filter(|&&verdict| verdict == wanted).count();
        write!(
            f,
            "{} tests: {} pass, {} fail, {} skip, {} hang, {} error",
            self.verdicts.len(),
            count(Verdict::Pass),
            count(Verdict::Fail),
            count(Verdict::Skip),
            count(Verdict::Hang),
            count(Verdict::Error)
        )
    }
}

/// All tests: `FAMILY.SUITE.TEST`. The family ALL has each test once; the others repeat them.
fn names() -> Vec<String> {
    let list = program::run(Command::new("iscsi-test-cu").arg("--list"), TEST_LIMIT).expect_ok();
    let whole = |name: &&str| {
        name.starts_with("ALL.") && name.split('.').filter(|part| !part.is_empty()).count() == 3
    };
    let names: Vec<String> = list.lines().map(str::trim).filter(whole).map(str::to_owned).collect();
    assert!(names.len() > 200, "iscsi-test-cu lists only {} tests", names.len());
    names
}

/// `status` is `None` after a timeout, and contains `None` if a signal ended the test.
fn judge(status: Option<Option<i32>>, output: &str) -> Verdict {
    match status {
        None => Verdict::Hang,
        Some(_) if !output.contains("Run Summary") => Verdict::Error,
        Some(Some(0)) if output.contains("[SKIPPED]") => Verdict::Skip,
        Some(Some(0)) => Verdict::Pass,
        Some(Some(_)) => Verdict::Fail,
        Some(None) => Verdict::Error,
    }
}

/// Some tests print the same line a thousand times.
const LINES_MAX: usize = 8;

/// The first lines of a test's output that contain its findings.
fn essence(output: &str) -> String {
    let telling = |line: &&str| {
        let line = line.trim_start();
        line.contains("[SKIPPED]")
            || line.contains("[FAILED]")
            || line.contains("CU_")
            || line.contains("ailed")
    };
    let lines = output.lines().filter(telling).filter(|line| !line.contains("Passed Failed"));
    lines.take(LINES_MAX).collect::<Vec<&str>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Verdict, essence, judge};

    const SKIPPED: &str = "\
Suite: Sanitize
  Test: BlockErase ...    [SKIPPED] --allow-sanitize flag is not set. Skipping test.
passed

Run Summary:    Type  Total    Ran Passed Failed Inactive
              suites      1      1    n/a      0        0
               tests      1      1      1      0        0
             asserts      1      1      1      0      n/a
";
    const FAILED: &str = "\
Suite: GetLBAStatus
  Test: BeyondEol ...    [FAILED] GET_LBA_STATUS successful but should have failed
FAILED
    1. test_get_lba_status_beyond_eol.c:38  - CU_ASSERT_EQUAL(_r,0)

Run Summary:    Type  Total    Ran Passed Failed Inactive
";

    #[test]
    fn verdicts() {
        assert_eq!(judge(Some(Some(0)), SKIPPED), Verdict::Skip);
        assert_eq!(judge(Some(Some(1)), FAILED), Verdict::Fail);
        assert_eq!(judge(Some(Some(0)), "Run Summary:"), Verdict::Pass);
        assert_eq!(judge(None, FAILED), Verdict::Hang);
        assert_eq!(judge(Some(None), "Suite:"), Verdict::Error, "a signal");
        assert_eq!(judge(Some(Some(10)), "Login Failed"), Verdict::Error);
    }

    #[test]
    fn the_essence_of_a_failure() {
        assert_eq!(
            essence(FAILED),
            "  Test: BeyondEol ...    [FAILED] GET_LBA_STATUS successful but should have failed\n    \
             1. test_get_lba_status_beyond_eol.c:38  - CU_ASSERT_EQUAL(_r,0)"
        );
    }
}
