//! The job that the mounts of this host have observed: parameter `llite.*.access_patterns`.
//!
//! Open files that read or write a file at the same time are its tasks, and each mount is a node.
//! If most bytes belong to a file of several tasks, the job is about that file. Otherwise, files
//! that were open at the same time belong to one task each. The job is about the kind of accesses
//! with most bytes, and about the others if they are to the same files.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    fs, io,
    os::unix::fs::{DirEntryExt, MetadataExt},
    path::{Path, PathBuf},
};

use serde::Serialize;
use sheen_control::Silent;
use sheen_layout::{PROGRESSIVE_ON_MDT, PROGRESSIVE_ONE_STRIPE};
use sheen_wire::Fid;

use crate::{
    output::named,
    predict::load::{Direction, Workload},
    processes::{self, Process},
    progress::Progress,
    size::human,
    stats::counted,
    stop,
};

/// Accesses with a smaller part of the bytes of the others do not count.
const SMALL_PART: f64 = 0.05;
/// Bytes follow each other if accesses cover this part of what is between the first and the last.
const DENSE_PART: f64 = 0.75;
/// Largest record that is taken for one transfer, in bytes.
const TRANSFER_MAX: u64 = 16 << 20;
/// Files of a job with small files: the default layout stores this part on the MDT, and none has
/// more than one stripe.
const SMALL_FILES_PART: f64 = 0.9;

/// The search for observed files ends after this many entries of directories without one. Files
/// that were deleted, or are elsewhere, are never found.
const SEARCHED_MAX: u64 = 200_000;

/// Message if no process of a mount can be asked.
pub const NOT_YOURS: &str = "the mounts of this file system are not yours, or do not answer";

/// A job that was observed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Observed {
    /// Its accesses.
    pub workload: Workload,
    /// Their kinds.
    pub directions: Vec<Direction>,
    /// Whether it is about small files.
    pub are_small: bool,
    /// The observation in words.
    pub text: String,
    /// A warning for the user, if the search for the files did not end.
    pub warning: Option<String>,
}

/// One kind of access to a file, as one mount has observed it: columns of the parameter.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    file: u64,
    direction: Direction,
    mount: usize,
    tasks: f64,
    beside: f64,
    bytes: u64,
    span: u64,
    end: u64,
    request: u64,
    run: u64,
}

/// One kind of access to a file, on all mounts.
#[derive(Clone, Debug)]
struct Used {
    file: u64,
    tasks: f64,
    mounts: BTreeSet<usize>,
    bytes: u64,
    span: u64,
    end: u64,
    /// The most frequent request and run of the mount with the most bytes.
    request: u64,
    run: u64,
    most: u64,
}

impl Used {
    fn add(&mut self, seen: &Seen) {
        self.tasks += seen.tasks;
        self.mounts.insert(seen.mount);
        self.bytes = self.bytes.saturating_add(seen.bytes);
        self.span = self.span.saturating_add(seen.span);
        self.end = self.end.max(seen.end);
        if seen.bytes > self.most {
            (self.most, self.request, self.run) = (seen.bytes, seen.request, seen.run);
        }
    }

    /// Bytes of the file that were accessed; bytes that were accessed again do not count.
    fn size(&self) -> u64 {
        self.bytes.min(self.end)
    }

    /// Returns the job: `tasks` with `size` bytes each.
    fn workload(&self, tasks: u32, nodes: u32, size: u64, files: bool) -> Workload {
        let size = size.max(1);
        let is_dense = self.bytes as f64 >= self.span as f64 * DENSE_PART;
        let (transfer, block) = match self.request.clamp(1, size) {
            request if is_dense => (request, size / request * request),
            // The kernel cuts large records.
            _ if !self.run.is_multiple_of(self.request.max(1)) && self.run <= TRANSFER_MAX => (self.run, self.run),
            request => (request, (self.run / request).max(1) * request),
        };
        Workload { tasks, nodes: nodes.min(tasks), transfer, block, size: (size / block).max(1) * block, files }
    }
}

