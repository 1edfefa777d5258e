//! Errors of the system as numbers, which can be kept, compared and sent. Their text is added where people
//! read it ([`std::io::Error::from_raw_os_error`]).

use std::io::{Error, ErrorKind};

/// The number of an error of the system.
///
/// An error that did not come from the system, such as a timeout of the runtime or an error of the simulator,
/// has the number that means the same; one that nothing corresponds to counts as EIO.
pub fn errno(error: &Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| match error.kind() {
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::AlreadyExists => libc::EEXIST,
        ErrorKind::StorageFull => libc::ENOSPC,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::AddrInUse => libc::EADDRINUSE,
        ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
        ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
        ErrorKind::NotConnected => libc::ENOTCONN,
        ErrorKind::BrokenPipe => libc::EPIPE,
        // A stream ends where more had to come.
        ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => libc::ECONNRESET,
        _ => libc::EIO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_simulator_has_the_number_of_the_real_one() {
        let real = Error::from_raw_os_error(98); // EADDRINUSE
        assert_eq!((errno(&real), errno(&real.kind().into())), (98, 98));
        // The number for each kind belongs to that kind, except for the end of a stream.
        for kind in [
            ErrorKind::NotFound,
            ErrorKind::PermissionDenied,
            ErrorKind::AlreadyExists,
            ErrorKind::StorageFull,
            ErrorKind::TimedOut,
            ErrorKind::AddrInUse,
            ErrorKind::AddrNotAvailable,
            ErrorKind::ConnectionRefused,
            ErrorKind::ConnectionReset,
            ErrorKind::NetworkUnreachable,
            ErrorKind::HostUnreachable,
            ErrorKind::NotConnected,
            ErrorKind::BrokenPipe,
        ] {
            assert_eq!(Error::from_raw_os_error(errno(&kind.into())).kind(), kind);
        }
        assert_eq!(errno(&Error::other("nobody knows")), 5, "EIO");
    }
}
