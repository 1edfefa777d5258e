//! Join tokens: an administrator carries them from a member to a joining node.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use base::crc32c;
use replica::NodeId;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

use super::secret::{SECRET_BYTES, Secret, SecretDigest};
use crate::ClusterId;

const PREFIX: &str = "ursa1-";
/// The maximum number of a member's addresses: its networks, with both kinds of addresses.
const ADDRESSES_MAX: usize = 16;

/// Seconds of the wall clock since 1970. The caller, which has a clock, passes the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

/// How to reach a member and recognize it, and a secret that lets this node in.
///
/// The text of a token is a secret.
#[derive(Clone)]
pub struct Token {
    /// The cluster.
    pub cluster: ClusterId,
    /// The member through which the node joins.
    pub member: NodeId,
    /// Where the member listens.
    pub addresses: Vec<SocketAddr>,
    /// The SHA-256 of the certificate of the cluster's authority.
    pub authority: [u8; 32],
    /// The node sends it to the member.
    pub secret: Secret,
    /// The token cannot be used from this time on.
    pub expires: UnixSeconds,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Token({} of cluster {} at {:?}, until {:?})",
            self.member, self.cluster, self.addresses, self.expires
        )
    }
}

/// Why a text is not a usable token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum TokenError {
    #[error(
        "this is not a join token: tokens begin with \"ursa1-\"; a member that runs another version may create other ones"
    )]
    Foreign,
    #[error("the token is damaged: copy all of it, without spaces")]
    Damaged,
    #[error("the token has expired: create a new one on a member of the cluster")]
    Expired,
}

/// The fingerprint of the authority's certificate, as in a token.
pub(crate) fn fingerprint(authority: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(authority).into()
}

impl Token {
    /// The token as text.
    ///
    /// # Panics
    /// If there are more than 16 addresses.
    pub fn text(&self) -> String {
        assert!(self.addresses.len() <= ADDRESSES_MAX, "a token has at most {ADDRESSES_MAX} addresses");
        let mut bytes = Vec::new();
        bytes.extend(self.cluster.0);
        bytes.extend(self.member.0.to_le_bytes());
        bytes.extend(self.authority);
        bytes.extend(self.secret.bytes());
        bytes.extend(self.expires.0.to_le_bytes());
        for address in &self.addresses {
            match address.ip() {
                IpAddr::V4(ip) => {
                    bytes.push(4);
                    bytes.extend(ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes.push(6);
                    bytes.extend(ip.octets());
                }
            }
            bytes.extend(address.port().to_le_bytes());
        }
        bytes.extend(crc32c(&bytes).to_le_bytes());
        bytes.iter().fold(PREFIX.to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }

    /// Parses the text of a token.
    pub fn parse(text: &str) -> Result<Token, TokenError> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(TokenError::Foreign)?;
        let bytes = unhex(digits).ok_or(TokenError::Damaged)?;
        let (content, crc) = bytes.split_last_chunk::<4>().ok_or(TokenError::Damaged)?;
        if crc32c(content).to_le_bytes() != *crc {
            return Err(TokenError::Damaged);
        }
        Token::of_content(content).ok_or(TokenError::Damaged)
    }

    fn of_content(content: &[u8]) -> Option<Token> {
        let mut rest = content;
        let mut token = Token {
            cluster: ClusterId(take(&mut rest)?),
            member: NodeId(u16::from_le_bytes(take(&mut rest)?)),
            addresses: Vec::new(),
            authority: take(&mut rest)?,
            secret: Secret::from_bytes(take::<SECRET_BYTES>(&mut rest)?),
            expires: UnixSeconds(u64::from_le_bytes(take(&mut rest)?)),
        };
        while !rest.is_empty() && token.addresses.len() < ADDRESSES_MAX {
            let ip = match take::<1>(&mut rest)? {
                [4] => IpAddr::from(take::<4>(&mut rest)?),
                [6] => IpAddr::from(take::<16>(&mut rest)?),
                _ => return None,
            };
            token.addresses.push(SocketAddr::new(ip, u16::from_le_bytes(take(&mut rest)?)));
        }
        rest.is_empty().then_some(token)
    }

    /// Whether the token can be used now.
    pub fn check(&self, now: UnixSeconds) -> Result<(), TokenError> {
        if now < self.expires { Ok(()) } else { Err(TokenError::Expired) }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*taken)
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(value(*high)? << 4 | value(*low)?)).collect()
}

