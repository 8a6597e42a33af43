//! `sheen key`: the keys of this user, and those that a server accepts.
//!
//! A running server notices changes of its directory of keys by itself.

mod dirs;
mod issue;

use std::{
    fs::File,
    io::{self, Read},
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sheen_keys::{
    Found, Key, KeyError, Record, list, records, remove, search_dirs, store, store_for_server, user_dir, withdraw,
};
use sheen_rt::{RealOptions, Rt};
use sheen_wire::auth::KeyId;

use self::dirs::{of_mgs, served};
use crate::{
    args::{KeyAddArgs, KeyArgs, KeyCommand, KeyListArgs, KeyNewArgs, KeyRevokeArgs},
    error::{Context, Failure, Result},
};

/// Most bytes of key files that are read.
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// A line of `sheen key list --json`.
#[derive(Serialize)]
struct Line {
    cluster: String,
    key: String,
    role: String,
    created: i64,
    /// Address of the host that got it by MUNGE.
    #[serde(skip_serializing_if = "Option::is_none")]
    applicant: Option<IpAddr>,
    file: String,
}

/// Runs the command.
pub fn run(args: &KeyArgs) -> Result {
    match &args.command {
        KeyCommand::List(args) => print(args),
        KeyCommand::Add(args) => add(args),
        KeyCommand::New(args) => new(args),
        KeyCommand::Issue(args) => issue::issue(args),
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

fn print(args: &KeyListArgs) -> Result {
    let (found, records) = match &args.dir {
        Some(dir) => {
            let (dir, found) = served(dir)?;
            (found, records(&dir).context("cannot list the issued keys")?)
        }
        None => (found(), Vec::new()),
    };
    let keys = found.into_iter().map(|Found { key, path }| (key.record(), path));
    let lines = keys.chain(records).map(|(Record { cluster, id, role, created, applicant }, path)| Line {
        cluster: cluster.to_string(),
        key: id.to_string(),
        role: role.to_string(),
        created,
        applicant,
        file: path.display().to_string(),
    });
    if args.json {
        let lines: Vec<Line> = lines.collect();
        println!("{}", serde_json::to_string_pretty(&lines).context("cannot print the keys")?);
        return Ok(());
    }
    println!("{:16}  {:16}  {:11}  file", "cluster", "key", "role");
    for Line { cluster, key, role, file, .. } in lines {
        println!("{cluster:16}  {key:16}  {role:11}  {file}");
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
            if let Some(key) = keys.iter().find(|key| key.issue.is_some()) {
                return Err(Failure::new(format!("key {} was issued by a key of the cluster", key.id))
                    .advise("servers need no copy of it; add it to the keys of the user who mounts, without --dir"));
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
    of_mgs(&args.dir)?;
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
    if let Some(server_dir) = &args.dir {
        let (dir, served) = served(server_dir)?;
        if !served.iter().any(is_it) {
            return revoke_issued(server_dir, &dir, args.key);
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

/// Withdraws an issued key for one server. Only the MGS has a list of the issued keys.
fn revoke_issued(server_dir: &Path, keys: &Path, key: KeyId) -> Result {
    // If the records cannot be read, the key is withdrawn all the same.
    let is_unknown = records(keys).is_ok_and(|known| known.iter().all(|(record, _)| record.id != key));
    if of_mgs(server_dir).is_ok() && is_unknown {
        return Err(Failure::new(format!("there is no key {key} in {}", keys.display()))
            .advise(format!("`sheen key list --dir {}` shows its keys", server_dir.display())));
    }
    println!("{}", withdraw(keys, key).context("cannot withdraw the key")?.display());
    Ok(())
}
