//! What is served: read from the node when a client asks for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ::export::Header;
use api::{Client, ClientError, SNAPSHOT_READ_BYTES_MAX, SnapshotDataQuery};
use nbd::{Extent, PIECE_BYTES_MAX, Piece, Source};
use terms::exit::with_causes;

use super::super::export::hex;
use super::map::Map;
use super::tell;

/// How many requests are under way at the same time. A node reads eight ranges of snapshots at a time, for
/// all of its callers.
const REQUESTS_AT_ONCE: usize = 4;
/// For how long a request is repeated while the node, or each copy, cannot be reached: a node may restart.
const REPEATED_FOR: Duration = Duration::from_secs(120);
/// For how long it is repeated while the volume or the snapshot is not found: a node that has just started
/// may not have read the cluster's record yet.
const MISSING_FOR: Duration = Duration::from_secs(10);
/// The pause between.
const REPEATED_EVERY: Duration = Duration::from_secs(1);
/// Zeros of this length are not read, if that is known. Shorter ones are read with what is around them: that
/// takes less time than another request.
const ZEROS_BYTES_MIN: u64 = 128 << 10;

const _: () = assert!(PIECE_BYTES_MAX <= SNAPSHOT_READ_BYTES_MAX, "a piece is read at once");

/// Codes of refusals that may be over soon, besides those with a status of the server's side.
const TEMPORARY: [&str; 2] = ["not_compared", "copy_unreachable"];

/// Why something was not read. Clients are sent it as a text.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub(super) enum Unread {
    #[error("{}", with_causes(.0))]
    Client(ClientError),
    #[error("the node's answer was not as expected ({0}): the node and `ursa` may be of different versions")]
    Unexpected(&'static str),
    #[error("too many requests are waiting for the node")]
    Busy,
}

/// A volume in a snapshot.
pub(super) struct SnapshotSource {
    client: Client,
    /// By ID and number: names may change meanwhile.
    volume: String,
    snapshot: String,
    allocation: Map,
    changes: Option<Map>,
    turns: Turns,
    /// The last request has failed, and is being repeated.
    is_repeating: AtomicBool,
}

impl SnapshotSource {
    pub(super) fn new(client: Client, wanted: &Header) -> SnapshotSource {
        let (volume, snapshot) = (hex(&wanted.volume), wanted.snapshot.number.to_string());
        let map = |since| Map::new(volume.clone(), snapshot.clone(), since, wanted.snapshot.size);
        SnapshotSource {
            client,
            allocation: map(None),
            changes: wanted.since.as_ref().map(|since| map(Some(since.number.to_string()))),
            turns: Turns::default(),
            is_repeating: AtomicBool::new(false),
            volume,
            snapshot,
        }
    }

    /// Makes a request, again and again while it fails for a reason that may be over soon.
    fn request<T>(&self, request: impl Fn() -> Result<T, ClientError>) -> Result<T, Unread> {
        let end = Instant::now() + REPEATED_FOR;
        let mut missing_since = None;
        loop {
            let requested = {
                let _turn = self.turns.wait(end).ok_or(Unread::Busy)?;
                request()
            };
            let error = match requested {
                Ok(done) => {
                    if self.is_repeating.swap(false, Ordering::Relaxed) {
                        tell("the snapshot can be read again");
                    }
                    return Ok(done);
                }
                Err(error) => error,
            };
            let now = Instant::now();
            let until = match cause(&error) {
                Cause::Temporary => end,
                Cause::Missing => *missing_since.get_or_insert(now) + MISSING_FOR,
                Cause::Other => now,
            };
            if now + REPEATED_EVERY >= until {
                tell(&format!("a client gets an error: {}", with_causes(&error)));
                return Err(Unread::Client(error));
            }
            if !self.is_repeating.swap(true, Ordering::Relaxed) {
                let seconds = REPEATED_FOR.as_secs();
                tell(&format!("clients wait, for {seconds} s at most: {}", with_causes(&error)));
            }
            thread::sleep(REPEATED_EVERY);
        }
    }
}

/// Why a request has failed, which decides for how long it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// It may succeed soon.
    Temporary,
    /// The volume or the snapshot is not found.
    Missing,
    /// It will fail again.
    Other,
}

fn cause(error: &ClientError) -> Cause {
    match error {
        ClientError::Unreachable { .. } | ClientError::NoAnswer { .. } => Cause::Temporary,
        ClientError::Problem(problem) => match problem.status {
            404 => Cause::Missing,
            500.. => Cause::Temporary,
            _ if TEMPORARY.contains(&problem.code.as_str()) => Cause::Temporary,
            _ => Cause::Other,
        },
        _ => Cause::Other,
    }
}

impl Source for SnapshotSource {
    type Error = Unread;