/// Returns the job that was observed on the files at a path. `other`: values of the parameter from
/// other hosts. `wanted`: the accesses that count.
///
/// # Errors
/// A message for the user.
pub fn job(path: &Path, other: &[PathBuf], wanted: &[Direction]) -> Result<Observed, String> {
    let seen = all_seen(path, other).map_err(|e| e.to_string())?;
    let failed = |e: io::Error| named("look for files in", path, &e).to_string();
    let Search { found: at, missing } = below(path, &seen, SEARCHED_MAX).map_err(failed)?;
    let warning = missing.map(|number| {
        let (files, path) = (counted(number, "observed file"), path.display());
        format!(
            "the search ended after {SEARCHED_MAX} entries without a further file. Not found: {files}, deleted, elsewhere, \
             or deeper in {path}; name the directory of the job"
        )
    });
    let seen = seen.into_iter().filter(|seen| at.contains_key(&seen.file) && wanted.contains(&seen.direction));
    let observed = describe(&seen.collect::<Vec<_>>(), path, &at).ok_or_else(|| {
        let path = path.display();
        let text = format!(
            "no mount of this host has observed such accesses to files that are in {path} now: describe the job with \
             -N, -t, -b, -s and -F, or start one with --watch"
        );
        warning.iter().fold(text, |text, warning| format!("{text}; {warning}"))
    })?;
    Ok(Observed { warning, ..observed })
}

/// Reads the parameter of all mounts.
fn all_seen(path: &Path, other: &[PathBuf]) -> io::Result<Vec<Seen>> {
    let mounts = mounts(path, "the advice lacks the observations of its mounts, if it has any")?;
    let fsname = processes::mount_info(path)?.fsname;
    if mounts.is_empty() && other.is_empty() {
        return Err(io::Error::other(NOT_YOURS));
    }
    let mut all = Observations::default();
    for (name, process) in mounts {
        all.read(&format!("{name}=\n{}", process.get(&name)?), &fsname)?;
    }
    for file in other {
        let text = fs::read_to_string(file).map_err(|e| named("read", file, &e))?;
        all.read(&text, &fsname).map_err(|e| named("read", file, &e))?;
    }
    Ok(all.seen)
}

/// Returns the parameter of each mount of a file system on this host, with its process. Warns of
/// each process that does not answer at once; `consequence` says what follows for the advice.
///
/// # Errors
/// The path is not on a mount of Sheen.
pub fn mounts(path: &Path, consequence: &str) -> io::Result<Vec<(String, Process)>> {
    let fsname = processes::mount_info(path)?.fsname;
    let all = processes::with(&format!("llite.{fsname}-*.{PARAMETER}"));
    for silent in &all.silent {
        eprintln!("{}", warning(silent, consequence));
    }
    Ok(all.found.into_iter().filter(|(name, _)| fsname_of(name) == Some(&fsname)).collect())
}

fn warning(silent: &Silent, consequence: &str) -> String {
    format!("WARNING: {silent}: {consequence}")
}

/// Returns the name of the file system in that of the parameter, `llite.NAME-INSTANCE.…`.
fn fsname_of(name: &str) -> Option<&str> {
    let mount = name.strip_prefix("llite.")?.strip_suffix(PARAMETER)?.strip_suffix('.')?;
    Some(mount.rsplit_once('-')?.0)
}

const PARAMETER: &str = "access_patterns";

/// All that mounts have observed.
#[derive(Default)]
struct Observations {
    seen: Vec<Seen>,
    /// Names of the parameters that were read.
    names: BTreeSet<String>,
    mounts: usize,
}

