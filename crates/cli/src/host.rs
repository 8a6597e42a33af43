//! The services and mounts of a process: any set of them, assembled from the same parts.
//!
//! All services of a process share one listening socket and one set of parameters. They talk to
//! each other over `lo`.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sheen_client::{Client, ClientOptions, MountWait};
use sheen_control::{Control, PublicControl};
use sheen_layout::Asked;
use sheen_lnet::{Audit, Fault, MountSource, Net, Nid, Trust, parse_source};
use sheen_mds::{DATA_DIR, DataService, Mdt, MdtConfig};
use sheen_mgs::Mgs;
use sheen_mount::{JobIds, Mount, ProcGroups};
use sheen_oss::{DataConfig, DiskSpec, OPEN_FILES_MAX, Ost, OstConfig, Sharing};
use sheen_params::{Param, Params, Unit};
use sheen_rpc::{SelftestService, Server, Service};
use sheen_rt::{JoinHandle, RealOptions, Rt, Runtime};
use sheen_wire::{Bulk, Fid, Selftest, ldlm::Cookie, mds::InlineDom, selftest};

use crate::{
    announce::Plan,
    args::{AuditArg, AuthArg, AuthMode},
    audit::AuditFile,
    daemon::Ready,
    error::{Context, Failure, Result},
    log_fields::LogFields,
    trust,
};

mod authentication;
pub mod flavor;
mod follow;
mod job_ids;
mod mdt_registration;
pub mod protection;
mod registration;
mod stored_settings;
mod watched_dirs;

use stored_settings::StoredSettings;
use watched_dirs::WatchedDirs;

/// Least number of runtime threads: enough that a few slow disk writes do not block all other work.
const RUNTIME_THREADS_MIN: usize = 4;

/// Time limit for a start to wait until its OSTs accept new objects. The MDT lets creates wait for
/// them as long.
const OSTS_TIMEOUT: Duration = Duration::from_secs(10);

/// Added to a port in use to suggest another port. The sum is beyond the default ports of all
/// servers.
const OTHER_PORT: u16 = 10;

/// Index of the MDT. There is only one so far.
const MDT_INDEX: u32 = 0;
/// Longest delay that can be set: 10 s, shorter than every timeout.
const DELAY_MAX_US: u64 = 10_000_000;

/// A mount to be made.
#[derive(Clone, Copy, Debug)]
pub struct MountAt<'a> {
    /// As the user gave it.
    pub source: &'a str,
    /// File system in the source.
    pub fsname: &'a str,
    /// Directory in the source; empty: the root.
    pub subdir: &'a str,
    /// Where to mount it.
    pub mountpoint: &'a Path,
}

/// A process's services and mounts.
pub struct Host {
    pub rt: Rt,
    pub net: Arc<Net>,
    pub params: Params,
    server: Arc<Server>,
    /// Share the space of a disk among the targets on it. OSTs and MDTs are counted separately:
    /// `df` adds up only the OSTs, and must include all bytes of a file.
    ost_sharing: Sharing,
    mdt_sharing: Sharing,
    mgs: Mutex<Option<Arc<Mgs>>>,
    mdts: Mutex<Vec<Arc<Mdt>>>,
    osts: Mutex<Vec<Arc<Ost>>>,
    /// The data services of the MDTs.
    data: Mutex<Vec<Arc<Ost>>>,
    /// By file system name: the task that follows its configuration.
    config_tasks: Mutex<BTreeMap<String, JoinHandle<()>>>,
    /// The permanent settings in the directories of its OSTs.
    stored_settings: Arc<StoredSettings>,
    /// The directories of its targets.
    watched_dirs: WatchedDirs,
    audit: Option<Arc<AuditFile>>,
    /// Names the jobs of the programs on its mounts.
    jobs: Arc<JobIds>,
    _control: Option<Control>,
    _public_control: Option<PublicControl>,
}

/// Starts the runtime of a host.
pub fn runtime() -> Result<(Runtime, Rt)> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).max(RUNTIME_THREADS_MIN);
    let options = RealOptions { worker_threads: threads, ..RealOptions::default() };
    let started = Rt::real(options).context("cannot start threads")?;
    raise_open_files();
    Ok(started)
}

/// Raises the soft limit of open files to the hard limit: an OST has many objects open, and the lab
/// a pipe to each task.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// `lnet.delay_us`: delay of each frame that this process sends over tcp, to measure the effect of
/// network latency.
fn register_delay(params: &Params, net: &Arc<Net>) {
    let (get, set) = (net.clone(), net.clone());
    let read = move || get.fault().delay.as_micros() as u64;
    let write = move |us| {
        set.set_fault(Fault { delay: Duration::from_micros(us), ..set.fault() });
        Ok(())
    };
    params.register("lnet.delay_us", Param::u64(0..=DELAY_MAX_US, read, write).unit(Unit::Usecs));
}

