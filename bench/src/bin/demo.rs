//! The demonstration behind `make demo`: a file system with four layouts. It copies real data into
//! each, remounts, and checks every byte. It prints each command before it runs it, so that a
//! newcomer can continue by hand.
//!
//! `demo DIR [--sheen PATH]` leaves the file system running and mounted at DIR/mnt.
//! `make demo-stop` ends it.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

#[derive(Parser)]
struct Args {
    /// Directory for all files of the demonstration.
    dir: PathBuf,
    /// Path of the sheen program.
    #[arg(long, default_value = "target/release/sheen")]
    sheen: PathBuf,
}

/// Size of the large file in bytes. `scripts/demo-space.sh` knows it.
const LARGE_BYTES: u64 = 1 << 30;
/// Maximum number of files copied from the source tree: enough to be realistic, few enough for a
/// minute.
const TREE_FILES_MAX: usize = 1500;
const COPY_BYTES: usize = 4 << 20;

const LAYOUTS: [(&str, &[&str], &str); 4] = [
    ("one", &["-c", "1"], "one stripe: each file on one OST"),
    ("four", &["-c", "4", "-S", "1M"], "four stripes: each file over all OSTs"),
    ("over", &["-C", "8", "-S", "1M"], "eight stripes on four OSTs: overstriped"),
    ("placed", &["-o", "0,1,0,2,1,2,3,3", "-S", "1M"], "stripes placed by hand"),
];

/// A file to copy.
struct Sample {
    from: PathBuf,
    to: PathBuf,
    len: u64,
}

fn main() {
    if let Err(e) = run() {
        eprintln!("demo: {e}");
        std::process::exit(1);
    }
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    fs::create_dir_all(&args.dir)?;
    let dir = args.dir.canonicalize()?;
    let sheen = args.sheen.canonicalize()?;
    let bin = dir.join("bin");
    fs::create_dir_all(&bin)?;
    for name in ["sheen", "lfs", "lctl"] {
        let _ = fs::remove_file(bin.join(name));
        symlink(&sheen, bin.join(name))?;
    }
    let mnt = dir.join("mnt");
    let fs_dir = dir.join("fs");
    let shell = Shell { bin: bin.clone() };
    let d = |p: &Path| p.to_string_lossy().into_owned();

    title("Start a file system: 1 MDT and 4 OSTs in one process, mounted");
    shell.run("sheen", &["up", "--dir", &d(&fs_dir), "--mount", &d(&mnt), "--osts", "4"])?;

    title("Four directories, four layouts");
    for (name, options, what) in LAYOUTS {
        let path = mnt.join(name);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        println!("# {what}");
        let target = d(&path);
        let words: Vec<&str> = ["setstripe"].iter().chain(options).copied().chain([target.as_str()]).collect();
        shell.run("lfs", &words)?;
    }

    title("Copy real data into each: a source tree and one large file");
    let large = large_file(&dir)?;
    let tree = tree()?;
    let total: u64 = LAYOUTS.len() as u64 * (tree.iter().map(|s| s.len).sum::<u64>() + fs::metadata(&large)?.len());
    println!(
        "# {} files of a source tree and {} ({} MiB)",
        tree.len(),
        large.display(),
        fs::metadata(&large)?.len() >> 20
    );
    let mut sums: Vec<(PathBuf, u64)> = Vec::new();
    let mut table = Vec::new();
    let bar = progress(total, "write");
    for (name, ..) in LAYOUTS {
        let start = Instant::now();
        let to = mnt.join(name).join("large.bin");
        sums.push((to.clone(), copy(&large, &to, &bar)?));
        let large_rate = rate(fs::metadata(&large)?.len(), start);
        let start = Instant::now();
        for sample in &tree {
            let to = mnt.join(name).join("tree").join(&sample.to);
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent)?;
            }
            sums.push((to.clone(), copy(&sample.from, &to, &bar)?));
        }
        table.push((name, large_rate, tree.len() as f64 / start.elapsed().as_secs_f64(), 0.0));
    }
    bar.finish_and_clear();

    title("Remount, so that nothing is read from a cache of the client");
    shell.run("sheen", &["down", "--dir", &d(&fs_dir)])?;
    shell.run("sheen", &["up", "--dir", &d(&fs_dir), "--mount", &d(&mnt)])?;

    title("Check every byte");
    let bar = progress(total, "verify");
    let mut buffer = vec![0; COPY_BYTES];
    let (mut wrong, mut bytes) = (0, 0);
    let mut large_bytes = 0;
    let mut start = Instant::now();
    let mut row = 0;
    for (path, want) in &sums {
        let is_large = path.ends_with("large.bin");
        if is_large {
            start = Instant::now();
            large_bytes = fs::metadata(path)?.len();
        }
        let (sum, len) = checksum(path, &mut buffer, &bar)?;
        bytes += len;
        if is_large {
            table[row].3 = rate(large_bytes, start);
            row += 1;
        }
        if sum != *want {
            wrong += 1;
            eprintln!("{}: the checksum differs", path.display());
        }
    }
    bar.finish_and_clear();
    println!("{} files, {} MiB read back, {wrong} differ", sums.len(), bytes >> 20);
    if wrong > 0 {
        return Err(io::Error::other("the data read back differs from the data written"));
    }

    title("What the layouts look like");
    for (name, ..) in LAYOUTS {
        shell.run("lfs", &["getstripe", &d(&mnt.join(name).join("large.bin"))])?;
    }
    title("Space");
    shell.run("lfs", &["df", "-h", &d(&mnt)])?;

    title("Throughput through the mount");
    println!("{:8} {:>16} {:>16} {:>16}", "layout", "write MiB/s", "read MiB/s", "small files/s");
    for (name, write, files, read) in table {
        println!("{name:8} {write:>16.0} {read:>16.0} {files:>16.0}");
    }
    let path = bin.display();
    println!("\nThe file system stays up, mounted at {}.", mnt.display());
    println!("  try      export PATH={path}:$PATH   then   lfs getstripe {}", mnt.join("over").display());
    println!(
        "  stop it  make demo-stop   (its data stays in {}; delete that directory to free the space)",
        fs_dir.display()
    );
    Ok(())
}

