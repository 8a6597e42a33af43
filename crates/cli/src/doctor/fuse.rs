//! FUSE: whether this user can mount, and whether the kernel offers all that makes mounts fast.

use std::{io, path::PathBuf};

use sheen_mount::IoUringSwitch;

use super::finding::Finding;

/// Oldest Linux on which mounts work: FUSE 7.31.
const KERNEL_MIN: (u32, u32) = (5, 4);
/// First Linux with FUSE over io_uring.
const KERNEL_IO_URING: (u32, u32) = (6, 14);
/// First Linux that still knows names after a mount has revoked them (FUSE_NOTIFY_INC_EPOCH).
const KERNEL_NAMES: (u32, u32) = (6, 16);

/// FUSE on this machine, as this user has it.
#[derive(Clone, Debug)]
pub struct Fuse {
    /// Whether this user is root, who mounts with mount(2).
    pub is_root: bool,
    /// Major and minor version of Linux, if its release begins with them.
    pub kernel: Option<(u32, u32)>,
    /// 0 if /dev/fuse can be opened, else Linux's errno.
    pub device_errno: i32,
    /// The first fusermount3 in PATH, and whether it is a set-user-id program of root.
    pub helper: Option<(PathBuf, bool)>,
    /// Whether all directories of PATH were searched for it. Access to others may block.
    pub is_path_searched: bool,
    /// Whether set-user-id programs get no rights in this session.
    pub no_new_privs: bool,
    /// Whether root, or a set-user-id program, has CAP_SYS_ADMIN.
    pub has_sys_admin: bool,
    /// Whether /etc/fuse.conf has `user_allow_other`.
    pub user_allow_other: bool,
    /// The kernel's switch of FUSE over io_uring.
    pub io_uring: IoUringSwitch,
    /// `kernel.io_uring_disabled`: 0 permits io_uring, 1 permits it to root, 2 to no process.
    pub io_uring_disabled: u32,
    /// `fs.fuse.max_pages_limit`; Linux before 6.13 has none.
    pub pages_limit: Option<u32>,
    /// Pages of the largest write of a mount, if its memory does not begin at a page.
    pub pages_wanted: u32,
}

/// Checks FUSE.
pub fn checks(fuse: &Fuse) -> Vec<Finding> {
    let found = [
        kernel(fuse),
        Some(device(fuse.device_errno)),
        Some(mounting(fuse)),
        other_users(fuse),
        io_uring(fuse),
        pages(fuse),
    ];
    found.into_iter().flatten().collect()
}

fn kernel(fuse: &Fuse) -> Option<Finding> {
    let check = "kernel";
    let version = fuse.kernel?;
    let (major, minor) = version;
    Some(if version < KERNEL_MIN {
        let text = format!("mounts do not work: Linux {major}.{minor} is too old");
        Finding::error(check, text, "update the kernel to 6.16, or at least to 5.4")
    } else if version < KERNEL_NAMES {
        let text = format!("mounts are faster on Linux 6.16 (cached names, io_uring) than on {major}.{minor}");
        Finding::hint(check, text, "update the kernel to 6.16 or later")
    } else {
        Finding::ok(check, format!("Linux {major}.{minor}"))
    })
}

fn device(errno: i32) -> Finding {
    let check = "fuse_device";
    if errno == 0 {
        return Finding::ok(check, "/dev/fuse can be opened");
    }
    let advice = match errno {
        libc::EACCES => "as root: chmod 666 /dev/fuse",
        libc::EPERM => "start the container with --device /dev/fuse",
        _ => "as root: modprobe fuse; a container needs the option --device /dev/fuse",
    };
    let reason = io::Error::from_raw_os_error(errno);
    Finding::error(check, format!("mounts do not work: /dev/fuse cannot be opened: {reason}"), advice)
}