/// The data service of an MDT, which the MDT calls directly.
struct LocalDataService(Arc<Ost>);

impl DataService for LocalDataService {
    fn inline_dom(&self, client: &str, object: Fid, cookie: Cookie) -> Option<(InlineDom, Bulk)> {
        self.0.inline_dom(client, object, cookie)
    }
}

impl Host {
    /// Creates a process that hosts nothing yet, as a server with these options. `lctl` can reach
    /// its parameters at once.
    ///
    /// # Errors
    /// The audit trail cannot be opened.
    pub async fn of_server(rt: Rt, auth: &AuthArg, audit: &AuditArg) -> Result<Host> {
        let audit = audit.path().map(|path| AuditFile::open(&rt, &path)).transpose()?;
        Ok(Host::with_audit(rt, trust::of_server(auth), audit).await)
    }

    /// Creates a process that hosts nothing yet. `lctl` can reach its parameters at once.
    pub async fn new(rt: Rt, trust: Trust) -> Host {
        Host::with_audit(rt, trust, None).await
    }

    async fn with_audit(rt: Rt, trust: Trust, audit: Option<Arc<AuditFile>>) -> Host {
        let net = Net::audited(rt.clone(), trust, audit.clone().map(|audit| -> Arc<dyn Audit> { audit }));
        let params = Params::new();
        register_delay(&params, &net);
        let jobs = Arc::new(JobIds::default());
        job_ids::register(&params, &jobs);
        let control = match Control::serve(&params) {
            Ok(control) => Some(control),
            Err(e) => {
                tracing::warn!("lctl cannot reach this process, because it has no control socket: {e}");
                None
            }
        };
        let public_control = PublicControl::serve(&params).unwrap_or_else(|e| {
            tracing::warn!("other users cannot read parameters of this process, because it has no public socket: {e}");
            None
        });
        let server = Server::new(net.clone());
        server.add::<Selftest>(selftest::TARGET, SelftestService::new(&net));
        Host {
            server,
            rt,
            net,
            params,
            ost_sharing: Sharing::new(),
            mdt_sharing: Sharing::new(),
            mgs: Mutex::default(),
            mdts: Mutex::default(),
            osts: Mutex::default(),
            data: Mutex::default(),
            config_tasks: Mutex::default(),
            stored_settings: Arc::default(),
            watched_dirs: WatchedDirs::default(),
            audit,
            jobs,
            _control: control,
            _public_control: public_control,
        }
    }

    /// Records that all services of this process have started.
    pub fn started(&self) {
        self.server.set_complete(true);
    }

    /// Waits for SIGTERM or SIGINT, upon which this process is to end.
    ///
    /// # Errors
    /// The directory of a target was removed.
    pub async fn wait_for_shutdown(&self) -> Result {
        let path = tokio::select! {
            asked = wait_for_signal() => return asked,
            path = self.watched_dirs.removed(&self.rt) => path,
            never = self.watch_keys() => match never {},
        };
        let what = format!("{} was removed while it was served", path.display());
        tracing::error!("{what}: unmounting and stopping this process; restore the directory before the next start");
        Err(Failure::new(what))
    }

    /// Listens at an address as a server with these options. Returns the address with its port.
    pub async fn listen(&self, addr: SocketAddr, auth: &AuthArg) -> Result<SocketAddr> {
        trust::check(auth, addr)?;
        let bound = self.server.listen(addr).await.map_err(|e| {
            let failure = Failure::new(format!("cannot listen on {addr}: {e}"));
            match e.kind() {
                std::io::ErrorKind::AddrInUse => failure.advise(format!(
                    "another process uses port {port} (`ss -tlnp sport = :{port}` shows it); choose another port, such as \
                     --listen {}@tcp, or port 0 for any free port",
                    SocketAddr::new(addr.ip(), addr.port().saturating_add(OTHER_PORT)),
                    port = addr.port(),
                )),
                std::io::ErrorKind::PermissionDenied => {
                    failure.advise("ports below 1024 are reserved for root; use --listen to specify another port")
                }
                _ => failure,
            }
        })?;
        if auth.auth == AuthMode::None {
            tracing::warn!("without authentication: everybody who reaches {bound} can read and change all files");
        }
        if !bound.ip().is_unspecified() {
            self.params.add_nid(Nid::Tcp(bound).to_string());
        }
        Ok(bound)
    }

    /// Records that the process, which listens at `bound`, can be reached as planned. Returns its
    /// NID.
    pub fn announced(&self, plan: &Plan, bound: SocketAddr) -> Nid {
        let nid = plan.nid(bound);
        // Requests to this address then go directly to the targets of this process.
        if let Nid::Tcp(addr) = nid {
            self.net.add_address(addr);
        }
        self.params.add_nid(nid.to_string());
        nid
    }

