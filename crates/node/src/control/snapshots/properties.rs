//! What people set on a snapshot: whether it is on hold, when it expires, and its labels.
//!
//! Ursa acts on a hold and on an expiry ([`super::expiry`]); labels are for people and scripts.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::change::WaitsFor;
use super::super::doing::Doing;
use super::super::turns::NOTHING;
use super::super::{Control, ControlError, Result};
use super::SnapshotStatus;
use super::calendar::DAY;
use super::scheduled::unix_now;
use crate::copies::{SNAPSHOTS_MAX, SnapshotEntry, SnapshotState};

/// The shortest time after which a snapshot can expire, in seconds.
const EXPIRES_AFTER_MIN: u64 = 60;
/// The longest one: ten years.
const EXPIRES_AFTER_MAX: u64 = 3_653 * DAY;
/// How many labels a snapshot has at most.
const LABELS_MAX: usize = 8;
/// How long the key of a label is at most, and its value.
const LABEL_LEN_MAX: usize = 63;

const _: () = assert!(
    SNAPSHOTS_MAX * LABELS_MAX * 2 * (LABEL_LEN_MAX + "\"\":".len()) < 5 << 20,
    "the labels of all snapshots take less than 5 MiB of the record's 64"
);

/// A change of a snapshot; `None` leaves something as it is.
#[derive(Clone, Debug, Default)]
pub struct SnapshotUpdate {
    /// Whether it is on hold, so that it cannot be deleted.
    pub held: Option<bool>,
    /// After how many seconds from now it expires; 0: never.
    pub expires_after: Option<u64>,
    /// Labels that it gets, or that get another value.
    pub labels: BTreeMap<String, String>,
    /// The keys of labels that it loses, if it has them. Applied before `labels`.
    pub remove_labels: Vec<String>,
}

impl Control {
    /// Changes whether a snapshot is on hold, when it expires, and its labels.
    ///
    /// # Errors
    /// It is not found, or is being deleted; [`ControlError::SnapshotPreparing`]; a label or the expiry is
    /// invalid; those of the record.
    pub async fn update_snapshot(
        self: &Rc<Control>,
        name: &str,
        update: SnapshotUpdate,
    ) -> Result<SnapshotStatus> {
        let SnapshotEntry { number, name, .. } = self.snapshot(name)?.entry;
        self.change(Doing::ChangeSnapshot.of(&name), NOTHING, move |control, changing| async move {
            changing.waits_for(WaitsFor::ClusterRecord);
            let changed = control.change_snapshot(number, |entry| match entry.state {
                SnapshotState::Preparing | SnapshotState::Restoring => {
                    Err(ControlError::SnapshotPreparing(entry.name.clone()))
                }
                SnapshotState::Deleting => Err(ControlError::not_found("snapshot", &entry.name)),
                SnapshotState::Complete => {
                    let next = updated(entry, &update, unix_now())?;
                    Ok((next != *entry).then_some(next))
                }
            });
            changed.await.map(drop)
        })
        .await?;
        self.snapshot(&number.to_string())
    }
}

/// The entry of a snapshot after a change at `now`, in seconds since 1970.
fn updated(entry: &SnapshotEntry, update: &SnapshotUpdate, now: u64) -> Result<SnapshotEntry> {
    let SnapshotUpdate { held, expires_after, labels, remove_labels } = update;
    let mut next = entry.clone();
    next.held = held.unwrap_or(entry.held);
    match *expires_after {
        None => {}
        Some(0) => next.expires = None,
        Some(after) => {
            check_expires_after(after)?;
            next.expires = Some(now.saturating_add(after));
        }
    }
    next.labels.retain(|key, _| !remove_labels.contains(key));
    next.labels.extend(labels.clone());
    check_labels(&next.labels)?;
    Ok(next)
}

/// Checks after how many seconds a snapshot is to expire.
///
/// # Errors
/// [`ControlError::Invalid`].
pub(super) fn check_expires_after(after: u64) -> Result<()> {
    match after {
        EXPIRES_AFTER_MIN..=EXPIRES_AFTER_MAX => Ok(()),
        _ => Err(ControlError::Invalid { field: "expires_after", reason: "from one minute to ten years" }),
    }
}