/// What a member keeps of a token that it has created: nothing that would let a node join.
#[derive(Clone, Copy, Debug)]
pub struct OpenToken {
    /// The digest of the token's secret.
    pub digest: SecretDigest,
    /// The expiry time, as in the token.
    pub expires: UnixSeconds,
}

/// Why a secret does not let a node join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Unredeemed {
    #[error("the token is not valid: it was used, withdrawn, or created by another member")]
    Unknown,
    #[error("the token has expired: create a new one")]
    Expired,
}

impl OpenToken {
    /// Uses up the token of `open` that has this secret, and drops expired ones.
    ///
    /// What is left of `open` must be durable before the node is let in: a token is used once.
    pub fn redeem(open: &mut Vec<OpenToken>, secret: &Secret, now: UnixSeconds) -> Result<(), Unredeemed> {
        let mut found = Err(Unredeemed::Unknown);
        open.retain(|token| {
            let is_it = token.digest.is_of(secret);
            let is_over = now >= token.expires;
            if is_it {
                found = if is_over { Err(Unredeemed::Expired) } else { Ok(()) };
            }
            !is_it && !is_over
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token {
            cluster: ClusterId([0xc1; 16]),
            member: NodeId(0x0102),
            addresses: vec!["10.1.2.3:3261".parse().unwrap(), "[fd00::7]:1".parse().unwrap()],
            authority: [0xaa; 32],
            secret: Secret::from_bytes([0x5e; 16]),
            expires: UnixSeconds(1_000_000),
        }
    }

    #[test]
    fn a_token_is_a_text() {
        let text = token().text();
        let cluster = "c1".repeat(16);
        let (authority, secret) = ("aa".repeat(32), "5e".repeat(16));
        let begin = format!(
            "ursa1-{cluster}0201{authority}{secret}40420f0000000000040a010203bd0c06fd0000000000000000000000000000070100"
        );
        assert_eq!(text[..text.len() - 8], begin);
        let parsed = Token::parse(&format!(" {text}\n")).unwrap();
        assert_eq!(parsed.text(), text);
        assert_eq!((parsed.cluster, parsed.member), (token().cluster, token().member));
        assert_eq!((parsed.addresses, parsed.expires), (token().addresses, token().expires));
    }

    #[test]
    fn an_invalid_token_is_refused_with_a_reason() {
        let text = token().text();
        assert_eq!(Token::parse("").unwrap_err(), TokenError::Foreign);
        assert_eq!(Token::parse("ursa2-00").unwrap_err(), TokenError::Foreign);
        for length in 6..text.len() {
            assert_eq!(Token::parse(&text[..length]).unwrap_err(), TokenError::Damaged, "{length}");
        }
        for at in 6..text.len() {
            let mut changed = text.clone();
            changed.replace_range(at..=at, if &text[at..=at] == "0" { "1" } else { "0" });
            assert_eq!(Token::parse(&changed).unwrap_err(), TokenError::Damaged, "{at}");
        }
        assert_eq!(Token::parse("ursa1-äö").unwrap_err(), TokenError::Damaged);
    }

    #[test]
    fn a_secret_is_not_shown() {
        let shown = format!("{:?} {:?}", token(), token().secret);
        assert!(!shown.contains("5e") && !shown.contains("94") && shown.contains("10.1.2.3"), "{shown}");
    }

    #[test]
    fn a_token_is_used_once_and_in_time() {
        let secrets: Vec<Secret> = (0..3).map(|n| Secret::from_bytes([n; 16])).collect();
        let open =
            |n: usize, expires| OpenToken { digest: secrets[n].digest(), expires: UnixSeconds(expires) };
        let mut tokens = vec![open(0, 10), open(1, 20)];
        let mut redeem = |n: usize, now| OpenToken::redeem(&mut tokens, &secrets[n], UnixSeconds(now));
        assert_eq!(redeem(2, 9), Err(Unredeemed::Unknown));
        assert_eq!(redeem(1, 9), Ok(()));
        assert_eq!(redeem(1, 9), Err(Unredeemed::Unknown));
        assert_eq!(redeem(0, 10), Err(Unredeemed::Expired));
        assert_eq!(redeem(0, 9), Err(Unredeemed::Unknown));
        assert!(tokens.is_empty());
        assert_eq!(token().check(UnixSeconds(999_999)), Ok(()));
        assert_eq!(token().check(UnixSeconds(1_000_000)), Err(TokenError::Expired));
    }
}
