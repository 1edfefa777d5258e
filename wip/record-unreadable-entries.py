import os
os.chdir('/work/wt/record/crates')
def edit(p,*reps):
    s=open(p).read()
    for a,b in reps:
        assert a in s,(p,a)
        s=s.replace(a,b,1)
    open(p,'w').write(s)
open('node/src/copies/keeper/readable.rs','w').write('''//! Entries of the cluster's record that this version cannot read: a later one has written them.
//!
//! What cannot be read is not gone. Of nodes, targets, host groups and what else is shown or looked up, the last value that could be read stands for it: links
//! stay, hosts stay logged in. It is never written back, since its revision is not the one that the record has. A volume is another matter: its entry says who
//! may answer reads, so a copy whose entry cannot be read is closed to hosts here, and kept ([`Keeper::hold_unreadable`]); the other nodes serve it.

use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::Versioned;
use store::VolumeId;

use super::super::entry::{LINK_ROLES, LinkRoles, MAINTENANCE, NODES, NodeEntry, VOLUMES, VolumeEntry};
use super::super::strategy::{SPLITS, STRATEGIES, SplitEntry, StrategyEntry};
use super::Keeper;
use super::telling::Before;
use crate::access::{HostGroup, Target};
use crate::control::{ApiToken, HOSTS, TARGETS, TOKENS, USERS, User};

/// What stands for entries that cannot be read, by key; `None`: nothing that could be read was there before.
pub(super) type Unreadable = BTreeMap<String, Option<Versioned>>;

/// Whether this version can read what is at a key; of what it does not know, it reads nothing.
fn can_read(key: &str, value: &[u8]) -> bool {
    fn is<T: serde::de::DeserializeOwned>(value: &[u8]) -> bool {
        serde_json::from_slice::<T>(value).is_ok()
    }
    let readers: [(&str, fn(&[u8]) -> bool); 9] = [
        (VOLUMES, is::<VolumeEntry>),
        (NODES, is::<NodeEntry>),
        (LINK_ROLES, is::<LinkRoles>),
        (TARGETS, is::<Target>),
        (HOSTS, is::<HostGroup>),
        (USERS, is::<User>),
        (TOKENS, is::<ApiToken>),
        (STRATEGIES, is::<StrategyEntry>),
        (SPLITS, is::<SplitEntry>),
    ];
    // A maintenance is there or not, whatever is said of it.
    !key.starts_with(MAINTENANCE)
        && readers.iter().find(|(prefix, _)| key.starts_with(prefix)).is_none_or(|(_, read)| read(value))
        || key.starts_with(MAINTENANCE)
}

impl Keeper {
    /// Notes which of the entries that have changed cannot be read; `before` is what was there.
    pub(super) fn note_unreadable(&self, before: &Before) {
        let record = self.record.borrow();
        let mut unreadable = self.unreadable.borrow_mut();
        for (key, before) in before {
            let is_readable = record.entries.get(key).is_none_or(|now| can_read(key, &now.value));
            if is_readable {
                unreadable.remove(key);
            } else if !unreadable.contains_key(key) {
                tracing::error!(key, "an entry of the cluster's record cannot be read: a later version has written it");
                let last = before.clone().filter(|before| can_read(key, &before.value));
                unreadable.insert(key.clone(), last);
            }
        }
    }

    /// The keys whose entries this version cannot read.
    pub fn unreadable_keys(&self) -> Vec<String> {
        self.unreadable.borrow().keys().cloned().collect()
    }

    /// Whether there is an entry at the key that cannot be read.
    pub fn is_unreadable(&self, key: &str) -> bool {
        self.unreadable.borrow().contains_key(key)
    }

    /// The entry of a volume can be read: says whether it could not be until now.
    pub(super) fn note_readable(&self, id: VolumeId) -> bool {
        let mut volumes = self.volumes.borrow_mut();
        volumes.get_mut(&id).is_some_and(|kept| std::mem::replace(&mut kept.unreadable, false))
    }

    /// The copy here is not used by hosts until its entry can be read again: nobody knows whether it is in sync still.
    pub(super) async fn hold_unreadable(self: &Rc<Self>, id: VolumeId) {
        if let Some(kept) = self.volumes.borrow_mut().get_mut(&id) {
            kept.unreadable = true;
        }
        self.stop_serving(id).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_version_writes_is_told_from_what_this_one_does() {
        let cannot = br#"{"id":"a state of a later version"}"#;
        for prefix in [VOLUMES, NODES, TARGETS, HOSTS, USERS, TOKENS, STRATEGIES, SPLITS] {
            assert!(!can_read(&format!("{prefix}x"), cannot), "{prefix}");
        }
        assert!(can_read("settings of a later version/x", cannot));
        assert!(can_read(&format!("{MAINTENANCE}3"), cannot));
    }
}
''')
edit('node/src/copies/keeper/mod.rs',('mod questions;\n','mod questions;\nmod readable;\n'),
('''    record: RefCell<Everything>,
''','''    record: RefCell<Everything>,
    /// What stands for entries of it that cannot be read.
    unreadable: RefCell<Unreadable>,
'''),('''            record: RefCell::default(),
''','''            record: RefCell::default(),
            unreadable: RefCell::default(),
'''),('use self::stalling::Stalls;','use self::readable::Unreadable;\nuse self::stalling::Stalls;'),
('''    /// The value at `key`, as far as this node has followed the record.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<(T, cluster::Revision)> {
        let record = self.record.borrow();
        let value = record.entries.get(key)?;
        Some((parse(key, &value.value)?, value.revision))
    }''','''    /// The value at `key`, as far as this node has followed the record; of one that cannot be read the last that could be, with its revision.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<(T, cluster::Revision)> {
        let (record, unreadable) = (self.record.borrow(), self.unreadable.borrow());
        let value = match unreadable.get(key) {
            Some(last) => last.as_ref()?,
            None => record.entries.get(key)?,
        };
        Some((parse(key, &value.value)?, value.revision))
    }'''),
('''    /// The values whose keys begin with `prefix`, by key.
    pub fn list<T: DeserializeOwned>(&self, prefix: &str) -> Vec<T> {
        let record = self.record.borrow();
        let range = record.entries.range(prefix.to_owned()..);
        range
            .take_while(|(key, _)| key.starts_with(prefix))
            .filter_map(|(key, value)| parse(key, &value.value))
            .collect()
    }''','''    /// The values whose keys begin with `prefix`, by key; of those that cannot be read the last that could be.
    pub fn list<T: DeserializeOwned>(&self, prefix: &str) -> Vec<T> {
        let (record, unreadable) = (self.record.borrow(), self.unreadable.borrow());
        let range = record.entries.range(prefix.to_owned()..);
        range
            .take_while(|(key, _)| key.starts_with(prefix))
            .filter_map(|(key, value)| match unreadable.get(key) {
                Some(last) => parse(key, &last.as_ref()?.value),
                None => parse(key, &value.value),
            })
            .collect()
    }'''))
