//! Reads the facts that the checks need. Nothing here changes the machine. Paths that a user
//! chooses are accessed only on mounts that cannot block.

use std::{
    collections::BTreeSet,
    env, fs, iter,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    str::FromStr,
};

use rustix::{
    fs::{Access, StatVfsMountFlags, access, getxattr, statvfs},
    io::Errno,
    process::{Resource, geteuid, getrlimit},
};
use sheen_keys::{KeyError, Listing, list, search_dirs};
use sheen_lnet::DEFAULT_PORT;
use sheen_mount::IoUringSwitch;
use sheen_rt::target_dir::KEYS;

use super::{
    directory::{Directory, Disk},
    fuse::Fuse,
    keys::{Keys, Unusable},
    limits::Limits,
    memory::Memory,
    mounts::{Mounts, Place},
    network::{Network, Port},
    parse,
    processor::Processor,
    tools::{Found, Tools},
};
use crate::{accounts::account, dir_kind::DirKind, paths::Home};

/// Bytes of a page of memory in the kernel's FUSE requests.
const PAGE_BYTES: u32 = 4096;
/// Bit of CAP_SYS_ADMIN in a set of capabilities.
const SYS_ADMIN: u64 = 1 << 21;
/// Set-user-id bit of a mode.
const SET_USER_ID: u32 = 0o4000;
/// Permission bits of all users but the owner.
const OTHERS: u32 = 0o077;
/// Permission bits with which others can write.
const OTHERS_WRITE: u32 = 0o022;
/// Environment variable with the socket of munged, and the usual socket.
const MUNGE_SOCKET_ENV: &str = "SHEEN_MUNGE_SOCKET";
const MUNGE_SOCKET: &str = "/run/munge/munge.socket.2";
/// Extended attribute in which OSTs store checksums.
const CHECKSUMS: &str = "user.sheen.sums";

/// Returns a text of the kernel, or an empty one.
fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns a number of the kernel.
fn number<T: FromStr>(path: &str) -> Option<T> {
    text(path).trim().parse().ok()
}

/// Returns the directories of PATH.
fn path_dirs() -> Vec<PathBuf> {
    env::var_os("PATH").map(|dirs| env::split_paths(&dirs).collect()).unwrap_or_default()
}

/// Returns the directories of PATH to which access may block.
fn unsearched(mounts: &Mounts) -> Vec<PathBuf> {
    path_dirs().into_iter().filter(|dir| mounts.place(dir).may_block()).collect()
}

/// Returns the first file of this name in the other directories of PATH.
fn in_path(mounts: &Mounts, name: &str) -> Option<PathBuf> {
    let mut paths = path_dirs().into_iter().map(|dir| dir.join(name));
    paths.find(|path| !mounts.place(path).may_block() && path.is_file())
}

/// Returns this user's name, or its number if `$USER` is not that name.
fn user() -> String {
    let uid = geteuid().as_raw();
    let name = env::var("USER").ok().filter(|name| account(name).is_some_and(|user| user.uid == uid));
    name.unwrap_or_else(|| uid.to_string())
}

/// Reads the state of FUSE.
pub fn fuse(mounts: &Mounts) -> Fuse {
    let is_root = geteuid().is_root();
    let status = text("/proc/self/status");
    let set = if is_root { "CapEff:" } else { "CapBnd:" };
    let capabilities = parse::field(&status, set).and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let helper = in_path(mounts, "fusermount3").map(|path| {
        let is_set_user_id = fs::metadata(&path).is_ok_and(|file| file.uid() == 0 && file.mode() & SET_USER_ID != 0);
        (path, is_set_user_id)
    });
    Fuse {
        is_root,
        kernel: parse::version(&rustix::system::uname().release().to_string_lossy()),
        device_errno: device.map_or_else(|e| e.raw_os_error().unwrap_or(libc::EIO), |_| 0),
        helper,
        is_path_searched: unsearched(mounts).is_empty(),
        no_new_privs: parse::field(&status, "NoNewPrivs:") == Some("1"),
        has_sys_admin: capabilities.is_none_or(|set| set & SYS_ADMIN != 0),
        user_allow_other: text("/etc/fuse.conf").lines().any(|line| line.trim() == "user_allow_other"),
        io_uring: IoUringSwitch::now(),
        io_uring_disabled: number("/proc/sys/kernel/io_uring_disabled").unwrap_or(0),
        pages_limit: number("/proc/sys/fs/fuse/max_pages_limit"),
        pages_wanted: sheen_mount::Options::default().max_write_bytes / PAGE_BYTES + 1,
    }
}

/// Returns the number of processors that this process may use.
fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// Reads the limits of this process.
pub fn limits() -> Limits {
    Limits {
        is_root: geteuid().is_root(),
        user: user(),
        open_files: getrlimit(Resource::Nofile).maximum,
        threads: getrlimit(Resource::Nproc).current,
        processors: processors(),
    }
}

