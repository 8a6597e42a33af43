//! `sheen mount`.

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
    host::{self, Host},
    mount_options::{self, Asked},
    mount_place::check_no_server,
    paths::{self, private_dir},
};

const SHUTDOWN: Duration = Duration::from_secs(2);
/// Before mounting is tried again (`-o retry=N`).
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Runs the command, given as `words` without the program's name.
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
    if args.foreground.foreground {
        return serve(args, &asked, mountpoint, Ready::from_env());
    }
    prepare(&mountpoint)?;
    daemon::background(words, &log_file()?)?;
    Ok(())
}

/// `--fake`: whether mounting could work, as far as this host can tell.
fn check(args: &MountArgs, mountpoint: &Path) -> Result {
    if is_mounted(mountpoint) {
        return Err(Failure::new(format!("something is mounted at {} already", mountpoint.display()))
            .advise("`sheen umount` takes it away"));
    }
    sheen_mount::check(mountpoint, &args.source).context(format!("cannot mount at {}", mountpoint.display()))?;
    let (runtime, rt) = host::runtime()?;
    let found = runtime.block_on(host::resolve_source(&rt, &args.source));
    runtime.shutdown(SHUTDOWN);
    found.map(drop)
}

/// Where the background process logs: a directory that nobody else can write to.
fn log_file() -> Result<PathBuf> {
    let dir = sheen_params::control::runtime_dir();
    private_dir(&dir)?;
    Ok(dir.join("mount.log"))
}

fn serve(args: &MountArgs, asked: &Asked, mountpoint: PathBuf, ready: Ready) -> Result {
    host::log_to_stderr();
    let (runtime, rt) = host::runtime()?;
    let outcome = runtime.block_on(async {
        let host = Host::new(rt).await;
        let mount = match start(args, asked, &mountpoint, &host).await {
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

/// Mounts, as often as it is to be tried.
async fn start(args: &MountArgs, asked: &Asked, mountpoint: &Path, host: &Host) -> Result<sheen_mount::Mount> {
    let mut left = asked.retries;
    loop {
        match start_once(args, asked, mountpoint, host).await {
            Err(failure) if left > 0 => tracing::warn!("{failure}; trying {left} times more"),
            outcome => return outcome,
        }
        left -= 1;
        host.rt.sleep(RETRY_PAUSE).await;
    }
}

async fn start_once(args: &MountArgs, asked: &Asked, mountpoint: &Path, host: &Host) -> Result<sheen_mount::Mount> {
    let (mgs, fsname) = host::resolve_source(&host.rt, &args.source).await?;
    host.mount(&mgs, &fsname, mountpoint, &args.source, asked.options.clone()).await
}
