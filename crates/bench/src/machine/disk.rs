//! What processes have had read from disks and written to them (proc_pid_io(5)).

use std::fs;

/// Bytes so far. What the page cache served was not read from a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskBytes {
    pub(crate) read: u64,
    pub(crate) written: u64,
}

/// `None` if there is no such process, or it belongs to another user.
pub(crate) fn process_disk(pid: u32) -> Option<DiskBytes> {
    parse(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
}

fn parse(io: &str) -> Option<DiskBytes> {
    let field = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(DiskBytes { read: field("read_bytes:")?, written: field("write_bytes:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_disks() {
        let io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 7\n";
        assert_eq!(parse(io), Some(DiskBytes { read: 4096, written: 8192 }));
        assert_eq!(parse("rchar: 1\n"), None);
        assert_eq!(process_disk(u32::MAX), None);
    }
}
