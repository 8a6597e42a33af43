//! A task of mdtest: executes the operations of a phase on its items.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use crate::{
    buffer::Buffer,
    data::{Data, Packet},
    mdtest::{
        phase::Kind,
        plan::Plan,
        step::{Job, Progress, Report, Step},
    },
    task_clock::now,
    team::Member,
};

/// Executes the steps that the parent sends.
///
/// # Errors
/// The first failed operation, with the path of its item.
pub fn work(job: &Job, member: &mut Member) -> io::Result<()> {
    while let Some(step) = member.receive::<Step>()? {
        let mut task = Task::new(job, step)?;
        member.barrier()?;
        let report = task.run(member)?;
        member.send(&report)?;
    }
    Ok(())
}

/// A phase of a task.
struct Task<'a> {
    plan: &'a Plan,
    rank: u32,
    step: Step,
    /// Path of the tree with the items, without a number.
    base: String,
    tree: String,
    /// Rank whose items the task uses.
    owner: u32,
    /// The order of items; empty: ascending.
    order: Vec<u32>,
    buffer: Buffer,
    data: Data,
    errors: u64,
}

impl<'a> Task<'a> {
    fn new(job: &'a Job, step: Step) -> io::Result<Task<'a>> {
        let (plan, rank) = (&job.plan, job.rank);
        let owner = plan.owner(rank, step.kind);
        let base = plan.test_dir(rank, step.iteration);
        let base = base.to_str().ok_or_else(|| io::Error::other("the path of the test is not UTF-8"))?;
        let data = Data { packet: Packet::Offset, rank: owner.into(), signature: plan.seed };
        let len = match step.kind {
            Kind::FileCreate => plan.write_bytes,
            Kind::FileRead => plan.read_bytes,
            _ => 0,
        };
        let mut buffer = Buffer::new(usize::try_from(len).map_err(io::Error::other)?);
        data.fill(&mut buffer);
        let mut order = Vec::new();
        if let (Some(seed), Kind::DirStat | Kind::FileStat | Kind::FileRead) = (plan.random, step.kind) {
            order = (0..u32::try_from(step.items).map_err(io::Error::other)?).collect();
            fastrand::Rng::with_seed(seed.wrapping_add(rank.into())).shuffle(&mut order);
        }
        let tree = plan.tree_name(owner);
        Ok(Task { plan, rank, step, base: format!("{base}/"), tree, owner, order, buffer, data, errors: 0 })
    }

    fn run(&mut self, member: &mut Member) -> io::Result<Report> {
        let mut report = Report::default();
        report.span.start = now();
        if self.plan.unique_dir && !self.plan.time_unique_dir && self.step.kind == Kind::FileCreate {
            // As mdtest, which waits here for the directories of all tasks.
            member.barrier()?;
            report.span.start = now();
        }
        report.items = match self.step.kind {
            Kind::TreeCreate | Kind::TreeRemove => self.trees()?,
            Kind::DirRename => self.rename()?,
            _ => self.items(report.span.start, member)?,
        };
        if self.plan.sync {
            rustix::fs::sync();
        }
        report.span.end = now();
        report.errors = self.errors;
        Ok(report)
    }

    /// Creates or removes the task's own tree, or the common one as task 0.
    fn trees(&self) -> io::Result<u64> {
        let plan = self.plan;
        if !plan.unique_dir && self.rank != 0 {
            return Ok(plan.tree.dirs());
        }
        let base = if plan.unique_dir { format!("mdtest_tree.{}", self.rank) } else { "mdtest_tree".into() };
        let path = |dir: u64| {
            let mut path = self.base.clone();
            plan.tree.push_dir(&mut path, &base, dir);
            path
        };
        if self.step.kind == Kind::TreeCreate {
            (0..plan.tree.dirs()).try_for_each(|dir| named("mkdir", &path(dir), |p| fs::create_dir(p)))?;
        } else {
            (0..plan.tree.dirs()).rev().try_for_each(|dir| named("rmdir", &path(dir), |p| fs::remove_dir(p)))?;
        }
        Ok(plan.tree.dirs())
    }

    fn items(&mut self, start: u64, member: &mut Member) -> io::Result<u64> {
        let stonewall = if self.step.kind == Kind::FileCreate { self.plan.stonewall * 1_000_000_000 } else { 0 };
        let mut path = String::new();
        let mut done = 0;
        while done < self.step.items {
            self.one(done, &mut path)?;
            done += 1;
            if stonewall > 0 && now() - start > stonewall {
                break;
            }
        }
        if stonewall > 0 {
            let most: u64 = member.exchange(&Progress { items: done, time: now() - start })?;
            for index in done..most {
                self.one(index, &mut path)?;
            }
            done = done.max(most);
        }
        Ok(done)
    }

    /// Writes the path of an item to `path`.
    fn item(&self, index: u64, path: &mut String) {
        use std::fmt::Write;
        let plan = self.plan;
        let first = if plan.leaf_only { plan.tree.first_leaf() * plan.items_per_dir } else { 0 };
        let number = first + index;
        path.clear();
        path.push_str(&self.base);
        // Beyond a stonewall, the only directory may get more items.
        let dir = (number / plan.items_per_dir).min(plan.tree.dirs() - 1);
        plan.tree.push_dir(path, &self.tree, dir);
        let kind = if self.step.kind.is_about_dirs() { "dir" } else { "file" };
        // Writing to a string cannot fail.
        let _ = write!(path, "/{kind}.mdtest.{}.{number}", self.owner);
    }

    fn one(&mut self, index: u64, path: &mut String) -> io::Result<()> {
        let index = self.order.get(index as usize).map_or(index, |item| u64::from(*item));
        self.item(index, path);
        match self.step.kind {
            Kind::DirCreate => named("mkdir", path, |p| fs::create_dir(p)),
            Kind::DirStat | Kind::FileStat => named("stat", path, stat),
            Kind::DirRemove => named("rmdir", path, |p| fs::remove_dir(p)),
            Kind::FileRemove => named("unlink", path, |p| fs::remove_file(p)),
            Kind::FileCreate => named("create", path, |p| self.create(p, index)),
            Kind::FileRead => named("read", path, |p| self.read(p, index)),
            Kind::DirRename | Kind::TreeCreate | Kind::TreeRemove => Ok(()),
        }
    }

    fn create(&mut self, path: &Path, index: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).mode(0o664).open(path)?;
        if !self.buffer.is_empty() {
            self.data.update(&mut self.buffer, index);
            file.write_all(&self.buffer)?;
            if self.plan.fsync {
                file.sync_all()?;
            }
        }
        Ok(())
    }

