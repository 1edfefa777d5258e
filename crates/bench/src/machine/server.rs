//! Finds the process of this machine that listens at a portal (proc_pid_net(5), proc_pid_fd(5)).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The process that listens at a local address; `None` if it cannot be found. Processes of other users cannot
/// be inspected.
pub(crate) fn listener_of(portal: SocketAddr) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let inodes: Vec<u64> = tables.iter().flat_map(|table| listening(table, portal)).collect();
    if inodes.is_empty() {
        return None;
    }
    let mut processes: Vec<u32> = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| holds_one_of(*pid, &inodes))
        .collect();
    // Of a process and its children with the same socket, take the oldest.
    processes.sort_unstable();
    processes.first().copied()
}

fn holds_one_of(pid: u32, inodes: &[u64]) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    files.filter_map(Result::ok).any(|file| {
        let link = fs::read_link(file.path()).unwrap_or_default();
        let inode =
            link.to_str().and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        inode.is_some_and(|inode: u64| inodes.contains(&inode))
    })
}

/// The inodes of the sockets in a table that listen at `portal`.
fn listening(table: &str, portal: SocketAddr) -> impl Iterator<Item = u64> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (address, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let address = parse_address(address)?;
        let same = address.port() == portal.port()
            && (address.ip().is_unspecified() || address.ip().to_canonical() == portal.ip().to_canonical());
        if *state == LISTEN && same { inode.parse().ok() } else { None }
    })
}

/// `0100007F:0CBC`: words of 32 bits in the byte order of the machine, and the port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Option<Vec<[u8; 4]>> = address
        .as_bytes()
        .chunks(8)
        .map(|digits| {
            let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 8)?;
            u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
        })
        .collect();
    let bytes = words?.concat();
    let ip = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn addresses_are_words_of_the_machine() {
        if cfg!(target_endian = "little") {
            assert_eq!(parse_address("0100007F:0CBC"), Some(([127, 0, 0, 1], 3260).into()));
            let six = parse_address("00000000000000000000000001000000:1F90");
            assert_eq!(six, Some((Ipv6Addr::LOCALHOST, 8080).into()));
        }
        assert_eq!(parse_address("00:1"), None);
        assert_eq!(parse_address("0100007F"), None);
    }

    #[test]
    fn we_find_ourselves() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(listener_of(address), Some(std::process::id()));
        drop(listener);
        assert_eq!(listener_of(address), None);
    }

    #[test]
    fn a_server_may_listen_everywhere() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listener_of(([127, 0, 0, 1], port).into()), Some(std::process::id()));
    }
}
