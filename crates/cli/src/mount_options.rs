//! `-o` of `sheen mount` and `sheen up`: the words of mount(8), of Lustre's mount.lustre(8), and
//! Sheen's own.
//!
//! Sheen does what it can and takes what changes nothing here. It refuses everything else:
//! somebody's safety may rest on an option that is silently ignored.

use sheen_mount::{Locks, MountFlags};

use crate::{
    args::MountArgsCommon,
    error::{Failure, Result},
};

/// Words that say what is so anyway, or that concern mount(8), fstab(5) and systemd alone.
const HARMLESS: &[&str] = &[
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
/// The same with a value.
const HARMLESS_WITH_VALUE: &[&str] = &["comment", "helper", "uhelper"];
/// What the kernel shows of a mount; mount(8) hands it back with a remount.
const SHOWN_BY_THE_KERNEL: &[&str] = &["user_id", "group_id", "max_read", "blksize"];
/// The one of these that is always there.
const ALWAYS_SHOWN: &str = "user_id=";
/// What others know and Sheen cannot do, and what to do in its place.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("sync", "open files with O_SYNC, or call fsync"),
    ("dirsync", "call fsync on directories; `sync MOUNTPOINT` makes everything durable"),
    ("strictatime", "access times follow the rules of relatime"),
    ("mand", "Linux has no mandatory locks any more"),
    ("iversion", "`lfs data_version` tells whether a file has changed"),
    ("noacl", "access control lists are always in force"),
    ("nolazystatfs", "df never waits for an OST that is away"),
    ("user_fid2path", "only root may ask for the paths of a FID"),
    ("checksum", "`lctl set_param osc.*.checksums=1` sets it"),
    ("nochecksum", "`lctl set_param osc.*.checksums=0` sets it"),
    ("allow_root", "take allow_other or private"),
    ("bind", "it goes with remount; `mount --bind` makes a bind mount"),
];
/// Most threads of a mount.
const THREADS_MAX: u32 = 256;
/// Most times that mounting is tried again: with a second between them, a day.
const RETRIES_MAX: u32 = 86_400;

/// What is asked of `sheen mount`.
#[derive(Clone, Debug)]
pub struct Asked {
    /// How to mount.
    pub options: sheen_mount::Options,
    /// The mount is there, and shall have other flags.
    pub remount: bool,
    /// With `remount`: this mount point alone.
    pub bind: bool,
    /// How often mounting is tried again.
    pub retries: u32,
}

/// How `sheen up` is to mount.
pub fn parse(args: &MountArgsCommon) -> Result<sheen_mount::Options> {
    let asked = asked(args)?;
    if asked.remount {
        return Err(Failure::new("mount option 'remount' is for `sheen mount` and mount(8)"));
    }
    Ok(asked.options)
}

/// What the flags and options of `sheen mount` mean. Set-user-id bits and device files count only
/// where they are asked for, and only for root: whoever reaches a server's port may say that he is
/// anybody (docs/operations.md, Trust).
pub fn asked(args: &MountArgsCommon) -> Result<Asked> {
    let options = sheen_mount::Options {
        threads: args.fuse_threads,
        allow_other: !args.private && may_allow_other(),
        ..sheen_mount::Options::default()
    };
    let remount = args.mount_options.iter().any(|word| word == "remount");
    let mut asked = Asked { options, remount, bind: false, retries: 0 };
    args.mount_options.iter().filter(|word| !word.is_empty()).try_for_each(|word| take(&mut asked, word))?;
    Ok(asked)
}

/// The flags that a remount with these words makes of those that a mount has. What is not named
/// stays.
///
/// mount(8) puts the options that the mount has in front of the new ones, and leaves out what is on
/// by itself (`suid`, `dev`, `exec`): its words say everything.
pub fn remounted(words: &[String], has: MountFlags) -> MountFlags {
    let is_complete = words.iter().any(|word| word.starts_with(ALWAYS_SHOWN));
    let mut flags = if is_complete { MountFlags { suid: true, dev: true, ..MountFlags::default() } } else { has };
    for word in words {
        take_flag(&mut flags, word);
    }
    flags
}

/// Those of the words that are known: for mount(8)'s `-s`.
pub fn known(words: Vec<String>) -> Vec<String> {
    let remount = words.iter().any(|word| word == "remount");
    let mut asked = Asked { options: sheen_mount::Options::default(), remount, bind: false, retries: 0 };
    words.into_iter().filter(|word| take(&mut asked, word).is_ok()).collect()
}

