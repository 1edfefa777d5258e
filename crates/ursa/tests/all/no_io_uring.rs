//! A machine or container that does not permit io_uring: the node says so and what to do, and exits.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use e2e::program;
use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP,
    SECCOMP_MODE_FILTER, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, c_ulong, sock_filter, sock_fprog,
};
use tempfile::TempDir;

use crate::node::{free_address, serve};

/// Far more than the node needs to find out on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_node_that_may_not_use_io_uring_says_what_to_do() {
    // The error numbers of seccomp profiles such as Docker's. A kernel without the sysctl may really lack the
    // system call, so ENOSYS is only tested with it.
    let mut answers = vec![libc::EPERM, libc::EACCES];
    if Path::new("/proc/sys/kernel/io_uring_disabled").exists() {
        answers.push(libc::ENOSYS);
    }
    for errno in answers {
        let directory = TempDir::new().unwrap();
        let mut command = serve(&directory.path().join("data"), free_address(), free_address());
        // SAFETY: between fork and exec, the function makes two system calls, and takes no memory and no
        // lock.
        unsafe { command.pre_exec(move || forbid_io_uring(errno)) };
        let finished = program::run(&mut command, LIMIT);
        let status = finished.status.expect("it ends by itself");
        assert_eq!(status.code(), Some(1), "{}", finished.output);
        for part in ["io_uring is not permitted here", "kernel.io_uring_disabled", "seccomp profile"] {
            assert!(finished.output.contains(part), "{part:?} is not in: {}", finished.output);
        }
        assert!(!finished.output.contains("panicked"), "{}", finished.output);
    }
}

/// Makes io_uring_setup fail with this number from now on, also after exec, as under Docker's default seccomp
/// profile.
fn forbid_io_uring(errno: i32) -> io::Result<()> {
    /// The offset of the system call's number in seccomp_data (seccomp(2)).
    const NUMBER_AT: u32 = 0;
    let statement = |code: u32, k: u32, jt: u8, jf: u8| sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        statement(BPF_LD | BPF_W | BPF_ABS, NUMBER_AT, 0, 0),
        statement(BPF_JMP | BPF_JEQ | BPF_K, libc::SYS_io_uring_setup as u32, 0, 1),
        statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errno as u32, 0, 0),
        statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let (yes, none): (c_ulong, c_ulong) = (1, 0);
    // SAFETY: the kernel copies the program and its statements, which live longer than the calls. A process
    // that cannot gain privileges may set a filter.
    let set = unsafe {
        libc::prctl(PR_SET_NO_NEW_PRIVS, yes, none, none, none) == 0
            && libc::prctl(PR_SET_SECCOMP, c_ulong::from(SECCOMP_MODE_FILTER), &raw const program) == 0
    };
    if set { Ok(()) } else { Err(io::Error::last_os_error()) }
}
