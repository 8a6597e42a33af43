//! The jobs for which programs work: `jobid_var` and `jobid_name`, as in Lustre.
//!
//! The job of a process is remembered as long again as it has been known, up to
//! [`REMEMBERED_MAX`]. A shell's child often opens a file before it becomes another program: its
//! job is then soon right.
//!
//! A blocking thread reads the environment, and a request waits for it at most [`READ_LIMIT`]. The
//! kernel lets such a reader wait for the program's memory map. A page fault of the program may
//! hold that map while it waits for this mount, or for another file system that hangs. At most
//! [`READERS_MAX`] threads read, so that other work has threads, too.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use lru::LruCache;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxBuildHasher;
use sheen_rt::{Instant, Rt, proc};
use sheen_wire::JobId;
use tokio::sync::Semaphore;

/// Longest time for which the job of a program is remembered.
const REMEMBERED_MAX: Duration = Duration::from_secs(1);
/// Maximum number of threads of programs that are remembered.
const KNOWN_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Time limit for reading a program's environment.
const READ_LIMIT: Duration = Duration::from_millis(100);
/// Maximum number of environments that are read at a time. A program beyond that has its last known
/// job.
const READERS_MAX: usize = 4;
/// Longest value of a setting, in bytes.
const SETTING_BYTES_MAX: usize = 127;
/// Default of `jobid_name`: program and user.
const PROGRAM_AND_USER: &str = "%e.%u";

/// The program that waits for a request of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Caller {
    /// Thread id; 0: none, or in a foreign PID namespace.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Names the job of each program. All mounts of a process share it.
#[derive(Debug)]
pub struct JobIds {
    /// Whether requests have jobs: a quick test for each request.
    is_on: AtomicBool,
    settings: RwLock<Settings>,
    known: Mutex<LruCache<Caller, Known, FxBuildHasher>>,
    readers: Arc<Semaphore>,
}

/// The job of a program.
#[derive(Clone, Copy, Debug)]
struct Known {
    job: JobId,
    since: Instant,
    /// When the program is looked at again.
    until: Instant,
}

#[derive(Clone, Debug)]
struct Settings {
    source: Source,
    /// With words such as `%e`.
    name: String,
}

/// `jobid_var`
#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    /// `disable`: requests have no job.
    Disabled,
    /// `nodelocal`: `jobid_name`, expanded.
    Name,
    /// `procname_uid`: program and user.
    Program,
    /// A variable of the program's environment.
    Variable(String),
}

impl Default for JobIds {
    fn default() -> JobIds {
        let settings = Settings { source: Source::Disabled, name: PROGRAM_AND_USER.to_owned() };
        let known = LruCache::with_hasher(KNOWN_MAX, FxBuildHasher);
        let readers = Arc::new(Semaphore::new(READERS_MAX));
        JobIds { is_on: AtomicBool::new(false), settings: RwLock::new(settings), known: Mutex::new(known), readers }
    }
}

impl JobIds {
    /// Returns `jobid_var`.
    pub fn var(&self) -> String {
        match &self.settings.read().source {
            Source::Disabled => "disable".to_owned(),
            Source::Name => "nodelocal".to_owned(),
            Source::Program => "procname_uid".to_owned(),
            Source::Variable(name) => name.clone(),
        }
    }

    /// Sets `jobid_var`: `disable`, `nodelocal`, `procname_uid`, or the name of a variable. Returns
    /// whether it is one of them.
    pub fn set_var(&self, value: &str) -> bool {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let source = match value {
            "disable" => Source::Disabled,
            "nodelocal" => Source::Name,
            "procname_uid" => Source::Program,
            // Of Lustre, and not a variable.
            "session" | "" => return false,
            name if name.len() <= SETTING_BYTES_MAX && name.chars().all(is_name) => Source::Variable(name.to_owned()),
            _ => return false,
        };
        self.change(|settings| settings.source = source);
        true
    }

    /// Returns `jobid_name`.
    pub fn name(&self) -> String {
        self.settings.read().name.clone()
    }

    /// Sets `jobid_name`, a text with words such as `%e`. Returns whether it is valid.
    pub fn set_name(&self, value: &str) -> bool {
        let is_valid = !value.is_empty() && value.len() <= SETTING_BYTES_MAX;
        if is_valid {
            self.change(|settings| settings.name = value.to_owned());
        }
        is_valid
    }

    fn change(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings.write();
        change(&mut settings);
        self.is_on.store(settings.source != Source::Disabled, Relaxed);
        // With the lock held: otherwise a reader of the former settings could add to the list.
        self.known.lock().clear();
    }

