//! `-o` of `sheen mount` and `sheen up`: the options of mount(8), of Lustre's mount.lustre(8), and
//! Sheen's own.
//!
//! Sheen implements what it can, and accepts options that change nothing here. It refuses all other
//! options: a user's safety may depend on an option that would be ignored silently.

use std::time::Duration;

use sheen_mount::{IoUring, IoUringSwitch, Locks, MountFlags};
use sheen_wire::auth::Flavor;

use crate::{
    accounts::account,
    args::{AuthMode, MountArgsCommon},
    error::{Failure, Result},
    trust,
};

/// Options without effect: they ask for the default, or concern only mount(8), fstab(5) and
/// systemd.
pub const HARMLESS: &[&str] = &[
    // mount(8)
    "defaults",
    "async",
    "auto",
    "noauto",
    "nofail",
    "nouser",
    "noowner",
    "nogroup",
    "_netdev",
    "_rnetdev",
    "silent",
    "loud",
    "nomand",
    "noiversion",
    "norelatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    // FUSE
    "default_permissions",
    "nonempty",
    // Lustre
    "acl",
    "lazystatfs",
    "always_ping",
    "verbose",
    "noverbose",
    "nouser_fid2path",
    "statfs_project",
    "nostatfs_project",
    "noencrypt",
];
/// Options without effect that have a value.
pub const HARMLESS_WITH_VALUE: &[&str] = &["comment", "helper", "uhelper"];
/// Options that the kernel shows for a mount. mount(8) passes them on in a remount.
const SHOWN_BY_THE_KERNEL: &[&str] = &["user_id", "group_id", "max_read", "blksize"];
/// The one of these options that is always present.
const ALWAYS_SHOWN: &str = "user_id=";
/// Known options that Sheen does not support, and what to use instead.
pub const UNSUPPORTED: &[(&str, &str)] = &[
    ("sync", "open files with O_SYNC, or call fsync"),
    ("dirsync", "call fsync on directories; `sync MOUNTPOINT` makes everything durable"),
    ("strictatime", "access times follow the rules of relatime"),
    ("mand", "Linux no longer has mandatory locks"),
    ("iversion", "`lfs data_version` shows whether a file has changed"),
    ("noacl", "access control lists are always enforced"),
    ("nolazystatfs", "df never waits for a disconnected OST"),
    ("user_fid2path", "only root may look up the paths of a FID"),
    ("checksum", "use `lctl set_param osc.*.checksums=1`"),
    ("nochecksum", "use `lctl set_param osc.*.checksums=0`"),
    ("allow_root", "use allow_other or private"),
    ("bind", "it is valid only with remount; use `mount --bind` to make a bind mount"),
];
/// Environment variable with options for all mounts of a user or host, in front of those of `-o`.
const DEFAULTS: &str = "SHEEN_MOUNT_OPTIONS";
/// Largest number of threads of a mount.
const THREADS_MAX: u32 = 256;
/// Largest number of retries of a mount: a day, with one second between them.
const RETRIES_MAX: u32 = 86_400;

/// Time after which an operation fails with `-o soft`, in seconds: Lustre's obd_timeout.
const SOFT_DEFAULT: u32 = 100;
/// Largest such time: a day.
const SOFT_MAX: u32 = 86_400;

/// The parsed options of `sheen mount`.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// Options of the mount.
    pub options: sheen_mount::Options,
    /// The mount exists, and its flags are to change.
    pub remount: bool,
    /// With `remount`: change only this mount point.
    pub bind: bool,
    /// Number of retries if mounting fails.
    pub retries: u32,
    /// Whether the servers are trusted without a key.
    pub auth: AuthMode,
    /// The least protection of connections.
    pub flavor: Option<Flavor>,
    /// The user as whom servers run that issue keys by MUNGE, if it is neither root nor this user.
    pub munge: Option<u32>,
}

