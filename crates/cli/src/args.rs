//! The command line: arguments, options and their help texts.

use std::{net::SocketAddr, path::PathBuf};

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use sheen_layout::{Asked, Template};
use sheen_oss::DiskSpec;
use sheen_wire::auth::{Flavor, KeyId};

const EXAMPLES: &str = "\
Examples:
  sheen up --mount ~/sheen          start a file system with 4 OSTs and mount it
  lfs setstripe -c 4 ~/sheen/data   stripe new files in this directory over 4 OSTs
  sheen status                      show what is running and how to mount it elsewhere
  sheen mount node1@tcp:/sheen /mnt/sheen
  sheen down                        stop the file system; its data is preserved

`sheen lfs …` and `sheen lctl …` are Lustre's tools; link sheen to those names to call them directly.";

/// A parallel file system in user space that speaks Lustre.
#[derive(Debug, Parser)]
#[command(name = "sheen", version, about = "A parallel file system in user space that speaks Lustre", after_help = EXAMPLES, disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a complete file system (MGS, MDT and OSTs) in one process, and optionally mount it
    #[command(
        after_help = "Run it again with the same --dir to restart the file system with all its data.\n\nExample:\n  sheen up --dir /scratch/fs --mount /mnt/fs --osts 8"
    )]
    Up(UpArgs),
    /// Unmount and stop a file system that `sheen up` started; its data is preserved
    Down(DownArgs),
    /// Show the state of the file system in a directory, and how to mount it
    Status(StatusArgs),
    /// Check the directories of a file system that is stopped, and repair its metadata
    #[command(
        after_help = "Exit codes: 0 no problems, 1 all problems repaired, 4 problems left, 8 the check failed.\n\nExamples:\n  sheen down && sheen fsck\n  sheen fsck --dir /srv/mdt0 --dir /srv/oss1 --repair"
    )]
    Fsck(FsckArgs),
    /// Check this machine for obstacles to speed and safety, and show the command that mends each
    #[command(
        after_help = "Nothing is changed. Exit codes: 0 Sheen works, 1 a part of it does not work on this machine.\n\nExamples:\n  sheen doctor\n  sheen doctor --dir /srv/oss1 --json"
    )]
    Doctor(DoctorArgs),
    /// Run an MGS: the registry that clients and servers contact first
    #[command(after_help = "Example:\n  sheen mgs --dir /srv/mgs --listen 0.0.0.0@tcp")]
    Mgs(MgsArgs),
    /// Run an MDS with one MDT
    #[command(after_help = "Example:\n  sheen mds --mgs node1@tcp --fsname scratch --dir /srv/mdt0")]
    Mds(MdsArgs),
    /// Run an OSS with one or more OSTs; it can join a running file system
    #[command(after_help = "Example:\n  sheen oss --mgs node1@tcp --fsname scratch --dir /srv/oss1 --osts 4")]
    Oss(OssArgs),
    /// Mount a file system: HOST@tcp:/FSNAME DIRECTORY
    #[command(
        after_help = "Examples:\n  sheen mount node1@tcp:/scratch /mnt/scratch\n  sheen mount 127.0.0.1:40001@tcp:/sheen ~/sheen\n  mount -t fuse.sheen node1@tcp:/scratch /mnt/scratch     (where mount.fuse.sheen is installed)\n  sheen mount -o remount,ro node1@tcp:/scratch /mnt/scratch"
    )]
    Mount(MountArgs),
    /// Unmount a file system
    Umount(UmountArgs),
    /// Lustre's lfs: striping, space, FIDs (`sheen lfs --list-commands`)
    #[command(disable_help_flag = true)]
    Lfs {
        /// Arguments of lfs
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Lustre's lctl: devices and parameters (`sheen lctl help`)
    #[command(disable_help_flag = true)]
    Lctl {
        /// Arguments of lctl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Print the metrics of all Sheen processes of this machine, or serve them for Prometheus
    #[command(after_help = "Examples:\n  sheen metrics\n  sheen metrics --listen 127.0.0.1:9117")]
    Metrics(MetricsArgs),
    /// Show which clients and programs wait for locks, slots or servers, who holds what they wait
    /// for, and the rates of targets and jobs; `q` ends it
    #[command(
        after_help = "It shows the servers and mounts of this machine, as lctl does. Without a terminal it prints once, after one interval.\n\nExamples:\n  sheen top\n  sheen top --once --json\n  lctl get_param '*.*.waits'"
    )]
    Top(TopArgs),
    /// Measure a file system: IOR and more (`sheen lab --help`)
    #[command(disable_help_flag = true)]
    Lab {
        /// Arguments of lab
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Show, add, make or withdraw keys: without the key of a file system, nobody can mount it
    #[command(
        after_help = "The first start of `sheen up` or `sheen mgs` makes a key, and copies it to the keys of its user. Other users and hosts need a copy.\n\nExamples:\n  sheen key list\n  ssh node2 sheen key add - < ~/.config/sheen/keys/FILE\n  sheen key new --dir /srv/mgs\n  sheen key revoke 5f0c1d2e3a4b5c6d --dir /srv/mgs"
    )]
    Key(KeyArgs),
    /// Print a completion script for a shell, for example: sheen completions bash >
    /// /etc/bash_completion.d/sheen
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands to a directory, for packages
    #[command(hide = true)]
    Man {
        /// The directory; it is created if it does not exist
        dir: PathBuf,
    },
}

