//! Information about other processes and about this machine.

use std::io::{self, Read};

/// Most bytes of an environment that are read.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;
/// Buffer for an environment, in bytes: most need one read. Each read locks the memory map of the
/// program.
const ENVIRONMENT_BYTES: usize = 8 << 10;
/// Most bytes of a program's name, with the line's end; kernel threads have longer names.
const NAME_LINE_BYTES_MAX: usize = 64;
/// Most bytes of a variable's value.
pub const VARIABLE_BYTES_MAX: usize = 64;

/// Returns the supplementary groups of a task. `pid` may be a thread id, as in FUSE requests.
///
/// # Errors
/// ENOENT or ESRCH if there is no such task. EPROTO if the content of /proc is not understood.
pub fn groups_of(pid: u32) -> io::Result<Vec<u32>> {
    let status = std::fs::read(format!("/proc/{pid}/status"))?;
    parse_groups(&String::from_utf8_lossy(&status)).ok_or_else(|| sheen_wire::Errno::EPROTO.into())
}

fn parse_groups(status: &str) -> Option<Vec<u32>> {
    let line = status.lines().find_map(|l| l.strip_prefix("Groups:"))?;
    line.split_ascii_whitespace().map(|g| g.parse().ok()).collect()
}

/// Returns the name of the program that a task runs, at most 15 bytes.
///
/// # Errors
/// ENOENT or ESRCH if there is no such task.
pub fn name_of(pid: u32) -> io::Result<Vec<u8>> {
    // The kernel returns the line in one read.
    let mut line = [0; NAME_LINE_BYTES_MAX];
    let len = std::fs::File::open(format!("/proc/{pid}/comm"))?.read(&mut line)?;
    let mut name = line[..len].to_vec();
    name.pop_if(|last| *last == b'\n');
    Ok(name)
}

/// Returns the value of a variable in the environment with which a task's program was started, at
/// most its first [`VARIABLE_BYTES_MAX`] bytes. `None` if it has no such variable. May block for
/// ever: a page of the program can belong to a file system that does not answer.
///
/// # Errors
/// ENOENT or ESRCH if there is no such task. EACCES: this process may not read it.
pub fn variable_of(pid: u32, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut all = Vec::with_capacity(ENVIRONMENT_BYTES);
    std::fs::File::open(format!("/proc/{pid}/environ"))?.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut all)?;
    let value = |entry: &[u8]| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(value.iter().take(VARIABLE_BYTES_MAX).copied().collect())
    };
    Ok(all.split(|byte| *byte == 0).find_map(value))
}

/// Whether a task has ended or is about to end. A fatal signal counts when it is pending: the
/// kernel marks every such signal as SIGKILL. A task that is not visible in /proc counts as dying,
/// so that a caller does not wait for it for ever.
pub fn is_dying(pid: u32) -> bool {
    match std::fs::read(format!("/proc/{pid}/status")) {
        Ok(status) => kill_is_pending(&String::from_utf8_lossy(&status)),
        Err(_) => true,
    }
}

/// Whether a signal is pending for a task that does not block it. The task has not returned from
/// the kernel since the signal came. Returns false for a task that is not visible in /proc.
pub fn has_signal(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/status"))
        .is_ok_and(|status| signals_pending(&String::from_utf8_lossy(&status)) != 0)
}

/// Whether SIGKILL (signal 9, bit 8 of the masks) is pending.
fn kill_is_pending(status: &str) -> bool {
    signals_pending(status) & (1 << 8) != 0
}

/// Returns the signals that are pending for the task or its process, without blocked ones.
fn signals_pending(status: &str) -> u64 {
    let mask = |name: &str| {
        let text = status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default();
        u64::from_str_radix(text.trim(), 16).unwrap_or_default()
    };
    (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:")
}

/// System calls that need only a file's permissions or one extended attribute. This list holds the
/// calls that exist on some architectures only.
#[cfg(target_arch = "x86_64")]
const OLD_PERMISSION_CALLS: [i64; 2] = [libc::SYS_link, libc::SYS_access];
#[cfg(not(target_arch = "x86_64"))]
const OLD_PERMISSION_CALLS: [i64; 0] = [];
const PERMISSION_CALLS: [i64; 6] = [
    libc::SYS_linkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
];

/// Whether a task waits in a system call that needs a file's attributes only for a permission
/// check, and not the file's size: link(2), access(2), getxattr(2). Returns false if this is not
/// visible in /proc or the task does not wait. (In 32-bit programs the same numbers mean other
/// calls, none of which depends on the size of a file.)
pub fn checks_permissions(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/syscall")).is_ok_and(|line| is_permission_call(&String::from_utf8_lossy(&line)))
}

fn is_permission_call(line: &str) -> bool {
    let number = line.split_ascii_whitespace().next().and_then(|number| number.parse().ok());
    number.is_some_and(|number| PERMISSION_CALLS.contains(&number) || OLD_PERMISSION_CALLS.contains(&number))
}

/// Returns this machine's name, as `uname -n` shows it.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_returns_the_kernels_groups() {
        assert_eq!(parse_groups("Name:\tx\nGroups:\t4 24 1000 \nNStgid:\t1\n"), Some(vec![4, 24, 1000]));
        assert_eq!(parse_groups("Groups:\t \n"), Some(vec![]));
        assert_eq!(parse_groups("Name:\tx\n"), None);
        let mut mine: Vec<u32> = rustix::process::getgroups().unwrap().iter().map(|g| g.as_raw()).collect();
        let mut read = groups_of(std::process::id()).unwrap();
        mine.sort_unstable();
        read.sort_unstable();
        assert_eq!(read, mine);
        assert_eq!(groups_of(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn name_and_variable_of_a_program_are_those_of_proc() {
        let me = std::process::id();
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(name_of(me).unwrap(), comm.trim_end().as_bytes());
        let path = std::env::var("PATH").unwrap();
        let value = variable_of(me, "PATH").unwrap().unwrap();
        assert!(value.len() == path.len().min(VARIABLE_BYTES_MAX) && path.as_bytes().starts_with(&value));
        assert_eq!(variable_of(me, "PAT").unwrap(), None);
        assert!(variable_of(u32::MAX, "PATH").is_err() && name_of(u32::MAX).is_err());
    }

    #[test]
    fn is_dying_detects_ended_and_killed_tasks() {
        assert!(!is_dying(std::process::id()));
        assert!(is_dying(u32::MAX));
        assert!(kill_is_pending("SigQ:\t0/1\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(kill_is_pending("SigPnd:\t0000000000000000\nShdPnd:\t0000000000004100\n"));
        assert!(!kill_is_pending("SigPnd:\t0000000000004000\nShdPnd:\t0000000000000000\nSigBlk:\t0000000000000100\n"));
    }

    #[test]
    fn checks_permissions_detects_permission_calls() {
        let line = |number: i64| format!("{number} 0xffffff9c 0x7ffe 0x0 0x0 0x0 0x0 0x7ffe 0x7f61\n");
        assert!([libc::SYS_linkat, libc::SYS_lgetxattr].iter().all(|number| is_permission_call(&line(*number))));
        assert!([libc::SYS_statx, libc::SYS_openat].iter().all(|number| !is_permission_call(&line(*number))));
        assert!(!is_permission_call("running\n") && !is_permission_call("-1 0x0 0x0") && !is_permission_call(""));
        assert!(!checks_permissions(std::process::id()) && !checks_permissions(u32::MAX));
    }

    #[test]
    fn hostname_equals_the_kernels() {
        let file = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(hostname(), file.trim_end());
    }
}
