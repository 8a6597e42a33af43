//! The kernel's switch for FUSE over io_uring, a parameter of the module `fuse`.

use std::io;

use crate::options::IoUring;

/// Parameter that lets new mounts use io_uring. Only root can set it.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Why requests cannot come over io_uring, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoUringError {
    /// The kernel has no such parameter.
    #[error("this kernel has no FUSE over io_uring (Linux 6.14 and later do); mount with io_uring=auto or off")]
    NoKernel,
    /// The parameter is off, and this user cannot set it.
    #[error(
        "it is off in the kernel; ask root to run `echo 1 >/sys/module/fuse/parameters/enable_uring`, or mount with io_uring=auto"
    )]
    NotPermitted,
    /// The parameter is on, but the kernel did not offer io_uring for this mount.
    #[error("the kernel does not offer it for this mount; mount with io_uring=auto or off")]
    NotOffered,
    /// A system call failed.
    #[error("{0}; if a container or kernel.io_uring_disabled forbids it, mount with io_uring=off")]
    Failed(#[source] io::Error),
}

/// State of the kernel's switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoUringSwitch {
    /// The kernel has no FUSE over io_uring.
    Missing,
    /// Mounts cannot use it.
    Off,
    /// New mounts can use it.
    On,
}

impl IoUringSwitch {
    /// Returns the present state.
    pub fn now() -> IoUringSwitch {
        match std::fs::read_to_string(PARAMETER) {
            Err(_) => IoUringSwitch::Missing,
            Ok(text) if text.trim() == "Y" => IoUringSwitch::On,
            Ok(_) => IoUringSwitch::Off,
        }
    }

    /// Makes the kernel offer io_uring to new mounts if `wish` demands it, which takes root.
    /// Returns whether this switched it on.
    pub fn prepare(wish: IoUring) -> Result<bool, IoUringError> {
        if wish != IoUring::On {
            return Ok(false);
        }
        match IoUringSwitch::now() {
            IoUringSwitch::On => Ok(false),
            IoUringSwitch::Missing => Err(IoUringError::NoKernel),
            IoUringSwitch::Off => match std::fs::write(PARAMETER, "1") {
                Ok(()) => Ok(true),
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(IoUringError::NotPermitted),
                Err(e) => Err(IoUringError::Failed(e)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_demand_touches_the_switch() {
        let before = IoUringSwitch::now();
        assert!(!IoUringSwitch::prepare(IoUring::Off).unwrap() && !IoUringSwitch::prepare(IoUring::Auto).unwrap());
        assert_eq!(IoUringSwitch::now() == IoUringSwitch::Missing, before == IoUringSwitch::Missing);
    }

    #[test]
    fn errors_say_what_to_do() {
        let failed = IoUringError::Failed(io::ErrorKind::PermissionDenied.into());
        for (error, advice) in [
            (IoUringError::NoKernel, "Linux 6.14"),
            (IoUringError::NotPermitted, "echo 1 >/sys/module/fuse/parameters/enable_uring"),
            (IoUringError::NotOffered, "io_uring=auto"),
            (failed, "io_uring=off"),
        ] {
            assert!(error.to_string().contains(advice), "{error}");
        }
    }
}
