//! Output and exit codes of the pool commands, compared with captures of Lustre's.

use std::{cell::Cell, sync::Arc};

use parking_lot::Mutex;
use sheen_control::{Reply, Request, Silent};
use sheen_mgs::pools;
use sheen_params::{Param, Params};
use sheen_wire::mgs::{Config, Target, TargetKind};

use super::super::{
    processes::Processes,
    tests::{Fakes, run_with},
};
use super::expand;

/// A process with an MGS that knows the file system `lustre` of 4 OSTs.
fn mgs() -> Params {
    let target = |index| Target {
        kind: TargetKind::Ost,
        index,
        uuid: format!("u{index}"),
        nids: vec![],
        incarnation: 1,
        removed: false,
    };
    let config =
        Config { fsname: "lustre".into(), version: 1, targets: (0..4).map(target).collect(), ..Config::default() };
    let config = Arc::new(Mutex::new(config));
    let params = Params::new();
    let shown = config.clone();
    let change = move |text: &str| {
        let (pool, change) = pools::read("lustre", text)?;
        pools::apply(&mut config.lock(), pool, change)
    };
    let show = move || pools::render("lustre", &shown.lock().pools);
    params.register("mgs.MGS.pools.lustre", Param::text_rw(show, change));
    params.register("mgs.MGS.filesystems", Param::text(|| "lustre\n".into()));
    params
}

fn lctl(processes: &[Params], line: &str) -> (i32, String, String) {
    let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
    run_with(&Fakes(processes), &args)
}

#[test]
fn pool_commands_print_and_exit_as_in_lustre() {
    let p = [mgs()];
    let check = |line: &str, code: i32, out: &str, err: &str| {
        assert_eq!(lctl(&p, line), (code, out.to_owned(), err.to_owned()), "{line}");
    };
    check("pool_new lustre.p1", 0, "", "Pool lustre.p1 created\n");
    check(
        "pool_add lustre.p1 OST0000 OST0001",
        0,
        "",
        "OST lustre-OST0000_UUID added to pool lustre.p1\nOST lustre-OST0001_UUID added to pool lustre.p1\n",
    );
    check("pool_list lustre", 0, "Pools from lustre:\nlustre.p1\n", "");
    check("pool_list lustre.p1", 0, "Pool: lustre.p1\nlustre-OST0000_UUID\nlustre-OST0001_UUID\n", "");
    check("pool_new lustre.p1", 17, "", "pool_new: pool lustre.p1 already exists\n");
    let long = "pool_new: poolname is too long\npool_new: File name too long\n";
    check("pool_new lustre.verylongpoolname1234", 36, "", long);
    check("pool_new p2", 22, "", "pool_new: Invalid argument\n");
    let characters =
        "pool_new: can contain only alphanumeric characters, underscores, and dashes besides the required '.'\n";
    for name in ["lustre.a/b", "lustre.", "*.p2", "lustre.a.b", ".p2"] {
        check(&format!("pool_new {name}"), 22, "", characters);
    }
    let stranger = "pool_add: lustre-OST0009_UUID is not part of the 'lustre' fs.\n";
    check("pool_add lustre.p1 OST0009", 19, "", stranger);
    check("pool_add lustre.p1 OST0001", 17, "", "pool_add: lustre-OST0001_UUID is already in pool lustre.p1\n");
    check("pool_add lustre.nopool OST0001", 123, "", "pool_add: pool lustre.nopool not found\n");
    check("pool_remove lustre.p1 OST0001", 0, "", "OST lustre-OST0001_UUID removed from pool lustre.p1\n");
    check("pool_remove lustre.p1 OST0003", 2, "", "pool_remove: lustre-OST0003_UUID not found in pool lustre.p1\n");
    check("pool_destroy lustre.p1", 0, "", "Pool lustre.p1 destroyed\n");
    check("pool_remove lustre.p1 OST0000", 2, "", "pool_remove: lustre-OST0000_UUID not found in pool lustre.p1\n");
    check("pool_destroy lustre.p1", 2, "", "pool_destroy: pool lustre.p1 not found\n");
    check("pool_list lustre", 0, "Pools from lustre:\n", "");
    check("pool_list lustre.p1", 2, "Pool: lustre.p1\n", "pool_list: pool lustre.p1 not found\n");
}

