//! Programs on three clients. They draw operations, run those whose claims are compatible, and
//! compare every reply with the model's.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use fastrand::Rng;
use sheen_client::{Client, OpenFile};
use sheen_rt::{JoinHandle, operation, sim::World};
use sheen_wire::{Errno, Fid, JobId};

use super::{
    CLIENTS,
    claims::{Claims, Granted, Key},
    draw::{Draw, wanted},
    durability::Durability,
    model::{Model, Rule},
    op::{Answer, Op, Outcome},
    perform::{Made, perform},
};

/// Concurrent operations of a client.
const PROGRAMS: usize = 3;
/// Draws before a program pauses, because none of the drawn operations could start.
const DRAWS: usize = 8;
/// That pause.
const PAUSE: Duration = Duration::from_millis(1);
/// Operations printed when a reply is wrong.
const HISTORY: usize = 40;
/// Time limit (virtual) within which all running operations end once the faults have stopped.
const END: Duration = Duration::from_secs(600);

/// The mounts of a cluster and the expected file system.
pub struct Run {
    /// The simulated world.
    pub world: World,
    /// Mounts, by client index.
    pub clients: Vec<Arc<Client>>,
    state: Mutex<State>,
}

/// State of a [`Run`].
pub struct State {
    /// The random numbers.
    pub rng: Rng,
    /// The expected file system.
    pub model: Model,
    /// The durability guarantees so far.
    pub durability: Durability,
    /// How replies are compared.
    pub rule: Rule,
    /// Whether OSTs may be down when a file is created, so that it gets fewer stripes.
    pub may_lack_stripes: bool,
    /// Whether operations include migrations.
    pub migrates: bool,
    /// Whether layouts may begin on the MDT.
    pub on_mdt: bool,
    /// Operations whose replies were not compared.
    pub doubtful: Vec<Op>,
    /// Files that such operations may have changed.
    pub doubtful_files: BTreeSet<Fid>,
    /// Files to whose objects such operations may have written.
    pub doubtful_writes: BTreeSet<Fid>,
    claims: Claims,
    files: BTreeMap<u64, Arc<OpenFile>>,
    strays: Vec<(usize, Arc<OpenFile>)>,
    numbers: u64,
    left: usize,
    under_way: BTreeMap<u64, String>,
    history: VecDeque<String>,
}

struct Started {
    number: u64,
    op: Op,
    granted: Granted,
    file: Option<Arc<OpenFile>>,
}

impl Run {
    /// Returns a run on these mounts of a file system whose content equals `model`.
    pub fn new(world: &World, clients: Vec<Arc<Client>>, seed: u64, model: Model) -> Arc<Run> {
        let state = State {
            rng: Rng::with_seed(seed),
            durability: Durability::default(),
            model,
            rule: Rule::Exact,
            may_lack_stripes: false,
            migrates: false,
            on_mdt: false,
            doubtful: Vec::new(),
            doubtful_files: BTreeSet::new(),
            doubtful_writes: BTreeSet::new(),
            claims: Claims::default(),
            files: BTreeMap::new(),
            strays: Vec::new(),
            numbers: 0,
            left: 0,
            under_way: BTreeMap::new(),
            history: VecDeque::new(),
        };
        Arc::new(Run { world: world.clone(), clients, state: Mutex::new(state) })
    }

    /// Locks and returns the state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic is survived")
    }

    /// Starts the programs, which do `ops` operations in total.
    pub fn begin(self: &Arc<Self>, ops: usize) -> Vec<JoinHandle<()>> {
        self.state().left = ops;
        let programs = (0..CLIENTS.len()).flat_map(|client| std::iter::repeat_n(client, PROGRAMS));
        programs
            .map(|client| {
                let run = self.clone();
                // Requests with a job are replayed as those without.
                let job = if client == 0 { JobId::NONE } else { JobId::new(b"job") };
                self.world
                    .rt(CLIENTS[client])
                    .spawn("program", operation::within(job, async move { run.program(client).await }))
            })
            .collect()
    }

    /// Returns the number of operations that have not started yet.
    pub fn left(&self) -> usize {
        self.state().left
    }

    /// Returns whether operations have not started yet.
    pub fn busy(&self) -> bool {
        self.left() > 0
    }

    /// Starts no further operations.
    pub fn stop(&self) {
        self.state().left = 0;
    }

    /// Waits until all running operations have ended.
    pub async fn end(&self, programs: Vec<JoinHandle<()>>) {
        let all = async {
            for program in programs {
                program.await.expect("clients do not crash");
            }
        };
        if self.world.rt(CLIENTS[0]).timeout(END, all).await.is_err() {
            panic!("still under way after {END:?} without faults: {:#?}", self.state().under_way);
        }
    }

    async fn program(&self, client: usize) {
        let rt = self.world.rt(CLIENTS[client]);
        while self.state().left > 0 {
            let started = self.state().start(client);
            match started {
                Some(started) => self.one(client, started).await,
                None => rt.sleep(PAUSE).await,
            }
        }
    }

    async fn one(&self, client: usize, started: Started) {
        let Started { number, op, granted, file } = started;
        self.world.note(&format!("client {client} op {number}: {op:?}"));
        let (answer, made) = perform(&self.clients[client], &op, file).await;
        self.world.note(&format!("client {client} op {number} done: {answer:?}"));
        self.state().finish(client, number, op, granted, answer, made);
    }

    /// Runs one operation while no other one is running.
    pub async fn alone(&self, client: usize, op: Op) {
        let started = self.state().admit(op).expect("nothing else is under way");
        self.one(client, started).await;
    }

    /// Returns all files that are certainly open, with their clients.
    pub fn open_files(&self) -> Vec<(usize, Arc<OpenFile>)> {
        let state = self.state();
        let closing = |n: &u64| state.doubtful.contains(&Op::Close { handle: *n });
        let open = state.model.handles.iter().filter(|(n, _)| !closing(n));
        open.filter_map(|(n, h)| Some((h.client, state.files.get(n)?.clone()))).collect()
    }

    /// Closes all open files. If the rule is not exact, errors are ignored.
    pub async fn close_all(&self) {
        loop {
            let next = self.state().model.handles.iter().map(|(n, h)| (*n, h.client)).next();
            let Some((handle, client)) = next else { break };
            self.alone(client, Op::Close { handle }).await;
            self.state().drop_handle(handle);
        }
        let strays = std::mem::take(&mut self.state().strays);
        for (client, file) in strays {
            // Opened by an operation with an unknown outcome: the file may not even be open.
            let _ = self.clients[client].release(file).await;
        }
    }
}