/// Returns the mount options of `sheen up`.
pub fn parse(args: &MountArgsCommon) -> Result<sheen_mount::Options> {
    let asked = asked(args)?;
    if asked.remount {
        return Err(Failure::new(
            "mount option 'remount' is not supported by `sheen up`; use `sheen mount` or mount(8)",
        ));
    }
    // The options of the environment are for mounts of all servers.
    for option in ["auth", "flavor", "munge"] {
        if args.mount_options.iter().any(|word| word.split_once('=').is_some_and(|(name, _)| name == option)) {
            return Err(Failure::new(format!(
                "mount option '{option}' is not supported by `sheen up`; use --{option}"
            )));
        }
    }
    Ok(asked.options)
}

/// Parses the flags and options of `sheen mount`. Set-user-id bits and device files take effect
/// only if asked for, and only for root: each holder of the file system's key can claim to be any
/// user (docs/administration.md, Trust).
pub fn asked(args: &MountArgsCommon) -> Result<MountRequest> {
    let options = sheen_mount::Options {
        threads: args.fuse_threads,
        allow_other: !args.private && may_allow_other(),
        ..sheen_mount::Options::default()
    };
    let remount = args.mount_options.iter().any(|word| word == "remount");
    let mut asked =
        MountRequest { options, remount, bind: false, retries: 0, auth: AuthMode::Key, flavor: None, munge: None };
    if !remount {
        take_defaults(&mut asked, &std::env::var(DEFAULTS).unwrap_or_default())?;
    }
    args.mount_options.iter().filter(|word| !word.is_empty()).try_for_each(|word| take(&mut asked, word))?;
    trust::check_flavor(asked.auth, asked.flavor)?;
    Ok(asked)
}

/// Takes the options of the environment variable [`DEFAULTS`].
fn take_defaults(asked: &mut MountRequest, options: &str) -> Result {
    let mut words = options.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.try_for_each(|word| take(asked, word)).map_err(|e| Failure::new(format!("in ${DEFAULTS}: {e}")))
}

/// Returns the flags of a mount after a remount with these words. A flag that no word names stays
/// as it is.
///
/// mount(8) puts the present options of the mount in front of the new ones, and omits those that
/// are on by default (`suid`, `dev`, `exec`). The words of mount(8) are therefore complete.
pub fn remounted(words: &[String], has: MountFlags) -> MountFlags {
    let is_complete = words.iter().any(|word| word.starts_with(ALWAYS_SHOWN));
    let mut flags = if is_complete { MountFlags { suid: true, dev: true, ..MountFlags::default() } } else { has };
    for word in words {
        take_flag(&mut flags, word);
    }
    flags
}

/// Returns those of the words that are known, for mount(8)'s `-s`.
pub fn known(words: Vec<String>) -> Vec<String> {
    let remount = words.iter().any(|word| word == "remount");
    let options = sheen_mount::Options::default();
    let mut asked =
        MountRequest { options, remount, bind: false, retries: 0, auth: AuthMode::Key, flavor: None, munge: None };
    words.into_iter().filter(|word| take(&mut asked, word).is_ok()).collect()
}

