//! Runs a job in a simulated file system.

use std::sync::Arc;

use bytes::Bytes;
use sheen_client::{Caller, Client, OpenFile};
use sheen_rt::{
    Instant,
    join::try_join_all,
    sim::{Sim, World},
};
use sheen_wire::{Bulk, Errno, Fid, fid::ROOT, mds::flags};

use crate::{
    cluster::Cluster,
    error::{Result, SimulationError, failed},
    hardware::Hardware,
    job::{Job, Striping},
};

/// Extended attribute with the layout of new files in a directory.
static LOV: Bytes = Bytes::from_static(b"lustre.lov");
const ROOT_USER: &Caller = &Caller::ROOT;

/// The result of a job.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// MiB/s of the writes of all tasks, with their fsync.
    pub write: f64,
    /// MiB/s of the reads, if there are any.
    pub read: Option<f64>,
    /// Locks that the OSTs granted to clients for the writes.
    pub grants: u64,
    /// Blocking callbacks that they sent to clients.
    pub callbacks: u64,
    /// Locks that the OSTs took for themselves.
    pub own_locks: u64,
}

/// Runs a job in a new file system. Takes as long as moving its bytes several times in memory, and
/// as much memory as the job writes.
///
/// # Errors
/// The job has no task or no byte, or a request failed.
pub fn measure(hardware: &Hardware, job: &Job, seed: u64) -> Result<Measured> {
    if job.bytes() == 0 || hardware.osts == 0 {
        return Err(SimulationError("there is nothing to write, or no OST".into()));
    }
    let sim = Sim::new(seed, hardware.config());
    let world: World = sim.clone();
    sim.run(run(world, *hardware, *job)).map_err(failed("time"))?
}

async fn run(world: World, hardware: Hardware, job: Job) -> Result<Measured> {
    let cluster = Cluster::start(&world, &hardware, job.nodes).await?;
    cluster.tune(job.locks)?;
    let dirs = directories(&cluster, &job, hardware.osts).await?;
    let files = try_join_all((0..job.tasks()).map(|task| open(&cluster, &job, &dirs, task, task))).await?;
    let counters = |cluster: &Cluster| -> Result<[u64; 3]> {
        Ok([cluster.count("grants")?, cluster.count("ldlm_bl_callback")?, cluster.count("local")?])
    };
    let before = counters(&cluster)?;
    let data = Bytes::from(vec![0; job.record as usize]);
    let began = world.now();
    try_join_all(
        files.iter().zip(0..).map(|(file, task)| write(client(&cluster, &job, task), &job, file, task, &data)),
    )
    .await?;
    let written = rate(&job, began, world.now());
    let after = counters(&cluster)?;
    let read = if job.read { Some(read_all(&world, &cluster, &job, &dirs).await?) } else { None };
    let [grants, callbacks, own_locks] = [0, 1, 2].map(|n| after[n] - before[n]);
    Ok(Measured { write: written, read, grants, callbacks, own_locks })
}

/// Returns the mount of a task.
fn client<'a>(cluster: &'a Cluster, job: &Job, task: u32) -> &'a Arc<Client> {
    &cluster.clients[(task / job.ppn) as usize]
}

/// Creates the directories of the files, with their layouts.
async fn directories(cluster: &Cluster, job: &Job, osts: u32) -> Result<Vec<Fid>> {
    let (client, mut dirs) = (client(cluster, job, 0), Vec::new());
    for (number, layout) in job.layouts(osts).into_iter().enumerate() {
        let name = Bytes::from(format!("dir{number}"));
        let made = client.mkdir(ROOT_USER, ROOT, &name, 0o755, 0).await.map_err(failed("mkdir"))?;
        let set = client.setxattr(ROOT_USER, made.attr.fid, &LOV, &layout.encode().into(), 0).await;
        set.map_err(failed("setstripe"))?;
        dirs.push(made.attr.fid);
    }
    Ok(dirs)
}

/// Opens the file of a task on the node of another one.
async fn open(cluster: &Cluster, job: &Job, dirs: &[Fid], writer: u32, task: u32) -> Result<Arc<OpenFile>> {
    let number = if job.striping == Striping::Files { writer } else { 0 };
    let (dir, name) = (dirs[number as usize % dirs.len()], Bytes::from(format!("file{number}")));
    let opened = client(cluster, job, task).create(ROOT_USER, dir, &name, flags::RDWR | flags::CREAT, 0o644, 0).await;
    opened.map(|(_, file)| file).map_err(failed("open"))
}

async fn write(client: &Client, job: &Job, file: &OpenFile, task: u32, data: &Bytes) -> Result<()> {
    for record in 0..job.records {
        let (mut offset, mut data) = (job.offset(task, record), data.clone());
        while !data.is_empty() {
            let written = client.write(file, offset, Bulk::from(data.clone())).await.map_err(failed("write"))?;
            data = data.split_off(written.min(data.len()));
            offset += written as u64;
        }
    }
    client.fsync(file, false).await.map_err(failed("fsync"))
}

/// Reads, on each node, what the next node has written. Returns the rate in MiB/s.
async fn read_all(world: &World, cluster: &Cluster, job: &Job, dirs: &[Fid]) -> Result<f64> {
    let writer = |task: u32| (task + job.ppn) % job.tasks();
    let opens = (0..job.tasks()).map(|task| open(cluster, job, dirs, writer(task), task));
    let files = try_join_all(opens).await?;
    let began = world.now();
    let reads = files.iter().zip(0..).map(|(file, task)| read(client(cluster, job, task), job, file, writer(task)));
    try_join_all(reads).await?;
    Ok(rate(job, began, world.now()))
}

async fn read(client: &Client, job: &Job, file: &OpenFile, writer: u32) -> Result<()> {
    for record in 0..job.records {
        let (offset, len) = (job.offset(writer, record), job.record as usize);
        let read = client.read(file, offset, len).await.map_err(failed("read"))?.into_bytes();
        if read.len() != len {
            return Err(failed("read")(Errno::EIO));
        }
    }
    Ok(())
}

fn rate(job: &Job, began: Instant, ended: Instant) -> f64 {
    let seconds = ended.since(began).as_secs_f64().max(1e-9);
    job.bytes() as f64 / f64::from(1 << 20) / seconds
}
