//! Why etcd cannot be used: codes and facts that nodes may send each other, and their words for whoever shows
//! them. What the HTTP library says beyond that is only logged.

use std::io;

use rustls::CertificateError;
use serde::{Deserialize, Serialize};

use super::following::Seen;
use super::health::Wrong;

/// Why etcd cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
#[serde(rename_all = "kebab-case")]
pub enum EtcdTrouble {
    #[error("it has not responded yet")]
    Silent,
    /// The member that was asked last did not do what it was asked for.
    #[error("{endpoint}: {reason}")]
    Member { endpoint: String, reason: MemberTrouble },
    #[error("it does not have this cluster's record: is it the right etcd?")]
    Missing,
    #[error("its record of this cluster was written by another version of Ursa")]
    Version,
    #[error("it has gone back to {found}, but this node has seen {seen}: was it restored from a backup?")]
    Older { found: EtcdState, seen: EtcdState },
    #[error("it is not the etcd that this node knows: was it replaced by a copy?")]
    Another,
}

/// How far etcd and the record in it have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdState {
    /// etcd's revision.
    pub revision: u64,
    /// How many changes of the record there were.
    pub change: u64,
    /// etcd's revision of the last of these.
    pub changed_at: u64,
}

base::shows!(
    Display for EtcdState,
    |it| "revision {} with change {} of the record at revision {}", it.revision, it.change, it.changed_at
);

/// Why a member of etcd did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
#[serde(rename_all = "kebab-case")]
pub enum MemberTrouble {
    #[error("its host name cannot be resolved")]
    HostUnknown,
    #[error("timeout")]
    Late,
    /// `errno` is the error number of the system.
    #[error("the connection failed: {}", io::Error::from_raw_os_error(*errno))]
    Broken { errno: i32 },
    #[error("TLS failed: {0}")]
    Tls(TlsFault),
    #[error("its answer is not one of etcd: is the endpoint right?")]
    Foreign,
    /// etcd's errors are texts that its API defines (`rpctypes`); this is one of them.
    #[error("{message}")]
    Refused { message: String },
}

/// Why TLS with a member of etcd failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
#[serde(rename_all = "kebab-case")]
pub enum TlsFault {
    #[error("its certificate is not signed by a CA in the file that `etcd-ca` names")]
    OtherAuthority,
    #[error("its certificate is for another host: use a name or address that is in the certificate")]
    OtherHost,
    #[error("its certificate has expired")]
    Expired,
    #[error("its certificate is not valid yet: check the clocks")]
    NotYetValid,
    #[error("its certificate cannot be used")]
    Certificate,
    #[error("it does not accept this node: check `etcd-certificate` and `etcd-key`")]
    NotAccepted,
    #[error("its answer is not TLS 1.3")]
    Other,
}

impl From<Wrong> for EtcdTrouble {
    fn from(wrong: Wrong) -> EtcdTrouble {
        match wrong {
            Wrong::Missing => EtcdTrouble::Missing,
            Wrong::Version => EtcdTrouble::Version,
            Wrong::Older { found, seen } => EtcdTrouble::Older { found: found.into(), seen: seen.into() },
            Wrong::Another => EtcdTrouble::Another,
        }
    }
}

impl From<Seen> for EtcdState {
    fn from(seen: Seen) -> EtcdState {
        EtcdState { revision: seen.revision.0, change: seen.last.count, changed_at: seen.last.revision.0 }
    }
}

impl From<&ureq::Error> for MemberTrouble {
    fn from(error: &ureq::Error) -> MemberTrouble {
        match error {
            ureq::Error::HostNotFound => MemberTrouble::HostUnknown,
            ureq::Error::Timeout(_) => MemberTrouble::Late,
            ureq::Error::Io(error) => match of_tls(error) {
                Some(fault) => MemberTrouble::Tls(fault),
                None => MemberTrouble::Broken { errno: rt::errno(error) },
            },
            ureq::Error::ConnectionFailed => {
                MemberTrouble::Broken { errno: rt::errno(&io::ErrorKind::ConnectionRefused.into()) }
            }
            _ => MemberTrouble::Foreign,
        }
    }
}

/// Why TLS failed, if it did; rustls' error comes within one of the system.
fn of_tls(error: &io::Error) -> Option<TlsFault> {
    Some(match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer => TlsFault::OtherAuthority,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                TlsFault::OtherHost
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsFault::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                TlsFault::NotYetValid
            }
            _ => TlsFault::Certificate,
        },
        rustls::Error::AlertReceived(_) => TlsFault::NotAccepted,
        _ => TlsFault::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_facts_are_sent() {
        let state = |revision| EtcdState { revision, change: 3, changed_at: 2 };
        let member = |reason| EtcdTrouble::Member { endpoint: "http://a:2379".into(), reason };
        for (trouble, sent) in [
            (EtcdTrouble::Silent, r#""silent""#),
            (
                member(MemberTrouble::Broken { errno: 111 }),
                r#"{"member":{"endpoint":"http://a:2379","reason":{"broken":{"errno":111}}}}"#,
            ),
            (
                member(MemberTrouble::Tls(TlsFault::Expired)),
                r#"{"member":{"endpoint":"http://a:2379","reason":{"tls":"expired"}}}"#,
            ),
            (
                EtcdTrouble::Older { found: state(7), seen: state(9) },
                concat!(
                    r#"{"older":{"found":{"revision":7,"change":3,"changed_at":2},"#,
                    r#""seen":{"revision":9,"change":3,"changed_at":2}}}"#
                ),
            ),
        ] {
            assert_eq!(serde_json::to_string(&trouble).unwrap(), sent);
            assert_eq!(serde_json::from_str::<EtcdTrouble>(sent).unwrap(), trouble);
        }
    }

    #[test]
    fn errors_of_the_client_are_classified() {
        let of = |error: ureq::Error| MemberTrouble::from(&error);
        let tls = |error: rustls::Error| of(io::Error::new(io::ErrorKind::InvalidData, error).into());
        assert_eq!(of(io::Error::from_raw_os_error(113).into()), MemberTrouble::Broken { errno: 113 });
        assert_eq!(of(ureq::Error::HostNotFound), MemberTrouble::HostUnknown);
        assert_eq!(of(ureq::Error::StatusCode(404)), MemberTrouble::Foreign);
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(tls(unknown), MemberTrouble::Tls(TlsFault::OtherAuthority));
        let refused = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired);
        assert_eq!(tls(refused), MemberTrouble::Tls(TlsFault::NotAccepted));
    }
}