    /// Serves an MGS from a directory.
    pub async fn mgs(&self, dir: &Path) -> Result {
        let mgs = Mgs::start(self.rt.clone(), dir, self.params.clone()).await.context("cannot start the MGS")?;
        // Only now the directory is locked. Until then, clients are asked to try again.
        self.serve_keys(dir)?;
        self.server.add::<sheen_wire::Mgs>(sheen_mgc::MGS_TARGET, mgs.clone());
        *self.mgs.lock() = Some(mgs);
        self.watched_dirs.add(&self.rt, dir)
    }

    /// Serves an MDT and its data service from a directory. In a new MDT, the root of the file
    /// system belongs to the user of this process and has the default layout `root_layout`.
    /// `nids`: those to register.
    pub async fn mdt(&self, dir: &Path, fsname: &str, root_layout: Asked, mgs: &[Nid], nids: &[Nid]) -> Result {
        self.register_flavor(fsname);
        self.follow_config(fsname, mgs);
        let config = MdtConfig {
            sharing: self.mdt_sharing.clone(),
            holds_data: true,
            root_uid: rustix::process::geteuid().as_raw(),
            root_gid: rustix::process::getegid().as_raw(),
            root_layout,
            ..MdtConfig::new(dir, fsname, MDT_INDEX, mgs.to_vec(), nids.iter().map(Nid::to_string).collect())
        };
        let mdt = Mdt::start(self.rt.clone(), self.net.clone(), &self.server, config, self.params.clone())
            .await
            .context(format!("cannot start the MDT in {}", dir.display()))?;
        self.mdts.lock().push(mdt.clone());
        let data = DataConfig {
            dir: dir.join(DATA_DIR),
            fsname: fsname.to_owned(),
            index: MDT_INDEX,
            mdt: mdt.name().to_owned(),
            uuid: mdt.uuid().to_owned(),
            incarnation: mdt.incarnation(),
            sharing: self.ost_sharing.clone(),
            open_files_max: OPEN_FILES_MAX,
        };
        let data = Ost::start_data(&self.net, &self.server, data, self.params.clone())
            .await
            .context(format!("cannot start the data service of the MDT in {}", dir.display()))?;
        mdt.set_data_service(Arc::new(LocalDataService(data.clone())));
        self.data.lock().push(data);
        self.watched_dirs.add(&self.rt, dir)
    }

    /// Returns when the MDTs of this process place new objects on `osts` OSTs, or after
    /// [`OSTS_TIMEOUT`].
    ///
    /// An OST may need longer because it cleans up after a crash. That only delays the start:
    /// creates wait for that OST, too.
    pub async fn takes_creates(&self, osts: u32) -> Result {
        let mdts = self.mdts.lock().clone();
        let ready = async {
            for mdt in mdts {
                mdt_registration::registered(
                    &mdt,
                    "check --dir, and restore the directory of the MDT if it was replaced",
                )
                .await?;
                mdt.wait_osts(osts as usize).await;
            }
            Ok(())
        };
        self.rt.timeout(OSTS_TIMEOUT, ready).await.unwrap_or_else(|_| {
            tracing::warn!("not all of the {osts} OSTs accept new objects after {OSTS_TIMEOUT:?}: creates may wait");
            Ok(())
        })
    }

    /// Serves an OST from a directory. Returns its name when it is ready. `nids`: those to
    /// register.
    pub async fn ost(
        &self,
        dir: &Path,
        fsname: &str,
        index: Option<u32>,
        disk: Option<DiskSpec>,
        mgs: &[Nid],
        nids: &[Nid],
    ) -> Result<String> {
        self.register_flavor(fsname);
        self.first_settings(fsname, mgs, dir).await;
        self.follow_config(fsname, mgs);
        let config = OstConfig {
            dir: dir.to_owned(),
            fsname: fsname.to_owned(),
            index,
            mgs: mgs.to_vec(),
            nids: nids.iter().map(Nid::to_string).collect(),
            sharing: self.ost_sharing.clone(),
            open_files_max: OPEN_FILES_MAX,
            disk,
        };
        let ost = Ost::start(self.net.clone(), &self.server, config, self.params.clone())
            .await
            .context(format!("cannot start the OST in {}", dir.display()))?;
        let name = ost.name().to_owned();
        self.osts.lock().push(ost);
        self.stored_settings.add(&self.rt, fsname, dir);
        self.watched_dirs.add(&self.rt, dir)?;
        Ok(name)
    }

