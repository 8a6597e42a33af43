//! The find of the IO500: `find DIR -newer FILE -size 3901c -name "*01*"`, by several threads.
//!
//! Threads share a queue of directories, and of names whose files need a stat. So a large directory
//! occupies all threads. As the original, the result counts all entries, with directories.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use rustix::fs::{Stat, lstat};

use crate::{
    io500::plan::{HARD_FILE, is_wanted},
    output::named,
    stop,
};

/// Names of one piece of work.
const BATCH: usize = 256;

/// Result of a find.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Found {
    /// Entries below the directory, and the directory itself.
    pub total: u64,
    /// Files that match.
    pub matched: u64,
    /// Seconds.
    pub seconds: f64,
}

/// Work of a thread. Paths are relative to the root of the find.
enum Work {
    /// Read a directory.
    Dir(PathBuf),
    /// Examine entries of a directory.
    Names(PathBuf, Vec<OsString>),
}

struct Queue {
    work: VecDeque<Work>,
    /// Threads that may still add work.
    busy: usize,
    failed: bool,
}

struct Search {
    newer: (i64, u64),
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Runs a find with a thread for each root. All roots are paths to the same directory.
///
/// # Errors
/// The first failed operation, or an interruption by the user.
pub fn find(roots: &[PathBuf], timestamp: &Path) -> io::Result<Found> {
    let start = Instant::now();
    let newer = modified(&lstat(timestamp).map_err(|e| named("stat", timestamp, &e.into()))?);
    let queue = Queue { work: VecDeque::from([Work::Dir(PathBuf::new())]), busy: 0, failed: false };
    let search = Search { newer, queue: Mutex::new(queue), changed: Condvar::new() };
    let found = thread::scope(|scope| {
        let threads: Vec<_> = roots.iter().map(|root| scope.spawn(|| search.run(root))).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .map(|end| end.map_err(|_| io::Error::other("a thread of find has panicked"))?)
            .collect::<io::Result<Vec<Found>>>()
    })?;
    let sum = |of: fn(&Found) -> u64| found.iter().map(of).sum::<u64>();
    Ok(Found { total: 1 + sum(|f| f.total), matched: sum(|f| f.matched), seconds: start.elapsed().as_secs_f64() })
}

impl Search {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, root: &Path) -> io::Result<Found> {
        let mut found = Found::default();
        while let Some(work) = self.next() {
            let done = stop::check().and_then(|()| self.work(root, work, &mut found));
            let mut queue = self.queue();
            queue.busy -= 1;
            queue.failed |= done.is_err();
            self.changed.notify_all();
            drop(queue);
            done?;
        }
        Ok(found)
    }

    /// Waits for work; `None` if there will be no more.
    fn next(&self) -> Option<Work> {
        let more = |queue: &mut Queue| queue.work.is_empty() && queue.busy > 0 && !queue.failed;
        let mut queue = self.changed.wait_while(self.queue(), more).unwrap_or_else(PoisonError::into_inner);
        if queue.failed {
            return None;
        }
        let work = queue.work.pop_front()?;
        queue.busy += 1;
        Some(work)
    }

    fn add(&self, work: Work) {
        self.queue().work.push_back(work);
        self.changed.notify_one();
    }

    fn work(&self, root: &Path, work: Work, found: &mut Found) -> io::Result<()> {
        match work {
            Work::Dir(dir) => self.read(&root.join(&dir), &dir, found),
            Work::Names(dir, names) => {
                let dir = root.join(dir);
                for name in names {
                    let path = dir.join(name);
                    let stat = lstat(&path).map_err(|e| named("stat", &path, &e.into()))?;
                    found.matched += u64::from(stat.st_size as u64 == HARD_FILE && modified(&stat) > self.newer);
                }
                Ok(())
            }
        }
    }

    fn read(&self, path: &Path, dir: &Path, found: &mut Found) -> io::Result<()> {
        let failed = |e: &io::Error| named("read", path, e);
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(|e| failed(&e))? {
            let entry = entry.map_err(|e| failed(&e))?;
            let name = entry.file_name();
            found.total += 1;
            let kind = entry.file_type().map_err(|e| failed(&e))?;
            if kind.is_dir() {
                self.add(Work::Dir(dir.join(name)));
            } else if kind.is_file() && is_wanted(Path::new(&name)) {
                names.push(name);
                if names.len() == BATCH {
                    stop::check()?;
                    self.add(Work::Names(dir.to_owned(), std::mem::take(&mut names)));
                }
            }
        }
        if !names.is_empty() {
            self.add(Work::Names(dir.to_owned(), names));
        }
        Ok(())
    }
}

fn modified(stat: &Stat) -> (i64, u64) {
    (stat.st_mtime, stat.st_mtime_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_counts_all_entries_and_those_that_match() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("data");
        fs::create_dir_all(root.join("a/b")).unwrap();
        let write = |name: String, len: usize| fs::write(root.join(name), vec![0; len]).unwrap();
        write("a/old.01".into(), 3901);
        let stamp = temp.path().join("stamp");
        fs::write(&stamp, "").unwrap();
        // Later files are newer at any resolution of the clock.
        fs::File::open(&stamp)
            .unwrap()
            .set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(5))
            .unwrap();
        fs::File::open(root.join("a/old.01")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        for n in 0..1000 {
            write(format!("a/b/file.{n}"), 3901);
        }
        write("a/b/short.01".into(), 3900);
        for threads in [1, 4] {
            let found = find(&vec![root.clone(); threads], &stamp).unwrap();
            // 101, 201, … 901. The old file and the short one do not match.
            assert_eq!((found.total, found.matched), (3 + 1 + 1000 + 1, 9), "{threads} threads");
        }
        let lost = find(&[root.join("no")], &stamp).unwrap_err();
        assert!(lost.to_string().contains("cannot read"), "{lost}");
    }
}