/// The directory of a file system.
#[derive(Debug, Args)]
pub struct DirArg {
    /// The file system's directory [default: ~/.local/share/sheen]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Stay in the foreground.
#[derive(Debug, Args)]
pub struct ForegroundArg {
    /// Stay in the foreground, logging to the terminal
    #[arg(long)]
    pub foreground: bool,
}

/// Options of a mount.
#[derive(Debug, Args, Clone)]
pub struct MountArgsCommon {
    /// Number of threads that serve requests from the kernel
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub fuse_threads: u32,
    /// Allow only the mounting user to use the mount; for ordinary users this is always so unless
    /// /etc/fuse.conf sets user_allow_other
    #[arg(long)]
    pub private: bool,
    /// Options of mount(8) and mount.lustre(8): ro, suid, dev, noexec, noatime, …; unsupported
    /// options are refused
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub mount_options: Vec<String>,
}

/// `sheen up`
#[derive(Debug, Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub dir: DirArg,
    /// Mount the file system here; the directory is created if it does not exist
    #[arg(long, value_name = "M")]
    pub mount: Option<PathBuf>,
    /// Number of OSTs; a larger number than before adds OSTs [default: 4, or the existing number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub osts: Option<u32>,
    /// Name of the file system, at most 8 characters [default: sheen]
    #[arg(long, value_name = "NAME")]
    pub fsname: Option<String>,
    #[command(flatten)]
    pub default_layout: DefaultLayoutArg,
    #[command(flatten)]
    pub ost_model: OstModelArg,
    /// Address and port at which other mounts and servers connect; later starts use them again
    /// [default: 127.0.0.1:7988, or another port if it is in use at the first start]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub listen: Option<String>,
    #[command(flatten)]
    pub auth: AuthArg,
    #[command(flatten)]
    pub audit: AuditArg,
    #[command(flatten)]
    pub metrics: MetricsArg,
    #[command(flatten)]
    pub options: MountArgsCommon,
    #[command(flatten)]
    pub foreground: ForegroundArg,
}

/// The default layout of a new file system.
#[derive(Debug, Args)]
pub struct DefaultLayoutArg {
    /// Default layout of a new file system, for files whose directory has none; `lfs setstripe` on
    /// the mount point changes it later
    #[arg(long, value_enum, value_name = "LAYOUT", default_value_t = DefaultLayout::Progressive)]
    pub default_layout: DefaultLayout,
}

/// A modelled disk below each OST.
#[derive(Debug, Args)]
pub struct OstModelArg {
    /// Make each OST as slow as a disk, for measurements: hdd, flash, or a file of properties such
    /// as write=150 (MiB/s); until this process ends
    #[arg(long, value_name = "MODEL", value_parser = disk_spec)]
    pub ost_model: Option<DiskSpec>,
}

/// Parses a name of a disk, or reads its properties from a file.
fn disk_spec(text: &str) -> std::result::Result<DiskSpec, String> {
    match text {
        "hdd" | "flash" => text.parse(),
        path => std::fs::read_to_string(path)
            .map_err(|e| format!("not hdd or flash, and the file cannot be read: {e}"))?
            .parse(),
    }
}

/// The choices of [`DefaultLayoutArg`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DefaultLayout {
    /// Small files on the MDT, then 1 stripe up to 256 MiB, 4 stripes up to 16 GiB, then one stripe
    /// on each OST
    Progressive,
    /// One stripe
    Plain,
}

impl DefaultLayout {
    /// Returns the layout to set on the root directory.
    pub fn asked(self) -> Asked {
        match self {
            DefaultLayout::Progressive => Asked::Composite(Template::progressive()),
            DefaultLayout::Plain => Asked::default(),
        }
    }
}