    /// Mounts a file system. `ready` gets the waits for servers.
    pub async fn mount(
        &self,
        mgs: &[Nid],
        MountAt { source, fsname, subdir, mountpoint }: MountAt<'_>,
        mut face: sheen_mount::Options,
        ready: &Ready,
    ) -> Result<Mount> {
        self.register_flavor(fsname);
        let ready = ready.clone();
        let client_options = ClientOptions {
            groups: Arc::new(ProcGroups),
            mountpoint: mountpoint.to_string_lossy().into_owned(),
            subdir: subdir.to_owned(),
            server_wait: face.server_wait,
            mgs_failover: parse_source(source).is_ok_and(|source| source.nids.len() > 1),
            report_wait: Arc::new(move |wait: &MountWait| ready.note(wait)),
            ..ClientOptions::default()
        };
        let client =
            Client::mount(self.rt.clone(), self.net.clone(), mgs.to_vec(), fsname, client_options, self.params.clone());
        let failed = || format!("cannot mount {source}");
        let client = tokio::select! {
            client = client => client.context(failed())?,
            refused = self.net.refused(mgs) => return Err(refused).context(failed()),
        };
        if client.is_read_only() && !face.flags.read_only {
            tracing::warn!("{source} is mounted read-only: its servers permit no changes");
            face.flags.read_only = true;
        }
        face.jobs = self.jobs.clone();
        let name = format!("llite.{}-{}.fuse_stats", client.fsname(), client.instance());
        let started = Mount::start(self.rt.clone(), client, mountpoint, source, face);
        let mount = started.context(format!("cannot mount at {}", mountpoint.display()))?;
        // The client unregisters it with the mount's other parameters.
        self.params.register(&name, Param::text(mount.fuse_stats()));
        Ok(mount)
    }

    /// Stops all services in order: each commits and syncs its data.
    pub async fn stop(&self) {
        self.server.set_complete(false);
        std::mem::take(&mut *self.config_tasks.lock()).into_values().for_each(|task| task.abort());
        self.stored_settings.stop(&self.rt);
        let mdts = std::mem::take(&mut *self.mdts.lock());
        for mdt in mdts {
            if let Err(e) = mdt.stop().await {
                tracing::error!("the last commit failed: {e}; uncommitted changes are lost");
            }
        }
        let (data, osts) = (std::mem::take(&mut *self.data.lock()), std::mem::take(&mut *self.osts.lock()));
        for ost in data.into_iter().chain(osts) {
            ost.stop().await;
        }
        let mgs = self.mgs.lock().take();
        if let Some(mgs) = mgs {
            mgs.stop();
            self.server.drain(sheen_mgc::MGS_TARGET).await;
        }
        self.server.shutdown();
        if let Some(audit) = &self.audit {
            audit.flush().await;
        }
    }
}

/// Parses `ADDRESS[:PORT]` or a NID as a listen address.
pub fn listen_address(text: &str, default_port: u16) -> Result<SocketAddr> {
    let bad = || {
        Failure::new(format!("invalid listen address '{text}': expected ADDRESS[:PORT]@tcp"))
            .advise("examples: 127.0.0.1:7988, 0.0.0.0@tcp, 10.0.0.1:40001@tcp")
    };
    let address = text.split_once('@').map_or(text, |(a, _)| a);
    if let Ok(addr) = address.parse::<SocketAddr>() {
        return Ok(addr);
    }
    let ip = address.parse().map_err(|_| bad())?;
    Ok(SocketAddr::new(ip, default_port))
}

/// Parses `HOST@tcp:/FSNAME[/DIRECTORY]` and resolves its hosts. Returns it with the NIDs of the
/// MGS.
pub async fn resolve_source(rt: &Rt, source: &str) -> Result<(MountSource, Vec<Nid>)> {
    let source = parse_source(source).map_err(|e| Failure::new(e.to_string()))?;
    let mut nids = Vec::new();
    for name in &source.nids {
        nids.extend(name.resolve(rt).await.context(format!("cannot resolve {name}"))?);
    }
    Ok((source, nids))
}

/// Waits for SIGTERM or SIGINT.
pub async fn wait_for_signal() -> Result {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

/// Logs to standard error. Lines of an operation end with its id. RUST_LOG sets the filter; the
/// default is `info`.
pub fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    let _ = tracing_subscriber::fmt()
        .fmt_fields(LogFields::default())
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_address_parses_addresses_and_nids() {
        let ok = |t: &str| listen_address(t, 7988).unwrap().to_string();
        assert_eq!(ok("127.0.0.1"), "127.0.0.1:7988");
        assert_eq!(ok("127.0.0.1:0@tcp"), "127.0.0.1:0");
        assert_eq!(ok("0.0.0.0@tcp"), "0.0.0.0:7988");
        assert_eq!(ok("[::1]:99"), "[::1]:99");
        assert!(listen_address("nowhere", 1).is_err());
    }
}
