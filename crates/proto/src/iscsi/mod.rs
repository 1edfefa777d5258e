//! iSCSI (RFC 7143), error recovery level 0. The target role first; the initiator's role uses the same wire format.
