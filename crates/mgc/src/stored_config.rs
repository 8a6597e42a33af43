//! A target's copy of the configuration that the MGS reported last.
//!
//! It is the file [`FILE`] in the target's directory. A target that starts while the MGS is stopped
//! uses it until the MGS answers. A copy contains neither nodemaps nor withdrawn keys: MDT and
//! keyring store these themselves.
//!
//! Invariants:
//! * A copy is replaced as a whole. After a crash it is the former or the new one.
//! * Only the process that serves the directory writes it, one write at a time.

use std::{io, path::Path};

use sheen_rt::Disk;
use sheen_wire::mgs::Config;

/// File in a target's directory.
pub const FILE: &str = "config.json";

/// Returns the part of a configuration that an MDT stores: targets, pools and permanent settings.
pub fn part_of_mdt(config: &Config) -> Config {
    let Config { fsname, version, targets, pools, params, nodemaps: _, withdrawn: _ } = config.clone();
    Config { fsname, version, targets, pools, params, ..Config::default() }
}

/// Returns the part of a configuration that an OST stores: the permanent settings.
pub fn part_of_ost(config: &Config) -> Config {
    let Config { fsname, version, params, targets: _, pools: _, nodemaps: _, withdrawn: _ } = config;
    Config { fsname: fsname.clone(), version: *version, params: params.clone(), ..Config::default() }
}

/// Reads the copy in a target's directory. `None`: there is none of this file system.
///
/// # Errors
/// It cannot be read, or is damaged.
pub fn read(disk: &Disk, dir: &Path, fsname: &str) -> io::Result<Option<Config>> {
    let bytes = match disk.read(dir.join(FILE)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    let copy: Config = serde_json::from_slice(&bytes)?;
    Ok(Some(copy).filter(|copy| copy.fsname == fsname))
}

/// Writes the copy in a target's directory; it is durable on return.
///
/// # Errors
/// It cannot be written.
pub fn write(disk: &Disk, dir: &Path, copy: &Config) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(copy)?;
    bytes.push(b'\n');
    disk.write_atomic(dir.join(FILE), &bytes)
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};
    use sheen_wire::auth::KeyId;
    use sheen_wire::mgs::{Setting, Target, TargetKind};

    use super::*;

    const FSNAME: &str = "sheen";

    /// Returns a configuration as an MDT stores it.
    fn known() -> Config {
        let ost = Target {
            kind: TargetKind::Ost,
            index: 3,
            uuid: "three".into(),
            nids: vec!["10.0.0.3@tcp".into()],
            incarnation: 7,
            removed: false,
        };
        let setting = Setting { index: 1, pattern: "obdfilter.*.degraded".into(), value: "1".into() };
        Config { fsname: FSNAME.into(), version: 5, targets: vec![ost], params: vec![setting], ..Config::default() }
    }

    #[test]
    fn stored_configuration_is_read_again_without_keys() {
        let sim = Sim::new(1, SimConfig::default());
        let disk = sim.rt(1).disk();
        let dir = Path::new("/target");
        disk.create_dir_all(dir).unwrap();
        assert_eq!(read(&disk, dir, FSNAME).unwrap(), None);
        let reported = Config { withdrawn: vec![KeyId(1)], ..known() };
        write(&disk, dir, &part_of_mdt(&reported)).unwrap();
        assert_eq!(read(&disk, dir, FSNAME).unwrap(), Some(known()));
        write(&disk, dir, &part_of_ost(&reported)).unwrap();
        assert_eq!(read(&disk, dir, FSNAME).unwrap(), Some(Config { targets: vec![], ..known() }));
        assert_eq!(read(&disk, dir, "other").unwrap(), None, "the copy of another file system");
    }

    #[test]
    fn damaged_copy_of_the_configuration_is_an_error() {
        let sim = Sim::new(1, SimConfig::default());
        let disk = sim.rt(1).disk();
        let dir = Path::new("/target");
        disk.create_dir_all(dir).unwrap();
        for damaged in [&b""[..], b"{", b"[]", b"\0\0\0\0", b"\xff"] {
            disk.write_atomic(dir.join(FILE), damaged).unwrap();
            assert!(read(&disk, dir, FSNAME).is_err(), "{damaged:?}");
        }
        write(&disk, dir, &known()).unwrap();
        assert_eq!(read(&disk, dir, FSNAME).unwrap(), Some(known()));
    }
}