fn take(asked: &mut MountRequest, word: &str) -> Result {
    if take_flag(&mut asked.options.flags, word) {
        return Ok(());
    }
    let options = &mut asked.options;
    match word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value))) {
        ("remount", None) => {}
        ("bind", None) if asked.remount => asked.bind = true,
        ("allow_other", None) => options.allow_other = true,
        ("private", None) => options.allow_other = false,
        ("flock", None) => options.locks = Locks::Shared,
        ("localflock", None) => options.locks = Locks::Local,
        ("noflock", None) => options.locks = Locks::Refused,
        ("user_xattr", None) => options.user_xattrs = true,
        ("nouser_xattr", None) => options.user_xattrs = false,
        ("32bitapi", None) => options.short_inos = true,
        ("rdplus", None) => options.rdplus = true,
        ("nordplus", None) => options.rdplus = false,
        ("fuse_threads", value) => options.threads = number("fuse_threads", value, 1, THREADS_MAX)?,
        ("io_uring", value) => options.io_uring = io_uring(value)?,
        ("hard", None) => options.server_wait = None,
        ("soft", None) => options.server_wait = Some(seconds(SOFT_DEFAULT)),
        ("soft", value) => options.server_wait = Some(seconds(number("soft", value, 1, SOFT_MAX)?)),
        ("retry", value) => asked.retries = number("retry", value, 0, RETRIES_MAX)?,
        ("auth", Some("key")) => asked.auth = AuthMode::Key,
        ("auth", Some("none")) => asked.auth = AuthMode::None,
        ("flavor", Some(flavor)) => {
            let flavor = flavor.parse();
            asked.flavor = Some(flavor.map_err(|e| Failure::new(format!("mount option 'flavor': {e}")))?);
        }
        ("munge", Some(user)) => {
            let found = account(user).map(|user| user.uid).or_else(|| user.parse().ok());
            let found =
                found.ok_or_else(|| Failure::new(format!("mount option 'munge': there is no user '{user}'")))?;
            asked.munge = Some(found);
        }
        ("network", Some("tcp" | "tcp0")) => {}
        (name, None) if HARMLESS.contains(&name) => {}
        (name, Some(_)) if HARMLESS_WITH_VALUE.contains(&name) => {}
        (name, Some(_)) if asked.remount && SHOWN_BY_THE_KERNEL.contains(&name) => {}
        (name, _) if name.starts_with("x-") || name.starts_with("X-") => {}
        (name, value) => return Err(refusal(name, value)),
    }
    Ok(())
}

/// Applies a word that sets one of the kernel's flags. Returns whether it is such a word. Of words
/// that contradict each other the last one wins.
fn take_flag(flags: &mut MountFlags, word: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    match word {
        "ro" => flags.read_only = true,
        "rw" => flags.read_only = false,
        // mount(8) does not pass `suid` and `dev` to its helper: they have other names as well.
        "suid" | "allow_suid" => flags.suid = root,
        "nosuid" => flags.suid = false,
        "dev" | "allow_dev" => flags.dev = root,
        "nodev" => flags.dev = false,
        "exec" => flags.exec = true,
        "noexec" => flags.exec = false,
        "noatime" => flags.noatime = true,
        "atime" | "relatime" => flags.noatime = false,
        "nodiratime" => flags.nodiratime = true,
        "diratime" => flags.nodiratime = false,
        "symfollow" => flags.symfollow = true,
        "nosymfollow" => flags.symfollow = false,
        "owner" | "group" => (flags.suid, flags.dev) = (false, false),
        _ if matches!(word, "user" | "users") || word.starts_with("user=") => {
            (flags.suid, flags.dev, flags.exec) = (false, false, false);
        }
        _ => return false,
    }
    true
}

fn io_uring(value: Option<&str>) -> Result<IoUring> {
    match value {
        Some("off") => Ok(IoUring::Off),
        Some("auto") => Ok(IoUring::Auto),
        Some("on") => Ok(IoUring::On),
        other => Err(Failure::new(format!(
            "invalid value '{}' for mount option 'io_uring': expected auto, on or off",
            other.unwrap_or_default()
        ))),
    }
}

/// Switches FUSE over io_uring on in the kernel if the options demand it, and says so.
///
/// # Errors
/// The kernel does not have it, or this user is not root: the mount would fail.
pub fn switch_io_uring(options: &sheen_mount::Options) -> Result {
    match IoUringSwitch::prepare(options.io_uring) {
        Ok(true) => println!("switched FUSE over io_uring on in the kernel, for all new mounts until the next boot"),
        Ok(false) => {}
        Err(e) => return Err(Failure::new(format!("mount option 'io_uring=on' is not possible: {e}"))),
    }
    Ok(())
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

fn number(name: &str, value: Option<&str>, least: u32, most: u32) -> Result<u32> {
    let value = value.unwrap_or_default();
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| {
        Failure::new(format!("invalid value '{value}' for mount option '{name}': expected {least} to {most}"))
    })
}

