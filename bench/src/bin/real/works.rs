//! The works: groups of phases that share files.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use crate::args::Args;

/// Whether a higher or a lower result is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// A rate.
    More,
    /// A duration.
    Less,
}

/// Phases that share files. Each phase begins with empty caches.
pub struct Group {
    /// Name in tables.
    pub name: &'static str,
    /// Programs that it needs.
    programs: Vec<PathBuf>,
    /// Files that exist before the first phase, with their sizes in bytes.
    files: Vec<(String, usize)>,
    /// Its phases, in order.
    pub phases: Vec<Phase>,
}

/// A command, and how its result is read.
pub struct Phase {
    /// Name in tables.
    pub name: &'static str,
    /// Unit of the result.
    pub unit: &'static str,
    /// Whether more is better.
    pub better: Better,
    /// Goals of the ratio to the passthrough, over `lo` and over tcp.
    pub goals: Option<[f64; 2]>,
    /// The command line. `DIR` stands for the directory to work in.
    words: Vec<String>,
    result: Output,
}

/// Where the result is in the output of a command.
#[derive(Clone, Copy)]
enum Output {
    /// IOR: second word of the line that begins with this word, in MiB/s.
    Ior(&'static str),
    /// mdtest: first number of the line that begins with these words, per second.
    Mdtest(&'static str),
    /// fio: `read.iops` of its JSON.
    Fio,
    /// The duration of the command, in seconds.
    Seconds,
}

impl Group {
    /// Returns the name of a program that it needs and that is not there.
    pub fn missing(&self) -> Option<String> {
        self.programs.iter().find(|program| found(program).is_none()).map(|program| text(program))
    }

    /// Writes the files that its first phase reads.
    pub fn prepare(&self, dir: &Path) -> io::Result<()> {
        self.files.iter().try_for_each(|(name, bytes)| fs::write(dir.join(name), vec![0x5a; *bytes]))
    }
}

impl Phase {
    fn new(name: &'static str, result: Output, goals: Option<[f64; 2]>, words: Vec<String>) -> Phase {
        let (unit, better) = match result {
            Output::Ior(_) => ("MiB/s", Better::More),
            Output::Mdtest(_) | Output::Fio => ("/s", Better::More),
            Output::Seconds => ("s", Better::Less),
        };
        Phase { name, unit, better, goals, words, result }
    }

    /// Returns the number of decimals of a result in tables.
    pub fn digits(&self) -> u8 {
        if self.better == Better::More { 0 } else { 2 }
    }

    /// Runs the command in `dir`, and returns the result.
    pub fn run(&self, dir: &Path) -> io::Result<f64> {
        let words: Vec<String> = self.words.iter().map(|word| word.replace("DIR", &text(dir))).collect();
        let [program, words @ ..] = words.as_slice() else { return Err(io::Error::other("no command")) };
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null());
        let start = Instant::now();
        let out = command.output()?;
        let took = start.elapsed().as_secs_f64();
        let output = String::from_utf8_lossy(&out.stdout);
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr);
            return Err(io::Error::other(format!("{command:?}: {}: {output}{said}", out.status)));
        }
        let result = self.result.read(&output, took);
        result.ok_or_else(|| io::Error::other(format!("{command:?}: no result in its output: {output}")))
    }
}

impl Output {
    fn read(self, output: &str, took: f64) -> Option<f64> {
        let after = |words: &str| output.lines().find_map(|line| line.trim_start().strip_prefix(words));
        match self {
            Output::Ior(word) | Output::Mdtest(word) => after(word)?.split_whitespace().next()?.parse().ok(),
            Output::Fio => {
                let output: serde_json::Value = serde_json::from_str(output).ok()?;
                output["jobs"][0]["read"]["iops"].as_f64()
            }
            Output::Seconds => Some(took),
        }
    }
}