fn title(text: &str) {
    println!("\n== {text}");
}

struct Shell {
    bin: PathBuf,
}

impl Shell {
    /// Prints the command, then runs it with its output visible.
    fn run(&self, program: &str, args: &[&str]) -> io::Result<()> {
        println!("$ {program} {}", args.join(" "));
        io::stdout().flush()?;
        let status = Command::new(self.bin.join(program)).args(args).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("{program} {}: {status}", args.join(" ")))) }
    }
}

fn progress(total: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style =
        ProgressStyle::with_template("{msg:7} [{bar:40}] {bytes}/{total_bytes} {binary_bytes_per_sec} eta {eta}");
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what);
    bar
}

fn rate(bytes: u64, start: Instant) -> f64 {
    bytes as f64 / (1 << 20) as f64 / start.elapsed().as_secs_f64()
}

/// Creates a real file of 1 GiB: an archive of the Rust toolchain that built this program, repeated
/// if that is less, and cut off.
fn large_file(dir: &Path) -> io::Result<PathBuf> {
    let path = dir.join("large.tar");
    if fs::metadata(&path).is_ok_and(|m| m.len() == LARGE_BYTES) {
        return Ok(path);
    }
    println!("# packing the Rust toolchain into {} as the large file", path.display());
    let out = Command::new("rustc").args(["--print", "sysroot"]).output()?;
    let sysroot = PathBuf::from(std::ffi::OsStr::from_bytes(out.stdout.trim_ascii()));
    let mut file = File::create(&path)?;
    let mut left = LARGE_BYTES;
    while left > 0 {
        let mut tar = Command::new("tar");
        let mut tar = tar.args(["cf", "-", "-C"]).arg(&sysroot).arg(".").stdout(Stdio::piped()).spawn()?;
        // This closes the pipe, which ends tar where the archive is cut off.
        let packed = tar.stdout.take().map_or(Ok(0), |pipe| io::copy(&mut pipe.take(left), &mut file))?;
        let status = tar.wait()?;
        left -= packed;
        if left > 0 && (packed == 0 || !status.success()) {
            return Err(io::Error::other("tar failed"));
        }
    }
    Ok(path)
}

/// Returns files of a source tree that is on every machine that can build Sheen: the sources of the
/// crates from which it was built.
fn tree() -> io::Result<Vec<Sample>> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let mut samples = Vec::new();
    for root in [cargo.join("registry/src"), PathBuf::from("/usr/include")] {
        walk(&root, &root, &mut samples)?;
    }
    Ok(samples)
}

fn walk(root: &Path, dir: &Path, samples: &mut Vec<Sample>) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        if samples.len() >= TREE_FILES_MAX {
            return Ok(());
        }
        if kind.is_dir() {
            walk(root, &entry.path(), samples)?;
        } else if kind.is_file() {
            let from = entry.path();
            let to = from.strip_prefix(root).map_err(io::Error::other)?.to_owned();
            samples.push(Sample { len: entry.metadata()?.len(), from, to });
        }
    }
    Ok(())
}

/// Copies a file and returns the checksum of the data read from the source.
fn copy(from: &Path, to: &Path, bar: &ProgressBar) -> io::Result<u64> {
    let (mut source, mut target) = (File::open(from)?, File::create(to)?);
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let n = source.read(&mut buffer)?;
        if n == 0 {
            return Ok(digest.finalize());
        }
        digest.update(&buffer[..n]);
        target.write_all(&buffer[..n])?;
        bar.inc(n as u64);
    }
}

fn checksum(path: &Path, buffer: &mut [u8], bar: &ProgressBar) -> io::Result<(u64, u64)> {
    let mut file = File::open(path)?;
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    let mut len = 0;
    loop {
        let n = file.read(buffer)?;
        if n == 0 {
            return Ok((digest.finalize(), len));
        }
        digest.update(&buffer[..n]);
        len += n as u64;
        bar.inc(n as u64);
    }
}