impl Observations {
    /// Reads values of the parameter, as `lctl get_param` prints them. Leaves out other file
    /// systems, and mounts that were read before.
    fn read(&mut self, text: &str, fsname: &str) -> io::Result<()> {
        let bad = |line: &str| io::Error::other(format!("not a value of {PARAMETER}: {line}"));
        let (mut columns, mut is_named, mut counts) = (HashMap::new(), false, true);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let Some(name) = line.strip_suffix('=') {
                is_named = true;
                counts = fsname_of(name) == Some(fsname) && self.names.insert(name.to_owned());
            } else if !is_named {
                return Err(bad("it has no name: leave out -n"));
            } else if words[0] == "file" {
                columns = words.iter().enumerate().map(|(at, name)| (*name, at)).collect();
                self.mounts += 1;
            } else if columns.is_empty() {
                return Err(bad(line));
            } else if counts {
                self.seen.push(seen(&columns, &words, self.mounts).ok_or_else(|| bad(line))?);
            }
        }
        if columns.is_empty() { Err(bad("it is empty")) } else { Ok(()) }
    }
}

fn seen(columns: &HashMap<&str, usize>, words: &[&str], mount: usize) -> Option<Seen> {
    let word = |name| columns.get(name).and_then(|at| words.get(*at)).copied();
    let number = |name| word(name)?.parse::<u64>().ok();
    let mean = |name| word(name)?.parse::<f64>().ok().filter(|mean| mean.is_finite());
    Some(Seen {
        file: word("file")?.parse::<Fid>().ok()?.ino(),
        direction: if word("access")? == "write" { Direction::Write } else { Direction::Read },
        mount,
        tasks: mean("tasks")?,
        beside: mean("beside")?,
        bytes: number("bytes")?,
        span: number("span")?,
        end: number("end")?,
        request: number("request")?,
        run: number("run")?,
    })
}

/// Paths and lengths of files, by inode number.
type Found = HashMap<u64, (PathBuf, u64)>;

/// A search for observed files.
struct Search {
    found: Found,
    /// Number of files that were not found when the search ended too early. `None`: it did not.
    missing: Option<u64>,
}

/// Searches the files at a path: the path itself, or files below it, the nearest first. Ends when
/// all are found, or after `most` entries without a further one.
fn below(path: &Path, seen: &[Seen], most: u64) -> io::Result<Search> {
    let wanted: BTreeSet<u64> = seen.iter().map(|seen| seen.file).collect();
    let about = fs::metadata(path)?;
    if !about.is_dir() {
        return Ok(Search { found: [(about.ino(), (path.to_owned(), about.len()))].into(), missing: None });
    }
    let progress = Progress::new(wanted.len());
    progress.begin("looking for the observed files");
    let (mut found, mut dirs, mut searched) = (Found::new(), VecDeque::from([path.to_owned()]), 0);
    while let Some(dir) = dirs.pop_front() {
        stop::check()?;
        // A directory that others have removed, or of another user.
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            if found.len() == wanted.len() {
                return Ok(Search { found, missing: None });
            }
            if searched == most {
                let missing = Some((wanted.len() - found.len()) as u64);
                return Ok(Search { found, missing });
            }
            searched += 1;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                dirs.push_back(entry.path());
            } else if wanted.contains(&entry.ino())
                && let Ok(about) = entry.metadata()
                && found.insert(entry.ino(), (entry.path(), about.len())).is_none()
            {
                progress.end();
                searched = 0;
            }
        }
    }
    Ok(Search { found, missing: None })
}

