//! All parameters and devices of one process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use sheen_wire::{Errno, glob::Glob};

use crate::fsname::fsname_of;
use crate::labels::Labels;
use crate::public::is_public;
use crate::settings::PermanentSettings;
use crate::{Device, Param, ParamError, Value};

/// A parameter's name and value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// With dots: `osc.sheen-OST0000-osc-1.active`.
    pub name: String,
    /// As text, possibly of several lines.
    pub value: String,
    /// Whether it can be set.
    pub writable: bool,
}

/// A parameter with its typed value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TypedParam {
    /// With dots: `osc.sheen-OST0000-osc-1.active`.
    pub name: String,
    /// The file system, target and device in its name.
    pub labels: Labels,
    /// Unit of the value, if it has one. Statistics have units of their own.
    pub unit: Option<String>,
    /// Whether it can be set.
    pub writable: bool,
    /// The value.
    pub value: Value,
}

/// A parameter that matches a pattern. Its value has not been read yet.
pub struct Match {
    path: String,
    param: Arc<Param>,
}

impl Match {
    /// Returns the name with dots.
    pub fn name(&self) -> String {
        dotted(&self.path)
    }

    /// Reads the value as text.
    pub fn found(&self) -> Found {
        Found { name: self.name(), value: self.param.get(), writable: self.param.writable() }
    }

    /// Reads the typed value.
    pub fn typed(&self) -> TypedParam {
        TypedParam {
            name: self.name(),
            labels: Labels::of(&self.path),
            unit: self.param.unit_name().map(str::to_owned),
            writable: self.param.writable(),
            value: self.param.value(),
        }
    }
}

/// A name in the tree of parameters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// With dots.
    pub name: String,
    /// Whether there are names below it; otherwise it is a parameter.
    pub dir: bool,
    /// Whether it is a parameter that can be set.
    pub writable: bool,
}

/// Result of setting one parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    /// With dots.
    pub name: String,
    /// Success, or the error.
    pub result: Result<(), ParamError>,
}

/// The names that a request covers: all, or those of one file system.
#[derive(Clone, Copy)]
struct Scope<'a> {
    fsname: Option<&'a str>,
    /// The process has no other file system, so parameters of the whole process belong to this one.
    is_alone: bool,
    /// Only public parameters.
    is_public: bool,
}

impl Scope<'_> {
    fn has(&self, name: &str) -> bool {
        if self.is_public && !is_public(name) {
            return false;
        }
        let Some(wanted) = self.fsname else { return true };
        fsname_of(name).map_or(self.is_alone, |fsname| fsname == wanted)
    }
}

/// The parameters and devices of one process. A handle that is cheap to clone.
#[derive(Clone, Default)]
pub struct Params {
    inner: Arc<Inner>,
    /// Set by [`Params::public_view`].
    is_public: bool,
}

/// A handle that does not keep the parameters alive.
pub(crate) struct WeakParams(Weak<Inner>);

impl WeakParams {
    pub(crate) fn upgrade(&self) -> Option<Params> {
        self.0.upgrade().map(|inner| Params { inner, is_public: false })
    }
}

#[derive(Default)]
struct Inner {
    /// By name with `/` between components.
    params: RwLock<BTreeMap<String, Arc<Param>>>,
    /// In order of registration.
    devices: RwLock<Vec<Source>>,
    nids: RwLock<Vec<String>>,
    permanent: Mutex<PermanentSettings>,
}

struct Source {
    name: String,
    read: Arc<dyn Fn() -> Device + Send + Sync>,
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Params({})", self.inner.params.read().len())
    }
}

impl Params {
    /// Creates a registry that contains only `version`.
    pub fn new() -> Params {
        let params = Params::default();
        params.register("version", Param::text(|| env!("CARGO_PKG_VERSION").to_string()));
        params
    }

    /// Returns a handle for users who may neither change this process nor see all of it. It lists
    /// and reads only public parameters and the devices, and refuses to set (EACCES). To this
    /// handle the other parameters do not exist (ENOENT).
    pub fn public_view(&self) -> Params {
        Params { inner: self.inner.clone(), is_public: true }
    }

