//! Missing target directories of a file system of `sheen up`. They must not be formatted again: the
//! MGS would refuse the new targets, and their directories would hinder the restoration of a
//! backup.

use std::path::Path;

use sheen_wire::mgs::{Config, TargetKind, target_name};

use crate::{
    dir_kind::DirKind,
    error::{Failure, Result},
    paths::Home,
};

/// Returns the indices of the OSTs to serve among the first `osts`: all except those that were
/// removed, and the missing ones that are inactive. `known`: the MGS's configuration of the file
/// system.
///
/// # Errors
/// The MDT is missing, or an OST that is not inactive.
pub fn osts_to_serve(home: &Home, osts: u32, known: Option<&Config>) -> Result<Vec<u32>> {
    let Some(known) = known else { return Ok((0..osts).collect()) };
    let is_known = |kind: TargetKind, index: u32| known.targets.iter().any(|t| t.kind == kind && t.index == index);
    let mdt = home.mdt(0);
    if is_known(TargetKind::Mdt, 0) && !DirKind::Mdt.is_in(&mdt) {
        return Err(
            missing("the MDT", &mdt).advise("restore it from a backup: without it the names of all files are lost")
        );
    }
    let mut found = Vec::new();
    for index in 0..osts {
        let dir = home.ost(index);
        if known.is_removed(index) {
            tracing::info!("OST {index} was removed from the file system");
        } else if DirKind::Ost.is_in(&dir) || !is_known(TargetKind::Ost, index) {
            found.push(index);
        } else if known.is_out_of_use(index) {
            tracing::warn!("OST {index} is inactive, and {} does not hold it: starting without it", dir.display());
        } else {
            return Err(missing(&format!("OST {index}"), &dir).advise(advice(home, known, index)));
        }
    }
    Ok(found)
}

/// Returns the error about a directory without its target.
pub fn missing(target: &str, dir: &Path) -> Failure {
    if dir.exists() {
        Failure::new(format!("{} no longer holds {target}", dir.display()))
    } else {
        Failure::new(format!("the directory of {target} is missing: {}", dir.display()))
    }
}

fn advice(home: &Home, known: &Config, ost: u32) -> String {
    let name = target_name(&known.fsname, TargetKind::Ost, ost);
    format!(
        "restore it from a backup. To continue without it, run `sheen mgs --dir {}` and, while it runs,\n  \
         `lctl set_param -P osc.{name}-osc-*.active=0`; then stop `sheen mgs` and repeat this command.\n  \
         If `sheen oss` serves this OST, specify a smaller number with --osts",
        home.mgs().display()
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sheen_wire::mgs::{Setting, Target};

    use super::*;

    fn config(settings: &[(&str, &str)]) -> Config {
        let target = |kind, index: u32| Target {
            kind,
            index,
            uuid: format!("u{index}"),
            nids: vec!["n".into()],
            incarnation: 1,
            removed: false,
        };
        let params = settings.iter().zip(1..).map(|((pattern, value), index)| Setting {
            index,
            pattern: (*pattern).into(),
            value: (*value).into(),
        });
        let targets = vec![target(TargetKind::Mdt, 0), target(TargetKind::Ost, 0), target(TargetKind::Ost, 1)];
        Config { fsname: "sheen".into(), version: 1, targets, params: params.collect(), ..Config::default() }
    }

    #[test]
    fn osts_to_serve_reports_missing_targets_but_not_new_ones() {
        let base = tempfile::tempdir().unwrap();
        let home = Home::new(Some(base.path())).unwrap();
        let put = |file: &str| {
            let path = base.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "# A Sheen target; do not edit.\n").unwrap();
        };
        assert_eq!(osts_to_serve(&home, 2, None).unwrap(), [0, 1]);
        let says = |settings: &[(&str, &str)]| match osts_to_serve(&home, 3, Some(&config(settings))) {
            Ok(osts) => format!("{osts:?}"),
            Err(failure) => failure.to_string(),
        };
        assert!(says(&[]).contains("the directory of the MDT is missing"));
        put("mdt0/identity");
        put("ost0/target");
        assert!(says(&[]).starts_with("the directory of OST 1 is missing"), "{}", says(&[]));
        let off = ("osc.sheen-OST0001-osc-*.active", "0");
        assert_eq!(says(&[off]), "[0, 2]");
        assert!(says(&[off, ("os?.*OST0001*.active", "1")]).contains("OST 1"), "the last setting counts");
        assert!(says(&[("osc.sheen-OST0002-*.active", "0")]).contains("OST 1"), "that is another OST");
        fs::create_dir(base.path().join("ost1")).unwrap();
        assert!(says(&[]).contains("no longer holds OST 1"));
        put("ost1/target");
        assert_eq!(says(&[]), "[0, 1, 2]");
        let mut removed = config(&[]);
        removed.targets[2].removed = true;
        assert_eq!(osts_to_serve(&home, 3, Some(&removed)).unwrap(), [0, 2]);
    }
}