/// Returns where a program is, looked up in PATH if it is given by name alone.
pub fn found(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Returns all groups. `archive` is the source tree to unpack.
pub fn groups(args: &Args, archive: &Path) -> Vec<Group> {
    let mut groups = ior(args);
    groups.extend(mdtest(args));
    groups.push(source_tree(archive));
    groups.push(fio(args));
    groups
}

/// Returns a path as text, for a command line.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// `words` divided at spaces.
fn split(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

/// The command line of an MPI program.
fn mpi(args: &Args, program: &Path, words: &str) -> Vec<String> {
    let mut line = vec![text(&args.mpiexec), "-n".to_owned(), args.processes.to_string(), text(program)];
    line.extend(split(words));
    line
}

/// IOR as in IO500 (easy: a file for each process; hard: records of 47,008 bytes in one file), and
/// blocks of 1 MiB in turn in one file.
fn ior(args: &Args) -> Vec<Group> {
    let scale = if args.quick { 8 } else { 1 };
    let shapes = [
        ("ior easy", format!("-F -t 1m -b {}m", 256 / scale), Some(([2.0, 1.2], [1.2, 0.8]))),
        ("ior hard", format!("-t 47008 -b 47008 -s {}", 4000 / scale), Some(([1.5, 1.2], [1.0, 0.7]))),
        ("ior strided", format!("-t 1m -b 1m -s {}", 256 / scale), None),
    ];
    let group = |(name, shape, goals): (&'static str, String, Option<_>)| {
        let line = |mode: &str| mpi(args, &args.ior, &format!("{mode} -k -C -o DIR/data {shape}"));
        let (write, read) = goals.unzip();
        let phases = vec![
            Phase::new("write", Output::Ior("write"), write, line("-w -e")),
            Phase::new("read", Output::Ior("read"), read, line("-r")),
        ];
        Group { name, programs: vec![args.mpiexec.clone(), args.ior.clone()], files: Vec::new(), phases }
    };
    shapes.map(group).into()
}

/// mdtest as in IO500. Easy: empty files, a directory for each process. Hard: 3901 bytes each, in
/// one directory.
fn mdtest(args: &Args) -> Vec<Group> {
    let scale = if args.quick { 8 } else { 1 };
    let line = |mode: &str, shape: &str| mpi(args, &args.mdtest, &format!("{mode} -F -d DIR/md {shape}"));
    let programs = vec![args.mpiexec.clone(), args.mdtest.clone()];
    let phase = |name, words, goals, mode: &str, shape: &str| {
        Phase::new(name, Output::Mdtest(words), Some(goals), line(mode, shape))
    };
    let (easy, hard) = (format!("-u -L -n {}", 4000 / scale), format!("-w 3901 -e 3901 -n {}", 2000 / scale));
    vec![
        Group {
            name: "mdtest easy",
            programs: programs.clone(),
            files: Vec::new(),
            phases: vec![
                phase("create", "File creation", [1.0, 0.6], "-C", &easy),
                phase("stat", "File stat", [1.0, 0.6], "-T", &easy),
                phase("remove", "File removal", [1.0, 0.6], "-r", &easy),
            ],
        },
        Group {
            name: "mdtest hard",
            programs,
            files: Vec::new(),
            phases: vec![
                phase("create", "File creation", [1.0, 0.6], "-C", &hard),
                phase("stat", "File stat", [1.0, 0.6], "-T", &hard),
                phase("read", "File read", [0.9, 0.7], "-E", &hard),
                phase("remove", "File removal", [1.0, 0.6], "-r", &hard),
            ],
        },
    ]
}

/// A tree of source files: unpacked, searched, measured, removed.
fn source_tree(archive: &Path) -> Group {
    let phase = |name, words: String| Phase::new(name, Output::Seconds, Some([1.2, 2.0]), split(&words));
    Group {
        name: "tree",
        programs: Vec::new(),
        files: Vec::new(),
        phases: vec![
            phase("untar", format!("tar xf {} -C DIR --one-top-level=tree", archive.display())),
            phase("find", "find DIR -newer /proc/self".to_owned()),
            phase("du", "du -s DIR".to_owned()),
            phase("rm", "rm -rf DIR/tree".to_owned()),
        ],
    }
}

/// fio: random reads of 4 KiB, which the kernel does not cache.
fn fio(args: &Args) -> Group {
    let (mib, seconds) = if args.quick { (32, 1) } else { (256, 3) };
    let line = |jobs: usize| {
        let words = "--name=read --rw=randread --bs=4k --ioengine=psync --direct=1 --time_based --group_reporting";
        let sized = format!("--output-format=json --size={mib}m --runtime={seconds} --numjobs={jobs}");
        let mut line = vec![text(&args.fio)];
        line.extend(split(words));
        line.extend(split(&sized));
        // Each job has a file of its own: $jobnum is replaced by fio.
        line.push("--filename_format=DIR/fio$jobnum".to_owned());
        line
    };
    Group {
        name: "fio 4 KiB random read",
        programs: vec![args.fio.clone()],
        files: (0..4).map(|job| (format!("fio{job}"), mib << 20)).collect(),
        phases: vec![
            Phase::new("×1", Output::Fio, Some([1.0, 0.4]), line(1)),
            Phase::new("×4", Output::Fio, Some([0.9, 0.4]), line(4)),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_the_programs_output() {
        let ior = "access    bw(MiB/s)  IOPS\n------    ---------  ----\nwrite     5423       5425       0.0006\n";
        assert_eq!(Output::Ior("write").read(ior, 0.0), Some(5423.0));
        let mdtest = "   Operation      Max   Min\n   File stat    249497.591     249497.591\n";
        assert_eq!(Output::Mdtest("File stat").read(mdtest, 0.0), Some(249497.591));
        assert_eq!(Output::Fio.read(r#"{"jobs": [{"read": {"iops": 12.5}}]}"#, 0.0), Some(12.5));
        assert_eq!(Output::Ior("read").read(ior, 0.0), None);
    }
}