/// The right to mount: root's own, or that of the helper.
fn mounting(fuse: &Fuse) -> Finding {
    let check = "fuse_mount";
    let capability = "start the container with --cap-add SYS_ADMIN --device /dev/fuse";
    if fuse.is_root {
        return match fuse.has_sys_admin {
            true => Finding::ok(check, "root may mount"),
            false => Finding::error(check, "mounts do not work: root has no CAP_SYS_ADMIN here", capability),
        };
    }
    let failed = |reason: String, advice: &str| Finding::error(check, format!("mounts do not work: {reason}"), advice);
    match &fuse.helper {
        None if !fuse.is_path_searched => Finding::warning(
            check,
            "mounts may not work: fusermount3 is in no directory of PATH that was searched",
            "as root: apt install fuse3",
        ),
        None => failed("fusermount3 is not in PATH".into(), "as root: apt install fuse3"),
        Some((path, false)) => failed(
            format!("{}, the first fusermount3 in PATH, is not a set-user-id program of root", path.display()),
            &format!(
                "as root: apt install --reinstall fuse3; if {} is not a directory of the system, move it to the end of \
                 PATH",
                path.parent().unwrap_or(path).display()
            ),
        ),
        Some(_) if fuse.no_new_privs => failed(
            "fusermount3 gets no rights in this session (no_new_privs)".into(),
            "start the session without it (systemd: NoNewPrivileges=no; a container: without no-new-privileges)",
        ),
        Some(_) if !fuse.has_sys_admin => {
            failed("fusermount3 cannot get CAP_SYS_ADMIN in this session".into(), capability)
        }
        Some((path, true)) => Finding::ok(check, format!("{} mounts for this user", path.display())),
    }
}

fn other_users(fuse: &Fuse) -> Option<Finding> {
    let check = "fuse_allow_other";
    if fuse.is_root {
        return None;
    }
    Some(match fuse.user_allow_other {
        true => Finding::ok(check, "other users may use this user's mounts"),
        false => Finding::hint(
            check,
            "other users cannot use this user's mounts: /etc/fuse.conf has no user_allow_other",
            "to permit it, as root: echo user_allow_other >>/etc/fuse.conf",
        ),
    })
}

fn io_uring(fuse: &Fuse) -> Option<Finding> {
    let check = "fuse_io_uring";
    let disabled = fuse.io_uring_disabled;
    let is_forbidden = disabled >= 2 || (disabled == 1 && !fuse.is_root);
    Some(match fuse.io_uring {
        // The check of the kernel says so.
        IoUringSwitch::Missing if fuse.kernel.is_some_and(|kernel| kernel < KERNEL_IO_URING) => return None,
        IoUringSwitch::Missing => Finding::hint(
            check,
            "small requests of mounts are slower: the kernel does not offer FUSE over io_uring",
            "as root: modprobe fuse; if this remains, only another kernel offers it (CONFIG_FUSE_IO_URING)",
        ),
        IoUringSwitch::Off => Finding::hint(
            check,
            "small requests of mounts are slower: FUSE over io_uring is off in the kernel",
            "as root: echo 'options fuse enable_uring=1' >/etc/modprobe.d/sheen.conf (from the next boot on); echo 1 \
             >/sys/module/fuse/parameters/enable_uring (until then)",
        ),
        IoUringSwitch::On if is_forbidden => Finding::hint(
            check,
            format!("small requests of mounts are slower: kernel.io_uring_disabled={disabled} forbids io_uring"),
            "as root: sysctl kernel.io_uring_disabled=0",
        ),
        IoUringSwitch::On => Finding::ok(check, "requests of mounts come over io_uring"),
    })
}

