//! The portal group of the node's own portals. Why: `docs/why/paths.md`.

use super::Control;
use crate::attach::port_numbers::portal_group_of;
use crate::events::code::PORTAL_GROUP_CHANGED;
use crate::events::{Event, tell};
use crate::record::{Change, set};
use crate::shard::{Shard, on_all_cores};

/// The key in the node's own record of the portal group, if it is not the one that derives from the node's
/// identity.
const PORTAL_GROUP: &str = "portal_group";

impl Control {
    /// The portal group of the node's own portals.
    pub fn portal_group(&self) -> u16 {
        let kept: Option<u16> = self.record.borrow().get(PORTAL_GROUP);
        kept.unwrap_or_else(|| portal_group_of(self.host.id))
    }

    /// Makes all cores use it.
    pub(crate) async fn show_portal_group(&self) {
        let group = self.portal_group();
        on_all_cores(move || async move { Shard::current().set_portal_group(group) }).await;
    }

    /// The change of the node's own record that gives it this portal group, if it has another one.
    pub(super) fn change_of_portal_group(&self, group: u16) -> Option<Change> {
        (group != self.portal_group()).then(|| set(PORTAL_GROUP.into(), &group))
    }

    /// Makes all cores use the portal group that the node's own record has, and reports that it has changed.
    pub(super) async fn follow_portal_group(&self, before: u16) {
        let now = self.portal_group();
        if now == before {
            return;
        }
        self.show_portal_group().await;
        tracing::warn!(
            before,
            now,
            "another node of the cluster has this node's portal group: this node gets another one"
        );
        let name = &self.host.name;
        let text = format!(
            "node {name} now has portal group {now}, because another node of the cluster has {before}: hosts with open-iscsi cannot log in to it again until they have repeated discovery"
        );
        tell(Event::new(PORTAL_GROUP_CHANGED, name, text));
    }
}