/// Describes the job. `None`: no accesses.
fn describe(seen: &[Seen], path: &Path, at: &Found) -> Option<Observed> {
    let [writes, reads] = Direction::ALL.map(|direction| by_file(seen, direction));
    let bytes = |files: &[Used]| files.iter().map(Used::size).fold(0, u64::saturating_add);
    let (direction, files, others) = match bytes(&reads) > bytes(&writes) {
        true => (Direction::Read, reads, writes),
        false => (Direction::Write, writes, reads),
    };
    let (total, heaviest) = (bytes(&files), files.iter().max_by_key(|file| file.size())?.clone());
    let is_one = files.len() == 1 || heaviest.tasks.round() > 1.0 && heaviest.size() >= total / 2;
    let files = if is_one { vec![heaviest.clone()] } else { files };
    let (total, names): (u64, BTreeSet<u64>) = (bytes(&files), files.iter().map(|file| file.file).collect());
    // Accesses of the other kind belong to the job if they are to the same files.
    let others: Vec<Used> = others.into_iter().filter(|other| names.contains(&other.file)).collect();
    let counts = |of: &Direction| *of == direction || bytes(&others) as f64 > total as f64 * SMALL_PART;
    let directions: Vec<Direction> = Direction::ALL.into_iter().filter(counts).collect();
    let verb = match directions.as_slice() {
        [Direction::Write] => "written",
        [Direction::Read] => "read",
        _ => "written and read",
    };
    let mounts: BTreeSet<usize> = files.iter().flat_map(|file| file.mounts.iter().copied()).collect();
    let (nodes, size, mounts) = (mounts.len() as u32, human(total), counted(mounts.len() as u64, "mount"));
    let (workload, text) = if is_one {
        let tasks = whole(heaviest.tasks);
        let workload = heaviest.workload(tasks, nodes, total / u64::from(tasks), false);
        let name = at.get(&heaviest.file).map_or_else(|| path.display(), |(path, _)| path.display());
        (workload, format!("Observed: {size} {verb} by {} on {mounts} in {name}", counted(tasks, "task")))
    } else {
        let tasks = whole(at_once(seen, direction, &names)).min(files.len() as u32);
        let workload = heaviest.workload(tasks, nodes, total / files.len() as u64, tasks > 1);
        let (number, path) = (counted(files.len() as u64, "file"), path.display());
        (workload, format!("Observed: {size} {verb} on {mounts} in {number} of {path}, {tasks} at a time"))
    };
    // Programs can have read or written a part only.
    let len = |file: &Used| at.get(&file.file).map_or(0, |(_, len)| *len).max(file.end);
    let small = files.iter().filter(|file| len(file) <= PROGRESSIVE_ON_MDT).count() as f64;
    let are_small =
        small >= files.len() as f64 * SMALL_FILES_PART && files.iter().all(|file| len(file) <= PROGRESSIVE_ONE_STRIPE);
    Some(Observed { workload, directions, are_small, text, warning: None })
}

/// Rounds a mean number of tasks.
fn whole(tasks: f64) -> u32 {
    tasks.round().clamp(1.0, 1e6) as u32
}

fn by_file(seen: &[Seen], direction: Direction) -> Vec<Used> {
    let mut files: Vec<Used> = Vec::new();
    let mut places: HashMap<u64, usize> = HashMap::new();
    for seen in seen.iter().filter(|seen| seen.direction == direction) {
        let place = *places.entry(seen.file).or_insert_with(|| {
            let Seen { file, request, run, .. } = *seen;
            let mounts = BTreeSet::new();
            files.push(Used { file, tasks: 0.0, mounts, bytes: 0, span: 0, end: 0, request, run, most: 0 });
            files.len() - 1
        });
        files[place].add(seen);
    }
    files
}

