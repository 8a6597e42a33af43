//! The command line, and with it the help texts.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sheen_layout::{Asked, Template};

const EXAMPLES: &str = "\
Examples:
  sheen up --mount ~/sheen          start a file system with 4 OSTs and mount it
  lfs setstripe -c 4 ~/sheen/data   stripe what is made there over all of them
  sheen status                      what runs, and how others can mount it
  sheen mount node1@tcp:/sheen /mnt/sheen
  sheen down                        stop; all data stays

`sheen lfs …` and `sheen lctl …` are Lustre's tools; link sheen to those names to call them directly.";

/// A parallel file system in user space that speaks Lustre.
#[derive(Debug, Parser)]
#[command(name = "sheen", version, about = "A parallel file system in user space that speaks Lustre", after_help = EXAMPLES, disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a whole file system in one process, and mount it
    #[command(
        after_help = "Again on the same directory, it comes back with all its data.\n\nExample:\n  sheen up --dir /scratch/fs --mount /mnt/fs --osts 8"
    )]
    Up(UpArgs),
    /// Unmount and stop what `sheen up` started; the data stays
    Down(DownArgs),
    /// Show what runs in a directory, and how to mount it
    Status(StatusArgs),
    /// Serve the management service: the registry that clients and servers ask first
    #[command(after_help = "Example:\n  sheen mgs --dir /srv/mgs --listen 0.0.0.0@tcp")]
    Mgs(MgsArgs),
    /// Serve metadata: one MDT
    #[command(after_help = "Example:\n  sheen mds --mgs node1@tcp --fsname scratch --dir /srv/mdt0")]
    Mds(MdsArgs),
    /// Serve objects: one or more OSTs; joins a running file system without a restart of anything
    #[command(after_help = "Example:\n  sheen oss --mgs node1@tcp --fsname scratch --dir /srv/oss1 --osts 4")]
    Oss(OssArgs),
    /// Mount a file system: HOST@tcp:/FSNAME DIRECTORY
    #[command(
        after_help = "Examples:\n  sheen mount node1@tcp:/scratch /mnt/scratch\n  sheen mount 127.0.0.1:40001@tcp:/sheen ~/sheen\n  mount -t fuse.sheen node1@tcp:/scratch /mnt/scratch     (where mount.fuse.sheen is installed)\n  sheen mount -o remount,ro node1@tcp:/scratch /mnt/scratch"
    )]
    Mount(MountArgs),
    /// Unmount
    Umount(UmountArgs),
    /// Lustre's lfs: stripes, space, FIDs (`sheen lfs --list-commands`)
    #[command(disable_help_flag = true)]
    Lfs {
        /// As for lfs.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Lustre's lctl: devices and parameters (`sheen lctl help`)
    #[command(disable_help_flag = true)]
    Lctl {
        /// As for lctl.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Print completions for a shell, such as: sheen completions bash >
    /// /etc/bash_completion.d/sheen
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
}

/// Where the file system lives.
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

/// How a mount behaves.
#[derive(Debug, Args, Clone)]
pub struct MountArgsCommon {
    /// Threads that take requests from the kernel
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub fuse_threads: u32,
    /// Only the user who mounts may use the mount (ordinary users: unless user_allow_other is set,
    /// always so)
    #[arg(long)]
    pub private: bool,
    /// Options as for mount(8) and mount.lustre(8): ro, suid, dev, noexec, noatime, …; what Sheen
    /// cannot do is refused
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub mount_options: Vec<String>,
}

/// `sheen up`
#[derive(Debug, Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub dir: DirArg,
    /// Mount it here (the directory is made if missing)
    #[arg(long, value_name = "M")]
    pub mount: Option<PathBuf>,
    /// Number of OSTs; more than before adds some [default: 4, or as before]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub osts: Option<u32>,
    /// Name of the file system, at most 8 characters [default: sheen]
    #[arg(long, value_name = "NAME")]
    pub fsname: Option<String>,
    #[command(flatten)]
    pub default_layout: DefaultLayoutArg,
    /// Address and port for further mounts and servers [default: 127.0.0.1:7988, or another port if
    /// that is taken]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub listen: Option<String>,
    #[command(flatten)]
    pub options: MountArgsCommon,
    #[command(flatten)]
    pub foreground: ForegroundArg,
}

/// The layout of files where their directories say nothing.
#[derive(Debug, Args)]
pub struct DefaultLayoutArg {
    /// Layout of files in a new file system, where their directory says nothing; later
    /// `lfs setstripe` on the mount point changes it
    #[arg(long, value_enum, value_name = "LAYOUT", default_value_t = DefaultLayout::Progressive)]
    pub default_layout: DefaultLayout,
}

/// See [`DefaultLayoutArg`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DefaultLayout {
    /// Small files on the MDT, then 1 stripe up to 256 MiB, 4 up to 16 GiB, then one on every OST
    Progressive,
    /// One stripe
    Plain,
}

impl DefaultLayout {
    /// What is set on the root directory.
    pub fn asked(self) -> Asked {
        match self {
            DefaultLayout::Progressive => Asked::Composite(Template::progressive()),
            DefaultLayout::Plain => Asked::default(),
        }
    }
}

/// `sheen down`
#[derive(Debug, Args)]
pub struct DownArgs {
    #[command(flatten)]
    pub dir: DirArg,
    /// Detach the mount even while programs use it
    #[arg(long)]
    pub force: bool,
}

/// `sheen status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub dir: DirArg,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// `sheen mgs`
#[derive(Debug, Args)]
pub struct MgsArgs {
    /// Where it keeps its registry
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Address to listen on, such as 0.0.0.0@tcp for all addresses; its port by default is 7988
    #[arg(long, value_name = "NID", default_value = "127.0.0.1@tcp")]
    pub listen: String,
}

/// What `sheen mds` and `sheen oss` have in common.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// The server's directory
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// NID of the MGS, such as node1@tcp
    #[arg(long, value_name = "NID")]
    pub mgs: String,
    /// The file system to belong to
    #[arg(long, value_name = "NAME", default_value = "sheen")]
    pub fsname: String,
    /// Address to listen on; port 0 takes any free one [default: all addresses, or loopback if the
    /// MGS is on loopback; port 7989 of mds, 7990 of oss]
    #[arg(long, value_name = "NID")]
    pub listen: Option<String>,
    /// Address to register [default: --listen's; of all addresses the one from which this host
    /// reaches the MGS]
    #[arg(long, value_name = "NID")]
    pub announce: Option<String>,
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
    /// Number of OSTs in the directory; more than before adds some
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub osts: u32,
}

/// `sheen mount`
#[derive(Debug, Args)]
pub struct MountArgs {
    /// HOST@tcp:/FSNAME, HOST:PORT@tcp:/FSNAME; several MGS are separated by commas
    pub source: String,
    /// Where to mount it
    pub mountpoint: PathBuf,
    /// Check everything on this host, ask no server and mount nothing
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
    /// Where it is mounted
    pub mountpoint: PathBuf,
    /// Detach it even while programs use it
    #[arg(long)]
    pub force: bool,
}
