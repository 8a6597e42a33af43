//! A task of IOR: opens the file, transfers its data, and reports the times.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::OFlags;

use crate::{
    buffer::Buffer,
    data::Data,
    ior::{
        offsets::Offsets,
        plan::Plan,
        step::{Access, Job, Progress, Report, Step, Transfer},
    },
    output::named,
    task_clock::now,
    team::Member,
};

/// Executes the steps that the parent sends.
///
/// # Errors
/// The first failed operation, with the path of its file.
pub fn work(job: &Job, member: &mut Member) -> io::Result<()> {
    while let Some(step) = member.receive::<Step>()? {
        match step {
            Step::Remove { repetition, ranks } => {
                if ranks.contains(&job.rank) {
                    remove(&job.plan, job.rank, repetition)?;
                }
                member.send(&())?;
            }
            Step::Transfer(transfer) => {
                let report = run(job, &transfer, member)?;
                member.send(&report)?;
            }
        }
    }
    Ok(())
}

/// Removes the file of a task. It is no error if the file does not exist.
///
/// # Errors
/// Of unlink(2).
pub fn remove(plan: &Plan, rank: u32, repetition: u32) -> io::Result<()> {
    let path = plan.path(rank, rank, repetition);
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(named("remove", &path, &e)),
        _ => Ok(()),
    }
}

fn run(job: &Job, transfer: &Transfer, member: &mut Member) -> io::Result<Report> {
    let (plan, access) = (&job.plan, transfer.access);
    let owner = transfer.ranks.get(job.rank as usize).copied().unwrap_or(job.rank);
    let path = plan.path(job.rank, owner, transfer.repetition);
    let data = Data { packet: plan.packet, rank: owner.into(), signature: transfer.signature.into() };
    let limit = transfer.limits.get(owner as usize).copied().unwrap_or(0);
    let len = usize::try_from(plan.transfer).map_err(io::Error::other)?;
    let mut work = Work { plan, access, data, offsets: Offsets::new(plan, owner.into()), buffer: Buffer::new(len) };
    data.fill(&mut work.buffer);

    member.barrier()?;
    let mut report = Report::default();
    report.open.start = now();
    let file = open(plan, access, &path).map_err(|e| named("open", &path, &e))?;
    report.open.end = now();
    work.barrier(member)?;
    report.access.start = now();
    work.transfer(&file, &mut report, limit, member).map_err(|e| named(access.verb(), &path, &e))?;
    if access == Access::Write && plan.fsync {
        file.sync_all().map_err(|e| named("fsync", &path, &e))?;
    }
    report.access.end = now();
    work.barrier(member)?;
    report.close.start = now();
    drop(file);
    report.close.end = now();
    member.barrier()?; // the other tasks may still write
    report.size = fs::metadata(&path).map_err(|e| named("stat", &path, &e))?.len();
    Ok(report)
}

impl Access {
    fn verb(self) -> &'static str {
        if self == Access::Write { "write" } else { "read" }
    }
}

fn open(plan: &Plan, access: Access, path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    match access {
        Access::Write => options.read(true).write(true).create(true).mode(0o664),
        Access::CheckWrite | Access::Read => options.read(true),
    };
    if plan.direct {
        options.custom_flags(OFlags::DIRECT.bits() as i32);
    }
    options.open(path)
}

/// The transfers of a task in one phase.
struct Work<'a> {
    plan: &'a Plan,
    access: Access,
    data: Data,
    offsets: Offsets,
    buffer: Buffer,
}

impl Work<'_> {
    fn barrier(&self, member: &mut Member) -> io::Result<()> {
        if self.plan.barriers && self.access.is_timed() { member.barrier() } else { Ok(()) }
    }

    /// Transfers up to `limit` pieces, or until the deadline.
    fn transfer(&mut self, file: &File, report: &mut Report, limit: u64, member: &mut Member) -> io::Result<()> {
        let timed = self.access.is_timed();
        let deadline = if timed { self.plan.deadline * 1_000_000_000 } else { 0 };
        let least = if timed { self.plan.min_seconds * 1_000_000_000 } else { 0 };
        let start = now();
        let all = self.offsets.count();
        let mut end = if limit == 0 { all } else { limit.min(all) };
        let mut stopped = false;
        while report.transfers < end && !stopped {
            self.one(file, report)?;
            stopped = deadline > 0 && now() - start > deadline;
            // A file can be transferred again only by whole rounds.
            if report.transfers == end && least > 0 && now() - start < least {
                end += all;
            }
        }
        if timed && self.plan.wear_out {
            let progress = Progress { transfers: report.transfers, bytes: report.bytes, time: now() - start };
            let most: u64 = member.exchange(&progress)?;
            while report.transfers < most.min(end) {
                self.one(file, report)?;
            }
        }
        Ok(())
    }

    fn one(&mut self, file: &File, report: &mut Report) -> io::Result<()> {
        let offset = self.offsets.get(report.transfers);
        if self.access == Access::Write {
            self.data.update(&mut self.buffer, offset);
            file.write_all_at(&self.buffer, offset)?;
            if self.plan.fsync_per_write {
                file.sync_all()?;
            }
        } else {
            let check = self.access == Access::CheckWrite || self.plan.check_read;
            if check {
                self.buffer[0] = !self.buffer[0];
            }
            file.read_exact_at(&mut self.buffer, offset)?;
            if check && !self.data.matches(&self.buffer, offset) {
                report.errors += 1;
            }
        }
        report.transfers += 1;
        report.bytes += self.plan.transfer;
        Ok(())
    }
}
