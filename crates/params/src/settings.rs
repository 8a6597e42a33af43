//! The permanent settings that this process has received, by file system.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sheen_wire::glob::Glob;
use sheen_wire::mgs::Setting;

/// The settings of every file system that this process serves or mounts.
#[derive(Default)]
pub(crate) struct PermanentSettings {
    pub(crate) by_fsname: BTreeMap<String, FsSettings>,
    /// Incremented with every change of a list.
    pub(crate) generation: u64,
}

/// The settings received for one file system.
#[derive(Default)]
pub(crate) struct FsSettings {
    /// Version of the configuration.
    version: u64,
    settings: Arc<[Setting]>,
    /// The largest index received so far.
    last: u64,
    /// The newest list that has been applied to all parameters, with its version.
    pub(crate) done: (u64, Arc<[Setting]>),
    /// Indices of settings that a parameter refused and for which the refusal has been logged.
    pub(crate) refused: BTreeSet<u64>,
}

/// The settings that a parameter is to get.
#[derive(Clone, Copy)]
pub(crate) enum SettingFilter<'a> {
    All,
    /// Those of a file system with a larger index than this one.
    After(&'a str, u64),
}

impl PermanentSettings {
    /// Stores a list. Returns the index after which settings are new, or `None` if this list is no
    /// newer than the stored one.
    pub(crate) fn adopt(&mut self, fsname: &str, version: u64, settings: &Arc<[Setting]>) -> Option<u64> {
        let of_fs = self.by_fsname.entry(fsname.to_owned()).or_default();
        if version <= of_fs.version {
            return None;
        }
        let after = of_fs.last;
        of_fs.version = version;
        of_fs.settings = settings.clone();
        of_fs.last = settings.iter().map(|s| s.index).fold(after, u64::max);
        of_fs.refused.retain(|index| settings.iter().any(|s| s.index == *index));
        self.generation += 1;
        Some(after)
    }

    /// Returns the settings that a parameter is to get, in order.
    pub(crate) fn matching(&self, path: &str, which: SettingFilter<'_>) -> Vec<Setting> {
        let wanted = |fsname: &str, setting: &Setting| match which {
            SettingFilter::All => true,
            SettingFilter::After(of, after) => fsname == of && setting.index > after,
        };
        let all = self.by_fsname.iter().flat_map(|(fsname, of_fs)| of_fs.settings.iter().map(move |s| (fsname, s)));
        let matching = all.filter(|(fsname, s)| wanted(fsname, s) && Glob::of_params(&s.pattern).matches(path));
        matching.map(|(_, s)| s.clone()).collect()
    }

    /// Records that a parameter refused a setting. Returns whether this is the first time.
    pub(crate) fn note_refused(&mut self, setting: &Setting) -> bool {
        let of = self.by_fsname.values_mut().find(|of_fs| of_fs.settings.contains(setting));
        of.is_some_and(|of_fs| of_fs.refused.insert(setting.index))
    }
}
