//! Since when something is so, of what says how long it has lasted.

use ::node::copies::Lasting;
use api::Since;

use crate::clock::unix_now;

/// Since when something is so that has lasted for so long.
pub(super) fn since(lasting: Lasting) -> Since {
    Since { at: unix_now().saturating_sub(lasting.age.as_secs()), or_earlier: lasting.at_least }
}
