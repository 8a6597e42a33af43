//! Permanent settings (`lctl set_param -P`): how parameters get them.
//!
//! A matching parameter gets the value once: when the setting arrives or, if the parameter is
//! registered later, at its registration. Afterwards it can be set to another value.
//!
//! Invariants:
//! * An older configuration never replaces a newer one.
//! * If several settings match a parameter, the one with the largest index is applied last, even if
//!   configurations and parameters arrive concurrently.
//! * A parameter that is a command ([`Param::is_order`]) gets no setting.

use std::fmt::Write;
use std::sync::Arc;

use sheen_wire::mgs::Setting;
use tracing::warn;

use crate::settings::SettingFilter;
use crate::{Param, Params};

impl Params {
    /// Receives the settings of one version of a file system's configuration. New settings are
    /// applied now to the parameters that match. All settings are applied to parameters that are
    /// registered later. From now on `mgc.FSNAME.params` shows the settings.
    pub fn keep(&self, fsname: &str, version: u64, settings: &[Setting]) {
        let settings: Arc<[Setting]> = settings.into();
        let Some(after) = self.permanent().lock().adopt(fsname, version, &settings) else { return };
        if settings.iter().any(|s| s.index > after) {
            for (path, param) in self.all() {
                self.apply_settings(&path, &param, SettingFilter::After(fsname, after));
            }
        }
        if let Some(of_fs) = self.permanent().lock().by_fsname.get_mut(fsname)
            && of_fs.done.0 < version
        {
            of_fs.done = (version, settings);
        }
        let (weak, of) = (self.downgrade(), fsname.to_owned());
        let show = move || weak.upgrade().map(|params| params.shown(&of)).unwrap_or_default();
        self.register(&format!("mgc/{fsname}/params"), Param::text(show));
    }

    /// Applies the permanent settings to a new parameter.
    pub(crate) fn apply_to_new(&self, path: &str, param: &Param) {
        self.apply_settings(path, param, SettingFilter::All);
    }

    /// Applies the settings to a parameter, and repeats this if they have changed meanwhile.
    fn apply_settings(&self, path: &str, param: &Param, which: SettingFilter<'_>) {
        let mut done = None;
        loop {
            let (generation, settings) = {
                let permanent = self.permanent().lock();
                if param.is_order() || done == Some(permanent.generation) {
                    return;
                }
                (permanent.generation, permanent.matching(path, which))
            };
            for setting in &settings {
                if let Err(e) = param.set(&setting.value)
                    && self.permanent().lock().note_refused(setting)
                {
                    let accepts = e.accepts.map(|a| format!("; it accepts {a}")).unwrap_or_default();
                    warn!(
                        "{} rejects the value '{}' of 'lctl set_param -P {}': {}{accepts}",
                        path.replace('/', "."),
                        setting.value,
                        setting.pattern,
                        e.errno
                    );
                }
            }
            done = Some(generation);
        }
    }

    fn shown(&self, fsname: &str) -> String {
        let done = self.permanent().lock().by_fsname.get(fsname).map(|of_fs| of_fs.done.1.clone()).unwrap_or_default();
        done.iter().fold(String::new(), |mut out, setting| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{setting}");
            out
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use sheen_wire::Errno;

    use super::*;

    fn setting(index: u64, pattern: &str, value: &str) -> Setting {
        Setting { index, pattern: pattern.into(), value: value.into() }
    }

    fn number(params: &Params, name: &str) -> Arc<AtomicU64> {
        let cell = Arc::new(AtomicU64::new(8));
        params.register(name, Param::atomic(1..=256, cell.clone()));
        cell
    }

    fn get(params: &Params, name: &str) -> String {
        params.get(name).unwrap().remove(0).value
    }

    #[test]
    fn permanent_settings_are_applied_once_to_present_and_later_parameters() {
        let params = Params::new();
        let here = number(&params, "osc.a.max");
        let first = [setting(1, "osc.*.max", "16"), setting(2, "osc.b.max", "32")];
        params.keep("sheen", 5, &first);
        let later = number(&params, "osc.b.max");
        assert_eq!((here.load(Relaxed), later.load(Relaxed)), (16, 32), "the later setting counts");
        params.set("osc.*.max", "9").unwrap();
        // Neither another change of the configuration nor an old configuration that arrives late
        // sets the value again.
        params.keep("sheen", 6, &first);
        params.keep("sheen", 4, &[setting(1, "osc.*.max", "16")]);
        assert_eq!((here.load(Relaxed), later.load(Relaxed)), (9, 9));
        // `lctl set_param -P` of the same pattern makes a new setting, which is applied last.
        params.keep("sheen", 7, &[setting(2, "osc.b.max", "32"), setting(3, "osc.*.max", "16")]);
        assert_eq!((here.load(Relaxed), later.load(Relaxed)), (16, 16));
        assert_eq!(number(&params, "osc.c.max").load(Relaxed), 16);
        // After the deletion of a setting, parameters retain the value.
        params.keep("sheen", 8, &[]);
        assert_eq!((here.load(Relaxed), number(&params, "osc.d.max").load(Relaxed)), (16, 8));
    }

    #[test]
    fn replaced_parameter_retains_its_owners_value() {
        let params = Params::new();
        params.keep("sheen", 1, &[setting(1, "osc.*.max", "16")]);
        number(&params, "osc.a.max");
        assert_eq!(number(&params, "osc.a.max").load(Relaxed), 8);
        params.unregister("osc.a");
        assert_eq!(number(&params, "osc.a.max").load(Relaxed), 16, "it went and came again");
    }

    #[test]
    fn permanent_settings_skip_commands_and_note_refusals() {
        let params = Params::new();
        params.register("mgs.MGS.live.params", Param::order(String::new, |_| panic!("an order was given")));
        let cell = number(&params, "osc.a.max");
        let all = [setting(1, "*.*.live.params", "set a=b"), setting(2, "osc.*.max", "0"), setting(3, "no.such", "1")];
        params.keep("sheen", 1, &all);
        assert_eq!(cell.load(Relaxed), 8);
        assert!(params.permanent().lock().by_fsname["sheen"].refused.contains(&2));
        let shown = get(&params, "mgc.sheen.params");
        assert_eq!(shown.lines().count(), 3);
        assert!(shown.ends_with("\n- { index: 3, event: set_param, device: general, parameter: no.such, value: 1 }\n"));
        assert_eq!(params.set("mgc.sheen.params", "x").unwrap()[0].result.as_ref().unwrap_err().errno, Errno::EACCES);
    }

    /// A newer list arrives while a setter runs: the newer value remains.
    #[test]
    fn newest_setting_remains_when_lists_arrive_concurrently() {
        let (params, cell) = (Params::new(), Arc::new(AtomicU64::new(8)));
        let (weak, read, write) = (params.downgrade(), cell.clone(), cell.clone());
        let set = move |v| {
            if v == 16 {
                weak.upgrade().unwrap().keep("sheen", 2, &[setting(2, "osc.*.max", "32")]);
            }
            write.store(v, Relaxed);
            Ok(())
        };
        params.register("osc.a.max", Param::u64(1..=256, move || read.load(Relaxed), set));
        params.keep("sheen", 1, &[setting(1, "osc.*.max", "16")]);
        assert_eq!(cell.load(Relaxed), 32);
        assert!(get(&params, "mgc.sheen.params").contains("value: 32"), "the list that is shown is the newest one");
    }
}