    fn read(&self, offset: u64, len: u64) -> Result<Piece, Unread> {
        // Only what is known already: to find out may take longer than to read.
        let known = self.allocation.known(offset, len).unwrap_or_default();
        let (len, is_zero) = first_piece(&known, len);
        if is_zero {
            return Ok(Piece::Zeros(len));
        }
        let (volume, snapshot) = (self.volume.clone(), self.snapshot.clone());
        let query = SnapshotDataQuery { volume, snapshot, offset, len };
        Ok(Piece::Data(self.request(|| self.client.snapshot_data(&query))?))
    }

    fn extents(&self, map: nbd::Map, offset: u64, len: u64) -> Result<Vec<Extent>, Unread> {
        let map = match map {
            nbd::Map::Allocation => Some(&self.allocation),
            nbd::Map::Changes => self.changes.as_ref(),
        };
        let map = map.ok_or(Unread::Unexpected("a map that was not offered"))?;
        map.extents((offset, len), |query| self.request(|| self.client.snapshot_diff(query)))
    }
}

/// How much of a range is read at once, or is zeros, and which: by what is known of it from its begin on.
fn first_piece(known: &[Extent], len: u64) -> (u64, bool) {
    let mut at = 0;
    for extent in known {
        let reaches_end = at + extent.len >= len;
        if !extent.is_set && (extent.len >= ZEROS_BYTES_MIN || reaches_end) {
            return if at == 0 { (extent.len.min(len), true) } else { (at, false) };
        }
        at += extent.len;
        if reaches_end {
            break;
        }
    }
    (len, false)
}

/// Limits how many requests are under way.
#[derive(Default)]
struct Turns {
    taken: Mutex<usize>,
    ended: Condvar,
}

/// A turn, which ends when this is dropped.
struct Turn<'a>(&'a Turns);

impl Turns {
    /// `None`: there was none until then.
    fn wait(&self, until: Instant) -> Option<Turn<'_>> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let within = until.saturating_duration_since(Instant::now());
        let waited = self.ended.wait_timeout_while(taken, within, |taken| *taken == REQUESTS_AT_ONCE);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *taken == REQUESTS_AT_ONCE {
            return None;
        }
        *taken += 1;
        Some(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn extent(len: u64, is_set: bool) -> Extent {
        Extent { len, is_set }
    }

    #[test]
    fn long_zeros_are_not_read_if_they_are_known() {
        assert_eq!(first_piece(&[], 512 * KIB), (512 * KIB, false), "nothing is known");
        let zeros = [extent(256 * KIB, false), extent(256 * KIB, true)];
        assert_eq!(first_piece(&zeros, 512 * KIB), (256 * KIB, true));
        assert_eq!(first_piece(&zeros, 4 * KIB), (4 * KIB, true));
        let short = [extent(4 * KIB, false), extent(4 * KIB, true), extent(128 * KIB, false)];
        assert_eq!(first_piece(&short, 512 * KIB), (8 * KIB, false));
        assert_eq!(first_piece(&short, 4 * KIB), (4 * KIB, true), "that is all that is wanted");
        assert_eq!(first_piece(&short[..2], 512 * KIB), (512 * KIB, false), "the rest is not known");
        let data = [extent(100 * KIB, true), extent(8 * KIB, false)];
        assert_eq!(first_piece(&data, 108 * KIB), (100 * KIB, false));
        assert_eq!(first_piece(&data, 100 * KIB), (100 * KIB, false));
    }

    fn problem(status: u16, code: &str) -> ClientError {
        ClientError::Problem(Box::new(api::Problem {
            kind: "about:blank".into(),
            title: String::new(),
            status,
            detail: String::new(),
            code: code.into(),
            hint: None,
            field: None,
            candidates: Vec::new(),
        }))
    }

    #[test]
    fn what_may_be_over_soon_is_tried_again() {
        for (status, code, expected) in [
            (503, "snapshot_unread", Cause::Temporary),
            (503, "copy_unreachable", Cause::Temporary),
            (409, "not_compared", Cause::Temporary),
            (404, "snapshot_not_found", Cause::Missing),
            (409, "no_copy_has_snapshot", Cause::Other),
            (403, "forbidden", Cause::Other),
        ] {
            assert_eq!(cause(&problem(status, code)), expected, "{code}");
        }
        let nobody = Client::new("http://127.0.0.1:1").health().unwrap_err();
        assert_eq!(cause(&nobody), Cause::Temporary, "{nobody}");
    }

    #[test]
    fn turns_are_limited_and_end() {
        let turns = Turns::default();
        let mut taken: Vec<Turn> =
            (0..REQUESTS_AT_ONCE).map(|_| turns.wait(Instant::now()).expect("there are some")).collect();
        assert!(turns.wait(Instant::now() + Duration::from_millis(10)).is_none());
        taken.pop();
        assert!(turns.wait(Instant::now()).is_some());
    }
}
