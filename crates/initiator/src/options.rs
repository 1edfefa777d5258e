//! Options of a login.

use std::time::Duration;

use proto::iscsi::initiator::{Identity, LoginOptions, Proof, Wish};
use proto::iscsi::target_role::Credentials;

/// CHAP credentials of both sides.
#[derive(Clone, Debug)]
pub struct Chap {
    /// Our name and secret.
    pub initiator: Credentials,
    /// The target's name and secret, if it must authenticate itself.
    pub target: Option<Credentials>,
}

/// Options of a login.
///
/// `Default` is a client without a name of its own and without CHAP.
#[derive(Clone, Debug)]
pub struct Options {
    /// InitiatorName.
    pub initiator: String,
    /// CHAP, if any.
    pub chap: Option<Chap>,
    /// The parameters to offer.
    pub wish: Wish,
    /// Our part of the session's identity; `None` draws a random one.
    ///
    /// A second session of one initiator with the same ISID replaces the first.
    pub isid: Option<[u8; 6]>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Whether to log out when the target requests it. Tests of targets set this to false.
    pub obedient: bool,
}

/// Time limits of a session, kept with a precision of half a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For connecting, for logging in, and for logging out, each.
    pub login: Duration,
    /// For a command, before it is aborted.
    pub command: Duration,
    /// For aborting commands, before their units are reset.
    pub abort: Duration,
    /// For resetting a unit, before the session is given up.
    pub reset: Duration,
    /// After this time without any data from the target, the session sends a ping.
    pub ping_after: Duration,
    /// Within this time after the ping, something must arrive, or the session is given up.
    pub ping_deadline: Duration,
}

impl Default for Timeouts {
    /// Commands get the time that Linux gives them. A target is given up after seven seconds of silence: that
    /// is how long a cut path goes unnoticed. The cost is two idle PDUs every two seconds.
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
    /// The options in the brain's form, for a login to `target`, or for discovery.
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

/// RFC 7143 11.12.5: the type "random", three random bytes and a random qualifier.
pub(crate) fn random_isid() -> [u8; 6] {
    let [a, b, c, d, e, ..] = rt::random().to_be_bytes();
    [0x80, a, b, c, d, e]
}