/// The clients that a server accepts.
#[derive(Debug, Args, Clone, Copy)]
pub struct AuthArg {
    /// Accept only those who know the file system's key, or with `none` everybody, who can then
    /// read and change all files
    #[arg(long, value_enum, value_name = "WHO", default_value_t = AuthMode::Key)]
    pub auth: AuthMode,
    /// Least protection of connections: null, integrity (changed frames are refused), or privacy
    /// (they are encrypted as well) [default: integrity between hosts, null on one host]
    #[arg(long, value_name = "FLAVOR")]
    pub flavor: Option<Flavor>,
    /// With --auth none: serve other hosts as well, because all users of this network are trusted
    #[arg(long)]
    pub trust_network: bool,
    /// Accept connections on this host that another process passes on, such as a tunnel of ssh
    #[arg(long)]
    pub allow_relays: bool,
    /// Issue keys to users who prove by MUNGE who they are. `hosts`: also to root of each host, who
    /// may then act as any user
    #[arg(long, value_enum, value_name = "WHOM")]
    pub munge: Option<MungeArg>,
}

/// The audit trail of a server.
#[derive(Debug, Args, Clone)]
pub struct AuditArg {
    /// Append refused connections, keys issued by MUNGE and denied operations to this file, a line
    /// of JSON for each
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
}

impl AuditArg {
    /// Returns the absolute path of the file.
    pub fn path(&self) -> Option<PathBuf> {
        self.audit.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()))
    }
}

/// The metrics of a server.
#[derive(Debug, Args, Clone, Copy)]
pub struct MetricsArg {
    /// Serve metrics for Prometheus at this address, such as 127.0.0.1:9117; everybody who reaches
    /// it can read them
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
}

impl MetricsArg {
    /// Returns whether metrics at the address `now` are those that the user asks for. Port 0 is any
    /// port.
    pub fn is_at(self, now: Option<SocketAddr>) -> bool {
        match (self.metrics, now) {
            (Some(wanted), Some(now)) => wanted.ip() == now.ip() && [0, now.port()].contains(&wanted.port()),
            (wanted, now) => wanted == now,
        }
    }
}

/// `sheen metrics`
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// Serve the metrics at this address until SIGTERM or SIGINT, instead of printing them; each
    /// request asks all processes again
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Only those of this file system
    #[arg(long, value_name = "NAME")]
    pub fsname: Option<String>,
}

/// `sheen top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Print once, after one interval
    #[arg(long)]
    pub once: bool,
    /// Print once as JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Seconds between two screens, to which the rates apply
    #[arg(long, value_name = "SECS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// Only those of this file system
    #[arg(long, value_name = "NAME")]
    pub fsname: Option<String>,
}

/// The choices of `--munge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MungeArg {
    /// Users other than root, each for itself
    Users,
    /// Users, and root of each host, which may act as any user
    Hosts,
}

/// The choices of [`AuthArg`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuthMode {
    /// Those who know the file system's key
    Key,
    /// Everybody
    None,
}

/// `sheen key`
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// The command
    #[command(subcommand)]
    pub command: KeyCommand,
}

/// The commands of `sheen key`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// List the keys of this user, and those in /etc/sheen/keys
    List(KeyListArgs),
    /// Copy a key file into this user's directory of keys, with mode 0600
    Add(KeyAddArgs),
    /// Make another key for a file system; its running MGS accepts both from then on
    New(KeyNewArgs),
    /// Issue a key with less authority: of a host, or of one user
    Issue(KeyIssueArgs),
    /// Withdraw a key: remove its files here; running servers of the directory end its connections
    Revoke(KeyRevokeArgs),
}