#[test]
fn pool_add_expands_ranges_of_hexadecimal_indices() {
    let p = [mgs()];
    lctl(&p, "pool_new lustre.p");
    let (code, _, err) = lctl(&p, "pool_add lustre.p lustre-OST[0002-0003]");
    assert_eq!(code, 0);
    assert_eq!(err, "OST lustre-OST0002_UUID added to pool lustre.p\nOST lustre-OST0003_UUID added to pool lustre.p\n");
    // The exit code is the first failure. The remaining OSTs are processed all the same.
    let (code, _, err) = lctl(&p, "pool_add lustre.p OST[3,0]_UUID other-OST0001 OST0001");
    let said: Vec<&str> = err.lines().collect();
    assert_eq!(code, 17);
    assert_eq!(said[0], "pool_add: lustre-OST0003_UUID is already in pool lustre.p");
    assert_eq!(said[1], "OST lustre-OST0000_UUID added to pool lustre.p");
    assert!(said[2].starts_with("pool_add: invalid OST 'other-OST0001' of 'lustre'"), "{err}");
    assert_eq!(said[3], "OST lustre-OST0001_UUID added to pool lustre.p");

    let names = |list: &str| expand(list).map(|names| names.join(" "));
    let all = "f-OST0000 f-OST0002 f-OST0004 f-OST0006 f-OST0008 f-OST000a f-OST000c f-OST000e f-OST0010";
    assert_eq!(names("f-OST[0-10/2]").as_deref(), Some(all));
    assert_eq!(names("OST[1,8-9]_UUID").as_deref(), Some("OST0001_UUID OST0008_UUID OST0009_UUID"));
    assert_eq!(names("OST0001").as_deref(), Some("OST0001"));
    for bad in ["OST[", "OST[]", "OST[3-1]", "OST[0-3/0]", "OST[g]", "OST[0-10000]", "OST[0-fffe,0-fffe]"] {
        assert_eq!(expand(bad), None, "{bad}");
    }
}

#[test]
fn pool_commands_print_the_usage_after_an_invalid_call() {
    let p = [mgs()];
    for line in [
        "pool_new",
        "pool_new lustre.p1 OST0000",
        "pool_add",
        "pool_add lustre.p1",
        "pool_add lustre.p1 OST[3-1]",
        "pool_remove lustre.p1",
        "pool_destroy",
        "pool_list",
        "pool_list a b",
    ] {
        let (code, out, err) = lctl(&p, line);
        let command = line.split(' ').next().unwrap();
        assert_eq!((code, err.as_str()), (4, ""), "{line}");
        assert!(out.contains(&format!("usage: {command}")), "{line}: {out}");
    }
}

#[test]
fn pool_commands_report_a_missing_or_ambiguous_mgs() {
    let none = lctl(&[Params::new()], "pool_new lustre.p1");
    assert_eq!(none.0, 19);
    assert!(none.2.starts_with("pool_new: no MGS that you can reach runs on this machine"), "{}", none.2);
    let unknown = lctl(&[mgs()], "pool_new nofs.p2");
    assert_eq!(unknown, (22, String::new(), "pool_new: the MGS knows no file system 'nofs'\n".into()));
    let two = [mgs(), mgs()];
    let (code, _, err) = lctl(&two, "pool_new lustre.p1");
    assert_eq!(code, 22);
    assert!(err.contains("several MGSs") && err.contains("SHEEN_RUNTIME_DIR"), "{err}");
    for mgs in two {
        assert_eq!(lctl(&[mgs], "pool_list lustre").1, "Pools from lustre:\n", "none was changed");
    }
}

/// Number of checks before the MDT of [`LateMdt`] has received a pool.
const POLLS: u32 = 5;

/// Processes whose MDT receives a new pool late.
struct LateMdt<'a> {
    processes: Fakes<'a>,
    mds: &'a Params,
    looks: Cell<u32>,
}

impl Processes for LateMdt<'_> {
    fn ask(&self, request: &Request) -> Vec<Reply> {
        if matches!(request, Request::Get { pattern } if pattern.starts_with("lov.")) {
            self.looks.set(self.looks.get() + 1);
            if self.looks.get() == POLLS {
                self.mds.register("lov.lustre-MDT0000-mdtlov.pools.p1", Param::text(String::new));
            }
        }
        self.processes.ask(request)
    }

    fn silent(&self) -> Vec<Silent> {
        Vec::new()
    }
}

#[test]
fn pool_new_waits_until_local_mdts_have_received_the_pool() {
    let (mgs, mds) = (mgs(), Params::new());
    mds.register("lod.lustre-MDT0000-mdtlov.numobd", Param::u64_ro(|| 4));
    let p = [mgs, mds.clone()];
    let late = LateMdt { processes: Fakes(&p), mds: &mds, looks: Cell::new(0) };
    let (code, _, err) = run_with(&late, &["pool_new", "lustre.p1"].map(str::to_owned));
    assert_eq!((code, late.looks.get(), &err[..]), (0, POLLS, "Pool lustre.p1 created\n"));
    mds.unregister("lov.lustre-MDT0000-mdtlov.pools.p1");
    assert_eq!(lctl(&p, "pool_destroy lustre.p1").0, 0);
}
