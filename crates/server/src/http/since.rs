//! Since when something lasts, computed from how long it has lasted.

use ::node::copies::Lasting;
use api::Since;
use terms::clock::unix_now;

/// The beginning of something that has lasted for this long.
pub(super) fn since(lasting: Lasting) -> Since {
    Since { at: unix_now().saturating_sub(lasting.age.as_secs()), or_earlier: lasting.at_least }
}
