//! The permanent settings in the directories of the OSTs that a process serves.
//!
//! An OST that starts while the MGS is stopped applies those that the MGS reported last.
//!
//! Invariants:
//! * Only an OST that runs gets a copy, because it holds the lock on its directory.
//! * Copies are written one at a time, and none after [`StoredSettings::stop`]. So an OST can then
//!   release its directory.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use sheen_mgc::stored_config;
use sheen_params::Params;
use sheen_rt::{Disk, Rt};
use sheen_wire::mgs::{Config, Setting};

/// The copies, by file system.
#[derive(Default)]
pub(super) struct StoredSettings(Mutex<BTreeMap<String, OfFs>>);

/// The copies of the settings of one file system.
#[derive(Default)]
struct OfFs {
    /// Whether the MGS has answered a request for the configuration.
    has_answer: bool,
    /// The part to store, once the MGS has reported it.
    reported: Option<Config>,
    copies: Vec<Stored>,
}

/// The copy in an OST's directory.
struct Stored {
    dir: PathBuf,
    /// Its settings. `None`: there is no usable copy.
    settings: Option<Vec<Setting>>,
}

impl StoredSettings {
    /// Whether the MGS has answered a request for the configuration, also that there is none.
    pub(super) fn has_answer(&self, fsname: &str) -> bool {
        self.0.lock().get(fsname).is_some_and(|of_fs| of_fs.has_answer)
    }

    /// Notes that the MGS has answered.
    pub(super) fn note_answer(&self, fsname: &str) {
        self.0.lock().entry(fsname.to_owned()).or_default().has_answer = true;
    }

    /// Stores the settings that the MGS reported, for present and later OSTs. A copy that has them
    /// is not written again.
    pub(super) fn set(&self, rt: &Rt, config: &Config) {
        let part = stored_config::part_of_ost(config);
        rt.block_in_place(|| {
            let mut all = self.0.lock();
            let of_fs = all.entry(part.fsname.clone()).or_default();
            of_fs.copies.iter_mut().for_each(|stored| stored.update(&rt.disk(), &part));
            of_fs.reported = Some(part);
            of_fs.has_answer = true;
        });
    }

    /// Adds an OST that runs in `dir`, and stores the settings if the MGS has reported them.
    pub(super) fn add(&self, rt: &Rt, fsname: &str, dir: &Path) {
        rt.block_in_place(|| {
            let disk = rt.disk();
            // The start has logged an error. The copy is then replaced.
            let copy = stored_config::read(&disk, dir, fsname).ok().flatten();
            let mut stored = Stored { dir: dir.to_owned(), settings: copy.map(|copy| copy.params) };
            let mut all = self.0.lock();
            let of_fs = all.entry(fsname.to_owned()).or_default();
            if let Some(part) = &of_fs.reported {
                stored.update(&disk, part);
            }
            of_fs.copies.push(stored);
        });
    }

    /// Ends all writes. Returns when the present one has ended.
    pub(super) fn stop(&self, rt: &Rt) {
        rt.block_in_place(|| self.0.lock().clear());
    }
}

impl Stored {
    /// Writes the copy if its settings differ. The version alone does not matter: it also rises
    /// with changes of targets and pools.
    fn update(&mut self, disk: &Disk, part: &Config) {
        if self.settings.as_ref() == Some(&part.params) {
            return;
        }
        match stored_config::write(disk, &self.dir, part) {
            Ok(()) => self.settings = Some(part.params.clone()),
            Err(e) => tracing::error!(
                "cannot store the permanent settings in {}: {e}; a restart of this OST without the MGS uses older ones",
                self.dir.display()
            ),
        }
    }
}