fn pages(fuse: &Fuse) -> Option<Finding> {
    let check = "fuse_max_pages";
    let (limit, wanted) = (fuse.pages_limit?, fuse.pages_wanted);
    Some(match limit >= wanted {
        true => Finding::ok(check, format!("fs.fuse.max_pages_limit is {limit}")),
        false => Finding::hint(
            check,
            format!("the kernel splits writes of 1 MiB: fs.fuse.max_pages_limit is {limit}"),
            format!("as root, before the mount: sysctl fs.fuse.max_pages_limit={wanted}"),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Severity, *};

    fn ready() -> Fuse {
        Fuse {
            is_root: false,
            kernel: Some((6, 16)),
            device_errno: 0,
            helper: Some(("/usr/bin/fusermount3".into(), true)),
            is_path_searched: true,
            no_new_privs: false,
            has_sys_admin: true,
            user_allow_other: true,
            io_uring: IoUringSwitch::On,
            io_uring_disabled: 0,
            pages_limit: Some(257),
            pages_wanted: 257,
        }
    }

    /// Returns the only finding that is not ok.
    fn only(fuse: &Fuse) -> (&'static str, Severity, String) {
        let found: Vec<Finding> = checks(fuse).into_iter().filter(|f| f.severity != Severity::Ok).collect();
        let [finding] = &found[..] else { panic!("{found:?}") };
        (finding.check, finding.severity, finding.advice.clone().unwrap())
    }

    #[test]
    fn fuse_that_is_ready_has_only_ok_findings() {
        let all = checks(&ready());
        assert!(all.iter().all(|f| f.severity == Severity::Ok && f.advice.is_none()), "{all:?}");
        assert_eq!(all.len(), 6);
        let root = Fuse { is_root: true, helper: None, user_allow_other: false, ..ready() };
        assert_eq!(checks(&root).len(), 5, "root needs neither the helper nor user_allow_other");
    }

    #[test]
    fn old_kernel_is_an_error_and_a_slower_one_a_hint() {
        let old = only(&Fuse { kernel: Some((4, 19)), ..ready() });
        assert_eq!((old.0, old.1), ("kernel", Severity::Error));
        let slow = Fuse { kernel: Some((6, 8)), io_uring: IoUringSwitch::Missing, pages_limit: None, ..ready() };
        assert_eq!((only(&slow).0, only(&slow).1), ("kernel", Severity::Hint), "it says that io_uring is missing");
        assert!(checks(&Fuse { kernel: None, ..ready() }).iter().all(|f| f.check != "kernel"));
    }

    #[test]
    fn device_that_cannot_be_opened_is_an_error() {
        for (errno, advice) in [
            (libc::ENOENT, "modprobe fuse"),
            (libc::ENODEV, "modprobe fuse"),
            (libc::EPERM, "--device /dev/fuse"),
            (libc::EACCES, "chmod 666"),
        ] {
            let (check, severity, said) = only(&Fuse { device_errno: errno, ..ready() });
            assert_eq!((check, severity), ("fuse_device", Severity::Error));
            assert!(said.contains(advice), "{said}");
        }
    }

    #[test]
    fn user_without_a_way_to_mount_gets_an_error() {
        for (fuse, advice) in [
            (Fuse { helper: None, ..ready() }, "apt install fuse3"),
            (Fuse { helper: Some(("/home/a/fusermount3".into(), false)), ..ready() }, "if /home/a is not a directory"),
            (Fuse { no_new_privs: true, ..ready() }, "NoNewPrivileges=no"),
            (Fuse { has_sys_admin: false, ..ready() }, "--cap-add SYS_ADMIN"),
            (Fuse { is_root: true, has_sys_admin: false, ..ready() }, "--cap-add SYS_ADMIN"),
        ] {
            let (check, severity, said) = only(&fuse);
            assert_eq!((check, severity), ("fuse_mount", Severity::Error));
            assert!(said.contains(advice) && !said.contains("chmod"), "{said}");
        }
        let unknown = only(&Fuse { helper: None, is_path_searched: false, ..ready() });
        assert_eq!((unknown.0, unknown.1), ("fuse_mount", Severity::Warning));
    }

    #[test]
    fn settings_that_slow_mounts_down_are_hints_with_a_command() {
        for (fuse, check, advice) in [
            (Fuse { user_allow_other: false, ..ready() }, "fuse_allow_other", "/etc/fuse.conf"),
            (Fuse { io_uring: IoUringSwitch::Off, ..ready() }, "fuse_io_uring", "options fuse enable_uring=1"),
            (Fuse { io_uring: IoUringSwitch::Missing, ..ready() }, "fuse_io_uring", "modprobe fuse"),
            (Fuse { io_uring_disabled: 1, ..ready() }, "fuse_io_uring", "kernel.io_uring_disabled=0"),
            (Fuse { pages_limit: Some(256), ..ready() }, "fuse_max_pages", "fs.fuse.max_pages_limit=257"),
        ] {
            let (found, severity, said) = only(&fuse);
            assert_eq!((found, severity), (check, Severity::Hint));
            assert!(said.contains(advice), "{said}");
        }
        let root = Fuse { is_root: true, io_uring_disabled: 1, ..ready() };
        assert!(checks(&root).iter().all(|f| f.severity == Severity::Ok), "1 permits io_uring to root");
    }
}
