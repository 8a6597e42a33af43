//! `sheen key`: the keys of this user.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use serde::Serialize;
use sheen_keys::{Found, Key, KeyError, list, search_dirs, store, user_dir};

use crate::{
    args::{KeyAddArgs, KeyArgs, KeyCommand, KeyListArgs},
    error::{Context, Failure, Result},
};

/// Largest key file that is read, in bytes.
const TEXT_BYTES_MAX: u64 = 4096;

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
    let lines = found().into_iter().map(|Found { key, path }| Line {
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
    let key = Key::parse(&text).map_err(|reason| Failure::new(format!("{name} is not a key file: {reason}")))?;
    let dir = user_dir().ok_or(KeyError::NoDirectory).context("cannot store the key")?;
    let path = store(&dir, &key).context("cannot store the key")?;
    println!("{}", path.display());
    Ok(())
}
