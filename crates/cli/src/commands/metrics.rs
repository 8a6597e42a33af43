//! `sheen metrics`: the metrics of all Sheen processes of this machine that the user can reach,
//! mounts included. Each process answers on its control socket, as for `lctl`. Processes of which
//! the user may only read public parameters answer on their public socket, with the metrics of
//! these.

use std::{collections::BTreeSet, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sheen_control::{
    GREETING_TIMEOUT, NoReply, REPLY_BYTES_MAX, Reply, Request, Silent, ask_within, public_sockets, sockets,
};
use sheen_metrics::Scrape;
use sheen_params::{TypedParam, Value};
use sheen_rt::Rt;
use sheen_wire::Errno;

use crate::{
    args::MetricsArgs,
    error::{Failure, Result},
    host,
    metrics::serve_at,
    print::to_stdout,
    time_limits::scaled,
};

/// Time limit for a process to answer all requests. It is below that of the endpoint for all
/// metrics, so that a process that hangs does not delay the metrics of the others too long.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(3);
/// End of the patterns of job statistics.
const JOB_STATS: &str = ".job_stats";
/// Time limit for the runtime's threads to end.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
/// No process runs here, or the address cannot be used.
pub fn run(args: &MetricsArgs) -> Result {
    match args.listen {
        Some(addr) => serve(addr, args.fsname.clone()),
        None => print(args.fsname.as_deref()),
    }
}

/// Prints the metrics once. Reports the processes that do not answer, and parameters that could not
/// be read.
fn print(fsname: Option<&str>) -> Result {
    let (runtime, rt) = host::runtime()?;
    let answers = runtime.block_on(ask_all(&rt, &Busy::default(), fsname, scaled(PROCESS_TIMEOUT)));
    runtime.shutdown(SHUTDOWN);
    for message in &answers.left_out {
        eprintln!("sheen: {message}");
    }
    if answers.processes == 0 && answers.left_out.is_empty() {
        return Err(Failure::new("no Sheen process that you can reach runs here")
            .advise("start one with `sheen up` or `sheen mount`; root reaches the processes of all users"));
    }
    to_stdout(&answers.text())
}

/// Serves the metrics until SIGTERM or SIGINT.
fn serve(addr: SocketAddr, fsname: Option<String>) -> Result {
    host::log_to_stderr();
    let (runtime, rt) = host::runtime()?;
    let (asker, busy) = (rt.clone(), Busy::default());
    let source = move || {
        let (rt, busy, fsname) = (asker.clone(), busy.clone(), fsname.clone());
        async move { ask_all(&rt, &busy, fsname.as_deref(), PROCESS_TIMEOUT).await.text() }
    };
    let outcome = runtime.block_on(async {
        let serves = async {
            let bound = serve_at(&rt, addr, source).await?;
            println!("metrics at http://{bound}/metrics");
            std::future::pending::<Result>().await
        };
        // Signals come first: once the address is printed, SIGTERM ends the command in order.
        tokio::select! {
            biased;
            asked = host::wait_for_signal() => asked,
            failed = serves => failed,
        }
    });
    runtime.shutdown(SHUTDOWN);
    outcome
}

/// A result, or the reason why a process sent no reply.
type Answer<T> = std::result::Result<T, NoReply>;

/// The parameters of the processes that have answered.
#[derive(Default)]
struct Answers {
    params: Vec<TypedParam>,
    /// Number of processes that have answered.
    processes: u64,
    /// Messages about the others, and about parameters that could not be read.
    left_out: Vec<String>,
}

impl Answers {
    fn text(&self) -> String {
        let scrape = Scrape { processes: self.processes, errors: self.left_out.len() as u64 };
        sheen_metrics::text(&self.params, Some(scrape))
    }

    fn add(&mut self, socket: PathBuf, answer: Answer<Found>) {
        match answer {
            Ok(found) => {
                self.processes += 1;
                self.params.extend(found.params);
                self.left_out.extend(found.unreadable.iter().map(|name| {
                    let (socket, max) = (socket.display(), REPLY_BYTES_MAX >> 20);
                    format!("{name} of the process of {socket} is left out: its reply is invalid, or exceeds {max} MiB")
                }));
            }
            Err(NoReply::Silent(waited)) => {
                self.left_out.push(format!("{} and is left out", Silent { socket, waited }));
            }
            Err(NoReply::Failed(e)) if is_absent(&e) => {}
            Err(NoReply::Failed(e)) => {
                self.left_out.push(format!("the process of {} is left out: {e}", socket.display()));
            }
        }
    }
}

/// Whether a process has ended, also in the middle of a request, or belongs to another user.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, PermissionDenied, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | PermissionDenied | UnexpectedEof
    )
}

/// The sockets of processes that have not yet answered. A process whose disk hangs blocks the
/// thread that asks it for longer than the time limit. The next scrape leaves that process out, so
/// it does not block another thread.
#[derive(Clone, Default)]
struct Busy(Arc<Mutex<BTreeSet<PathBuf>>>);

