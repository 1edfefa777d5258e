//! How to log in.

use std::time::Duration;

use proto::iscsi::initiator::{Identity, LoginOptions, Proof, Wish};
use proto::iscsi::target::Credentials;

/// How the two sides prove themselves.
#[derive(Clone, Debug)]
pub struct Chap {
    /// Our name and secret.
    pub initiator: Credentials,
    /// The target's, if it must prove itself.
    pub target: Option<Credentials>,
}

/// How to log in. `Default` is a client without a name of its own and without CHAP.
#[derive(Clone, Debug)]
pub struct Options {
    /// InitiatorName.
    pub initiator: String,
    /// CHAP, if any.
    pub chap: Option<Chap>,
    /// The parameters to offer.
    pub wish: Wish,
    /// Our part of the session's identity. A second session of one initiator with the same ISID takes the
    /// place of the first, so that `None` draws one.
    pub isid: Option<[u8; 6]>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Whether to log out when the target asks for it. Who does not is of use to those who test targets.
    pub obedient: bool,
}

/// How long things may take. All are kept to half a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Connecting; then logging in; and logging out.
    pub login: Duration,
    /// A command, before it is aborted.
    pub command: Duration,
    /// Aborting commands, before their units are reset.
    pub abort: Duration,
    /// Resetting a unit, before the session is given up.
    pub reset: Duration,
    /// After so much silence the target is asked for a sign of life.
    pub ping_after: Duration,
    /// Within this time of being asked it must give one, or the session is given up.
    pub ping_deadline: Duration,
}

impl Default for Timeouts {
    /// Commands get what Linux gives them. A target is given up after seven seconds of silence, which a path
    /// that was cut costs; two idle PDUs every two seconds are what that costs.
    fn default() -> Timeouts {
        Timeouts {
            login: Duration::from_secs(10),
            command: Duration::from_secs(30),
            abort: Duration::from_secs(15),
            reset: Duration::from_secs(30),
            ping_after: Duration::from_secs(2),
            ping_deadline: Duration::from_secs(5),
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            initiator: "iqn.2026-01.org.ursa:initiator".to_owned(),
            chap: None,
            wish: Wish::default(),
            isid: None,
            timeouts: Timeouts::default(),
            obedient: true,
        }
    }
}

impl Options {
    /// What the brain needs for a login to `target`, or for discovery.
    pub(crate) fn login(&self, target: Option<&str>) -> LoginOptions {
        LoginOptions {
            identity: Identity {
                initiator: self.initiator.clone(),
                target: target.map(str::to_owned),
                isid: self.isid.unwrap_or_else(random_isid),
                cid: 0,
            },
            proof: self.chap.as_ref().map(|chap| Proof {
                initiator: chap.initiator.clone(),
                target: chap.target.clone(),
                challenge: rt::secret_bytes(),
                identifier: rt::secret_bytes::<1>()[0],
            }),
            wish: self.wish.clone(),
        }
    }
}

/// RFC 7143 11.12.5: the type "random", three random bytes and a qualifier, random as well.
pub(crate) fn random_isid() -> [u8; 6] {
    let [a, b, c, d, e, ..] = rt::random().to_be_bytes();
    [0x80, a, b, c, d, e]
}
