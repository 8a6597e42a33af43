//! What must be known of other processes and of this machine.

use std::io;

/// Supplementary groups of a task (a thread id, as FUSE hands out, is fine).
///
/// # Errors
/// ENOENT or ESRCH if there is no such task, EPROTO if the kernel's answer is not understood.
pub fn groups_of(pid: u32) -> io::Result<Vec<u32>> {
    let status = std::fs::read(format!("/proc/{pid}/status"))?;
    parse_groups(&String::from_utf8_lossy(&status)).ok_or_else(|| sheen_wire::Errno::EPROTO.into())
}

fn parse_groups(status: &str) -> Option<Vec<u32>> {
    let line = status.lines().find_map(|l| l.strip_prefix("Groups:"))?;
    line.split_ascii_whitespace().map(|g| g.parse().ok()).collect()
}

/// Whether a task is about to end: it is gone, or a deadly signal waits for it (the kernel marks
/// every such with SIGKILL). A task that cannot be seen from here counts as dying: whoever asks
/// does so to not keep it for ever.
pub fn is_dying(pid: u32) -> bool {
    match std::fs::read(format!("/proc/{pid}/status")) {
        Ok(status) => kill_is_pending(&String::from_utf8_lossy(&status)),
        Err(_) => true,
    }
}

/// SIGKILL is signal 9: bit 8 of the masks.
fn kill_is_pending(status: &str) -> bool {
    let masks = status.lines().filter_map(|l| l.strip_prefix("SigPnd:").or_else(|| l.strip_prefix("ShdPnd:")));
    masks.filter_map(|m| u64::from_str_radix(m.trim(), 16).ok()).any(|m| m & (1 << 8) != 0)
}

/// System calls that ask for no more of a file than whether somebody may do something to it, or for
/// one extended attribute.
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

/// Whether a task waits in a system call that wants to know of a file's attributes only what
/// permissions are checked by, and not its size: link(2), access(2), getxattr(2). Where that cannot
/// be seen from here, or the task does not wait, it is not said to. (The numbers of 32-bit programs
/// mean others, none of which goes by the size of a file.)
pub fn checks_permissions(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/syscall")).is_ok_and(|line| is_permission_call(&String::from_utf8_lossy(&line)))
}

fn is_permission_call(line: &str) -> bool {
    let number = line.split_ascii_whitespace().next().and_then(|number| number.parse().ok());
    number.is_some_and(|number| PERMISSION_CALLS.contains(&number) || OLD_PERMISSION_CALLS.contains(&number))
}

/// This machine's name, as `uname -n` shows it.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_groups() {
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
    fn knows_the_dying() {
        assert!(!is_dying(std::process::id()));
        assert!(is_dying(u32::MAX));
        assert!(kill_is_pending("SigQ:\t0/1\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(kill_is_pending("SigPnd:\t0000000000000000\nShdPnd:\t0000000000004100\n"));
        assert!(!kill_is_pending("SigPnd:\t0000000000004000\nShdPnd:\t0000000000000000\nSigBlk:\t0000000000000100\n"));
    }

    #[test]
    fn knows_who_checks_permissions() {
        let line = |number: i64| format!("{number} 0xffffff9c 0x7ffe 0x0 0x0 0x0 0x0 0x7ffe 0x7f61\n");
        assert!([libc::SYS_linkat, libc::SYS_lgetxattr].iter().all(|number| is_permission_call(&line(*number))));
        assert!([libc::SYS_statx, libc::SYS_openat].iter().all(|number| !is_permission_call(&line(*number))));
        assert!(!is_permission_call("running\n") && !is_permission_call("-1 0x0 0x0") && !is_permission_call(""));
        assert!(!checks_permissions(std::process::id()) && !checks_permissions(u32::MAX));
    }

    #[test]
    fn has_a_hostname() {
        let file = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(hostname(), file.trim_end());
    }
}