/// Returns how many files were in use at the same time: for each mount the mean over its files, by
/// their bytes. Mounts are taken to work at the same time.
fn at_once(seen: &[Seen], direction: Direction, files: &BTreeSet<u64>) -> f64 {
    let mut mounts: HashMap<usize, (f64, f64)> = HashMap::new();
    for seen in seen.iter().filter(|seen| seen.direction == direction && files.contains(&seen.file)) {
        let (sum, bytes) = mounts.entry(seen.mount).or_default();
        *sum += seen.beside * seen.bytes as f64;
        *bytes += seen.bytes as f64;
    }
    mounts.values().map(|(sum, bytes)| sum / bytes.max(1.0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: u64 = 1 << 20;
    const HEAD: &str = "file access tasks beside requests bytes span end request runs run\n";

    /// Returns the job that values of the parameter show, one for each mount.
    fn observed(mounts: &[&[&str]]) -> Option<Observed> {
        let mut all = Observations::default();
        for (mount, lines) in mounts.iter().enumerate() {
            let lines: Vec<String> = lines.iter().map(|line| format!("[0x200000401:0x{line}\n")).collect();
            all.read(&format!("llite.fs-{mount}.{PARAMETER}=\n{HEAD}{}", lines.concat()), "fs").expect("valid");
        }
        let at = all.seen.iter().map(|seen| (seen.file, (PathBuf::from("/m/data"), seen.end))).collect();
        describe(&all.seen, Path::new("/m"), &at)
    }

    #[test]
    fn warning_names_the_process_that_does_not_answer() {
        let silent = Silent { socket: "/run/sheen/4711.sock".into(), waited: std::time::Duration::from_millis(300) };
        let text = "WARNING: process 4711 does not answer within 300 ms: its mounts are missing";
        assert_eq!(warning(&silent, "its mounts are missing"), text);
    }

    #[test]
    fn observations_of_other_file_systems_and_read_before_are_left_out() {
        let value = |fsname: &str| {
            format!("llite.{fsname}-1.{PARAMETER}=\n{HEAD}[0x200000401:0x1:0x0] read 1.00 1.00 1 5 5 5 5 1 5\n")
        };
        let mut all = Observations::default();
        all.read(&format!("{}{}", value("fs"), value("fs-test")), "fs").unwrap();
        all.read(&value("fs"), "fs").unwrap();
        assert_eq!((all.seen.len(), all.seen[0].bytes), (1, 5));
        let nan = value("fs").replace("fs-1", "fs-2").replace("1.00", "nan");
        for bad in ["", "x 5\n", value("fs").split_once('\n').unwrap().1, &nan] {
            assert!(all.read(bad, "fs").is_err(), "{bad}");
        }
    }

    #[test]
    fn search_ends_when_all_files_are_found_or_after_many_entries_without_one() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("deep");
        fs::create_dir(&deep).unwrap();
        let create = |path: PathBuf| {
            fs::write(&path, "12345").unwrap();
            fs::metadata(path).unwrap().ino()
        };
        let (near, far) = (create(dir.path().join("near")), create(deep.join("far")));
        for n in 0..20 {
            create(deep.join(format!("other{n}")));
        }
        let search = |files: &[u64], most| {
            let of = |file: &u64| Seen {
                file: *file,
                direction: Direction::Read,
                mount: 0,
                tasks: 1.0,
                beside: 1.0,
                bytes: 5,
                span: 5,
                end: 5,
                request: 5,
                run: 5,
            };
            let Search { found, missing } = below(dir.path(), &files.iter().map(of).collect::<Vec<_>>(), most).unwrap();
            (found.get(&near).map(|(_, len)| *len), found.contains_key(&far), missing)
        };
        assert_eq!(search(&[near, far], 1000), (Some(5), true, None));
        assert_eq!(search(&[near, u64::MAX], 1000), (Some(5), false, None), "all of the directory was searched");
        assert_eq!(search(&[near, u64::MAX, u64::MAX - 1], 10), (Some(5), false, Some(2)));
        assert_eq!(search(&[near], 2), (Some(5), false, None), "the nearest first");
    }

    #[test]
    fn records_in_turn_of_several_mounts_are_one_job() {
        let of_mount = |end| format!("1:0x0] write 1.98 2.00 64 67108864 133169152 {end} 1048576 64 1048576");
        let log = "2:0x0] write 1.00 1.00 1 1048576 1048576 1048576 1048576 1 1048576";
        let (one, two) = (of_mount(267_386_880), of_mount(268_435_456));
        let all = observed(&[&[&one, log], &[&two]]).unwrap();
        let expected = Workload { tasks: 4, nodes: 2, transfer: MI, block: MI, size: 32 * MI, files: false };
        assert_eq!((all.workload, all.directions, all.are_small), (expected, vec![Direction::Write], false));
        assert_eq!(all.text, "Observed: 128 MiB written by 4 tasks on 2 mounts in /m/data");
    }

    #[test]
    fn large_records_are_blocks_and_unaligned_ones_transfers() {
        let of = |request, run| {
            let line = format!("1:0x0] write 2.00 2.00 9 67108864 133169152 134217728 {request} 9 {run}");
            let Workload { transfer, block, .. } = observed(&[&[&line]]).unwrap().workload;
            (transfer, block)
        };
        assert_eq!(of(MI, 4 * MI), (MI, 4 * MI));
        assert_eq!(of(MI, 3 * MI / 2), (3 * MI / 2, 3 * MI / 2));
        assert_eq!(of(47_008, 47_008), (47_008, 47_008));
    }

    #[test]
    fn dense_accesses_are_contiguous_even_if_requests_overtake_each_other() {
        let read = "1:0x0] read 1.00 1.00 512 67108865 67108865 67108865 131072 200 131072";
        let write = "1:0x0] write 1.00 1.00 1 4096 4096 4096 4096 1 4096";
        let all = observed(&[&[read, write]]).unwrap();
        assert_eq!((all.workload.transfer, all.workload.block), (131_072, 64 * MI));
        assert_eq!(all.directions, [Direction::Read], "the write is too small to count");
        assert_eq!(observed(&[&[]]), None);
    }

    #[test]
    fn job_is_about_the_files_with_most_bytes() {
        let data = "1:0x0] read 4.00 4.00 512 67108864 67108864 67108864 131072 4 16777216";
        let own = "1:0x0] write 1.00 1.00 9 8388608 8388608 8388608 1048576 1 8388608";
        let log = "2:0x0] write 1.00 1.00 9 33554432 33554432 33554432 4096 1 33554432";
        let all = observed(&[&[data, log]]).unwrap();
        assert_eq!((all.workload.tasks, all.directions), (4, vec![Direction::Read]));
        let all = observed(&[&[data, own]]).unwrap();
        assert_eq!(all.directions, Direction::ALL);
        assert!(all.text.starts_with("Observed: 64 MiB written and read by 4 tasks"), "{}", all.text);
    }

    #[test]
    fn files_that_are_open_at_the_same_time_belong_to_a_task_each() {
        let line = |file: u32, beside: f64| {
            format!("{file}:0x0] write 1.00 {beside:.2} 16 16777216 16777216 16777216 1048576 1 16777216")
        };
        let of = |beside: [f64; 4]| {
            let lines = [1, 2, 3, 4].map(|file| line(file, beside[file as usize - 1]));
            observed(&[&lines.each_ref().map(String::as_str)]).unwrap()
        };
        let all = of([1.7, 2.0, 2.0, 1.9]);
        let expected = Workload { tasks: 2, nodes: 1, transfer: MI, block: 16 * MI, size: 16 * MI, files: true };
        assert_eq!(all.workload, expected);
        assert_eq!(all.text, "Observed: 64 MiB written on 1 mount in 4 files of /m, 2 at a time");
        let one = of([1.0, 1.01, 1.0, 1.0]).workload;
        assert_eq!((one.tasks, one.files), (1, false), "one after the other");
    }

    #[test]
    fn files_are_small_by_their_ends() {
        let line = |file: u32, bytes: u64, end: u64| {
            format!("{file}:0x0] write 1.00 1.00 1 {bytes} {bytes} {end} {bytes} 1 {bytes}")
        };
        let are_small =
            |lines: &[String]| observed(&[&lines.iter().map(String::as_str).collect::<Vec<_>>()]).unwrap().are_small;
        assert!(are_small(&[line(1, 1000, 1000), line(2, 9, 65_536)]));
        assert!(!are_small(&[line(1, 1000, 10 << 30), line(2, 1000, 10 << 30)]), "appends to large files");
        let mut many: Vec<String> = (1..=19).map(|file| line(file, 1000, 1000)).collect();
        many.push(line(20, 1 << 20, 1 << 20));
        assert!(are_small(&many));
        many[19] = line(20, 1 << 30, 1 << 30);
        assert!(!are_small(&many), "one is large");
    }
}