fn take(asked: &mut Asked, word: &str) -> Result {
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
        ("retry", value) => asked.retries = number("retry", value, 0, RETRIES_MAX)?,
        ("network", Some("tcp" | "tcp0")) => {}
        (name, None) if HARMLESS.contains(&name) => {}
        (name, Some(_)) if HARMLESS_WITH_VALUE.contains(&name) => {}
        (name, Some(_)) if asked.remount && SHOWN_BY_THE_KERNEL.contains(&name) => {}
        (name, _) if name.starts_with("x-") || name.starts_with("X-") => {}
        (name, value) => return Err(refusal(name, value)),
    }
    Ok(())
}

/// Takes a word that is about the kernel's flags; whether it is one. The last of several counts.
fn take_flag(flags: &mut MountFlags, word: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    match word {
        "ro" => flags.read_only = true,
        "rw" => flags.read_only = false,
        // mount(8) keeps `suid` and `dev` to itself, so they have other names as well.
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

fn number(name: &str, value: Option<&str>, least: u32, most: u32) -> Result<u32> {
    let value = value.unwrap_or_default();
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| Failure::new(format!("mount option '{name}' is {least} to {most}, not '{value}'")))
}

fn refusal(name: &str, value: Option<&str>) -> Failure {
    if let (Some((_, instead)), None) = (UNSUPPORTED.iter().find(|(word, _)| *word == name), value) {
        return Failure::new(format!("mount option '{name}' is not supported")).advise(*instead);
    }
    let word = value.map_or(name.to_owned(), |value| format!("{name}={value}"));
    Failure::new(format!("mount option '{word}' is not known")).advise(
        "known are those of mount(8) and mount.lustre(8) that Sheen can do, and allow_other, private, allow_suid, allow_dev, nordplus, fuse_threads=N",
    )
}

/// Whether fusermount3 lets this user open a mount to others: root always, others if /etc/fuse.conf
/// says user_allow_other.
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

    fn parsed(options: &str) -> Result<Asked> {
        asked(&MountArgsCommon { fuse_threads: 4, private: false, mount_options: words(options) })
    }

    fn flags(options: &str) -> MountFlags {
        parsed(options).unwrap().options.flags
    }

    #[test]
    fn what_is_asked_for_is_done_or_refused() {
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
        assert_eq!(parsed("retry=3").unwrap().retries, 3);
        let root = rustix::process::geteuid().is_root();
        for options in ["suid,dev", "allow_suid,allow_dev", "user,suid,dev,exec"] {
            assert_eq!(flags(options), MountFlags { suid: root, dev: root, ..usual }, "{options}");
        }
    }

    #[test]
    fn the_last_word_counts() {
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
    fn what_changes_nothing_is_taken() {
        let usual = "rw,defaults,async,auto,noauto,nofail,nouser,group,owner,_netdev,relatime,lazytime,silent,comment=why,\
                     x-systemd.requires=/mnt,x-gvfs-show,X-mount.mkdir,uhelper=x,user_xattr,flock,lazystatfs,verbose,always_ping,\
                     default_permissions,network=tcp";
        assert_eq!(flags(usual), MountFlags::default());
        assert!(parse(&MountArgsCommon { fuse_threads: 4, private: false, mount_options: words(usual) }).is_ok());
    }

    #[test]
    fn what_is_refused_is_named() {
        let said = |options: &str| parsed(options).unwrap_err().to_string();
        for (options, what) in [
            ("sync", "mount option 'sync' is not supported\n  open files with O_SYNC"),
            ("ro,strictatime", "mount option 'strictatime' is not supported"),
            ("bogus", "mount option 'bogus' is not known"),
            ("ro=1", "mount option 'ro=1' is not known"),
            ("comment", "mount option 'comment' is not known"),
            ("network=o2ib", "mount option 'network=o2ib' is not known"),
            ("user_id=0", "mount option 'user_id=0' is not known"),
            ("fuse_threads=0", "mount option 'fuse_threads' is 1 to 256, not '0'"),
            ("fuse_threads", "mount option 'fuse_threads' is 1 to 256, not ''"),
            ("retry=x", "mount option 'retry' is 0 to 86400, not 'x'"),
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
    fn a_remount_changes_what_is_named() {
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
        // As mount(8) calls its helper: with everything, but for what is on by itself.
        let all = "rw,nodev,noatime,remount,user_id=0,group_id=0,default_permissions,allow_other,max_read=524288";
        assert_eq!(remounted(all), MountFlags { suid: true, noatime: true, ..MountFlags::default() });
        assert!(parsed("remount,bind,ro").unwrap().bind);
    }
}