/// Reads the settings of the network, and who listens on the default port. `pids`: the Sheen
/// processes of this user.
pub fn network(pids: &[u32]) -> Network {
    Network {
        somaxconn: number("/proc/sys/net/core/somaxconn"),
        receive_bytes: parse::three_numbers(&text("/proc/sys/net/ipv4/tcp_rmem")),
        send_bytes: parse::three_numbers(&text("/proc/sys/net/ipv4/tcp_wmem")),
        port: port(pids),
    }
}

fn port(pids: &[u32]) -> Port {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let listening: BTreeSet<u64> = tables.iter().flat_map(|path| parse::listening(&text(path), DEFAULT_PORT)).collect();
    let own: BTreeSet<u64> = pids.iter().flat_map(|pid| sockets_of(*pid)).collect();
    match listening.is_empty() {
        true => Port::Free,
        false if listening.is_subset(&own) => Port::Sheen,
        false => Port::Other,
    }
}

/// Returns the inodes of the sockets of a process.
fn sockets_of(pid: u32) -> Vec<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}

/// Reads the state of the processors.
pub fn processor() -> Processor {
    let policies = fs::read_dir("/sys/devices/system/cpu/cpufreq").into_iter().flatten().flatten();
    let governors = policies.map(|policy| text(policy.path().join("scaling_governor")).trim().to_owned());
    Processor {
        count: processors(),
        governors: governors.filter(|name| !name.is_empty()).collect(),
        steal: parse::steal(&text("/proc/stat")),
        cpu_pressure: parse::some_avg60(&text("/proc/pressure/cpu")),
    }
}

/// Reads the state of memory.
pub fn memory() -> Memory {
    let meminfo = text("/proc/meminfo");
    let kilobytes = parse::field(&meminfo, "MemAvailable:").and_then(|number| number.parse::<u64>().ok());
    Memory { available: kilobytes.and_then(|kilobytes| kilobytes.checked_mul(1024)) }
}

