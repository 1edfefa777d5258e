//! What ends a connection.

/// What a client has done that the protocol has no answer for: the server ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Violation {
    #[error("it does not speak this version of NBD: unknown flags {0:#x}")]
    ClientFlags(u32),
    #[error("it does not speak the fixed newstyle of NBD, which TLS needs")]
    NotFixedNewstyle,
    #[error("it does not speak NBD: an option begins with {0:#x}")]
    OptionMagic(u64),
    #[error("it asks for an export before TLS: configure TLS in the client")]
    NotEncrypted,
    #[error("it asks for an export that does not exist, by an option without errors")]
    UnknownExport,
    #[error("it sends more behind the request for TLS, before TLS has begun")]
    BehindStartTls,
    #[error("it does not speak NBD: a request begins with {0:#x}")]
    RequestMagic(u32),
    #[error("it wants to write {0} bytes at once")]
    LongWrite(u32),
}