/// Checks all labels of a snapshot.
///
/// # Errors
/// [`ControlError::Invalid`].
pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    let refused = |reason| Err(ControlError::Invalid { field: "labels", reason });
    if labels.len() > LABELS_MAX {
        return refused("a snapshot has at most 8 labels: remove some");
    }
    if !labels.iter().flat_map(|(key, value)| [key, value]).all(|text| is_valid(text)) {
        return refused("keys and values are 1 to 63 letters, digits and characters of -_./:@+");
    }
    Ok(())
}

/// Whether a text can be the key or the value of a label. A comma and `=` have a meaning in queries.
fn is_valid(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@+".contains(&byte);
    (1..=LABEL_LEN_MAX).contains(&text.len()) && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> SnapshotEntry {
        SnapshotEntry {
            number: 7,
            name: "before-upgrade".into(),
            at: 1_000,
            node: 1,
            incarnation: 1,
            state: SnapshotState::Complete,
            volumes: Vec::new(),
            pause_us: 0,
            held: true,
            expires: Some(9_000),
            labels: labels(&[("ticket", "4711"), ("by", "eva")]),
            restores: None,
            schedule: None,
        }
    }

    fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn field<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
        match result {
            Err(ControlError::Invalid { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        assert_eq!(updated(&entry(), &SnapshotUpdate::default(), 5_000).unwrap(), entry());
        let release = SnapshotUpdate { held: Some(false), ..SnapshotUpdate::default() };
        assert_eq!(updated(&entry(), &release, 5_000).unwrap(), SnapshotEntry { held: false, ..entry() });
        let change = SnapshotUpdate {
            labels: labels(&[("by", "max"), ("app", "shop/db")]),
            remove_labels: vec!["ticket".into(), "none".into()],
            ..SnapshotUpdate::default()
        };
        let expected = labels(&[("app", "shop/db"), ("by", "max")]);
        assert_eq!(updated(&entry(), &change, 5_000).unwrap().labels, expected);
    }

    #[test]
    fn an_expiry_counts_from_the_change() {
        let after = |seconds| SnapshotUpdate { expires_after: Some(seconds), ..SnapshotUpdate::default() };
        assert_eq!(updated(&entry(), &after(60), 5_000).unwrap().expires, Some(5_060));
        assert_eq!(updated(&entry(), &after(0), 5_000).unwrap().expires, None, "never");
        for seconds in [1, 59, 3_653 * 86_400 + 1, u64::MAX] {
            assert_eq!(field(updated(&entry(), &after(seconds), 5_000)), "expires_after", "{seconds}");
        }
        assert!(check_expires_after(0).is_err(), "a new one expires at once");
    }

    #[test]
    fn labels_are_few_short_and_plain() {
        let long = "a".repeat(63);
        for (key, value) in [("app", "shop"), ("a.b/c", "2026-11-29T21:50+01:00"), (&*long, &*long)] {
            assert!(check_labels(&labels(&[(key, value)])).is_ok(), "{key}={value}");
        }
        let too_long = "a".repeat(64);
        for (key, value) in
            [("", "a"), ("a", ""), ("a b", "a"), ("a", "b=c"), ("a", "b,c"), ("a", "ä"), (&*too_long, "a")]
        {
            assert_eq!(field(check_labels(&labels(&[(key, value)]))), "labels", "{key}={value}");
        }
        let eight: BTreeMap<String, String> = (0..8).map(|key| (key.to_string(), "a".into())).collect();
        assert!(check_labels(&eight).is_ok());
        let full = SnapshotEntry { labels: eight, ..entry() };
        let add = SnapshotUpdate { labels: labels(&[("app", "shop")]), ..SnapshotUpdate::default() };
        assert_eq!(field(updated(&full, &add, 5_000)), "labels");
        let instead = SnapshotUpdate { remove_labels: vec!["3".into()], ..add };
        assert_eq!(updated(&full, &instead, 5_000).unwrap().labels.len(), 8);
    }
}