/// Reads the keys of this user, and those in the directory of a server.
pub fn keys(mounts: &Mounts, server_dir: Option<&Path>) -> Keys {
    let mut keys = Keys {
        is_root: geteuid().is_root(),
        user: user(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        is_clock_synchronized: is_clock_synchronized(),
        munge_has_socket: munge_has_socket(mounts),
        ..Keys::default()
    };
    let mut dirs = search_dirs();
    let own = dirs.len();
    dirs.extend(server_dir.into_iter().flat_map(|dir| [dir.join("mgs").join(KEYS), dir.join(KEYS)]));
    for (number, dir) in dirs.into_iter().enumerate() {
        if mounts.place(&dir).may_block() {
            // The checks of the directory of a server tell that it may block.
            keys.unchecked_dirs.extend((number < own).then_some(dir));
            continue;
        }
        let Listing { found, unusable, .. } = list(&dir, None);
        keys.private += found.len();
        if number < own {
            keys.count += found.len();
        }
        keys.unusable.extend(unusable.into_iter().filter_map(reason));
        let mode = fs::metadata(&dir).map_or(0, |dir| dir.permissions().mode());
        if mode & OTHERS_WRITE != 0 {
            keys.writable_dirs.push((dir, mode));
        }
    }
    keys
}

/// Returns why a key file is not usable. `None`: this user may not read it, which is usual for
/// those of other users.
fn reason(error: KeyError) -> Option<Unusable> {
    Some(match error {
        KeyError::Io { error, .. } if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
        KeyError::Exposed { path, mode } => Unusable::Exposed { path, mode },
        KeyError::Foreign { path, owner } => Unusable::Foreign { path, owner },
        other => Unusable::Other(other.to_string()),
    })
}

/// Returns whether MUNGE's daemon has a socket. `None`: MUNGE is not installed, or it is not known.
fn munge_has_socket(mounts: &Mounts) -> Option<bool> {
    in_path(mounts, "munge")?;
    let named = env::var_os(MUNGE_SOCKET_ENV).filter(|path| !path.is_empty()).map(PathBuf::from);
    let socket = named.unwrap_or_else(|| MUNGE_SOCKET.into());
    (!mounts.place(&socket).may_block()).then(|| socket.exists())
}

/// Returns whether the kernel takes the clock for synchronized. `None`: it does not say.
fn is_clock_synchronized() -> Option<bool> {
    // SAFETY: the structure consists of integers, for which zeros are valid values.
    let mut clock: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call. With `modes` 0 the call only reads the state.
    let state = unsafe { libc::adjtimex(&mut clock) };
    (state >= 0).then_some(state != libc::TIME_ERROR && clock.status & libc::STA_UNSYNC == 0)
}

/// Reads the state of a directory of a file system or server. `None`: no directory was named, and
/// the default one does not exist or may block.
pub fn directory(mounts: &Mounts, named: Option<PathBuf>) -> Option<Directory> {
    let is_named = named.is_some();
    let path = named.or_else(|| Some(Home::new(None).ok()?.dir().to_owned()))?;
    let home = mounts.place(&path);
    if !is_named && (home.may_block() || !home.path.exists()) {
        return None;
    }
    let targets = if home.may_block() { Vec::new() } else { target_dirs(mounts, &path) };
    let (mut disks, mut devices) = (Vec::new(), BTreeSet::new());
    for dir in iter::once(&path).chain(&targets) {
        let place = mounts.place(dir);
        if devices.insert(place.mount.map(|mount| &mount.device)) {
            disks.push(disk(mounts, dir, &place));
        }
    }
    let mode = |place: &Place<'_>| Some(fs::metadata(&place.path).ok()?.permissions().mode());
    let places = targets.into_iter().map(|dir| (mounts.place(&dir), dir));
    let modes: Vec<_> = places
        .filter(|(place, _)| !place.may_block())
        .filter_map(|(place, dir)| Some((mode(&place)?, place.path, dir)))
        .collect();
    // Nobody reaches what lies below a closed directory.
    let is_closed = !home.may_block() && mode(&home).is_some_and(|mode| mode & OTHERS == 0);
    let is_open = |mode: u32, path: &Path| mode & OTHERS != 0 && !(is_closed && path.starts_with(&home.path));
    let targets = modes.len();
    let exposed = modes.into_iter().filter(|(mode, at, _)| is_open(*mode, at)).map(|(mode, _, dir)| (dir, mode));
    Some(Directory { disks, targets, exposed: exposed.collect() })
}

/// Reads the state of the file system that a directory is on, which may not exist yet.
fn disk(mounts: &Mounts, path: &Path, place: &Place<'_>) -> Disk {
    let may_block = place.may_block();
    // A directory that this user cannot reach may be on another file system than those above it.
    let is_same = |dir: &&Path| mounts.place(dir).mount == place.mount;
    let there = if may_block { None } else { place.path.ancestors().find(|dir| dir.exists()).filter(is_same) };
    let space = there.and_then(|dir| statvfs(dir).ok());
    let share = |free: u64, all: u64| (all > 0).then(|| free as f64 / all as f64);
    Disk {
        path: path.to_owned(),
        kind: place.mount.map(|mount| mount.kind.clone()),
        may_block,
        is_read_only: space.as_ref().is_some_and(|space| space.f_flag.contains(StatVfsMountFlags::RDONLY)),
        free_space: space.as_ref().and_then(|space| share(space.f_bavail, space.f_blocks)),
        free_inodes: space.as_ref().and_then(|space| share(space.f_favail, space.f_files)),
        has_xattrs: there.and_then(has_xattrs),
    }
}

/// Returns whether files can have extended attributes. `None`: not known.
fn has_xattrs(dir: &Path) -> Option<bool> {
    let mut value = [0_u8; 1];
    match getxattr(dir, CHECKSUMS, &mut value[..]) {
        Ok(_) | Err(Errno::NODATA | Errno::RANGE) => Some(true),
        Err(Errno::OPNOTSUPP) => Some(false),
        Err(_) => None,
    }
}

/// Returns the directories of the targets in a directory of a file system or server.
fn target_dirs(mounts: &Mounts, dir: &Path) -> Vec<PathBuf> {
    // The kind depends on files in it.
    let first_ost = dir.join("0");
    if mounts.place(&first_ost).may_block() {
        return vec![first_ost];
    }
    let is_number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let is_numbered = |name: &str, kind: &str| name.strip_prefix(kind).is_some_and(is_number);
    match DirKind::of(dir) {
        None => Vec::new(),
        Some(DirKind::FileSystem) => {
            children(mounts, dir, |name| name == "mgs" || is_numbered(name, "mdt") || is_numbered(name, "ost"))
        }
        Some(DirKind::Osts) => children(mounts, dir, is_number),
        Some(DirKind::Mgs | DirKind::Mdt | DirKind::Ost) => vec![dir.to_owned()],
    }
}

/// Returns the directories in a directory whose names are accepted, sorted.
fn children(mounts: &Mounts, dir: &Path, accepts: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.filter(|entry| entry.file_name().to_str().is_some_and(&accepts)).map(|entry| entry.path());
    let mut found: Vec<PathBuf> = paths.filter(|path| mounts.place(path).may_block() || path.is_dir()).collect();
    found.sort();
    found
}

/// Reads under which names the program is installed.
pub fn tools(mounts: &Mounts) -> Tools {
    let file = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let this = env::current_exe().ok().filter(|path| !mounts.place(path).may_block()).and_then(|path| file(&path));
    let lustre = ["lfs", "lctl"].map(|name| match in_path(mounts, name) {
        None => Found::Missing,
        Some(path) if this.is_some() && file(&path) != this => Found::Other(path),
        Some(_) => Found::This,
    });
    let has_helper = |name: &str| {
        let mut paths = ["/sbin", "/usr/sbin"].iter().map(|dir| Path::new(dir).join(name));
        paths.any(|path| mounts.place(&path).may_block() || path.exists())
    };
    Tools {
        lustre,
        has_mount_helper: ["mount.sheen", "mount.fuse.sheen"].iter().all(|name| has_helper(name)),
        unsearched: unsearched(mounts),
    }
}

/// Returns whether this user can create files in a directory.
pub fn can_create_in(dir: &Path) -> bool {
    access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}