/// Marks a process as busy until this is dropped.
struct Mark {
    busy: Busy,
    socket: PathBuf,
}

impl Busy {
    /// Marks a process. `None`: it is busy already.
    fn mark(&self, socket: PathBuf) -> Option<Mark> {
        let is_free = self.0.lock().insert(socket.clone());
        is_free.then(|| Mark { busy: self.clone(), socket })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.busy.0.lock().remove(&self.socket);
    }
}

/// Asks all processes of this machine at once. Each one has this time to answer.
async fn ask_all(rt: &Rt, busy: &Busy, fsname: Option<&str>, limit: Duration) -> Answers {
    let (mut answers, mut asked) = (Answers::default(), Vec::new());
    let public = rt.run_blocking(public_sockets).await.into_iter().map(|socket| (socket, true));
    let own = rt.run_blocking(sockets).await.into_iter().map(|socket| (socket, false));
    for (socket, is_public) in own.chain(public) {
        let Some(mark) = busy.mark(socket.clone()) else {
            answers.add(socket, Err(NoReply::Silent(limit)));
            continue;
        };
        let (fsname, greeting) = (fsname.map(str::to_owned), scaled(GREETING_TIMEOUT));
        let process = Process { rt: rt.clone(), socket: socket.clone(), is_public, fsname, greeting, limit };
        let timer = rt.clone();
        let task = rt.spawn("ask", async move {
            let asking = timer.run_blocking(move || {
                let answer = process.params();
                drop(mark);
                answer
            });
            timer.timeout(limit, asking).await
        });
        asked.push((socket, task));
    }
    for (socket, task) in asked {
        let answer = match task.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(NoReply::Silent(limit)),
            Err(e) => Err(NoReply::Failed(io::Error::other(e.to_string()))),
        };
        answers.add(socket, answer);
    }
    answers
}

/// A process that is asked.
struct Process {
    rt: Rt,
    socket: PathBuf,
    /// The socket is a public one, which takes one pattern at a time.
    is_public: bool,
    /// Only the parameters of this file system.
    fsname: Option<String>,
    /// Time limit for the greeting of the process.
    greeting: Duration,
    /// Time limit for its replies. A request does not outlast it by more than the greeting.
    limit: Duration,
}

/// The parameters of a process that become metrics.
#[derive(Default)]
struct Found {
    params: Vec<TypedParam>,
    /// Names of those whose reply is too long, or invalid.
    unreadable: Vec<String>,
}

impl Process {
    /// Returns the parameters that become metrics, by one request if they fit in one reply.
    fn params(&self) -> Answer<Found> {
        if self.is_public {
            return self.params_one_by_one();
        }
        let patterns = sheen_metrics::patterns().map(str::to_owned).collect();
        match self.ask(Request::GetTypedAny { patterns }) {
            Ok(Reply::Typed(params)) => {
                Ok(Found { params: params.into_iter().map(without_unused).collect(), ..Found::default() })
            }
            // Nothing matches.
            Ok(Reply::Error { errno }) if errno == Errno::ENOENT.0 => Ok(Found::default()),
            // Too many jobs, an invalid value, or a process of an earlier release.
            Ok(_) => self.params_one_by_one(),
            Err(NoReply::Failed(e)) if e.kind() == io::ErrorKind::InvalidData => self.params_one_by_one(),
            Err(e) => Err(e),
        }
    }

    /// As [`Process::params`], by a request for each pattern. Stops after the time limit, but a
    /// request that is under way may take longer.
    fn params_one_by_one(&self) -> Answer<Found> {
        let (start, mut found) = (self.rt.now(), Found::default());
        for pattern in sheen_metrics::patterns() {
            for name in self.requested(pattern)? {
                if self.rt.now().since(start) > self.limit {
                    return Err(NoReply::Silent(self.limit));
                }
                match self.ask(Request::GetTyped { pattern: name.clone() }) {
                    Ok(Reply::Typed(params)) => found.params.extend(params.into_iter().map(without_unused)),
                    Ok(Reply::Error { errno }) if errno == Errno::EPROTO.0 => {
                        return Err(io::Error::other("it runs an earlier release without typed parameters").into());
                    }
                    Ok(Reply::Error { errno }) if errno == Errno::EMSGSIZE.0 => found.unreadable.push(name),
                    Ok(Reply::Error { errno }) if errno == Errno::EBUSY.0 => {
                        return Err(io::Error::from(Errno::EBUSY).into());
                    }
                    // Nothing matches.
                    Ok(_) => {}
                    Err(NoReply::Failed(e)) if e.kind() == io::ErrorKind::InvalidData => found.unreadable.push(name),
                    Err(e) => return Err(e),
                }
            }
        }
        if found.params.is_empty() && !found.unreadable.is_empty() {
            return Err(io::Error::from(io::ErrorKind::InvalidData).into());
        }
        Ok(found)
    }