/// Applies the permanent settings in the directory of an OST that starts without the MGS. Ignores a
/// copy that is damaged.
pub(super) fn apply(rt: &Rt, params: &Params, fsname: &str, dir: &Path) {
    let path = dir.join(stored_config::FILE);
    let path = path.display();
    match rt.block_in_place(|| stored_config::read(&rt.disk(), dir, fsname)) {
        Ok(Some(copy)) => {
            tracing::warn!("the MGS does not answer: using the permanent settings in {path}, which it reported before");
            params.keep(fsname, copy.version, &copy.params);
        }
        Ok(None) => tracing::warn!(
            "the MGS does not answer, and {path} does not exist: the OST has no permanent settings until the MGS answers"
        ),
        Err(e) => tracing::error!(
            "the MGS does not answer, and {path} is not usable: {e}; the OST has no permanent settings until the MGS \
             answers"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    };

    use sheen_params::Param;
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    const FSNAME: &str = "sheen";

    /// Returns a configuration that sets `obdfilter.*.max` to `value`.
    fn config(version: u64, value: &str) -> Config {
        let setting = Setting { index: version, pattern: "obdfilter.*.max".into(), value: value.into() };
        Config { fsname: FSNAME.into(), version, params: vec![setting], ..Config::default() }
    }

    /// Returns the value of `obdfilter.a.max` after a start without the MGS. Its default is 8.
    fn value_after_start(rt: &Rt, dir: &Path) -> u64 {
        let (params, cell) = (Params::new(), Arc::new(AtomicU64::new(8)));
        apply(rt, &params, FSNAME, dir);
        params.register("obdfilter.a.max", Param::atomic(1..=256, cell.clone()));
        cell.load(Relaxed)
    }

    #[test]
    fn stored_settings_apply_at_a_start_without_the_mgs() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        let dirs = [Path::new("/oss/0"), Path::new("/oss/1")];
        dirs.iter().for_each(|dir| rt.disk().create_dir_all(dir).unwrap());
        let values = |rt: &Rt| dirs.map(|dir| value_after_start(rt, dir));
        assert_eq!(values(&rt), [8, 8], "there is no copy");
        let stored = StoredSettings::default();
        stored.add(&rt, FSNAME, dirs[0]);
        assert_eq!(values(&rt), [8, 8], "the MGS has not answered");
        stored.set(&rt, &config(2, "16"));
        assert_eq!(values(&rt), [16, 8], "the second OST does not run");
        stored.add(&rt, FSNAME, dirs[1]);
        assert_eq!(values(&rt), [16, 16]);
        stored.set(&rt, &config(3, "32"));
        assert_eq!(values(&rt), [32, 32]);
        stored.stop(&rt);
        stored.set(&rt, &config(4, "64"));
        assert_eq!(values(&rt), [32, 32], "the directories may be those of other processes");
    }

    #[test]
    fn damaged_settings_are_ignored_and_replaced() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        let (disk, dir) = (rt.disk(), Path::new("/oss/0"));
        disk.create_dir_all(dir).unwrap();
        stored_config::write(&disk, dir, &Config { fsname: "other".into(), ..config(2, "16") }).unwrap();
        assert_eq!(value_after_start(&rt, dir), 8, "the copy of another file system");
        disk.write_atomic(dir.join(stored_config::FILE), b"{\"fsname\":").unwrap();
        assert_eq!(value_after_start(&rt, dir), 8);
        let stored = StoredSettings::default();
        stored.add(&rt, FSNAME, dir);
        stored.set(&rt, &config(2, "16"));
        assert_eq!(value_after_start(&rt, dir), 16);
    }

    #[test]
    fn settings_are_written_only_if_they_differ() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        let dir = Path::new("/oss/0");
        rt.disk().create_dir_all(dir).unwrap();
        stored_config::write(&rt.disk(), dir, &config(2, "16")).unwrap();
        let version = || stored_config::read(&rt.disk(), dir, FSNAME).unwrap().unwrap().version;
        let stored = StoredSettings::default();
        stored.add(&rt, FSNAME, dir);
        // A target has registered since.
        stored.set(&rt, &Config { version: 3, ..config(2, "16") });
        assert_eq!(version(), 2);
        stored.set(&rt, &config(4, "32"));
        assert_eq!(version(), 4);
    }
}