    /// Registers a parameter, or replaces the one of that name. `name` has dots between its
    /// components. If a component itself contains dots, write `/` between all components.
    ///
    /// A new parameter is set at once to the permanent settings for its name ([`Params::keep`]).
    /// Its owner's setter must therefore be ready, and the caller must not hold a lock that the
    /// setter takes. A parameter that replaces another one retains the value that its owner gave
    /// it.
    pub fn register(&self, name: &str, param: Param) {
        let (path, param) = (path(name), Arc::new(param));
        let known = self.inner.params.write().insert(path.clone(), param.clone()).is_some();
        if !known {
            self.apply_to_new(&path, &param);
        }
    }

    /// Removes the parameter `name` and all below it.
    pub fn unregister(&self, name: &str) {
        let path = path(name);
        // All names that begin with `PATH/`: `0` is the character after `/`.
        let below = format!("{path}/")..format!("{path}0");
        let mut params = self.inner.params.write();
        params.remove(&path);
        let below: Vec<String> = params.range(below).map(|(name, _)| name.clone()).collect();
        for name in below {
            params.remove(&name);
        }
    }

    /// Returns names and values of the parameters that match, sorted by name.
    ///
    /// # Errors
    /// ENOENT: nothing matches.
    pub fn get(&self, pattern: &str) -> Result<Vec<Found>, ParamError> {
        self.get_of(pattern, None)
    }

    /// As [`Params::get`], but only for the file system `fsname` if it is given. A parameter of the
    /// whole process, such as `version`, belongs to a file system if the process has no other one.
    ///
    /// # Errors
    /// As [`Params::get`].
    pub fn get_of(&self, pattern: &str, fsname: Option<&str>) -> Result<Vec<Found>, ParamError> {
        Ok(self.matches(&[pattern], fsname)?.iter().map(Match::found).collect())
    }

    /// As [`Params::get_of`], with typed values.
    ///
    /// # Errors
    /// As [`Params::get`].
    pub fn typed_of(&self, pattern: &str, fsname: Option<&str>) -> Result<Vec<TypedParam>, ParamError> {
        self.typed_of_any(&[pattern], fsname)
    }

    /// As [`Params::typed_of`], for several patterns: returns what matches any of them, each
    /// parameter once.
    ///
    /// # Errors
    /// As [`Params::get`].
    pub fn typed_of_any(
        &self,
        patterns: &[impl AsRef<str>],
        fsname: Option<&str>,
    ) -> Result<Vec<TypedParam>, ParamError> {
        Ok(self.matches(patterns, fsname)?.iter().map(Match::typed).collect())
    }

    /// Returns the parameters that match any of several patterns, each once, sorted by name with
    /// `/` between its components. `fsname`: as in [`Params::get_of`].
    ///
    /// # Errors
    /// As [`Params::get`].
    pub fn matches(&self, patterns: &[impl AsRef<str>], fsname: Option<&str>) -> Result<Vec<Match>, ParamError> {
        let scope = self.scope(fsname);
        let patterns: Vec<Glob> = patterns.iter().map(|pattern| Glob::of_params(pattern.as_ref())).collect();
        // No lock is held meanwhile, because matching a long pattern takes time.
        let mut found = self.all();
        found.retain(|(name, _)| scope.has(name) && patterns.iter().any(|pattern| pattern.matches(name)));
        if found.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        Ok(found.into_iter().map(|(path, param)| Match { path, param }).collect())
    }

    /// Sets every parameter that matches. Returns the result of each, sorted by name.
    ///
    /// # Errors
    /// ENOENT: nothing matches.
    pub fn set(&self, pattern: &str, value: &str) -> Result<Vec<Set>, ParamError> {
        self.set_of(pattern, value, None)
    }

    /// As [`Params::set`], but only for the file system `fsname` if it is given, as in
    /// [`Params::get_of`].
    ///
    /// # Errors
    /// As [`Params::set`].
    pub fn set_of(&self, pattern: &str, value: &str, fsname: Option<&str>) -> Result<Vec<Set>, ParamError> {
        let set = |param: &Param| if self.is_public { Err(Errno::EACCES.into()) } else { param.set(value) };
        Ok(self
            .matches(&[pattern], fsname)?
            .into_iter()
            .map(|found| Set { name: found.name(), result: set(&found.param) })
            .collect())
    }

    /// Returns the names that match, sorted. They include names that only have other names below
    /// them: `osc.*` lists the OSCs.
    ///
    /// # Errors
    /// ENOENT: nothing matches.
    pub fn list(&self, pattern: &str) -> Result<Vec<Node>, ParamError> {
        self.list_of(pattern, None)
    }

