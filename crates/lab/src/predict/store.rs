//! Stored models, one for each file system or pool and host, and the runs that they have predicted.
//!
//! They are in `$SHEEN_LAB_DIR`, else in `$XDG_STATE_HOME/sheen/lab`, else in
//! `~/.local/state/sheen/lab`.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::PathBuf,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    output::named,
    predict::{
        costs::{Costs, Prediction},
        fit,
        load::{Direction, Workload},
        shape::Shape,
    },
};

/// Version of the files. Another one is as if there were none.
const VERSION: u32 = 2;
/// End of the names of models' files.
const SUFFIX: &str = ".json";
/// Bytes from which no further runs are stored.
const RUNS_BYTES_MAX: u64 = 16 << 20;

/// A file system, as a host sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Key {
    /// Name of the file system.
    pub fsname: String,
    /// The MGS: addresses without ports, which differ after each start of a small file system.
    pub mgs: String,
    /// Name of the host.
    pub host: String,
    /// The pool of OSTs; `None`: all OSTs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// A model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Model {
    version: u32,
    /// The file system.
    pub key: Key,
    /// When it was calibrated.
    pub calibrated: String,
    /// Number of OSTs.
    pub osts: u32,
    /// Costs of writes.
    pub write: Costs,
    /// Costs of reads; `None`: they were not measured.
    pub read: Option<Costs>,
}

/// A run that was predicted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    version: u32,
    /// The file system.
    pub key: Key,
    /// When the run began.
    pub began: String,
    /// When the model was calibrated.
    pub calibrated: String,
    /// Writes or reads.
    pub direction: Direction,
    /// The accesses.
    pub workload: Workload,
    /// The layout.
    pub shape: Shape,
    /// The prediction.
    pub predicted: Prediction,
    /// MiB/s that was measured: the median of the repetitions.
    pub measured: f64,
}

impl Key {
    /// Returns the key of a file system. `mgs_nids`: `10.0.0.1:988@tcp`.
    pub fn new(fsname: &str, mgs_nids: &[String], host: &str) -> Key {
        let address = |nid: &String| nid.rsplit_once('@').map_or(nid.as_str(), |(address, _)| address).to_owned();
        let without_port = |address: String| match address.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !port.is_empty() => host.to_owned(),
            _ => address,
        };
        let mgs: Vec<String> = mgs_nids.iter().map(address).map(without_port).collect();
        Key { fsname: fsname.into(), mgs: mgs.join(":"), host: host.into(), pool: None }
    }

    /// Returns the key of a pool of the file system.
    pub fn of_pool(self, pool: &str) -> Key {
        Key { pool: Some(pool.to_owned()), ..self }
    }

    /// Describes the file system: `sheen`, or `sheen, pool fast`.
    pub fn name(&self) -> String {
        match &self.pool {
            Some(pool) => format!("{}, pool {pool}", self.fsname),
            None => self.fsname.clone(),
        }
    }

    /// Returns the name of the model's file.
    fn file(&self) -> String {
        format!("{}{SUFFIX}", self.stem())
    }

    /// Returns the name of the model's file without the suffix.
    fn stem(&self) -> String {
        let pool = self.pool.as_ref().map_or_else(String::new, |pool| format!("@{pool}"));
        let name = format!("{}@{}@{}{pool}", self.fsname, self.mgs, self.host);
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "@.-_:".contains(c) { c } else { '_' }).collect()
    }
}

impl Model {
    /// Returns a model of now.
    pub fn new(key: Key, calibrated: String, osts: u32, write: Costs, read: Option<Costs>) -> Model {
        Model { version: VERSION, key, calibrated, osts, write, read }
    }

    /// Returns the costs of writes, or of reads.
    pub fn costs(&self, direction: Direction) -> Option<&Costs> {
        match direction {
            Direction::Write => Some(&self.write),
            Direction::Read => self.read.as_ref(),
        }
    }
}

impl Run {
    /// Returns a run. `calibrated`: that of its model.
    pub fn new(
        model: &Model,
        began: &str,
        direction: Direction,
        job: (Workload, Shape),
        predicted: Prediction,
        measured: f64,
    ) -> Run {
        Run {
            version: VERSION,
            key: model.key.clone(),
            began: began.into(),
            calibrated: model.calibrated.clone(),
            direction,
            workload: job.0,
            shape: job.1,
            predicted,
            measured,
        }
    }

    /// Returns the error of the prediction: 0.1 is 10 %.
    pub fn error(&self) -> f64 {
        fit::error(self.predicted.rate, self.measured)
    }
}

