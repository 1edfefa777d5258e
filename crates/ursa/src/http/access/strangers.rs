//! What strangers may have a node look up: together no more than a few times a second.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use ::node::Control;

use super::Digested;
use super::lock;
use crate::http::paced::Paced;
use crate::http::refusal::Refusal;
use crate::http::state::State;

/// A call takes a core some 5 µs: fifty of them a second are nothing to it, and nobody notices 20 ms.
const SOON: Duration = Duration::from_millis(20);
/// Some 200 µs if there are as many tokens as there can be. Only a token that was made just now, on another
/// node, is kept waiting by it.
const TOKENS_EVERY: Duration = Duration::from_millis(100);

/// Tokens by what they are found by.
type Tokens = BTreeMap<String, Digested>;

/// What is asked by who has proved nothing.
pub(super) struct Strangers {
    health: Paced<()>,
    set_up: Paced<Option<bool>>,
    tokens: Paced<Tokens>,
    /// As they were last looked up: who has none of them is not let in before they were looked up again.
    known: Mutex<Tokens>,
}

impl Default for Strangers {
    fn default() -> Strangers {
        Strangers {
            health: Paced::new(SOON),
            set_up: Paced::new(SOON),
            tokens: Paced::new(TOKENS_EVERY),
            known: Mutex::default(),
        }
    }
}

impl Strangers {
    /// That the node runs.
    ///
    /// # Errors
    /// It does not.
    pub(super) async fn health(&self, state: &State) -> Result<(), Refusal> {
        self.health.get(|| state.call(|_| async { Ok(()) })).await
    }

    /// Whether there was ever a user; `None`: it is not known yet.
    ///
    /// # Errors
    /// The node does not run.
    pub(super) async fn is_set_up(&self, state: &State) -> Result<Option<bool>, Refusal> {
        self.set_up.get(|| state.call(|control| async move { Ok(control.is_set_up()) })).await
    }

    /// Whether somebody may have this token: that it is still good is not said.
    ///
    /// # Errors
    /// The node does not run.
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