    /// As [`Params::list`], but only for the file system `fsname` if it is given, as in
    /// [`Params::get_of`].
    ///
    /// # Errors
    /// As [`Params::list`].
    pub fn list_of(&self, pattern: &str, fsname: Option<&str>) -> Result<Vec<Node>, ParamError> {
        let (scope, pattern) = (self.scope(fsname), Glob::of_params(pattern));
        // No lock is held meanwhile, because matching a long pattern takes time.
        let params = self.all();
        let mut nodes = BTreeMap::new();
        for (name, param) in params.iter().filter(|(name, _)| scope.has(name)) {
            let ends = name.match_indices('/').map(|(at, _)| (at, true)).chain([(name.len(), false)]);
            for (end, dir) in ends {
                let prefix = &name[..end];
                if !nodes.contains_key(prefix) && pattern.matches(prefix) {
                    let writable = !dir && param.writable();
                    nodes.insert(prefix, Node { name: dotted(prefix), dir, writable });
                }
            }
        }
        if nodes.is_empty() { Err(Errno::ENOENT.into()) } else { Ok(nodes.into_values().collect()) }
    }

    /// Returns the file systems to which the parameters of this process belong, sorted.
    pub fn fsnames(&self) -> BTreeSet<String> {
        self.inner.params.read().keys().filter_map(|name| fsname_of(name)).map(str::to_owned).collect()
    }

    /// Adds a device to the list of `lctl dl`, or replaces the one of that name. `read` returns its
    /// current state.
    pub fn add_device(&self, name: &str, read: impl Fn() -> Device + Send + Sync + 'static) {
        let mut devices = self.inner.devices.write();
        let source = Source { name: name.to_string(), read: Arc::new(read) };
        match devices.iter_mut().find(|d| d.name == name) {
            Some(slot) => *slot = source,
            None => devices.push(source),
        }
    }

    /// Removes a device from the list.
    pub fn remove_device(&self, name: &str) {
        self.inner.devices.write().retain(|d| d.name != name);
    }

    /// Returns all devices, in order of registration.
    pub fn devices(&self) -> Vec<Device> {
        self.devices_of(None)
    }

    /// As [`Params::devices`], but only for the file system `fsname` if it is given, as in
    /// [`Params::get_of`].
    pub fn devices_of(&self, fsname: Option<&str>) -> Vec<Device> {
        // Devices have no values to hide: public parameters show the same names, uuids and NIDs.
        let scope = Scope { is_public: false, ..self.scope(fsname) };
        let devices = self.inner.devices.read();
        let read: Vec<_> = devices.iter().filter(|d| scope.has(&d.name)).map(|d| d.read.clone()).collect();
        // As for parameters, no lock is held while a device is read.
        drop(devices);
        read.into_iter().map(|read| read()).collect()
    }

    /// Adds a NID at which this process can be reached.
    pub fn add_nid(&self, nid: impl Into<String>) {
        let nid = nid.into();
        let mut nids = self.inner.nids.write();
        if !nids.contains(&nid) {
            nids.push(nid);
        }
    }

    /// Returns the NIDs of this process.
    pub fn nids(&self) -> Vec<String> {
        self.inner.nids.read().clone()
    }

    pub(crate) fn permanent(&self) -> &Mutex<PermanentSettings> {
        &self.inner.permanent
    }

    pub(crate) fn downgrade(&self) -> WeakParams {
        WeakParams(Arc::downgrade(&self.inner))
    }

    /// Returns all parameters, by path.
    pub(crate) fn all(&self) -> Vec<(String, Arc<Param>)> {
        self.inner.params.read().iter().map(|(path, param)| (path.clone(), param.clone())).collect()
    }

    fn scope<'a>(&self, fsname: Option<&'a str>) -> Scope<'a> {
        let is_alone = fsname.is_some_and(|fsname| self.fsnames().into_iter().eq([fsname]));
        Scope { fsname, is_alone, is_public: self.is_public }
    }
}

fn path(name: &str) -> String {
    if name.contains('/') { name.to_string() } else { name.replace('.', "/") }
}

