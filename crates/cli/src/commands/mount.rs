//! `sheen mount`, also as mount(8)'s helper `mount.fuse.sheen`.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use clap::Parser;

use crate::{
    args::{Cli, Command, MountArgs},
    commands::{finish, up::prepare},
    daemon::{self, Ready},
    error::Result,
    host::{self, Host},
    mount_options,
    mount_place::check_no_server,
    paths::{self, private_dir},
};

const SHUTDOWN: Duration = Duration::from_secs(2);
/// Runs the command, given as `words` without the program's name.
pub fn run(args: &MountArgs, words: &[OsString]) -> Result {
    let options = mount_options::parse(&args.options)?;
    let mountpoint = paths::mount_point(&args.mountpoint)?;
    check_no_server(&mountpoint)?;
    if args.foreground.foreground {
        return serve(args, options, mountpoint, Ready::from_env());
    }
    prepare(&mountpoint)?;
    daemon::background(words, &log_file()?)?;
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

/// Where the background process logs: a directory that nobody else can write to.
fn log_file() -> Result<PathBuf> {
    let dir = sheen_params::control::runtime_dir();
    private_dir(&dir)?;
    Ok(dir.join("mount.log"))
}

fn serve(args: &MountArgs, options: sheen_mount::Options, mountpoint: PathBuf, ready: Ready) -> Result {
    host::log_to_stderr();
    let (runtime, rt) = host::runtime()?;
    let outcome = runtime.block_on(async {
        let host = Host::new(rt).await;
        let mount = match start(args, options, &mountpoint, &host).await {
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

async fn start(
    args: &MountArgs,
    options: sheen_mount::Options,
    mountpoint: &std::path::Path,
    host: &Host,
) -> Result<sheen_mount::Mount> {
    let (mgs, fsname) = host::resolve_source(&host.rt, &args.source).await?;
    host.mount(&mgs, &fsname, mountpoint, &args.source, options).await
}