edit('node/src/copies/keeper/following.rs',('''                    // What was there when this node began to follow is no news.
                    if !before.entries.is_empty() {
                        let was = keys.iter().map(|key| (key.clone(), before.entries.get(key).cloned()));
                        self.tell_changes(was.collect());
                    }''','''                    let was = keys.iter().map(|key| (key.clone(), before.entries.get(key).cloned())).collect();
                    self.note_unreadable(&was);
                    // What was there when this node began to follow is no news.
                    if !before.entries.is_empty() {
                        self.tell_changes(was);
                    }'''),
('''                    self.record.borrow_mut().change(&change);
                    self.tell_changes(before);''','''                    self.record.borrow_mut().change(&change);
                    self.note_unreadable(&before);
                    self.tell_changes(before);'''),
('''        let found = self.get::<VolumeEntry>(key);
''','''        if self.is_unreadable(key) {
            return self.hold_unreadable(id).await;
        }
        let found = self.get::<VolumeEntry>(key);
'''),
('''                "an entry of the cluster's record cannot be read: the volume stays as it was"
            );
            return;''','''                "an entry of the cluster's record cannot be read: the copy here is closed to hosts"
            );
            return self.hold_unreadable(id).await;'''))
edit('node/src/copies/keeper/following.rs',('''            held: false,
            strategy_key''','''            held: false,
            unreadable: false,
            strategy_key'''),('''            kept.membership.learn(config);
        }
    }''','''            kept.membership.learn(config);
        }
        drop(volumes);
        if self.note_readable(id) && !self.forks.has(id) {
            self.go_on_serving(id).await;
        }
    }'''))
edit('node/src/copies/keeper/mod.rs',('''    held: bool,
    /// Where''','''    held: bool,
    /// Its entry cannot be read: that is why it is held.
    unreadable: bool,
    /// Where'''))
edit('node/src/copies/keeper/telling.rs',('''        for (key, before) in before {
''','''        for (key, before) in before {
            // It was neither made nor deleted.
            if self.is_unreadable(&key) {
                continue;
            }
'''))
edit('node/src/control/copies.rs',('''fn access_change(keeper: &Keeper, key: &str) -> Option<AccessChange> {
''','''fn access_change(keeper: &Keeper, key: &str) -> Option<AccessChange> {
    // What cannot be read is not gone: it stays as it is.
    if keeper.is_unreadable(key) {
        return None;
    }
'''))
edit('node/src/control/people.rs',('''        let there = self.person::<bool>(SET_UP).is_some();''','''        let there = match self.keeper() {
            // Whatever a later version says there.
            Some(keeper) => keeper.revision_of(SET_UP).is_some(),
            None => self.person::<bool>(SET_UP).is_some(),
        };'''))
edit('node/src/control/troubles.rs',('''        let failed = self.expelled().into_iter()''','''        let failed = self.unreadable_entries().into_iter().chain(self.expelled())'''),
('''    /// Whether the node was removed from its cluster, or given up.''','''    /// Entries of the cluster's record that a later version has written.
    fn unreadable_entries(&self) -> Option<Trouble> {
        const SHOWN: usize = 5;
        let keys = self.keeper()?.unreadable_keys();
        let more = match keys.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            Some(more) => format!(" and {more} more"),
            None => String::new(),
        };
        let shown: Vec<&str> = keys.iter().take(SHOWN).map(String::as_str).collect();
        let text = format!(
            "this node cannot read entries of the cluster's record that a newer version of Ursa has written ({}{more}): it uses what they said before, and copies of such volumes \\
             are closed here; update Ursa on this node",
            shown.join(", ")
        );
        (!keys.is_empty()).then(|| Trouble::new(ENTRIES_UNREADABLE, "", text))
    }

    /// Whether the node was removed from its cluster, or given up.'''),
('''/// The node was removed from its cluster, or given up.
pub const''','''/// A newer version has written entries of the cluster's record.
const ENTRIES_UNREADABLE: &str = "record_entries_unreadable";
/// The node was removed from its cluster, or given up.
pub const'''))
