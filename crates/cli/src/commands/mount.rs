//! `sheen mount`: mounts a file system, served by a background process.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    args::MountArgs,
    commands::{remount, umount::is_mounted, up::prepare},
    daemon::{self, Ready},
    error::{Context, Failure, Result},
    host::{self, Host, MountAt},
    mount_options::{self, MountRequest},
    mount_point_check::check_no_server,
    paths::{self, private_dir},
    trust,
};

const SHUTDOWN: Duration = Duration::from_secs(2);
/// Wait before the next attempt to mount (`-o retry=N`).
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Runs the command. `words`: its arguments without the program's name, for the background process.
pub fn run(args: &MountArgs, words: &[OsString]) -> Result {
    let asked = mount_options::asked(&args.options)?;
    let mountpoint = paths::mount_point(&args.mountpoint)?;
    if asked.remount {
        return remount::run(args, &asked, &mountpoint);
    }
    check_no_server(&mountpoint)?;
    if args.fake {
        return check(args, &mountpoint);
    }
    mount_options::switch_io_uring(&asked.options)?;
    if args.foreground.foreground {
        return serve(args, &asked, mountpoint, Ready::from_env());
    }
    prepare(&mountpoint)?;
    daemon::background(words, &log_file()?)?;
    Ok(())
}

/// `--fake`: checks whether the mount could succeed, as far as this host can tell.
fn check(args: &MountArgs, mountpoint: &Path) -> Result {
    if is_mounted(mountpoint) {
        return Err(Failure::new(format!("a Sheen file system is already mounted at {}", mountpoint.display()))
            .advise("unmount it first with `sheen umount`, or use another mount point"));
    }
    sheen_mount::check(mountpoint, &args.source).context(format!("cannot mount at {}", mountpoint.display()))?;
    let (runtime, rt) = host::runtime()?;
    let found = runtime.block_on(host::resolve_source(&rt, &args.source));
    runtime.shutdown(SHUTDOWN);
    found.map(drop)
}

/// Returns the log file of the background process. No other user can write to its directory.
fn log_file() -> Result<PathBuf> {
    let dir = sheen_control::runtime_dir();
    private_dir(&dir)?;
    Ok(dir.join("mount.log"))
}

fn serve(args: &MountArgs, asked: &MountRequest, mountpoint: PathBuf, ready: Ready) -> Result {
    host::log_to_stderr();
    let (runtime, rt) = host::runtime()?;
    let outcome = runtime.block_on(async {
        let host = Host::new(rt, trust::of_mount(asked.auth, asked.flavor, asked.munge)).await;
        let started = tokio::select! {
            biased;
            started = start(args, asked, &mountpoint, &host, &ready) => started,
            () = ready.abandoned(&host.rt) => Err(Failure::new("interrupted: its command has ended")),
        };
        let mount = match started {
            Ok(mount) => Arc::new(mount),
            Err(failure) => {
                ready.failed(&failure);
                return Err(failure);
            }
        };
        ready.ok();
        tokio::select! {
            () = mount.ended() => return Ok(()),
            asked = host::wait_for_signal() => asked?,
        }
        if let Err(e) = mount.unmount(true) {
            tracing::debug!("unmount failed: {e}");
        }
        let _ = host.rt.timeout(SHUTDOWN, mount.ended()).await;
        Ok(())
    });
    runtime.shutdown(SHUTDOWN);
    outcome
}

/// Mounts, with as many retries as asked for.
async fn start(
    args: &MountArgs,
    asked: &MountRequest,
    mountpoint: &Path,
    host: &Host,
    ready: &Ready,
) -> Result<sheen_mount::Mount> {
    let once = async || {
        let (source, mgs) = host::resolve_source(&host.rt, &args.source).await?;
        let at = MountAt { source: &args.source, fsname: &source.fsname, subdir: &source.subdir, mountpoint };
        host.mount(&mgs, at, asked.options.clone(), ready).await
    };
    let mut left = asked.retries;
    loop {
        match once().await {
            Err(failure) if left > 0 => tracing::warn!("{failure}; retrying, {left} attempts left"),
            outcome => return outcome,
        }
        left -= 1;
        host.rt.sleep(RETRY_PAUSE).await;
    }
}