/// `sheen key new`
#[derive(Debug, Args)]
pub struct KeyNewArgs {
    /// Directory of `sheen mgs` or `sheen up`
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

/// `sheen key issue`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("role").required(true).args(["host", "user"]))]
pub struct KeyIssueArgs {
    /// Directory of `sheen mgs` or `sheen up`
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// A key for mounts of a host: may act as any user, and may not add servers
    #[arg(long)]
    pub host: bool,
    /// A key for mounts of this user, by name or number: may act as this user only
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Nodemap of the clients with this key (`lctl nodemap_add`), whatever their address
    #[arg(long, value_name = "NAME")]
    pub nodemap: Option<String>,
}

/// `sheen key revoke`
#[derive(Debug, Args)]
pub struct KeyRevokeArgs {
    /// The key's id, as `sheen key list` shows it
    #[arg(value_name = "KEY")]
    pub key: KeyId,
    /// Withdraw it for this directory of a server as well
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// `sheen key list`
#[derive(Debug, Args)]
pub struct KeyListArgs {
    /// List the keys that the server of this directory accepts, instead of this user's keys
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// `sheen key add`
#[derive(Debug, Args)]
pub struct KeyAddArgs {
    /// The file, or several behind each other; `-` is standard input
    pub file: PathBuf,
    /// Add it to the keys that the server of this directory accepts, instead of this user's keys
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// `sheen down`
#[derive(Debug, Args)]
pub struct DownArgs {
    #[command(flatten)]
    pub dir: DirArg,
    /// Detach the mount even if programs use it
    #[arg(long)]
    pub force: bool,
}

/// `sheen status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub dir: DirArg,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// `sheen fsck`
#[derive(Debug, Args)]
pub struct FsckArgs {
    /// Directory of `sheen up`, `sheen mds` or `sheen oss`; repeat it to check an MDT together with
    /// its OSTs [default: ~/.local/share/sheen]
    #[arg(long = "dir", value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Repair what was found; without this option nothing is changed
    #[arg(long)]
    pub repair: bool,
    /// As --repair; if the metadata store itself is damaged, copy all that is readable to a new one
    /// first
    #[arg(long)]
    pub salvage: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// `sheen doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Also check this directory of `sheen up`, `sheen mgs`, `sheen mds` or `sheen oss`, which may
    /// not exist yet [default: ~/.local/share/sheen, if it exists]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// List each check that passed
    #[arg(long, short = 'v')]
    pub verbose: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// `sheen mgs`
#[derive(Debug, Args)]
pub struct MgsArgs {
    /// Directory of the MGS, which stores its registry there
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Address to listen on, such as 0.0.0.0@tcp for all addresses; the default port is 7988
    #[arg(long, value_name = "NID", default_value = "127.0.0.1@tcp")]
    pub listen: String,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Options common to `sheen mgs`, `sheen mds` and `sheen oss`.
#[derive(Debug, Args)]
pub struct ServerArgs {
    #[command(flatten)]
    pub auth: AuthArg,
    #[command(flatten)]
    pub audit: AuditArg,
    #[command(flatten)]
    pub metrics: MetricsArg,
    #[command(flatten)]
    pub failover: FailoverArgs,
}

/// Options of a server whose directory other hosts can serve as well.
#[derive(Debug, Args)]
pub struct FailoverArgs {
    /// NID of a server that may serve this directory, on this or another host; give the option once
    /// for each server, or separate the NIDs with commas. Protects the directory from two servers
    /// at a time
    #[arg(long = "servicenode", visible_alias = "failnode", value_name = "NID", value_delimiter = ',')]
    pub servicenodes: Vec<String>,
    /// Ask the server that serves the directory to stop, and take its place
    #[arg(long)]
    pub takeover: bool,
}

/// Options common to `sheen mds` and `sheen oss`.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// The server's directory
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// NID of the MGS, such as node1@tcp; separate several NIDs with commas or colons
    #[arg(long, value_name = "NID")]
    pub mgs: String,
    /// Name of the file system that the server joins
    #[arg(long, value_name = "NAME", default_value = "sheen")]
    pub fsname: String,
    /// Address to listen on; port 0 selects any free port [default: all addresses, or loopback if
    /// the MGS is on loopback; port 7989 for mds, 7990 for oss]
    #[arg(long, value_name = "NID")]
    pub listen: Option<String>,
    /// Address to register with the MGS [default: that of --listen; if that is all addresses, the
    /// one from which this host reaches the MGS]
    #[arg(long, value_name = "NID")]
    pub announce: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `sheen mds`
#[derive(Debug, Args)]
pub struct MdsArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub default_layout: DefaultLayoutArg,
}

/// `sheen oss`
#[derive(Debug, Args)]
pub struct OssArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Number of OSTs in the directory; a larger number than before adds OSTs [default: those of
    /// before, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub osts: Option<u32>,
    #[command(flatten)]
    pub ost_model: OstModelArg,
}

/// `sheen mount`
#[derive(Debug, Args)]
pub struct MountArgs {
    /// HOST@tcp:/FSNAME or HOST:PORT@tcp:/FSNAME; separate several MGS NIDs with commas. FSNAME/DIR
    /// mounts a directory
    pub source: String,
    /// Directory to mount the file system at
    pub mountpoint: PathBuf,
    /// Check everything that this host can check, without contacting a server or mounting
    #[arg(long, short = 'f')]
    pub fake: bool,
    #[command(flatten)]
    pub options: MountArgsCommon,
    #[command(flatten)]
    pub foreground: ForegroundArg,
}

/// `sheen umount`
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The mount point
    pub mountpoint: PathBuf,
    /// Detach the mount even if programs use it
    #[arg(long)]
    pub force: bool,
}