    /// Returns what is requested for a pattern. For job statistics these are the names that match,
    /// because those of all targets of a process together may exceed the limit of a reply.
    fn requested(&self, pattern: &str) -> Answer<Vec<String>> {
        let pattern = pattern.to_owned();
        if !pattern.ends_with(JOB_STATS) {
            return Ok(vec![pattern]);
        }
        match self.ask(Request::List { pattern })? {
            Reply::Nodes(nodes) => Ok(nodes.into_iter().map(|node| node.name).collect()),
            Reply::Error { errno } if errno == Errno::EMSGSIZE.0 => {
                Err(io::Error::from(io::ErrorKind::InvalidData).into())
            }
            // Nothing matches.
            _ => Ok(Vec::new()),
        }
    }

    fn ask(&self, request: Request) -> Answer<Reply> {
        let request = match &self.fsname {
            Some(fsname) => Request::Of { fsname: fsname.clone(), request: Box::new(request) },
            None => request,
        };
        ask_within(&self.socket, &request, self.greeting, self.limit)
    }
}

/// Removes the counters of jobs without a sample, which become no metric: there may be thousands of
/// jobs.
fn without_unused(mut param: TypedParam) -> TypedParam {
    if let Value::Jobs(jobs) = &mut param.value {
        jobs.iter_mut().for_each(|job| job.counts.samples.retain(|sample| sample.count > 0));
    }
    param
}

#[cfg(test)]
mod tests {
    use sheen_control::Control;
    use sheen_params::{JobSnapshot, Labels, Param, Params, Sample, Snapshot};

    use super::*;

    #[test]
    fn processes_without_an_answer_are_counted_and_absent_ones_are_not() {
        let mut answers = Answers::default();
        let socket = || PathBuf::from("/run/sheen/17.sock");
        let value = Value::Text("0.1.0".into());
        let version =
            TypedParam { name: "version".into(), labels: Labels::default(), unit: None, writable: false, value };
        let unreadable = vec!["mdt.a-MDT0000.job_stats".to_owned()];
        answers.add(socket(), Ok(Found { params: vec![version], unreadable }));
        answers.add(socket(), Err(NoReply::Silent(Duration::from_millis(300))));
        for absent in [io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof] {
            answers.add(socket(), Err(io::Error::from(absent).into()));
        }
        answers.add(socket(), Err(io::Error::from(io::ErrorKind::InvalidData).into()));
        let text = answers.text();
        for line in ["sheen_build_info{version=\"0.1.0\"} 1", "sheen_scrape_processes 1", "sheen_scrape_errors 3"] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let messages = &answers.left_out;
        assert!(messages[0].starts_with("mdt.a-MDT0000.job_stats of the process of /run/sheen/17.sock is left out"));
        assert_eq!(messages[1], "process 17 does not answer within 300 ms and is left out");
    }

    #[test]
    fn busy_process_is_not_asked_again() {
        let (busy, socket) = (Busy::default(), || PathBuf::from("/run/sheen/17.sock"));
        let mark = busy.mark(socket()).unwrap();
        assert!(busy.mark(socket()).is_none());
        assert!(busy.mark("/run/sheen/18.sock".into()).is_some());
        drop(mark);
        assert!(busy.mark(socket()).is_some());
    }

    #[test]
    fn job_statistics_are_requested_by_target_and_unused_counters_are_removed() {
        let samples = vec![Sample::of_count("open", "usecs", 2), Sample::of_count("close", "usecs", 0)];
        let job = JobSnapshot { job: "4711".into(), counts: Snapshot { samples, ..Snapshot::default() } };
        let (dir, params) = (tempfile::tempdir().unwrap(), Params::new());
        for target in ["a-MDT0000", "a-MDT0001", "b-MDT0000"] {
            let jobs = vec![job.clone()];
            params.register(&format!("mdt.{target}.job_stats"), Param::jobs(move || jobs.clone(), |_| Ok(())));
        }
        let control = Control::serve_in(dir.path(), &params).unwrap();
        let (_runtime, rt) = host::runtime().unwrap();
        let limit = Duration::from_secs(600);
        let (socket, fsname) = (control.path().to_owned(), Some("a".into()));
        let mut process = Process { rt, socket, is_public: false, fsname, greeting: limit, limit };
        let wanted = ["mdt.a-MDT0000.job_stats", "mdt.a-MDT0001.job_stats"];
        assert_eq!(process.requested("mdt.*.job_stats").unwrap(), wanted);
        let found = process.params().unwrap();
        assert!(found.unreadable.is_empty());
        let names = |found: &Found| found.params.iter().map(|param| param.name.clone()).collect::<BTreeSet<_>>();
        process.is_public = true;
        assert_eq!(names(&process.params().unwrap()), names(&found));
        let jobs: Vec<_> = found.params.iter().filter(|param| wanted.contains(&param.name.as_str())).collect();
        assert_eq!(jobs.len(), wanted.len());
        for param in jobs {
            let Value::Jobs(jobs) = &param.value else { panic!("{param:?}") };
            assert_eq!(jobs[0].counts.samples.len(), 1, "{jobs:?}");
        }
    }
}