impl State {
    fn start(&mut self, client: usize) -> Option<Started> {
        for _ in 0..DRAWS {
            let (migrates, on_mdt) = (self.migrates, self.on_mdt);
            let drawn = Draw { rng: &mut self.rng, model: &self.model, client, migrates, on_mdt }.op();
            if let Some(op) = drawn
                && let Some(started) = self.admit(op)
            {
                self.left -= 1;
                return Some(started);
            }
        }
        None
    }

    /// Takes the claims of an operation, if they are compatible, and records its start.
    fn admit(&mut self, op: Op) -> Option<Started> {
        let granted = self.claims.take(wanted(&self.model, &op))?;
        let file = op.handle().and_then(|h| self.files.get(&h).cloned());
        self.numbers += 1;
        self.durability.begins(&op);
        self.under_way.insert(self.numbers, format!("{op:?}"));
        Some(Started { number: self.numbers, op, granted, file })
    }

    fn finish(&mut self, client: usize, number: u64, op: Op, granted: Granted, answer: Answer, made: Made) {
        self.under_way.remove(&number);
        self.history.push_back(format!("client {client} op {number}: {op:?} -> {answer:?}"));
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
        if self.rule == Rule::Doubtful {
            self.strays.extend(made.file.map(|f| (client, f)));
            let written = granted.keys().filter_map(|k| match k {
                Key::Inode(fid) | Key::Layout(fid) => Some(*fid),
                _ => None,
            });
            let written: Vec<Fid> = written.collect();
            // A close or an fsync also sends dirty data of earlier writes.
            let sends = matches!(op, Op::Close { .. } | Op::Fsync { .. });
            if sends || matches!(op, Op::Write { .. } | Op::Punch { .. } | Op::Truncate { .. }) {
                self.doubtful_writes.extend(&written);
            }
            self.doubtful_files.extend(written);
            let seen = if let Ok(Outcome::Seen(view)) = &answer { Some(view.fid) } else { None };
            self.durability.doubtful(&op, &self.model, seen);
            self.doubtful.push(op);
            self.claims.release(granted);
            return;
        }
        let new = match &answer {
            Ok(Outcome::Seen(view)) => view.fid,
            _ => Fid::ZERO,
        };
        if let (Op::Migrate { .. }, Err(errno)) = (&op, &answer) {
            let why = [Errno::EBUSY, Errno::ENOENT, Errno::ESTALE, Errno::EIO, Errno::ETIMEDOUT, Errno::ENOLCK];
            assert!(why.contains(errno), "{op:?} failed with {errno}");
            return self.claims.release(granted);
        }
        self.durability.ends(client, &op, &self.model);
        let expected = self.model.apply(client, &op, new, number);
        self.judge(&op, &answer, expected);
        if answer.is_ok() {
            self.durability.done(client, &op, &self.model);
        }
        if let Some(file) = made.file {
            self.files.insert(number, file);
        }
        if let Op::Close { handle } = op {
            self.files.remove(&handle);
        }
        self.claims.release(granted);
    }

    fn judge(&self, op: &Op, answer: &Answer, expected: Answer) {
        let expected = match answer {
            Ok(answer) => expected.map(|expected| expected.as_listed(answer)),
            Err(_) => expected,
        };
        let compared = |answer: &Answer| match answer {
            Ok(Outcome::Striped(striping)) if self.may_lack_stripes => Ok(Outcome::Striped(striping.without_counts())),
            other => other.clone(),
        };
        if compared(answer) != compared(&expected) {
            let history: Vec<&str> = self.history.iter().map(String::as_str).collect();
            panic!(
                "{op:?}\n  answered {answer:?}\n  expected {expected:?}\nunder way: {:#?}\nbefore, in the order in which they ended:\n{}",
                self.under_way,
                history.join("\n")
            );
        }
    }

    fn drop_handle(&mut self, handle: u64) {
        if self.rule == Rule::Doubtful {
            self.model.handles.remove(&handle);
            self.files.remove(&handle);
        }
    }
}
