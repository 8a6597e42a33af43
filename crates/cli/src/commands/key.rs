//! `sheen key`: the keys of this user, and those that a server accepts.
//!
//! A running server notices changes of its directory of keys by itself.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::Serialize;
use sheen_keys::{Found, Key, KeyError, list, remove, search_dirs, store, store_for_server, user_dir};
use sheen_rt::{RealOptions, Rt, target_dir::KEYS};

use crate::{
    args::{KeyAddArgs, KeyArgs, KeyCommand, KeyListArgs, KeyNewArgs, KeyRevokeArgs},
    dir_kind::DirKind,
    error::{Context, Failure, Result},
};

/// Most bytes of key files that are read.
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// A line of `sheen key list --json`.
#[derive(Serialize)]
struct Line {
    cluster: String,
    key: String,
    created: i64,
    file: String,
}

/// Runs the command.
pub fn run(args: &KeyArgs) -> Result {
    match &args.command {
        KeyCommand::List(args) => print(args),
        KeyCommand::Add(args) => add(args),
        KeyCommand::New(args) => new(args),
        KeyCommand::Revoke(args) => revoke(args),
    }
}

/// Returns the keys that this user's mounts find. Reports files that are not usable.
fn found() -> Vec<Found> {
    let mut keys = Vec::new();
    for dir in search_dirs() {
        let listing = list(&dir, None);
        keys.extend(listing.found);
        for unusable in listing.unusable.iter().filter(|error| !error.is_denied_directory(&dir)) {
            eprintln!("sheen: {unusable}");
        }
    }
    keys
}

/// Returns the directory of a server's keys, and the keys, the oldest first. `dir`: the directory
/// of the server, or of `sheen up`.
fn served(dir: &Path) -> Result<(PathBuf, Vec<Found>)> {
    let keys =
        [dir.join("mgs").join(KEYS), dir.join(KEYS)].into_iter().find(|keys| keys.is_dir()).ok_or_else(|| {
            Failure::new(format!("{} is not the directory of a server that has a key", dir.display())).advise(
            "give the directory of `sheen up`, `sheen mgs`, `sheen mds` or `sheen oss`; the first start of the server \
             stores a key there",
        )
        })?;
    let found = list(&keys, None).complete().context("cannot use the server's keys")?;
    Ok((keys, found))
}

fn print(args: &KeyListArgs) -> Result {
    let found = match &args.dir {
        Some(dir) => served(dir)?.1,
        None => found(),
    };
    let lines = found.into_iter().map(|Found { key, path }| Line {
        cluster: key.cluster.to_string(),
        key: key.id.to_string(),
        created: key.created,
        file: path.display().to_string(),
    });
    if args.json {
        let lines: Vec<Line> = lines.collect();
        println!("{}", serde_json::to_string_pretty(&lines).context("cannot print the keys")?);
        return Ok(());
    }
    println!("{:16}  {:16}  file", "cluster", "key");
    for Line { cluster, key, file, .. } in lines {
        println!("{cluster:16}  {key:16}  {file}");
    }
    Ok(())
}

fn add(args: &KeyAddArgs) -> Result {
    let name = args.file.display();
    // The owner and the mode of the original do not matter: the copy has its own.
    let file: Box<dyn Read> = match args.file == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(&args.file).context(format!("cannot open {name}"))?),
    };
    let mut text = String::new();
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).context(format!("cannot read {name}"))?;
    let keys = Key::parse_all(&text).map_err(|reason| Failure::new(format!("{name} is not a key file: {reason}")))?;
    let (dir, put): (PathBuf, fn(&Path, &Key) -> _) = match &args.dir {
        Some(dir) => {
            let (dir, served) = served(dir)?;
            if let Some(key) = keys.iter().find(|key| served.iter().any(|found| found.key.cluster != key.cluster)) {
                return Err(Failure::new(format!(
                    "key {} belongs to cluster {}, which is not that of this server",
                    key.id, key.cluster
                )));
            }
            (dir, store_for_server)
        }
        None => (user_dir().ok_or(KeyError::NoDirectory).context("cannot store the key")?, store),
    };
    for key in &keys {
        println!("{}", put(&dir, key).context("cannot store the key")?.display());
    }
    Ok(())
}

fn new(args: &KeyNewArgs) -> Result {
    if !DirKind::Mgs.is_in(&args.dir) && !DirKind::FileSystem.is_in(&args.dir) {
        return Err(Failure::new(format!("{} is the directory of no MGS", args.dir.display()))
            .advise("make the key there, and give a copy to the other servers with `sheen key add --dir`"));
    }
    let (dir, served) = served(&args.dir)?;
    let Some(Found { key: newest, .. }) = served.last() else {
        return Err(Failure::new(format!("{} has no key yet; the first start of the server makes one", dir.display())));
    };
    let (runtime, rt) = Rt::real(RealOptions::default()).context("cannot start")?;
    let (mut id, mut secret) = ([0; 8], [0; 32]);
    rt.fill_random(&mut id);
    rt.fill_random(&mut secret);
    // Clients use the newest, also if a clock was set back.
    let created = rt.wall().sec.max(newest.created.saturating_add(1));
    drop(runtime);
    let key = Key::new(newest.cluster, u64::from_le_bytes(id), secret, created);
    println!("{}", store_for_server(&dir, &key).context("cannot store the key")?.display());
    match user_dir().ok_or(KeyError::NoDirectory).and_then(|user| store(&user, &key)) {
        Ok(copy) => println!("{}", copy.display()),
        Err(error) => eprintln!("sheen: cannot copy the key for this user's mounts: {error}"),
    }
    Ok(())
}

fn revoke(args: &KeyRevokeArgs) -> Result {
    let is_it = |found: &Found| found.key.id == args.key;
    let mut files: Vec<Found> = Vec::new();
    if let Some(dir) = &args.dir {
        let (dir, served) = served(dir)?;
        if !served.iter().any(is_it) {
            return Err(Failure::new(format!("there is no key {} in {}", args.key, dir.display()))
                .advise(format!("`sheen key list --dir {}` shows its keys", dir.display())));
        }
        if served.iter().all(is_it) {
            return Err(Failure::new(format!("{} is the only key in {}", args.key, dir.display()))
                .advise("make another one first (`sheen key new`), and give a copy to all hosts"));
        }
        files.extend(served.into_iter().filter(is_it));
    }
    files.extend(found().into_iter().filter(is_it));
    if files.is_empty() {
        return Err(Failure::new(format!("there is no key {} here", args.key))
            .advise("`sheen key list` shows the keys; --dir names the directory of a server"));
    }
    for file in &files {
        remove(file).context("cannot withdraw the key")?;
        println!("removed {}", file.path.display());
    }
    Ok(())
}