fn refusal(name: &str, value: Option<&str>) -> Failure {
    if let (Some((_, instead)), None) = (UNSUPPORTED.iter().find(|(word, _)| *word == name), value) {
        return Failure::new(format!("mount option '{name}' is not supported")).advise(*instead);
    }
    let word = value.map_or(name.to_owned(), |value| format!("{name}={value}"));
    Failure::new(format!("unknown mount option '{word}'")).advise(
        "supported are the options of mount(8) and mount.lustre(8) that docs/administration.md lists, and allow_other, private, allow_suid, allow_dev, nordplus, fuse_threads=N, soft[=SECONDS], io_uring=auto|on|off",
    )
}

/// Returns whether fusermount3 lets this user open a mount to others: root always, others if
/// /etc/fuse.conf contains user_allow_other.
fn may_allow_other() -> bool {
    rustix::process::geteuid().is_root()
        || std::fs::read_to_string("/etc/fuse.conf").is_ok_and(|t| t.lines().any(|l| l.trim() == "user_allow_other"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(options: &str) -> Vec<String> {
        options.split(',').map(str::to_owned).collect()
    }

    fn parsed(options: &str) -> Result<MountRequest> {
        asked(&MountArgsCommon { fuse_threads: 4, private: false, mount_options: words(options) })
    }

    fn flags(options: &str) -> MountFlags {
        parsed(options).unwrap().options.flags
    }

    #[test]
    fn mount_options_set_flags_locks_and_threads() {
        let usual = MountFlags::default();
        let default = parsed("rw,_netdev,x-systemd.automount").unwrap();
        assert_eq!((default.options.flags, default.remount, default.retries), (usual, false, 0));
        let strict = parsed("ro,noexec,nosuid,noatime,nodiratime,private,fuse_threads=9").unwrap().options;
        let wanted = MountFlags { read_only: true, exec: false, noatime: true, nodiratime: true, ..usual };
        assert_eq!((strict.flags, strict.allow_other, strict.threads), (wanted, false, 9));
        let locks = |options| parsed(options).unwrap().options.locks;
        assert_eq!(
            ["", "localflock", "localflock,flock", "noflock"].map(locks),
            [Locks::Shared, Locks::Local, Locks::Shared, Locks::Refused]
        );
        assert!(default.options.rdplus && !parsed("nordplus").unwrap().options.rdplus);
        assert!(default.options.user_xattrs && !parsed("nouser_xattr").unwrap().options.user_xattrs);
        assert!(!default.options.short_inos && parsed("32bitapi").unwrap().options.short_inos);
        let rings = |options| parsed(options).unwrap().options.io_uring;
        assert_eq!(
            ["", "io_uring=on", "io_uring=on,io_uring=auto", "io_uring=off"].map(rings),
            [IoUring::Auto, IoUring::On, IoUring::Auto, IoUring::Off]
        );
        assert_eq!(parsed("retry=3").unwrap().retries, 3);
        let waits = |options| parsed(options).unwrap().options.server_wait.map(|wait| wait.as_secs());
        assert_eq!(["", "soft", "soft=7", "soft,hard"].map(waits), [None, Some(100), Some(7), None]);
        let root = rustix::process::geteuid().is_root();
        for options in ["suid,dev", "allow_suid,allow_dev", "user,suid,dev,exec"] {
            assert_eq!(flags(options), MountFlags { suid: root, dev: root, ..usual }, "{options}");
        }
    }

    #[test]
    fn options_of_the_environment_come_first() {
        let mut asked = parsed("").unwrap();
        take_defaults(&mut asked, " io_uring=off, localflock,").unwrap();
        take(&mut asked, "io_uring=on").unwrap();
        assert_eq!((asked.options.io_uring, asked.options.locks), (IoUring::On, Locks::Local));
        let refused = take_defaults(&mut asked, "bogus").unwrap_err().to_string();
        assert!(refused.starts_with("in $SHEEN_MOUNT_OPTIONS: unknown mount option 'bogus'"), "{refused}");
    }

    #[test]
    fn last_of_contradicting_mount_options_wins() {
        let usual = MountFlags::default();
        for options in
            ["ro,rw", "noexec,exec", "noatime,relatime", "noatime,atime", "suid,dev,owner", "nosymfollow,symfollow"]
        {
            assert_eq!(flags(options), usual, "{options}");
        }
        for options in ["user", "users", "user=joe", "exec,suid,user"] {
            assert_eq!(flags(options), MountFlags { exec: false, ..usual }, "{options}");
        }
        assert_eq!(flags("relatime,noatime"), MountFlags { noatime: true, ..usual });
    }

    #[test]
    fn mount_options_without_effect_are_accepted() {
        let usual = "rw,defaults,async,auto,noauto,nofail,nouser,group,owner,_netdev,relatime,lazytime,silent,comment=why,\
                     x-systemd.requires=/mnt,x-gvfs-show,X-mount.mkdir,uhelper=x,user_xattr,flock,lazystatfs,verbose,always_ping,\
                     default_permissions,network=tcp";
        assert_eq!(flags(usual), MountFlags::default());
        assert!(parse(&MountArgsCommon { fuse_threads: 4, private: false, mount_options: words(usual) }).is_ok());
    }

    #[test]
    fn unsupported_mount_options_are_refused_by_name() {
        let said = |options: &str| parsed(options).unwrap_err().to_string();
        for (options, what) in [
            ("sync", "mount option 'sync' is not supported\n  open files with O_SYNC"),
            ("ro,strictatime", "mount option 'strictatime' is not supported"),
            ("bogus", "unknown mount option 'bogus'"),
            ("ro=1", "unknown mount option 'ro=1'"),
            ("comment", "unknown mount option 'comment'"),
            ("network=o2ib", "unknown mount option 'network=o2ib'"),
            ("user_id=0", "unknown mount option 'user_id=0'"),
            ("fuse_threads=0", "invalid value '0' for mount option 'fuse_threads': expected 1 to 256"),
            ("fuse_threads", "invalid value '' for mount option 'fuse_threads': expected 1 to 256"),
            ("io_uring", "invalid value '' for mount option 'io_uring': expected auto, on or off"),
            ("io_uring=yes", "invalid value 'yes' for mount option 'io_uring': expected auto, on or off"),
            ("soft=0", "invalid value '0' for mount option 'soft': expected 1 to 86400"),
            ("retry=x", "invalid value 'x' for mount option 'retry': expected 0 to 86400"),
            ("bind", "mount option 'bind' is not supported"),
        ] {
            assert!(said(options).starts_with(what), "{options}: {}", said(options));
        }
        let remount = MountArgsCommon { fuse_threads: 4, private: false, mount_options: words("remount,ro") };
        assert!(parse(&remount).is_err(), "`sheen up` makes mounts");
        let both = words("ro,bogus,nosuid,sync,x-a,retry=x");
        assert_eq!(known(both), ["ro", "nosuid", "x-a"], "mount -s goes on without the others");
    }

    #[test]
    fn remounted_flags_change_only_if_a_word_names_them() {
        let has = MountFlags { exec: false, noatime: true, ..MountFlags::default() };
        let remounted = |options: &str| {
            assert!(parsed(options).is_ok_and(|asked| asked.remount), "{options}");
            remounted(&words(options), has)
        };
        assert_eq!(remounted("remount"), has);
        assert_eq!(remounted("ro,remount"), MountFlags { read_only: true, ..has });
        assert_eq!(
            remounted("remount,relatime,exec,nodiratime"),
            MountFlags { nodiratime: true, ..MountFlags::default() }
        );
        // As mount(8) calls its helper: with all options except those that are on by default.
        let all = "rw,nodev,noatime,remount,user_id=0,group_id=0,default_permissions,allow_other,max_read=524288";
        assert_eq!(remounted(all), MountFlags { suid: true, noatime: true, ..MountFlags::default() });
        assert!(parsed("remount,bind,ro").unwrap().bind);
    }
}
