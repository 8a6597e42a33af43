//! Labels of a parameter, read from Lustre's dotted names.

use serde::{Deserialize, Serialize};

use crate::fsname::{fsname_of, target_of};

/// The file system, target and device of a parameter. A parameter of the whole process, such as
/// `version`, has no labels.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Labels {
    /// The file system: `sheen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsname: Option<String>,
    /// The MDT or OST: `sheen-OST0000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The device, mount or lock namespace: `sheen-OST0000-osc-ff3298de21e05800`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

impl Labels {
    /// Returns the labels in a name with `/` between its components.
    pub(crate) fn of(path: &str) -> Labels {
        let parts: Vec<&str> = path.split('/').collect();
        let device = match parts[..] {
            ["mgc", _, "params"] | ["srpc", ..] => None,
            ["ldlm", "namespaces", device, _, ..] | [_, device, _, ..] => Some(device),
            _ => None,
        };
        Labels {
            fsname: fsname_of(path).map(str::to_owned),
            target: device.and_then(target_of).map(str::to_owned),
            device: device.map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_name_file_system_target_and_device() {
        for (path, fsname, target, device) in [
            ("osc/sheen-OST0000-osc-ff00/active", "sheen", "sheen-OST0000", "sheen-OST0000-osc-ff00"),
            ("osp/a-b-OST001f-osc-MDT0000/active", "a-b", "a-b-OST001f", "a-b-OST001f-osc-MDT0000"),
            ("mdt/sheen-MDT0000/md_stats", "sheen", "sheen-MDT0000", "sheen-MDT0000"),
            ("lov/sheen-clilov-ff00/pools/fast", "sheen", "", "sheen-clilov-ff00"),
            ("llite/sheen-ff00/stats", "sheen", "", "sheen-ff00"),
            ("mgc/sheen/params", "sheen", "", ""),
            ("srpc/sheen/flavor", "sheen", "", ""),
            ("qmt/sheen-QMT0000/dt-0x0/glb-usr", "sheen", "sheen-QMT0000", "sheen-QMT0000"),
            ("mgc/MGC10.0.2.15@tcp/active", "", "", "MGC10.0.2.15@tcp"),
            ("mgs/MGS/live/params", "", "", "MGS"),
            ("lnet/delay_us", "", "", ""),
            ("version", "", "", ""),
            ("ldlm/namespaces/filter-a-OST0001_UUID/stats", "a", "a-OST0001", "filter-a-OST0001_UUID"),
        ] {
            let labels = Labels::of(path);
            let found = [labels.fsname, labels.target, labels.device].map(Option::unwrap_or_default);
            assert_eq!(found, [fsname, target, device], "{path}");
        }
    }
}