    /// Returns the job of a program, if it is known without a look at the program.
    pub fn known(&self, rt: &Rt, caller: Caller) -> Option<JobId> {
        if caller.pid == 0 || !self.is_on.load(Relaxed) {
            return Some(JobId::NONE);
        }
        let now = rt.now();
        // Without a change of the order, which would be a write of shared memory for each request.
        // The order is that of the looks.
        self.known.lock().peek(&caller).filter(|known| now < known.until).map(|known| known.job)
    }

    /// Returns the job that a program had when it was last looked at.
    fn last(&self, caller: Caller) -> JobId {
        self.known.lock().peek(&caller).map(|known| known.job).unwrap_or_default()
    }

    /// Returns the job of a program, and remembers it.
    pub async fn find(&self, rt: &Rt, caller: Caller) -> JobId {
        let settings = self.settings.read().clone();
        let variable = match &settings.source {
            Source::Disabled => return JobId::NONE,
            Source::Variable(name) => self.variable(rt, caller.pid, name.clone()).await,
            Source::Name | Source::Program => Looked::At(None),
        };
        let (job, again) = match (variable, self.last(caller)) {
            (Looked::At(variable), _) => (settings.job_of(caller, variable.as_deref()), Again::Soon),
            (Looked::Unavailable, last) if !last.is_none() => (last, Again::Late),
            (Looked::Unavailable, _) => (settings.job_of(caller, None), Again::Late),
        };
        let current = self.settings.read();
        if current.source == settings.source && current.name == settings.name {
            self.remember(caller, job, rt.now(), again);
        }
        job
    }

    fn remember(&self, caller: Caller, job: JobId, now: Instant, again: Again) {
        let mut known = self.known.lock();
        let before = known.peek(&caller).filter(|before| before.job == job);
        let since = before.map_or(now, |before| before.since);
        let rest = match again {
            Again::Soon => now.since(since).min(REMEMBERED_MAX),
            Again::Late => REMEMBERED_MAX,
        };
        known.put(caller, Known { job, since, until: now + rest });
    }

    /// Reads the variable of a program.
    async fn variable(&self, rt: &Rt, pid: u32, name: String) -> Looked {
        let Ok(permit) = self.readers.clone().try_acquire_owned() else { return Looked::Unavailable };
        let read = rt.run_blocking(move || {
            let value = proc::variable_of(pid, &name);
            drop(permit);
            value
        });
        match rt.timeout(READ_LIMIT, read).await {
            Ok(Ok(value)) => Looked::At(value),
            // A program of another user, or one that ends.
            Ok(Err(_)) => Looked::At(None),
            Err(_) => Looked::Unavailable,
        }
    }
}

/// Whether a program's environment could be read.
enum Looked {
    /// The value of the variable.
    At(Option<Vec<u8>>),
    /// It is not known now.
    Unavailable,
}

/// When a program is looked at again.
#[derive(Clone, Copy)]
enum Again {
    /// When it has been known as long again.
    Soon,
    /// After [`REMEMBERED_MAX`].
    Late,
}

impl Settings {
    /// `variable`: the value of the variable in the program's environment.
    fn job_of(&self, caller: Caller, variable: Option<&[u8]>) -> JobId {
        let has_variable = matches!(self.source, Source::Variable(_));
        if self.source == Source::Name || has_variable && self.name.contains("%j") {
            return JobId::new(&expand(&self.name, caller, variable));
        }
        match variable {
            Some(value) if !value.is_empty() => JobId::new(value),
            _ => JobId::new(&expand(PROGRAM_AND_USER, caller, None)),
        }
    }
}

