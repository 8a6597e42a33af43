//! `sheen up`: starts a complete file system in one process.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use sheen_lnet::{DEFAULT_PORT, Nid};

use crate::{
    announce,
    args::{AuthArg, AuthMode, UpArgs},
    commands::umount::is_mounted,
    config::{Config, check_fsname},
    daemon::{self, Ready},
    dir_kind::DirKind,
    error::{Context, Failure, Result},
    host::{self, Host, MountAt},
    lost_targets::osts_to_serve,
    mount_options,
    mount_point_check::{check_beside, check_no_server},
    paths::{Home, mount_point, private_dir},
    run_file::{RunLock, Running, State, state},
};

/// OSTs of a new file system.
const OSTS_DEFAULT: u32 = 4;
/// Name of a new file system.
const FSNAME_DEFAULT: &str = "sheen";
/// Time limit for the mount, and then the runtime's threads, to end.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// Runs the command.
pub fn run(args: &UpArgs) -> Result {
    let home = Home::new(args.dir.dir.as_deref())?;
    let mountpoint = args.mount.as_deref().map(mount_point).transpose()?;
    // Report invalid options before anything starts.
    let options = mount_options::parse(&args.options)?;
    DirKind::FileSystem.expect_in(home.dir())?;
    if let Some(at) = &mountpoint {
        check_beside(home.dir(), at)?;
        check_no_server(at)?;
    }
    let plan = plan(args, &home)?;
    if mountpoint.is_some() {
        mount_options::switch_io_uring(&options)?;
    }
    if args.foreground.foreground {
        return serve_or_say_why(args, options, &home, mountpoint, Ready::from_env());
    }
    match state(&home.run())? {
        State::Down => {}
        State::Up(now) => {
            return report_running(&home, &plan, args, &now, mountpoint.as_deref());
        }
        State::Changing => {
            return Err(Failure::new("another process is starting or stopping this file system")
                .advise("try again in a moment; `sheen status` shows the state"));
        }
    }
    std::fs::create_dir_all(home.dir()).context(format!("cannot create {}", home.dir().display()))?;
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    daemon::background(&words, &home.log())?;
    match state(&home.run())? {
        State::Up(now) => {
            report(&now);
            Ok(())
        }
        _ => Err(Failure::new("the file system stopped immediately after its start")
            .advise(format!("see its log: {}", home.log().display()))),
    }
}

/// Reports a file system that is already running. Fails unless its configuration and its mount
/// point are those that the user asks for.
fn report_running(home: &Home, plan: &Config, args: &UpArgs, now: &Running, mountpoint: Option<&Path>) -> Result {
    let dir = home.dir().display();
    let UpArgs { auth, audit, .. } = args;
    if let Some(disk) = args.ost_model.ost_model {
        return Err(Failure::new(format!("{} is already running", now.fsname)).advise(format!(
            "set the disks of its OSTs with `lctl set_param \"obdfilter.{}-OST*.disk_model={disk}\"`",
            now.fsname
        )));
    }
    let other_options = (now.open, now.relays, now.munge, now.flavor, now.audit.clone())
        != (auth.auth == AuthMode::None, auth.allow_relays, auth.munge, auth.flavor, audit.path())
        || !args.metrics.is_at(now.metrics);
    if other_options || Config::load(&home.config())?.as_ref() != Some(plan) {
        return Err(Failure::new(format!("{} is already running with another configuration", now.fsname))
            .advise(format!("run `sheen down --dir {dir}`, then repeat this command")));
    }
    match mountpoint {
        Some(wanted) if now.mounted() != Some(wanted) => {
            let at = now.mounted().map_or("not mounted".into(), |m| format!("mounted at {}", m.display()));
            Err(Failure::new(format!("{} is already running, {at}", now.fsname)).advise(format!(
                "run `sheen mount {} {}` to mount it there as well, or `sheen down --dir {dir}` to stop it",
                now.source(),
                wanted.display(),
            )))
        }
        _ => {
            println!("{} is already running", now.fsname);
            report(now);
            Ok(())
        }
    }
}

fn report(now: &Running) {
    match now.mounted() {
        Some(at) => println!("{} is up, mounted at {}", now.fsname, at.display()),
        None => println!("{} is up", now.fsname),
    }
    println!("  to mount it elsewhere: sheen mount {} DIRECTORY", now.source());
    if let Some(at) = now.metrics {
        println!("  metrics: http://{at}/metrics");
    }
}

/// Returns the configuration to serve: that of the directory, with the changes that the user asks
/// for.
fn plan(args: &UpArgs, home: &Home) -> Result<Config> {
    let listen = args.listen.as_deref().map(|l| host::listen_address(l, DEFAULT_PORT)).transpose()?;
    let Some(mut config) = Config::load(&home.config())? else {
        let fsname = args.fsname.clone().unwrap_or_else(|| FSNAME_DEFAULT.into());
        check_fsname(&fsname)?;
        let default = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT);
        return Ok(Config { fsname, osts: args.osts.unwrap_or(OSTS_DEFAULT), listen: listen.unwrap_or(default) });
    };
    if let Some(name) = args.fsname.as_ref().filter(|n| **n != config.fsname) {
        return Err(Failure::new(format!(
            "{} holds the file system {}, not {name}",
            home.dir().display(),
            config.fsname
        ))
        .advise("omit --fsname, or specify another directory with --dir"));
    }
    if let Some(osts) = args.osts {
        if osts < config.osts {
            return Err(Failure::new(format!("cannot reduce the number of OSTs from {} to {osts}", config.osts))
                .advise("omit --osts, or specify a larger number"));
        }
        config.osts = osts;
    }
    config.listen = listen.unwrap_or(config.listen);
    Ok(config)
}

