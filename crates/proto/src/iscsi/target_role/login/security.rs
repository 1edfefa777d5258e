//! The security stage of a target (RFC 7143 12): nothing to prove, or CHAP in three requests.
//!
//! | initiator | target |
//! |---|---|
//! | AuthMethod=CHAP,None | AuthMethod=CHAP |
//! | CHAP_A=7,5 | CHAP_A=7, CHAP_I, CHAP_C |
//! | CHAP_N, CHAP_R, and CHAP_I, CHAP_C if the target is to prove itself, too | CHAP_N, CHAP_R if it was asked to |

use super::{Chap, Credentials, Failure, LoginStatus, Pairs, answer_misplaced, is_declaration};
use crate::iscsi::chap::{self, Algorithm};
use crate::iscsi::keys::value::{binary, parse_binary, parse_number};
use crate::iscsi::keys::{Key, Text};

#[derive(Default)]
pub(super) struct Security {
    /// What the initiator must prove; `None`: nothing.
    chap: Option<Chap>,
    /// The credentials with which the initiator has authenticated.
    proven: Option<Credentials>,
    state: State,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// No method has been chosen.
    #[default]
    Open,
    /// CHAP has been chosen; the initiator has yet to list its algorithms.
    Chosen,
    /// The challenge has been sent.
    Challenged(Algorithm),
    /// The initiator has authenticated, or need not.
    Passed,
}

/// The authentication keys of one exchange.
#[derive(Default)]
struct Keys {
    method: Option<String>,
    algorithm: Option<String>,
    name: Option<String>,
    response: Option<String>,
    identifier: Option<String>,
    challenge: Option<String>,
}

impl Security {
    pub(super) fn new(chap: Option<Chap>) -> Security {
        Security { chap, proven: None, state: State::Open }
    }

    pub(super) fn proven(&self) -> Option<&Credentials> {
        self.proven.as_ref()
    }

    /// Checks that an initiator which has left the security stage, or never entered it, was allowed to.
    pub(super) fn skip(&mut self) -> Result<(), Failure> {
        if self.may_leave()? {
            return Ok(());
        }
        Err((
            LoginStatus::AuthenticationFailure,
            "the initiator leaves the security stage before it has authenticated",
        ))
    }

    /// Whether the stage may end now. It may end at once if no authentication is required.
    pub(super) fn may_leave(&mut self) -> Result<bool, Failure> {
        match (self.state, &self.chap) {
            (State::Open, None) => self.state = State::Passed,
            (State::Open, Some(_)) => {
                return Err((LoginStatus::AuthenticationFailure, "CHAP is required and was not offered"));
            }
            _ => {}
        }
        Ok(self.state == State::Passed)
    }

