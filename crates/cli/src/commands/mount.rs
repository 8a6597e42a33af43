//! `sheen mount`, also as mount(8)'s helper `mount.fuse.sheen`.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use clap::Parser;

use crate::{
    args::{Cli, Command, MountArgs},
    commands::{finish, up::prepare},
    daemon::{self, Ready},
    error::{Context, Failure, Result},
    host::{self, Host},
};

const SHUTDOWN: Duration = Duration::from_secs(2);
/// Options of mount(8) that mean nothing here or are the way Sheen is anyway; anything else is refused, not ignored.
const HARMLESS: [&str; 18] = [
    "rw", "defaults", "dev", "nodev", "suid", "nosuid", "exec", "noexec", "auto", "noauto", "user", "nouser", "_netdev",
    "nofail", "noatime", "relatime", "flock", "user_xattr",
];

/// Runs the command, given as `words` without the program's name.
pub fn run(args: &MountArgs, words: &[OsString]) -> Result {
    let options = check_options(args)?;
    let mountpoint = args.mountpoint.canonicalize().or_else(|_| std::path::absolute(&args.mountpoint));
    let mountpoint = mountpoint.context(args.mountpoint.display())?;
    if options.foreground.foreground {
        return serve(&options, mountpoint, Ready::from_env());
    }
    prepare(&mountpoint)?;
    daemon::background(words, &log_file())?;
    Ok(())
}

/// `mount.fuse.sheen SOURCE DIR [-sfnv] [-o OPTIONS]`, as mount(8) calls it: the same words without the flags.
pub fn helper(args: Vec<OsString>) -> i32 {
    let flags = ["-s", "-f", "-n", "-v"];
    let words = args.into_iter().skip(1).filter(|a| !flags.iter().any(|f| a == f));
    let line = ["sheen".into(), "mount".into()].into_iter().chain(words).collect::<Vec<OsString>>();
    match Cli::try_parse_from(&line) {
        Ok(Cli { command: Command::Mount(args) }) => finish(run(&args, &line[1..])),
        Ok(_) => 1,
        Err(e) => {
            let _ = e.print();
            e.exit_code()
        }
    }
}

fn check_options(args: &MountArgs) -> Result<MountArgs> {
    let mut options = MountArgs {
        source: args.source.clone(),
        mountpoint: args.mountpoint.clone(),
        mount_options: Vec::new(),
        options: args.options.clone(),
        foreground: crate::args::ForegroundArg { foreground: args.foreground.foreground },
    };
    for word in args.mount_options.iter().filter(|w| !w.is_empty()) {
        match word.split_once('=').unwrap_or((word, "")) {
            ("allow_other", "") => options.options.private = false,
            ("private", "") => options.options.private = true,
            ("fuse_threads", n) => {
                let threads = n.parse().ok().filter(|n| (1..=256).contains(n));
                options.options.fuse_threads =
                    threads.ok_or_else(|| Failure::new(format!("fuse_threads is 1 to 256, not '{n}'")))?;
            }
            (word, _) if HARMLESS.contains(&word) || word.starts_with("x-") => {}
            (word, _) => {
                return Err(Failure::new(format!("mount option '{word}' is not known"))
                    .advise("known are allow_other, private, fuse_threads=N and mount(8)'s own that change nothing here"));
            }
        }
    }
    Ok(options)
}

fn log_file() -> PathBuf {
    let dir = std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty()).map_or_else(std::env::temp_dir, PathBuf::from);
    dir.join(format!("sheen-mount-{}.log", rustix::process::geteuid().as_raw()))
}

fn serve(args: &MountArgs, mountpoint: PathBuf, ready: Ready) -> Result {
    host::log_to_stderr();
    let (runtime, rt) = host::runtime()?;
    let outcome = runtime.block_on(async {
        let host = Host::new(rt).await;
        let mount = match start(args, &mountpoint, &host).await {
            Ok(mount) => Arc::new(mount),
            Err(failure) => {
                ready.failed(&failure);
                return Err(failure);
            }
        };
        ready.ok();
        tokio::select! {
            () = mount.ended() => return Ok(()),
            asked = host::asked_to_end() => asked?,
        }
        if let Err(e) = mount.unmount(true) {
            tracing::debug!("unmount: {e}");
        }
        let _ = host.rt.timeout(SHUTDOWN, mount.ended()).await;
        Ok(())
    });
    runtime.shutdown(SHUTDOWN);
    outcome
}

async fn start(args: &MountArgs, mountpoint: &std::path::Path, host: &Host) -> Result<sheen_mount::Mount> {
    let (mgs, fsname) = host::resolve_source(&host.rt, &args.source).await?;
    host.mount(&mgs, &fsname, mountpoint, &args.source, &args.options).await
}
