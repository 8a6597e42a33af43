//! `lfs check`: reports whether the mounts reach their servers.

use std::ffi::OsString;

use sheen_wire::{
    control,
    control::{ImportInfo, ImportKind},
};

use super::{
    tool::{Tool, text},
    usage,
};

/// Runs `lfs check {mgts|osts|mdts|all} [PATH]`: prints for each server whether it is active. Exits
/// with 0 even if some servers are not active, and with ETIMEDOUT if a mount does not answer.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let Some(what) = args.first() else {
        return tool.usage(usage::CHECK, format_args!("lfs check: server type must be specified"));
    };
    let kinds: &[ImportKind] = match text(what) {
        "osts" => &[ImportKind::Ost],
        "mdts" => &[ImportKind::Mdt],
        "mgts" => &[ImportKind::Mgs],
        "all" | "servers" => &[ImportKind::Ost, ImportKind::Mdt, ImportKind::Mgs],
        "-h" | "--help" => return tool.help(usage::CHECK),
        other => return tool.usage(usage::CHECK, format_args!("lfs check: unrecognized option '{other}'")),
    };
    let mut code = 0;
    let imports = tool.mounts("check", args.get(1).map(OsString::as_os_str), &mut code).and_then(|mounts| {
        let mut all = Vec::new();
        for mount in mounts {
            all.extend(tool.ask::<Vec<ImportInfo>>(&mount, control::CHECK)?);
        }
        Ok(all)
    });
    let mut imports = match imports {
        Ok(imports) => imports,
        Err(e) => {
            let path = args.get(1).map(|p| p.display().to_string()).unwrap_or_default();
            tool.complain(format_args!("lfs check: error: check '{path}': {e} ({})", e.0));
            return e.0;
        }
    };
    // The names sort by target, then by mount. Mounts of one host share their MGS.
    imports.sort_by(|a, b| a.name.cmp(&b.name));
    imports.dedup_by(|a, b| a.name == b.name);
    for kind in kinds {
        for import in imports.iter().filter(|i| i.kind == *kind) {
            match import.state {
                Ok(()) => tool.print(format_args!("{} active.\n", import.name)),
                Err(e) => {
                    tool.complain(format_args!("lfs check: error: check '{}': {e} ({})", import.name, e.0));
                }
            }
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case};

    #[test]
    fn check_prints_server_states_like_lustre() {
        let mut fake = Fake::new("/mnt/c1");
        for case in [
            "$ lfs check all /mnt/c1\n[exit 0]\n--- stdout
lustre-OST0000-osc-ff3298de21e05800 active.
lustre-OST0001-osc-ff3298de21e05800 active.
lustre-OST0002-osc-ff3298de21e05800 active.
lustre-OST0003-osc-ff3298de21e05800 active.
lustre-MDT0000-mdc-ff3298de21e05800 active.
lustre-MDT0001-mdc-ff3298de21e05800 active.
MGC10.0.2.15@tcp active.
",
            "$ lfs check mgts\n[exit 0]\n--- stdout\nMGC10.0.2.15@tcp active.\n",
            "$ lfs check mgs\n[exit 4]\n--- stdout
Display the status of MGTs, MDTs or OSTs (as specified in the command)
or all the servers (MGTs, MDTs and OSTs) [for specified path only].
usage: check {mgts|osts|mdts|all} [PATH]
--- stderr
lfs check: unrecognized option 'mgs'
",
            "$ lfs check\n[exit 4]\n--- stdout
Display the status of MGTs, MDTs or OSTs (as specified in the command)
or all the servers (MGTs, MDTs and OSTs) [for specified path only].
usage: check {mgts|osts|mdts|all} [PATH]
--- stderr
lfs check: server type must be specified
",
        ] {
            check_case(&mut fake, case);
        }
        fake.deactivate_ost(3);
        check_case(
            &mut fake,
            "$ lfs check osts\n[exit 0]\n--- stdout
lustre-OST0000-osc-ff3298de21e05800 active.
lustre-OST0001-osc-ff3298de21e05800 active.
lustre-OST0002-osc-ff3298de21e05800 active.
--- stderr
lfs check: error: check 'lustre-OST0003-osc-ff3298de21e05800': Cannot send after transport endpoint shutdown (108)
",
        );
    }
}