    /// Answers one exchange.
    pub(super) fn handle(&mut self, pairs: Pairs, text: &mut Text) -> Result<(), Failure> {
        let keys = Keys::pick(pairs, text);
        if let Some(offered) = &keys.method {
            self.choose_method(offered, text)?;
            if keys.algorithm.is_none() {
                return Ok(());
            }
        }
        match (self.state, self.chap.as_ref()) {
            (State::Chosen, Some(chap)) => {
                let Some(offered) = &keys.algorithm else { return Ok(()) };
                let algorithm = Algorithm::choose(offered)
                    .ok_or((LoginStatus::AuthenticationFailure, "no supported CHAP algorithm"))?;
                text.push(chap::ALGORITHM, algorithm.number());
                text.push(chap::IDENTIFIER, &chap.identifier.to_string());
                text.push(chap::CHALLENGE, &binary(&chap.challenge));
                self.state = State::Challenged(algorithm);
            }
            (State::Challenged(algorithm), Some(chap)) => {
                let proven = verify(chap, algorithm, &keys)?;
                prove(chap, algorithm, &keys, proven, text)?;
                self.proven = Some(proven.clone());
                self.state = State::Passed;
            }
            _ if keys.has_chap() => {
                return Err((LoginStatus::InitiatorError, "unexpected CHAP keys"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Chooses the method that the node requires of this initiator, if the initiator offers it (RFC 7143
    /// 12.1).
    fn choose_method(&mut self, offered: &str, text: &mut Text) -> Result<(), Failure> {
        let (method, next) = match &self.chap {
            Some(_) => ("CHAP", State::Chosen),
            None => ("None", State::Passed),
        };
        if self.state != State::Open {
            return Err((LoginStatus::InitiatorError, "unexpected AuthMethod"));
        }
        if !offered.split(',').any(|offered| offered == method) {
            let reason = match &self.chap {
                Some(_) => "CHAP is required and was not offered",
                None => "the initiator requires authentication, but no CHAP secret is configured for it",
            };
            return Err((LoginStatus::AuthenticationFailure, reason));
        }
        text.push(Key::AuthMethod.name(), method);
        self.state = next;
        Ok(())
    }
}

impl Keys {
    /// Takes the authentication keys out of `pairs` and answers the others, except declarations, which were
    /// read before.
    fn pick(pairs: Pairs, text: &mut Text) -> Keys {
        let mut keys = Keys::default();
        for (key, value) in pairs {
            match key.as_str() {
                "AuthMethod" => keys.method = Some(value),
                chap::ALGORITHM => keys.algorithm = Some(value),
                chap::NAME => keys.name = Some(value),
                chap::RESPONSE => keys.response = Some(value),
                chap::IDENTIFIER => keys.identifier = Some(value),
                chap::CHALLENGE => keys.challenge = Some(value),
                name if is_declaration(name) => {}
                name => answer_misplaced(name, &value, text),
            }
        }
        keys
    }

    fn has_chap(&self) -> bool {
        [&self.algorithm, &self.name, &self.response, &self.identifier, &self.challenge]
            .into_iter()
            .any(Option::is_some)
    }
}

/// Checks the initiator's proof; returns the credentials that match.
fn verify<'a>(chap: &'a Chap, algorithm: Algorithm, keys: &Keys) -> Result<&'a Credentials, Failure> {
    let missing = (LoginStatus::AuthenticationFailure, "CHAP_N or CHAP_R is missing");
    let name = keys.name.as_ref().ok_or(missing)?;
    let response = keys.response.as_ref().ok_or(missing)?;
    let response = parse_binary(response, chap::BINARY_MAX)
        .ok_or((LoginStatus::AuthenticationFailure, "CHAP_R is not a binary value"))?;
    let mut known = None;
    for credentials in chap.initiator.iter().filter(|credentials| credentials.name == *name) {
        let expected = algorithm.response(chap.identifier, &credentials.secret, &chap.challenge);
        if chap::is_same(&expected, &response) {
            known = Some(credentials);
        }
    }
    known.ok_or((LoginStatus::AuthenticationFailure, "wrong CHAP name or secret"))
}

/// Mutual CHAP: proves the target's identity if the initiator asks for it.
fn prove(
    chap: &Chap,
    algorithm: Algorithm,
    keys: &Keys,
    initiator: &Credentials,
    text: &mut Text,
) -> Result<(), Failure> {
    let (identifier, challenge) = match (&keys.identifier, &keys.challenge) {
        (None, None) => return Ok(()),
        (Some(identifier), Some(challenge)) => (identifier, challenge),
        _ => return Err((LoginStatus::MissingParameter, "CHAP_I without CHAP_C, or vice versa")),
    };
    let target = chap
        .target
        .as_ref()
        .ok_or((LoginStatus::AuthenticationFailure, "mutual CHAP requested, but the target has no secret"))?;
    let identifier = parse_number(identifier)
        .and_then(|identifier| u8::try_from(identifier).ok())
        .ok_or((LoginStatus::InitiatorError, "CHAP_I is not a byte"))?;
    let challenge = parse_binary(challenge, chap::BINARY_MAX)
        .ok_or((LoginStatus::InitiatorError, "CHAP_C is not a binary value"))?;
    // RFC 7143 12.1.3: an initiator could send back one of our own challenges, of this or another connection,
    // to have us compute the response that we expect of it. With the same secret for both directions, that
    // would authenticate it.
    if challenge == chap.challenge || chap::is_of_a_target(&challenge) {
        return Err((
            LoginStatus::AuthenticationFailure,
            "the initiator reflects the target's own challenge",
        ));
    }
    if chap::is_same(&target.secret, &initiator.secret) {
        return Err((LoginStatus::AuthenticationFailure, "the same CHAP secret is set for both directions"));
    }
    text.push(chap::NAME, &target.name);
    text.push(chap::RESPONSE, &binary(&algorithm.response(identifier, &target.secret, &challenge)));
    Ok(())
}