/// Replaces the words of `jobid_name`.
fn expand(name: &str, caller: Caller, variable: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'e') => out.extend(proc::name_of(caller.pid).unwrap_or_default()),
            Some(b'g') => out.extend(caller.gid.to_string().into_bytes()),
            Some(b'h') => out.extend(proc::hostname().into_bytes()),
            Some(b'H') => out.extend(proc::hostname().bytes().take_while(|c| *c != b'.')),
            Some(b'j') => out.extend(variable.unwrap_or_default()),
            Some(b'p') => out.extend(caller.pid.to_string().into_bytes()),
            Some(b'u') => out.extend(caller.uid.to_string().into_bytes()),
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    fn caller() -> Caller {
        Caller { pid: std::process::id(), uid: 7, gid: 8 }
    }

    fn job(var: &str, name: &str, variable: Option<&str>) -> String {
        let jobs = JobIds::default();
        assert!(jobs.set_var(var) && jobs.set_name(name));
        assert_eq!((jobs.var(), jobs.name()), (var.to_owned(), name.to_owned()));
        let settings = jobs.settings.read().clone();
        settings.job_of(caller(), variable.map(str::as_bytes)).to_string()
    }

    #[test]
    fn job_id_is_made_of_program_variable_and_name() {
        let program = String::from_utf8(proc::name_of(std::process::id()).unwrap()).unwrap();
        let default = JobId::new(format!("{program}.7").as_bytes()).to_string();
        assert_eq!(job("procname_uid", "x", None), default);
        assert_eq!(job("SLURM_JOB_ID", PROGRAM_AND_USER, Some("4711")), "4711");
        assert_eq!(job("SLURM_JOB_ID", "%j:%g", Some("4711")), "4711:8");
        assert_eq!(job("SLURM_JOB_ID", PROGRAM_AND_USER, None), default, "not started by the batch system");
        let pid = std::process::id();
        assert_eq!(job("nodelocal", "a%%b%g.%u.%p%", None), format!("a%b8.7.{pid}"));
        assert_eq!(job("nodelocal", "%h", None), JobId::new(proc::hostname().as_bytes()).to_string());
    }

    #[test]
    fn job_id_settings_are_checked() {
        let jobs = JobIds::default();
        for bad in ["", "session", "A B", "a=b", &"A".repeat(200)] {
            assert!(!jobs.set_var(bad), "{bad}");
        }
        assert!(!jobs.set_name("") && !jobs.set_name(&"a".repeat(200)));
        assert_eq!((jobs.var(), jobs.name()), ("disable".into(), PROGRAM_AND_USER.into()));
    }

    #[test]
    fn job_id_in_use_is_looked_at_again_after_a_second() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        sim.run(async {
            let jobs = JobIds::default();
            assert!(jobs.set_var("nodelocal") && jobs.set_name("a"));
            jobs.find(&rt, caller()).await;
            rt.sleep(Duration::from_secs(100)).await;
            jobs.find(&rt, caller()).await;
            for _ in 0..9 {
                rt.sleep(REMEMBERED_MAX / 10).await;
                assert_eq!(jobs.known(&rt, caller()), Some(JobId::new(b"a")));
            }
            rt.sleep(REMEMBERED_MAX / 10).await;
            assert_eq!(jobs.known(&rt, caller()), None, "the thread id may be that of another program");
        })
        .unwrap();
    }

    #[test]
    fn job_ids_of_the_programs_looked_at_last_are_remembered() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        let of = |pid| Caller { pid, uid: 7, gid: 8 };
        sim.run(async {
            let jobs = JobIds::default();
            assert!(jobs.set_var("nodelocal") && jobs.set_name("a"));
            let all = KNOWN_MAX.get() as u32;
            for pid in 1..=all {
                jobs.find(&rt, of(pid)).await;
            }
            jobs.known(&rt, of(1));
            jobs.find(&rt, of(2)).await;
            for pid in [all + 1, all + 2] {
                jobs.find(&rt, of(pid)).await;
            }
            assert_eq!([1, 2, 3, 4].map(|pid| jobs.last(of(pid)).is_none()), [true, false, true, false]);
        })
        .unwrap();
    }

    #[test]
    fn job_id_is_remembered_as_long_as_it_was_known_and_the_settings_stay() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        sim.run(async {
            let jobs = JobIds::default();
            assert_eq!(jobs.known(&rt, caller()), Some(JobId::NONE), "disabled");
            jobs.set_var("nodelocal");
            jobs.set_name("a");
            assert_eq!(jobs.known(&rt, Caller { pid: 0, ..caller() }), Some(JobId::NONE), "of the kernel");
            assert_eq!(jobs.known(&rt, caller()), None);
            assert_eq!(jobs.find(&rt, caller()).await.as_str(), "a");
            assert_eq!(jobs.known(&rt, caller()), None, "it may be about to become another program");
            rt.sleep(Duration::from_millis(5)).await;
            jobs.find(&rt, caller()).await;
            assert_eq!(jobs.known(&rt, caller()), Some(JobId::new(b"a")));
            rt.sleep(Duration::from_millis(5)).await;
            assert_eq!(jobs.known(&rt, caller()), None);
            rt.sleep(Duration::from_secs(100)).await;
            jobs.find(&rt, caller()).await;
            rt.sleep(REMEMBERED_MAX / 2).await;
            assert_eq!(jobs.known(&rt, caller()), Some(JobId::new(b"a")));
            jobs.set_name("b");
            assert_eq!(jobs.known(&rt, caller()), None);
            assert_eq!(jobs.find(&rt, caller()).await.as_str(), "b");
            assert_eq!(jobs.known(&rt, caller()), None);
        })
        .unwrap();
    }
}