    fn read(&mut self, path: &Path, index: u64) -> io::Result<()> {
        let mut file = File::open(path)?;
        if !self.buffer.is_empty() {
            file.read_exact(&mut self.buffer)?;
            if self.plan.verify_read && !self.data.matches(&self.buffer, index) {
                self.errors += 1;
            }
        }
        Ok(())
    }

    /// Moves the first directory aside, gives each directory the name of the one before it, and the
    /// first one the last free name.
    fn rename(&self) -> io::Result<u64> {
        let (mut from, mut to) = (String::new(), String::new());
        self.item(0, &mut from);
        let aside = format!("{from}-XX");
        to.push_str(&aside);
        for index in 0..self.step.items {
            if index == self.step.items - 1 {
                from.clone_from(&aside);
            } else {
                self.item(index, &mut from);
            }
            named("rename", &from, |p| fs::rename(p, &to))?;
            to.clone_from(&from);
        }
        Ok(self.step.items)
    }
}

/// Calls stat(2), as mdtest does. The standard library calls statx(2) and asks for more.
fn stat(path: &Path) -> io::Result<()> {
    rustix::fs::stat(path)?;
    Ok(())
}

fn named(what: &str, path: &str, act: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    act(Path::new(path)).map_err(|e| io::Error::new(e.kind(), format!("cannot {what} {path}: {e}")))
}