fn dotted(path: &str) -> String {
    path.replace('/', ".")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    fn sample() -> (Params, Vec<Arc<AtomicU64>>) {
        let params = Params::new();
        let cells: Vec<_> = (0..3).map(|_| Arc::new(AtomicU64::new(8))).collect();
        for (i, cell) in cells.iter().enumerate().rev() {
            params.register(
                &format!("osc.sheen-OST000{i}-osc-1.max_rpcs_in_flight"),
                Param::atomic(1..=256, cell.clone()),
            );
        }
        params.register("osc.sheen-OST0000-osc-1.active", Param::u64_ro(|| 1));
        params.register("mgc/MGC10.0.0.1@tcp/active", Param::u64_ro(|| 1));
        (params, cells)
    }

    fn names(found: Vec<Found>) -> Vec<String> {
        found.into_iter().map(|f| f.name).collect()
    }

    #[test]
    fn params_get_and_set_by_pattern_in_sorted_order() {
        let (params, cells) = sample();
        let set = params.set("osc.*.max_rpcs_in_flight", "16").unwrap();
        assert!(set.iter().all(|s| s.result.is_ok()) && set.len() == 3);
        assert!(cells.iter().all(|c| c.load(Relaxed) == 16));
        let found = params.get("osc/*OST000[02]*/max_rpcs*").unwrap();
        assert_eq!(found[0].value, "16");
        let want = ["osc.sheen-OST0000-osc-1.max_rpcs_in_flight", "osc.sheen-OST0002-osc-1.max_rpcs_in_flight"];
        assert_eq!(names(found), want);
        assert_eq!(names(params.get("mgc.MGC10.0.0.1@tcp.active").unwrap()), ["mgc.MGC10.0.0.1@tcp.active"]);
    }

    #[test]
    fn params_get_and_set_return_enoent_without_a_match() {
        let (params, _) = sample();
        for pattern in ["nosuch", "osc.*", "osc.*.nosuch", ""] {
            assert_eq!(params.get(pattern).unwrap_err().errno, Errno::ENOENT, "{pattern}");
            assert_eq!(params.set(pattern, "1").unwrap_err().errno, Errno::ENOENT, "{pattern}");
        }
        assert_eq!(params.list("nosuch.*").unwrap_err().errno, Errno::ENOENT);
        let set = params.set("osc.*.active", "0").unwrap();
        assert_eq!(set[0].result.as_ref().unwrap_err().errno, Errno::EACCES);
    }

    #[test]
    fn params_of_one_file_system_are_read_and_set_separately() {
        let (params, cells) = sample();
        let other = Arc::new(AtomicU64::new(8));
        params.register("osc.a-b-OST0000-osc-2.max_rpcs_in_flight", Param::atomic(1..=256, other.clone()));
        assert!(params.fsnames().into_iter().eq(["a-b", "sheen"]));
        let set = params.set_of("osc.*.max_rpcs_in_flight", "16", Some("a-b")).unwrap();
        assert_eq!((set.len(), other.load(Relaxed)), (1, 16));
        assert!(cells.iter().all(|cell| cell.load(Relaxed) == 8));
        let list = params.list_of("osc.*", Some("a-b")).unwrap();
        assert_eq!(list.iter().map(|n| &n.name[..]).collect::<Vec<_>>(), ["osc.a-b-OST0000-osc-2"]);
        for fsname in ["a", "a-b-OST0000", "none", ""] {
            assert_eq!(params.get_of("osc.*.*", Some(fsname)).unwrap_err().errno, Errno::ENOENT, "{fsname}");
        }
        // A parameter of the whole process belongs to the only file system of that process.
        assert_eq!(params.get_of("version", Some("sheen")).unwrap_err().errno, Errno::ENOENT);
        params.unregister("osc.a-b-OST0000-osc-2");
        assert_eq!(names(params.get_of("version", Some("sheen")).unwrap()), ["version"]);
        assert_eq!(params.get_of("version", Some("a-b")).unwrap_err().errno, Errno::ENOENT);
    }

    #[test]
    fn params_list_returns_directories_and_parameters() {
        let (params, _) = sample();
        let dirs: Vec<_> = params.list("*").unwrap().into_iter().map(|n| (n.name, n.dir)).collect();
        assert_eq!(dirs, [("mgc".into(), true), ("osc".into(), true), ("version".into(), false)]);
        let below = params.list("osc.sheen-OST0000-osc-1.*").unwrap();
        assert_eq!(below.iter().map(|n| n.writable).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn unregister_removes_a_name_and_all_below_it() {
        let (params, _) = sample();
        params.register("osc.sheen-OST0000-osc-11.active", Param::u64_ro(|| 1));
        params.unregister("osc.sheen-OST0000-osc-1");
        assert_eq!(names(params.get("osc.*OST0000*.active").unwrap()), ["osc.sheen-OST0000-osc-11.active"]);
    }

    #[test]
    fn devices_are_read_at_each_request() {
        let params = Params::new();
        let refs = Arc::new(AtomicU64::new(1));
        let read = refs.clone();
        params.add_device("MGS", || Device::new("mgs", "MGS", "MGS"));
        params.add_device("sheen-MDT0000", move || Device {
            refcount: read.load(Relaxed),
            ..Device::new("mdt", "sheen-MDT0000", "sheen-MDT0000_UUID")
        });
        refs.store(7, Relaxed);
        assert_eq!(
            params.devices().iter().map(|d| (&d.name[..], d.refcount)).collect::<Vec<_>>(),
            [("MGS", 5), ("sheen-MDT0000", 7)]
        );
        params.remove_device("MGS");
        assert_eq!(params.devices().len(), 1);
    }

    #[test]
    fn typed_params_have_labels_unit_and_value() {
        let (params, _) = sample();
        params.register("mdt.sheen-MDT0000.commit_interval_ms", Param::u64_ro(|| 50).unit(crate::Unit::Msecs));
        let found = params.typed_of("*.*.commit_interval_ms", None).unwrap();
        let want = TypedParam {
            name: "mdt.sheen-MDT0000.commit_interval_ms".into(),
            labels: Labels {
                fsname: Some("sheen".into()),
                target: Some("sheen-MDT0000".into()),
                device: Some("sheen-MDT0000".into()),
            },
            unit: Some("msecs".into()),
            writable: false,
            value: Value::Number(50),
        };
        assert_eq!(found, [want]);
        assert!(params.typed_of("*.*.commit_interval_ms", Some("other")).is_err());
    }

    #[test]
    fn typed_params_of_several_patterns_are_returned_once() {
        let (params, _) = sample();
        let found = params.typed_of_any(&["nosuch", "version", "mgc.*.*", "*"], None).unwrap();
        let names: Vec<_> = found.iter().map(|param| &param.name[..]).collect();
        assert_eq!(names, ["mgc.MGC10.0.0.1@tcp.active", "version"]);
        assert_eq!(params.typed_of_any(&["nosuch", ""], None).unwrap_err().errno, Errno::ENOENT);
        let none: [&str; 0] = [];
        assert_eq!(params.typed_of_any(&none, None).unwrap_err().errno, Errno::ENOENT);
    }

    #[test]
    fn public_view_reads_public_parameters_and_sets_none() {
        let (params, cells) = sample();
        let orders = Arc::new(AtomicU64::new(0));
        let (secret, given) = (|| "secret".to_owned(), orders.clone());
        let order = move |_: &str| {
            given.fetch_add(1, Relaxed);
            Ok(())
        };
        params.register("mgs.MGS.live.params", Param::order(secret, order));
        params.register("mdt/sheen-MDT0000/exports/10.0.0.1@tcp/uuid", Param::text(secret));
        params.register("mdt.sheen-MDT0000.job_stats", Param::text(secret));
        params.add_device("sheen-MDT0000", || Device::new("mdt", "sheen-MDT0000", "sheen-MDT0000_UUID"));
        let public = params.public_view();
        let found = names(public.get("osc.*.*").unwrap());
        assert_eq!(found, names(params.get("osc.*.*").unwrap()));
        let set = public.set("osc.*.max_rpcs_in_flight", "16").unwrap();
        assert_eq!(set.len(), cells.len());
        assert!(set.iter().all(|set| set.result.as_ref().is_err_and(|e| e.errno == Errno::EACCES)));
        assert!(cells.iter().all(|cell| cell.load(Relaxed) == 8));
        for hidden in ["mgs.*.*.*", "mdt.*.*", "mdt.*", "mdt/*/exports/*/*", "mdt.sheen-MDT0000.job_stats", "mgs"] {
            assert_eq!(public.get(hidden).unwrap_err().errno, Errno::ENOENT, "{hidden}");
            assert_eq!(public.list(hidden).unwrap_err().errno, Errno::ENOENT, "{hidden}");
            assert_eq!(public.set(hidden, "1").unwrap_err().errno, Errno::ENOENT, "{hidden}");
            assert!(public.typed_of(hidden, Some("sheen")).is_err(), "{hidden}");
        }
        assert_eq!((orders.load(Relaxed), public.devices()), (0, params.devices()));
        assert!(public.devices_of(Some("other")).is_empty());
    }
}
