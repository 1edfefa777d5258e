//! What unauthenticated callers may make a node look up: together only a limited number of times per second.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use ::node::Control;

use super::Digested;
use super::lock;
use crate::http::coalesce::Paced;
use crate::http::refusal::Refusal;
use crate::http::state::State;

/// A lookup takes a core some 5 µs: fifty of them a second cost nothing, and a delay of 20 ms is not
/// noticeable.
const SOON: Duration = Duration::from_millis(20);
/// A lookup takes a core some 200 µs with the maximum number of tokens. Only a token that another node has
/// just created waits for it.
const TOKENS_EVERY: Duration = Duration::from_millis(100);

/// Digests of tokens, by the ID that is part of the token.
type Tokens = BTreeMap<String, Digested>;

/// Rate-limited lookups for unauthenticated callers.
pub(super) struct Unauthenticated {
    health: Paced<()>,
    set_up: Paced<Option<bool>>,
    tokens: Paced<Tokens>,
    /// The tokens of the last lookup. A token that is not among them is refused only after another lookup.
    known: Mutex<Tokens>,
}

impl Default for Unauthenticated {
    fn default() -> Unauthenticated {
        Unauthenticated {
            health: Paced::new(SOON),
            set_up: Paced::new(SOON),
            tokens: Paced::new(TOKENS_EVERY),
            known: Mutex::default(),
        }
    }
}

impl Unauthenticated {
    /// Checks that the node runs.
    pub(super) async fn health(&self, state: &State) -> Result<(), Refusal> {
        self.health.get(|| state.call(|_| async { Ok(()) })).await
    }

    /// Whether there was ever a user; `None`: it is not known yet.
    pub(super) async fn is_set_up(&self, state: &State) -> Result<Option<bool>, Refusal> {
        self.set_up.get(|| state.call(|control| async move { Ok(control.is_set_up()) })).await
    }

    /// Whether this token exists, as of the last lookup. It may have been deleted or have expired since.
    pub(super) async fn may_have(&self, state: &State, id: &str, secret: &str) -> Result<bool, Refusal> {
        let is_known = || lock(&self.known).get(id).is_some_and(|digest| digest.is_of(secret));
        if is_known() {
            return Ok(true);
        }
        let look_up = |control: Rc<Control>| async move {
            let tokens = control.api_tokens().into_iter();
            Ok(tokens.filter_map(|token| Some((token.id, Digested::parse(&token.digest)?))).collect())
        };
        let tokens: Tokens = self.tokens.get(|| state.call(look_up)).await?;
        *lock(&self.known) = tokens;
        Ok(is_known())
    }
}
