//! `lfs osts` and `lfs mdts`: list the targets of a mount.

use std::ffi::OsString;

use sheen_wire::{Errno, control, control::TargetInfo, mgs::TargetKind};

use super::tool::{Tool, keep_first};

/// `lfs osts [PATH]`.
pub fn osts(tool: &mut Tool, args: &[OsString]) -> i32 {
    list(tool, args, TargetKind::Ost, "OBDS:")
}

/// `lfs mdts [PATH]`.
pub fn mdts(tool: &mut Tool, args: &[OsString]) -> i32 {
    list(tool, args, TargetKind::Mdt, "MDTS:")
}

fn list(tool: &mut Tool, args: &[OsString], kind: TargetKind, title: &str) -> i32 {
    let path = args.first();
    let command = if kind == TargetKind::Ost { "osts" } else { "mdts" };
    let mut code = 0;
    let mounts = match tool.mounts(command, path.map(OsString::as_os_str), &mut code) {
        Ok(mounts) => mounts,
        // As in Lustre: a path outside a mount lists no targets and is not an error.
        Err(Errno::ENOTTY) => return 0,
        Err(e) => {
            let path = path.map(|p| p.display().to_string()).unwrap_or_default();
            tool.complain(format_args!("lfs {command}: invalid path '{path}': {e} ({})", e.0));
            return e.0;
        }
    };
    for mount in mounts {
        match tool.ask::<Vec<TargetInfo>>(&mount, control::DF) {
            Ok(targets) => {
                tool.print(format_args!("{title}\n"));
                for t in targets.iter().filter(|t| t.kind == kind) {
                    let state = if t.active { "ACTIVE" } else { "INACTIVE" };
                    tool.print(format_args!("{}: {} {state}\n", t.index, t.uuid));
                }
            }
            Err(e) => {
                tool.complain(format_args!("lfs {command}: cannot read '{}': {e} ({})", mount.display(), e.0));
                keep_first(&mut code, e);
            }
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case};

    #[test]
    fn osts_and_mdts_print_targets_like_lustre() {
        let mut fake = Fake::new("/mnt/c1");
        fake.deactivate_ost(3);
        let osts = "OBDS:
0: lustre-OST0000_UUID ACTIVE
1: lustre-OST0001_UUID ACTIVE
2: lustre-OST0002_UUID ACTIVE
3: lustre-OST0003_UUID INACTIVE
";
        check_case(&mut fake, &format!("$ lfs osts /mnt/c1/t\n[exit 0]\n--- stdout\n{osts}"));
        check_case(&mut fake, &format!("$ lfs osts\n[exit 0]\n--- stdout\n{osts}"));
        check_case(
            &mut fake,
            "$ lfs mdts\n[exit 0]\n--- stdout\nMDTS:\n0: lustre-MDT0000_UUID ACTIVE\n1: lustre-MDT0001_UUID ACTIVE\n",
        );
        check_case(&mut fake, "$ lfs osts /tmp\n[exit 0]\n");
    }
}