/// The directory of models and runs.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// Returns the user's. `None`: there is no home directory.
    pub fn of_user() -> Option<Store> {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let dir = var("SHEEN_LAB_DIR")
            .or_else(|| var("XDG_STATE_HOME").map(|dir| dir.join("sheen/lab")))
            .or_else(|| var("HOME").map(|home| home.join(".local/state/sheen/lab")))?;
        Some(Store { dir })
    }

    /// Returns the directory.
    pub fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// Checks that models can be stored.
    ///
    /// # Errors
    /// They cannot.
    pub fn check(&self) -> io::Result<()> {
        let probe = self.dir.join(format!(".probe.{}", std::process::id()));
        let written =
            fs::create_dir_all(&self.dir).and_then(|()| fs::write(&probe, "")).and_then(|()| fs::remove_file(&probe));
        written.map_err(|e| named("write into", &self.dir, &e))
    }

    /// Returns the model of a file system, if there is one of this version.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn model(&self, key: &Key) -> io::Result<Option<Model>> {
        let path = self.dir.join(key.file());
        match fs::read(&path) {
            Ok(bytes) => Ok(serde_json::from_slice::<Model>(&bytes).ok().filter(|model| model.version == VERSION)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(named("read", &path, &e)),
        }
    }

    /// Whether there are models of a file system or of its pools, of any version.
    pub fn has_models(&self, key: &Key) -> bool {
        let whole = Key { pool: None, ..key.clone() }.stem();
        let of_pools = format!("{whole}@");
        let is_one = |name: &str| name == whole || name.starts_with(&of_pools);
        let Ok(entries) = fs::read_dir(&self.dir) else { return false };
        let mut names = entries.flatten().map(|entry| entry.file_name());
        names.any(|name| name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).is_some_and(is_one))
    }

    /// Stores a model. Replaces the last one of its file system.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, model: &Model) -> io::Result<()> {
        let path = self.dir.join(model.key.file());
        let new = path.with_extension("new");
        let text = serde_json::to_string_pretty(model)?;
        let written = fs::create_dir_all(&self.dir).and_then(|()| fs::write(&new, text));
        written.and_then(|()| fs::rename(&new, &path)).map_err(|e| named("write", &path, &e))
    }

    fn runs_path(&self) -> PathBuf {
        self.dir.join("runs.jsonl")
    }

    /// Returns the stored runs on a file system, the oldest first.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn runs(&self, key: &Key) -> io::Result<Vec<Run>> {
        let path = self.runs_path();
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.map_err(|e| named("read", &path, &e))?,
        };
        // A line of another version, or one that was cut off, is left out.
        let runs = text.lines().filter_map(parse::<Run>);
        Ok(runs.filter(|run| run.version == VERSION && run.key == *key).collect())
    }

    /// Stores a run, in one write, so that several programs may do so at once.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&self, run: &Run) -> io::Result<()> {
        let path = self.runs_path();
        let line = format!("{}\n", serde_json::to_string(run)?);
        let append = || {
            fs::create_dir_all(&self.dir)?;
            let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
            if file.metadata()?.len() > RUNS_BYTES_MAX {
                return Err(io::Error::other("it is full; remove it to store further runs"));
            }
            file.write_all(line.as_bytes())
        };
        append().map_err(|e| named("add a run to", &path, &e))
    }
}

fn parse<T: DeserializeOwned>(line: &str) -> Option<T> {
    serde_json::from_str(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::costs::Part;

    #[test]
    fn key_has_no_ports() {
        let nids = ["127.0.0.1:33307@tcp".to_owned(), "10.0.0.2@tcp".to_owned()];
        let key = Key::new("sheen", &nids, "node/1");
        assert_eq!(key.mgs, "127.0.0.1:10.0.0.2");
        assert_eq!(key.file(), "sheen@127.0.0.1:10.0.0.2@node_1.json");
        assert_eq!(key.of_pool("fast").file(), "sheen@127.0.0.1:10.0.0.2@node_1@fast.json");
    }

    #[test]
    fn models_and_runs_are_found_by_their_file_system() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store { dir: dir.path().join("lab") };
        let key = |fsname: &str| Key::new(fsname, &["1.2.3.4@tcp".into()], "here");
        assert_eq!(store.model(&key("a")).unwrap(), None);
        assert!(store.runs(&key("a")).unwrap().is_empty() && !store.has_models(&key("a")));
        let model = Model::new(key("a"), "now".into(), 4, Costs::TYPICAL, None);
        store.save(&model).unwrap();
        assert_eq!(store.model(&key("a")).unwrap(), Some(model.clone()));
        assert_eq!(store.model(&key("b")).unwrap(), None);
        assert_eq!(store.model(&key("a").of_pool("fast")).unwrap(), None, "a pool has a model of its own");
        assert!(
            store.has_models(&key("a")) && store.has_models(&key("a").of_pool("fast")) && !store.has_models(&key("b"))
        );
        store.save(&Model { key: key("b").of_pool("fast"), ..model.clone() }).unwrap();
        assert!(store.has_models(&key("b")), "that of a pool");
        let job = (
            Workload { tasks: 1, nodes: 1, transfer: 1, block: 1, size: 1, files: false },
            Shape { stripes: 1, osts: 1, stripe_size: 1, all_osts: None },
        );
        let predicted = Prediction { rate: 110.0, limit: Part::Osts };
        let run = Run::new(&model, "now", Direction::Write, job, predicted, 100.0);
        store.add(&run).unwrap();
        fs::write(store.runs_path(), fs::read_to_string(store.runs_path()).unwrap() + "cut off").unwrap();
        store.add(&run).unwrap();
        assert_eq!(store.runs(&key("a")).unwrap(), std::slice::from_ref(&run), "a line that was cut off is lost");
        assert!((run.error() - 0.1).abs() < 1e-9);
        assert!(store.runs(&key("b")).unwrap().is_empty());
    }
}
