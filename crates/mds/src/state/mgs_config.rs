//! The MDT's copy of the configuration that the MGS reported last.
//!
//! It is in the MDT's directory. So an MDT that starts while the MGS is stopped knows its OSTs,
//! their pools and the permanent settings. Nodemaps have a file of their own
//! ([`crate::state::nodemaps`]).

use std::{io, path::Path};

use sheen_rt::Disk;
use sheen_wire::mgs::Config;

/// File in the MDT's directory.
pub(crate) const FILE: &str = "config.json";

/// Returns the part of a configuration that is stored.
pub(crate) fn stored_part(config: &Config) -> Config {
    let Config { fsname, version, targets, pools, params, nodemaps: _, withdrawn: _ } = config.clone();
    Config { fsname, version, targets, pools, params, ..Config::default() }
}

/// Reads the copy in an MDT's directory. `None`: there is none.
///
/// # Errors
/// It cannot be read, or is damaged.
pub(crate) fn read(disk: &Disk, dir: &Path) -> io::Result<Option<Config>> {
    match disk.read(dir.join(FILE)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Writes the copy in an MDT's directory.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(disk: &Disk, dir: &Path, copy: &Config) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(copy)?;
    bytes.push(b'\n');
    disk.write_atomic(dir.join(FILE), &bytes)
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};
    use sheen_wire::auth::KeyId;
    use sheen_wire::mgs::{Target, TargetKind};

    use super::*;

    #[test]
    fn stored_configuration_has_targets_and_no_keys() {
        let sim = Sim::new(1, SimConfig::default());
        let disk = sim.rt(1).disk();
        let dir = Path::new("/mdt");
        disk.create_dir_all(dir).unwrap();
        assert_eq!(read(&disk, dir).unwrap(), None);
        let ost = Target {
            kind: TargetKind::Ost,
            index: 3,
            uuid: "three".into(),
            nids: vec!["10.0.0.3@tcp".into()],
            incarnation: 7,
            removed: false,
        };
        let known = Config { fsname: "sheen".into(), version: 5, targets: vec![ost], ..Config::default() };
        let reported = Config { withdrawn: vec![KeyId(1)], ..known.clone() };
        write(&disk, dir, &stored_part(&reported)).unwrap();
        assert_eq!(read(&disk, dir).unwrap(), Some(known));
        disk.write_atomic(dir.join(FILE), b"{").unwrap();
        assert!(read(&disk, dir).is_err());
    }
}
