//! `-o` of `sheen mount` and `sheen up`, in mount(8)'s words.
//!
//! What Sheen has is done, what changes nothing here is taken, anything else is refused: an option that is silently ignored
//! may be one that somebody's safety rests on.

use crate::{
    args::MountArgsCommon,
    error::{Failure, Result},
};

/// Words that describe what is so anyway, or that only mount(8) and fstab(5) care about.
const HARMLESS: [&str; 12] = [
    "rw",
    "defaults",
    "auto",
    "noauto",
    "user",
    "users",
    "nouser",
    "_netdev",
    "nofail",
    "relatime",
    "user_xattr",
    "async",
];
/// Most threads of a mount.
const THREADS_MAX: u32 = 256;

/// How to mount, from the flags and the options. Set-user-id bits and device files count only where they are asked for, and
/// only for root: whoever reaches a server's port may say that he is anybody (docs/operations.md, Trust).
pub fn parse(args: &MountArgsCommon) -> Result<sheen_mount::Options> {
    let root = rustix::process::geteuid().is_root();
    let mut options = sheen_mount::Options {
        threads: args.fuse_threads,
        allow_other: !args.private && may_allow_other(),
        ..sheen_mount::Options::default()
    };
    for word in args.mount_options.iter().filter(|w| !w.is_empty()) {
        match word.split_once('=').unwrap_or((word, "")) {
            ("ro", "") => options.read_only = true,
            ("suid", "") => options.suid = root,
            ("nosuid", "") => options.suid = false,
            ("dev", "") => options.dev = root,
            ("nodev", "") => options.dev = false,
            ("exec", "") => options.exec = true,
            ("noexec", "") => options.exec = false,
            ("noatime", "") => options.noatime = true,
            ("allow_other", "") => options.allow_other = true,
            ("private", "") => options.allow_other = false,
            ("flock", "") => options.flock = true,
            ("localflock", "") => options.flock = false,
            ("rdplus", "") => options.rdplus = true,
            ("nordplus", "") => options.rdplus = false,
            ("fuse_threads", n) => {
                let threads = n.parse().ok().filter(|n| (1..=THREADS_MAX).contains(n));
                options.threads =
                    threads.ok_or_else(|| Failure::new(format!("fuse_threads is 1 to {THREADS_MAX}, not '{n}'")))?;
            }
            (word, "") if HARMLESS.contains(&word) => {}
            (word, _) if word.starts_with("x-") => {}
            _ => {
                return Err(Failure::new(format!("mount option '{word}' is not known")).advise(
                    "known are ro, suid, dev, noexec, noatime, localflock, nordplus, allow_other, private, fuse_threads=N and those that change nothing here",
                ));
            }
        }
    }
    Ok(options)
}

/// Whether fusermount3 lets this user open a mount to others: root always, others if /etc/fuse.conf says user_allow_other.
fn may_allow_other() -> bool {
    rustix::process::geteuid().is_root()
        || std::fs::read_to_string("/etc/fuse.conf").is_ok_and(|t| t.lines().any(|l| l.trim() == "user_allow_other"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(options: &str) -> Result<sheen_mount::Options> {
        let words = options.split(',').map(str::to_owned).collect();
        parse(&MountArgsCommon { fuse_threads: 4, private: false, mount_options: words })
    }

    #[test]
    fn what_is_asked_for_is_done_or_refused() {
        let default = parsed("rw,_netdev,x-systemd.automount").unwrap();
        assert!(!default.suid && !default.dev && default.exec && !default.read_only);
        let strict = parsed("ro,noexec,nosuid,noatime,private,fuse_threads=9").unwrap();
        assert!(strict.read_only && !strict.exec && !strict.suid && strict.noatime && !strict.allow_other);
        assert_eq!(strict.threads, 9);
        assert!(default.flock && !parsed("localflock").unwrap().flock && parsed("localflock,flock").unwrap().flock);
        assert!(default.rdplus && !parsed("nordplus").unwrap().rdplus);
        assert_eq!(parsed("suid,dev").unwrap().suid, rustix::process::geteuid().is_root());
        for bad in ["sync", "fuse_threads=0", "fuse_threads=x", "ro=1", "noflock"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