fn serve_or_say_why(
    args: &UpArgs,
    options: sheen_mount::Options,
    home: &Home,
    mountpoint: Option<PathBuf>,
    ready: Ready,
) -> Result {
    host::log_to_stderr();
    std::fs::create_dir_all(home.dir()).context(format!("cannot create {}", home.dir().display()))?;
    let (runtime, rt) = host::runtime()?;
    let outcome = runtime.block_on(async {
        let host = match Host::of_server(rt, &args.auth, &args.audit).await {
            Ok(host) => host,
            Err(failure) => {
                ready.failed(&failure);
                return Err(failure);
            }
        };
        let started = tokio::select! {
            biased;
            started = start(args, options, home, mountpoint.as_deref(), &host, &ready) => started,
            () = ready.abandoned(&host.rt) => Err(Failure::new("interrupted: its command has ended")),
        };
        let (lock, mount) = match started {
            Ok(started) => started,
            Err(failure) => {
                host.stop().await;
                ready.failed(&failure);
                return Err(failure);
            }
        };
        host.started();
        ready.ok();
        if let Some(mount) = &mount {
            // When a user unmounts it, the services continue: other mounts may use them.
            let _detached = host.rt.spawn("mount", ended(mount.clone()));
        }
        let asked = host.wait_for_shutdown().await;
        tracing::info!("stopping");
        if let Some(mount) = mount {
            if let Err(e) = mount.unmount(true) {
                tracing::debug!("unmount failed: {e}");
            }
            let _ = host.rt.timeout(SHUTDOWN, mount.ended()).await;
        }
        host.stop().await;
        asked.map(|()| lock)
    });
    runtime.shutdown(SHUTDOWN);
    // Released last: `sheen down` waits for the release, and returns when this process is about to
    // exit.
    outcome.map(RunLock::release)
}

async fn ended(mount: std::sync::Arc<sheen_mount::Mount>) {
    mount.ended().await;
    tracing::info!("unmounted");
}

type Started = (RunLock, Option<std::sync::Arc<sheen_mount::Mount>>);

async fn start(
    args: &UpArgs,
    options: sheen_mount::Options,
    home: &Home,
    mountpoint: Option<&Path>,
    host: &Host,
    ready: &Ready,
) -> Result<Started> {
    let mut config = plan(args, home)?;
    let mut lock = RunLock::take(&home.run())?;
    let fresh = !home.config().exists();
    let bound = listen(host, &args.auth, config.listen, fresh && args.listen.is_none()).await?;
    config.listen = bound;
    let metrics = host.serve_metrics(args.metrics).await?;
    let me = host.announced(&announce::plan_alone(&host.rt, bound).await, bound);
    let mgs = [me];
    private_dir(&home.mgs())?;
    host.mgs(&home.mgs()).await?;
    let osts = osts_to_serve(home, config.osts, host.registered_targets(&config.fsname).as_ref())?;
    private_dir(&home.mdt(0))?;
    // Start the MDT last: it then finds every OST in this process and needs no connection.
    for index in osts {
        private_dir(&home.ost(index))?;
        host.ost(&home.ost(index), &config.fsname, Some(index), args.ost_model.ost_model, &mgs, &[me]).await?;
    }
    let layout = args.default_layout.default_layout.asked();
    host.mdt(&home.mdt(0), &config.fsname, layout, &mgs, &[me]).await?;
    host.takes_creates(config.osts).await?;
    config.store(&host.rt.disk(), &home.config())?;
    let source = format!("{me}:/{}", config.fsname);
    let mount = match mountpoint {
        Some(at) => {
            prepare(at)?;
            let options = sheen_mount::Options { local: true, ..options };
            let at = MountAt { source: &source, fsname: &config.fsname, subdir: "", mountpoint: at };
            Some(std::sync::Arc::new(host.mount(&mgs, at, options, ready).await?))
        }
        None => None,
    };
    lock.announce(&Running { metrics, ..describe(&config, args, &me, mountpoint, host) })?;
    Ok((lock, mount))
}

/// Listens at the file system's address. A new file system takes any free port if the default port
/// is in use.
async fn listen(host: &Host, auth: &AuthArg, wanted: SocketAddr, any_port: bool) -> Result<SocketAddr> {
    match host.listen(wanted, auth).await {
        Err(_) if any_port => host.listen(SocketAddr::new(wanted.ip(), 0), auth).await,
        other => other,
    }
}

/// Creates the mount point if it is missing. Removes a dead mount that a killed process left there.
pub fn prepare(mountpoint: &Path) -> Result {
    if is_mounted(mountpoint) {
        let dead = std::fs::metadata(mountpoint)
            .is_err_and(|e| e.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()));
        if !dead {
            return Err(Failure::new(format!("a Sheen file system is already mounted at {}", mountpoint.display()))
                .advise("unmount it first with `sheen umount`, or use another mount point"));
        }
        sheen_mount::unmount(mountpoint, true)
            .context(format!("cannot remove the dead mount at {}", mountpoint.display()))?;
    }
    std::fs::create_dir_all(mountpoint).context(format!("cannot create the mount point {}", mountpoint.display()))
}

fn describe(config: &Config, args: &UpArgs, me: &Nid, mountpoint: Option<&Path>, host: &Host) -> Running {
    let auth = &args.auth;
    Running {
        pid: std::process::id(),
        fsname: config.fsname.clone(),
        mgs: me.to_string(),
        mount: mountpoint.map(Path::to_owned),
        osts: config.osts,
        open: auth.auth == AuthMode::None,
        relays: auth.allow_relays,
        munge: auth.munge,
        audit: args.audit.path(),
        metrics: None,
        flavor: auth.flavor,
        since: u64::try_from(host.rt.wall().sec).unwrap_or_default(),
    }
}
