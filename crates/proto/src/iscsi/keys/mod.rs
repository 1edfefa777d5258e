//! Text keys, with which the two sides of a login declare and negotiate parameters (RFC 7143 sections 6 and
//! 13).
//!
//! [`text`] is the format, [`value`] the notation of numbers and binary strings, [`rule`] computes one result
//! from the two sides' values. [`Key`] lists the keys with their rules; the target's and the initiator's
//! login share it.

pub mod rule;
pub mod text;
pub mod value;

pub use rule::{Answer, Rule, Value};
pub use text::{Pair, Text, TextError};

base::listed! {
    /// The keys that we know. Those of authentication are in `chap`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[allow(missing_docs)]
    pub enum Key {
        AuthMethod,
        HeaderDigest,
        DataDigest,
        MaxConnections,
        SendTargets,
        TargetName,
        InitiatorName,
        TargetAlias,
        InitiatorAlias,
        TargetAddress,
        TargetPortalGroupTag,
        InitialR2T,
        ImmediateData,
        MaxRecvDataSegmentLength,
        MaxBurstLength,
        FirstBurstLength,
        DefaultTime2Wait,
        DefaultTime2Retain,
        MaxOutstandingR2T,
        DataPduInOrder,
        DataSequenceInOrder,
        ErrorRecoveryLevel,
        SessionType,
        ProtocolLevel,
        TaskReporting,
        /// From RFC 3720; withdrawn (RFC 7143 13.25).
        OfMarker,
        /// From RFC 3720; withdrawn.
        IfMarker,
        /// From RFC 3720; withdrawn.
        OfMarkInt,
        /// From RFC 3720; withdrawn.
        IfMarkInt,
    }
}

/// When a key may be sent (RFC 7143 13, "Use").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// In every login.
    Initialize,
    /// In the login of a session's first connection only.
    LeadingOnly,
    /// In login and in the full feature phase.
    Always,
    /// In the full feature phase only.
    FullFeature,
}

/// The properties of a key in RFC 7143 section 13.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The key's name on the wire.
    pub name: &'static str,
    /// When it may be sent.
    pub used: Use,
    /// Whether the key is irrelevant in a discovery session.
    pub normal_only: bool,
    /// How the result follows from the offers.
    pub rule: Rule,
}

/// RFC 7143 13: the rule for lengths of bursts and segments, in bytes.
const LENGTH: Rule = Rule::Minimum { least: 512, most: (1 << 24) - 1 };
/// RFC 7143 13.15, 13.16: the longest time, in seconds.
const SECONDS_MAX: u32 = 3600;

impl Key {
    /// The key with this name. An unknown key (`None`) is answered with NotUnderstood.
    pub fn from_name(name: &str) -> Option<Key> {
        Key::ALL.into_iter().find(|key| key.name() == name)
    }

    /// The key's name on the wire.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// The key's properties in RFC 7143.
    pub const fn definition(self) -> Definition {
        use Use::{Always, FullFeature, Initialize, LeadingOnly};
        const fn define(name: &'static str, used: Use, rule: Rule) -> Definition {
            Definition { name, used, normal_only: false, rule }
        }
        const fn normal_session(name: &'static str, rule: Rule) -> Definition {
            Definition { name, used: LeadingOnly, normal_only: true, rule }
        }
        match self {
            // 12: AuthMethod and the keys of the chosen method are the only ones in the security stage.
            Key::AuthMethod => define("AuthMethod", Initialize, Rule::Choice),
            // 13.1
            Key::HeaderDigest => define("HeaderDigest", Initialize, Rule::Choice),
            Key::DataDigest => define("DataDigest", Initialize, Rule::Choice),
            // 13.2
            Key::MaxConnections => normal_session("MaxConnections", Rule::Minimum { least: 1, most: 65535 }),
            // 13.3
            Key::SendTargets => define("SendTargets", FullFeature, Rule::Declared),
            // 13.4 to 13.9
            Key::TargetName => define("TargetName", Initialize, Rule::Declared),
            Key::InitiatorName => define("InitiatorName", Initialize, Rule::Declared),
            Key::TargetAlias => define("TargetAlias", Always, Rule::Declared),
            Key::InitiatorAlias => define("InitiatorAlias", Always, Rule::Declared),
            Key::TargetAddress => define("TargetAddress", Always, Rule::Declared),
            Key::TargetPortalGroupTag => define("TargetPortalGroupTag", Initialize, Rule::Declared),
            // 13.10, 13.11
            Key::InitialR2T => normal_session("InitialR2T", Rule::Or),
            Key::ImmediateData => normal_session("ImmediateData", Rule::And),
            // 13.12
            Key::MaxRecvDataSegmentLength => define("MaxRecvDataSegmentLength", Always, Rule::Declared),
            // 13.13, 13.14
            Key::MaxBurstLength => normal_session("MaxBurstLength", LENGTH),
            Key::FirstBurstLength => normal_session("FirstBurstLength", LENGTH),
            // 13.15, 13.16
            Key::DefaultTime2Wait => {
                define("DefaultTime2Wait", LeadingOnly, Rule::Maximum { least: 0, most: SECONDS_MAX })
            }
            Key::DefaultTime2Retain => {
                define("DefaultTime2Retain", LeadingOnly, Rule::Minimum { least: 0, most: SECONDS_MAX })
            }
            // 13.17 to 13.19
            Key::MaxOutstandingR2T => {
                normal_session("MaxOutstandingR2T", Rule::Minimum { least: 1, most: 65535 })
            }
            Key::DataPduInOrder => normal_session("DataPDUInOrder", Rule::Or),
            Key::DataSequenceInOrder => normal_session("DataSequenceInOrder", Rule::Or),
            // 13.20
            Key::ErrorRecoveryLevel => {
                define("ErrorRecoveryLevel", LeadingOnly, Rule::Minimum { least: 0, most: 2 })
            }
            // 13.21
            Key::SessionType => define("SessionType", LeadingOnly, Rule::Declared),
            // RFC 7144 7.1.1
            Key::ProtocolLevel => normal_session("iSCSIProtocolLevel", Rule::Minimum { least: 0, most: 31 }),
            // 13.23
            Key::TaskReporting => normal_session("TaskReporting", Rule::Choice),
            // 13.25
            Key::OfMarker => define("OFMarker", Initialize, Rule::And),
            Key::IfMarker => define("IFMarker", Initialize, Rule::And),
            Key::OfMarkInt => define("OFMarkInt", Initialize, Rule::Rejected),
            Key::IfMarkInt => define("IFMarkInt", Initialize, Rule::Rejected),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_by_its_name() {
        for key in Key::ALL {
            assert_eq!(Key::from_name(key.name()), Some(key));
        }
        assert_eq!(Key::from_name("MaxBurstLength"), Some(Key::MaxBurstLength));
        assert_eq!(Key::from_name("maxburstlength"), None);
        assert_eq!(Key::from_name("X-com.example.Colour"), None);
    }

    /// RFC 7143 section 13: the keys with "Irrelevant when: SessionType=Discovery".
    #[test]
    fn keys_of_normal_sessions() {
        let normal: Vec<_> =
            Key::ALL.into_iter().filter(|key| key.definition().normal_only).map(Key::name).collect();
        assert_eq!(
            normal,
            [
                "MaxConnections",
                "InitialR2T",
                "ImmediateData",
                "MaxBurstLength",
                "FirstBurstLength",
                "MaxOutstandingR2T",
                "DataPDUInOrder",
                "DataSequenceInOrder",
                "iSCSIProtocolLevel",
                "TaskReporting"
            ]
        );
    }
}
