//! Output and exit codes of lctl, compared with captures of Lustre's.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sheen_control::{self as control, Control, Reply, Silent};
use sheen_params::{Device, Param, Params};

use super::{processes::Processes, *};

/// Two processes: a server and a mount.
fn processes() -> [Params; 2] {
    let (server, mount) = (Params::new(), Params::new());
    server.register("mdt.sheen-MDT0000.md_stats", Param::text(|| "open  1\nclose 1\n".into()));
    server.register("obdfilter.sheen-OST0000.blocksize", Param::u64_ro(|| 4096));
    server.add_device("MGS", || Device::new("mgs", "MGS", "MGS"));
    server.add_nid("127.0.0.1@tcp");
    for i in 0..2 {
        let name = format!("osc.sheen-OST000{i}-osc-ff00.max_rpcs_in_flight");
        mount.register(&name, Param::atomic(1..=256, Arc::new(AtomicU64::new(8))));
    }
    mount.add_device("osc", || Device::new("osc", "sheen-OST0000-osc-ff00", "a080").peer("0@lo"));
    mount.add_nid("127.0.0.1@tcp");
    [mount, server]
}

/// Processes that are queried without a socket.
pub(super) struct Fakes<'a>(pub(super) &'a [Params]);

impl Processes for Fakes<'_> {
    fn ask(&self, request: &Request) -> Vec<Reply> {
        self.0.iter().map(|p| control::answer(request, p)).collect()
    }

    fn silent(&self) -> Vec<Silent> {
        Vec::new()
    }
}

/// Runs a command line. Returns exit code, output and errors.
pub(super) fn run_with(processes: &dyn Processes, args: &[String]) -> (i32, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code =
        run(args, &mut Tool { processes, fsname: None, device: None, colors: false, out: &mut out, err: &mut err })
            .unwrap();
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn lctl(processes: &[Params], line: &str) -> (i32, String, String) {
    let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
    run_with(&Fakes(processes), &args)
}

#[test]
fn get_param_prints_values_in_every_format() {
    let p = processes();
    let get = |line| lctl(&p, line).1;
    let both = "osc.sheen-OST0000-osc-ff00.max_rpcs_in_flight=8\nosc.sheen-OST0001-osc-ff00.max_rpcs_in_flight=8\n";
    assert_eq!(get("get_param osc.*.max_rpcs_in_flight"), both);
    assert_eq!(get("get_param osc/*/max_rpcs_in_flight"), both);
    assert_eq!(get("get_param -n osc.*.max_rpcs_in_flight"), "8\n8\n");
    assert_eq!(get("get_param -N obdfilter.*.blocksize"), "obdfilter.sheen-OST0000.blocksize\n");
    assert_eq!(get("get_param -F osc.*OST0000*.*"), "osc.sheen-OST0000-osc-ff00.max_rpcs_in_flight==8\n");
    assert_eq!(get("get_param -y osc.*OST0000*.*"), "osc.sheen-OST0000-osc-ff00.max_rpcs_in_flight: 8\n");
    assert_eq!(get("get_param mdt.*.md_stats"), "mdt.sheen-MDT0000.md_stats=\nopen  1\nclose 1\n");
    assert_eq!(get("get_param -n mdt.*.md_stats"), "open  1\nclose 1\n");
    assert_eq!(get("get_param version"), format!("version={}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(get("get_param -R -N osc"), both.replace("=8", ""));
    assert_eq!(
        get("get_param -H mdt.*.md_stats"),
        "mdt.sheen-MDT0000.md_stats=open  1\nmdt.sheen-MDT0000.md_stats=close 1\n"
    );
    assert_eq!(get("get_param -p -r -L obdfilter.*.blocksize"), "obdfilter/sheen-OST0000/blocksize=4096\n");
    p[1].register("obdfilter/sheen-OST0000/exports/10.0.0.1@tcp/uuid", Param::text(|| "u".into()));
    let path = "obdfilter/sheen-OST0000/exports/10.0.0.1@tcp/uuid";
    assert_eq!(get("get_param -p -N obdfilter.*.exports.*.uuid"), format!("{path}\n"));
    assert_eq!(lctl(&p, &format!("get_param -n {path}")).1, "u\n");
    assert_eq!(get("get_param --no-merge version").lines().count(), 2, "both processes have one");
}

#[test]
fn get_param_exits_2_for_missing_parameters_and_prints_the_others() {
    let p = processes();
    let (code, out, err) = lctl(&p, "get_param nosuch.param obdfilter.*.blocksize");
    assert_eq!(code, 2);
    assert_eq!(out, "obdfilter.sheen-OST0000.blocksize=4096\n");
    assert_eq!(err, "error: get_param: param_path 'nosuch/param': No such file or directory\n");
    let (code, _, err) = lctl(&p, "set_param llite.*.nosuch=1");
    assert_eq!(code, 2);
    let want = "error: set_param: param_path 'llite/*/nosuch': No such file or directory\n\
                error: set_param: setting 'llite/*/nosuch'='1': No such file or directory\n";
    assert_eq!(err, want);
    let (code, _, err) = lctl(&[], "get_param version");
    assert_eq!(code, 2);
    assert!(err.contains("no Sheen process"), "{err}");
}

#[test]
fn set_param_sets_values_and_reports_refusals() {
    let p = processes();
    let (code, out, err) = lctl(&p, "set_param osc.*.max_rpcs_in_flight=16");
    let both = "osc.sheen-OST0000-osc-ff00.max_rpcs_in_flight=16\nosc.sheen-OST0001-osc-ff00.max_rpcs_in_flight=16\n";
    assert_eq!((code, out.as_str(), err.as_str()), (0, both, ""));
    assert_eq!(lctl(&p, "set_param -n osc.*.max_rpcs_in_flight=32"), (0, String::new(), String::new()));
    let (code, out, err) = lctl(&p, "set_param osc.*.max_rpcs_in_flight=0");
    assert_eq!((code, out.as_str()), (34, ""));
    let want = "\
error: set_param: setting osc/sheen-OST0000-osc-ff00/max_rpcs_in_flight=0: Numerical result out of range
error: set_param: setting osc/sheen-OST0001-osc-ff00/max_rpcs_in_flight=0: Numerical result out of range
error: set_param: setting 'osc/*/max_rpcs_in_flight'='0': Numerical result out of range
osc.*.max_rpcs_in_flight accepts 1 to 256
";
    assert_eq!(err, want);
    assert_eq!(lctl(&p, "set_param osc.*.max_rpcs_in_flight=abc").0, 22);
    assert_eq!(lctl(&p, "set_param obdfilter.*.blocksize=1").0, 13);
    let foo = "error: set_param: setting foo: Invalid argument\n";
    assert_eq!(lctl(&p, "set_param foo"), (22, String::new(), foo.into()));
    assert_eq!(lctl(&p, "get_param -n osc.*.max_rpcs_in_flight").1, "32\n32\n");
}

#[test]
fn get_param_json_prints_one_array_of_all_processes() {
    let p = processes();
    let parse = |text: &str| serde_json::from_str::<Vec<serde_json::Value>>(text).unwrap();
    let names = |text: &str| parse(text).iter().map(|p| p["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let (code, out, err) = lctl(&p, "get_param --json osc.*.* obdfilter.*.blocksize version");
    let osc = ["osc.sheen-OST0000-osc-ff00.max_rpcs_in_flight", "osc.sheen-OST0001-osc-ff00.max_rpcs_in_flight"];
    let want = [osc[0], osc[1], "obdfilter.sheen-OST0000.blocksize", "version"];
    assert_eq!((code, names(&out), err.as_str()), (0, want.map(str::to_owned).into(), ""));
    assert_eq!(parse(&out)[2]["value"], 4096);
    assert_eq!(names(&lctl(&p, "get_param --json -R -w osc obdfilter").1), osc);
    let (code, out, err) = lctl(&p, "get_param --json nosuch.*");
    let want = "error: get_param: param_path 'nosuch/*': No such file or directory\n";
    assert_eq!((code, out.as_str(), err.as_str()), (2, "[]\n", want));
}

/// Processes of which one has too many values.
struct WithTooLongReply(Params);

impl Processes for WithTooLongReply {
    fn ask(&self, request: &Request) -> Vec<Reply> {
        vec![Reply::Error { errno: Errno::EMSGSIZE.0 }, control::answer(request, &self.0)]
    }

    fn silent(&self) -> Vec<Silent> {
        Vec::new()
    }
}

#[test]
fn get_param_reports_replies_that_are_too_long_and_prints_the_others() {
    let want = "error: get_param: param_path 'version': Message too long\n\
                a process has a value that is too long, or too many values; use a narrower pattern\n";
    for option in ["-n", "--json"] {
        let args = ["get_param", option, "version"].map(str::to_owned);
        let (code, out, err) = run_with(&WithTooLongReply(Params::new()), &args);
        assert_eq!((code, err.as_str()), (90, want));
        assert!(out.contains(env!("CARGO_PKG_VERSION")), "{out}");
    }
    let args = ["list_param", "nosuch"].map(str::to_owned);
    let (code, out, err) = run_with(&WithTooLongReply(Params::new()), &args);
    assert_eq!((code, out.as_str()), (90, ""));
    assert!(err.contains("list_param: param_path 'nosuch': Message too long"), "{err}");
}

/// Processes of which one is of a release without typed values.
struct OfEarlierRelease(Params);

impl Processes for OfEarlierRelease {
    fn ask(&self, request: &Request) -> Vec<Reply> {
        let old = match request {
            Request::GetTyped { .. } => Reply::Error { errno: Errno::EPROTO.0 },
            request => control::answer(request, &Params::new()),
        };
        vec![old, control::answer(request, &self.0)]
    }

    fn silent(&self) -> Vec<Silent> {
        Vec::new()
    }
}

#[test]
fn get_param_json_warns_of_processes_of_earlier_releases() {
    let args = ["get_param", "--json", "version"].map(str::to_owned);
    let (code, out, err) = run_with(&OfEarlierRelease(Params::new()), &args);
    assert!(code == 0 && out.contains("\"version\""), "{out}");
    assert_eq!(err, "warning: get_param: processes of an earlier release do not support --json and are left out\n");
}

#[test]
fn list_param_prints_names_with_their_class() {
    let p = processes();
    assert_eq!(lctl(&p, "list_param *").1, "mdt\nobdfilter\nosc\nversion\n");
    assert_eq!(lctl(&p, "list_param -F *").1, "mdt/\nobdfilter/\nosc/\nversion\n");
    assert_eq!(lctl(&p, "list_param -D *").1, "mdt\nobdfilter\nosc\n");
    let want = "osc/\nosc.sheen-OST0000-osc-ff00/\nosc.sheen-OST0000-osc-ff00.max_rpcs_in_flight=\n";
    assert!(lctl(&p, "list_param -R -F osc").1.starts_with(want));
    let writable = "osc.sheen-OST0000-osc-ff00.max_rpcs_in_flight\nosc.sheen-OST0001-osc-ff00.max_rpcs_in_flight\n";
    assert_eq!(lctl(&p, "list_param -R -w osc obdfilter").1, writable);
    assert_eq!(lctl(&p, "list_param -l -r -p obdfilter.*.*").1, "obdfilter/sheen-OST0000/blocksize\n");
    assert_eq!(lctl(&p, "list_param -R -r obdfilter").1, "obdfilter.sheen-OST0000.blocksize\n");
    assert_eq!(lctl(&p, "list_param -M version").1, "version\nversion\n");
    assert_eq!(lctl(&p, "list_param nosuch").0, 2);
}

#[test]
fn dshbak_groups_targets_and_color_marks_differences() {
    let p = processes();
    let get = |line: &str| lctl(&p, line).1;
    let name = "osc.sheen-OST*-osc-ff00.max_rpcs_in_flight";
    assert_eq!(get("get_param -b osc.*.max_rpcs_in_flight"), format!("{name}=8\n"));
    assert_eq!(lctl(&p, "set_param -n osc.*OST0001*.max_rpcs_in_flight=80").0, 0);
    assert_eq!(get("get_param --dshbak osc.*.max_rpcs_in_flight"), format!("{name}=8\n{name}=80\n"));
    let red = format!("{name}=8\n{name}=8\x1b[91m0\x1b[0m\n");
    assert_eq!(get("get_param --dshbak --color always osc.*.max_rpcs_in_flight"), red);
    assert_eq!(get("get_param -b -c yes -n osc.*.max_rpcs_in_flight"), "8\n8\x1b[91m0\x1b[0m\n");
    assert_eq!(get("get_param -b -N osc.*.max_rpcs_in_flight"), format!("{name}\n"));
    assert_eq!(get("get_param --color=never version"), get("get_param version"));
    assert_eq!((lctl(&p, "get_param -c blue version").0, lctl(&p, "list_param --color=blue version").0), (4, 4));
    assert_eq!(get("list_param -b osc.*.*"), format!("{name}\n"));
    assert_eq!(
        get("list_param --color osc.* version"),
        "\x1b[94mosc.sheen-OST0000-osc-ff00\x1b[0m\n\
         \x1b[94mosc.sheen-OST0001-osc-ff00\x1b[0m\nversion\n"
    );
}

#[test]
fn options_for_kernel_modules_and_client_settings_are_refused() {
    let p = processes();
    for command in ["get_param --module", "list_param -o"] {
        let (code, out, err) = lctl(&p, &format!("{command} version"));
        assert_eq!((code, out.as_str()), (2, ""));
        assert!(err.contains("param_path 'version': No such file or directory\nSheen has no kernel modules"), "{err}");
    }
    for option in ["-C", "-Csheen", "--client=sheen"] {
        let (code, out, err) = lctl(&p, &format!("set_param {option} osc.*.max_rpcs_in_flight=9"));
        assert!((code, out.as_str()) == (95, "") && err.contains("use 'lctl set_param -P' on the MGS"), "{err}");
    }
}

#[test]
fn dl_and_list_nids_merge_all_processes() {
    let p = processes();
    let plain = "  0 UP osc sheen-OST0000-osc-ff00 a080 5\n  1 UP mgs MGS MGS 5\n";
    assert_eq!(lctl(&p, "dl").1, plain);
    assert_eq!(lctl(&p, "dl -t").1, plain.replacen("5\n", "5 0@lo\n", 1));
    let yaml = |peer| {
        format!(
            "devices:\n\
             - index: 0\n  status: UP\n  type: osc\n  name: sheen-OST0000-osc-ff00\n  uuid: a080\n  refcount: 5\n{peer}\
             - index: 1\n  status: UP\n  type: mgs\n  name: MGS\n  uuid: MGS\n  refcount: 5\n"
        )
    };
    assert_eq!(lctl(&p, "dl -y").1, yaml(""));
    assert_eq!(lctl(&p, "device_list --target --yaml").1, yaml("  nid: 0@lo\n"));
    assert_eq!(lctl(&p, "list_nids").1, "127.0.0.1@tcp\n");
}

#[test]
fn ping_checks_its_arguments() {
    let p = processes();
    assert_eq!(lctl(&p, "ping 0@lo"), (0, "12345-0@lo\n".into(), String::new()));
    for wrong in ["ping", "ping x", "ping 0@lo 0", "ping 0@lo 1 2"] {
        let (code, out, err) = lctl(&p, wrong);
        assert!(
            code == 4 && out.contains("usage: ping NID [SECONDS]") && err.starts_with("lctl: ping"),
            "{wrong}: {err}"
        );
    }
}

#[test]
fn which_nid_checks_its_arguments() {
    assert_eq!(lctl(&[], "which_nid 0@lo"), (0, "0@lo\n".into(), String::new()));
    let (code, out, err) = lctl(&[], "which_nid 0@lo x");
    assert!((code, out.as_str()) == (1, "") && err.starts_with("Can't parse NID x"), "{err}");
    let (code, out, _) = lctl(&[], "which_nid");
    assert!(code == 4 && out.contains("usage: which_nid NID [NID...]"), "{out}");
}

#[test]
fn barriers_and_snapshots_are_refused_with_an_alternative() {
    for command in ["barrier_freeze sheen 30", "barrier_stat sheen", "snapshot_create -F sheen -n a", "llog_cancel x 1"]
    {
        let name = command.split(' ').next().unwrap();
        let (code, out, err) = lctl(&[], command);
        assert_eq!((code, out.as_str()), (95, ""), "{command}");
        assert!(err.starts_with(&format!("error: {name}: Operation not supported: ")) && err.contains('\''), "{err}");
        assert_eq!(lctl(&[], &format!("help {name}")), (95, String::new(), err), "{command}");
    }
}

#[test]
fn usage_errors_exit_4_with_the_usage() {
    let p = processes();
    let (code, out, _) = lctl(&p, "get_param");
    assert_eq!(code, 4);
    assert!(out.starts_with("get the Lustre or LNET parameter\n") && out.contains("usage: get_param"));
    let (code, out, err) = lctl(&p, "set_param -x a=1");
    assert_eq!((code, err.as_str()), (4, "set_param: unrecognized option '-x'\n"));
    assert!(out.contains("usage: set_param"));
    let (code, out, err) = lctl(&p, "set_param -P -d -F settings");
    assert_eq!((code, err.as_str()), (4, "set_param: -d cannot be combined with -F\n"));
    assert!(out.contains("usage: set_param"));
    assert_eq!(lctl(&p, "nosuchcmd").0, 1);
    assert_eq!(lctl(&p, "--version").1, format!("lctl {}\n", env!("CARGO_PKG_VERSION")));
    assert!(lctl(&p, "help dl").1.contains("usage: dl"));
}

/// A mount of each of two file systems, and a server of both.
fn two_systems() -> [Params; 3] {
    let mount = |fsname: &str| {
        let params = Params::new();
        let name = format!("osc.{fsname}-OST0000-osc-ff00.max_rpcs_in_flight");
        params.register(&name, Param::atomic(1..=256, Arc::new(AtomicU64::new(8))));
        params.register("lnet.delay_us", Param::atomic(0..=256, Arc::new(AtomicU64::new(0))));
        params
    };
    let server = Params::new();
    for fsname in ["home", "scratch"] {
        server.register(&format!("obdfilter.{fsname}-OST0000.blocksize"), Param::u64_ro(|| 4096));
    }
    [mount("home"), mount("scratch"), server]
}

#[test]
fn fsname_option_restricts_commands_to_one_file_system() {
    let p = two_systems();
    let name = "osc.scratch-OST0000-osc-ff00.max_rpcs_in_flight";
    for line in [
        "--fsname scratch set_param *.*.max_rpcs_in_flight=16",
        "--fsname=scratch set_param *.*.max_rpcs_in_flight=16",
        "set_param --fsname scratch *.*.max_rpcs_in_flight=16",
    ] {
        assert_eq!(lctl(&p, line), (0, format!("{name}=16\n"), String::new()), "{line}");
    }
    assert_eq!(lctl(&p, "get_param -n osc.*.max_rpcs_in_flight").1, "8\n16\n");
    assert_eq!(lctl(&p, "--fsname home get_param -n *.*.max_rpcs_in_flight").1, "8\n");
    assert_eq!(lctl(&p, "--fsname scratch list_param obdfilter.*").1, "obdfilter.scratch-OST0000\n");
    // A parameter of the whole process belongs to the only file system of that process.
    assert_eq!(lctl(&p, "--fsname home set_param lnet.delay_us=5").1, "lnet.delay_us=5\n");
    assert_eq!(lctl(&p, "get_param -n lnet.delay_us").1, "5\n0\n");
    let (code, out, err) = lctl(&p, "--fsname none get_param osc.*.*");
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("serves or mounts the file system 'none'"), "{err}");
    for line in ["--fsname", "--fsname home", "--fsname home pool_new home.p", "--fsname= nosuchcmd"] {
        let (code, _, err) = lctl(&p, line);
        assert!(code == 4 && err.contains("'--fsname NAME' must be followed by"), "{line}: {err}");
    }
    assert_eq!(lctl(&p, "get_param --fsname").0, 4);
}

#[test]
fn set_param_warns_if_it_set_several_file_systems() {
    let p = two_systems();
    let both = "osc.home-OST0000-osc-ff00.max_rpcs_in_flight=9\nosc.scratch-OST0000-osc-ff00.max_rpcs_in_flight=9\n";
    let warned = "warning: set_param: 'osc/*/max_rpcs_in_flight' was set in 2 file systems: home, scratch; \
                  use --fsname NAME to restrict it to one\n";
    assert_eq!(lctl(&p, "set_param osc.*.max_rpcs_in_flight=9"), (0, both.into(), warned.into()));
    assert!(lctl(&p, "set_param -n lnet.delay_us=5").2.contains("in 2 file systems: home, scratch;"));
    assert_eq!(lctl(&p, "set_param -n osc.home-*.max_rpcs_in_flight=7"), (0, String::new(), String::new()));
}

#[test]
fn lctl_reports_a_stopped_process_and_prints_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let control = Control::serve_in(dir.path(), &processes()[1]).unwrap();
    // The kernel accepts connections for a stopped process.
    let hung = UnixListener::bind(dir.path().join("4000000001.sock")).unwrap();
    let run = |line: &str| {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        run_with(&Running::new(|| control::sockets_in(dir.path()), Duration::from_secs(3)), &args)
    };
    let named = "lctl: process 4000000001 does not answer within 3000 ms and is left out: it may be stopped or hang \
                 ('kill -CONT 4000000001' resumes a stopped one)\n";
    let blocksize = "obdfilter.sheen-OST0000.blocksize=4096\n";
    assert_eq!(run("get_param obdfilter.*.blocksize"), (0, blocksize.into(), named.into()));
    // A recursive command sends several requests, but waits for and reports the process only once.
    assert_eq!(run("get_param -R obdfilter"), (0, blocksize.into(), named.into()));
    assert_eq!(run("help dl").2, "");
    drop(control);
    assert_eq!(run("list_nids"), (110, String::new(), named.into()));
    let (code, _, err) = run("get_param version");
    assert!(code == 2 && err.ends_with(named) && !err.contains("no Sheen process"), "{err}");
    drop(hung);
    assert!(run("get_param version").2.contains("no Sheen process"));
}

#[test]
fn interactive_lctl_queries_processes_again_that_did_not_answer() {
    let dir = tempfile::tempdir().unwrap();
    let _control = Control::serve_in(dir.path(), &processes()[1]).unwrap();
    let hung = UnixListener::bind(dir.path().join("4000000001.sock")).unwrap();
    let processes = Running::new(|| control::sockets_in(dir.path()), Duration::from_secs(3));
    let execute = || {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut tool =
            Tool { processes: &processes, fsname: None, device: None, colors: false, out: &mut out, err: &mut err };
        assert_eq!(tool.execute(&["list_nids".into()]).unwrap(), 0);
        assert_eq!(out, b"127.0.0.1@tcp\n");
        String::from_utf8(err).unwrap()
    };
    assert!(execute().contains("process 4000000001 does not answer"));
    drop(hung);
    assert_eq!(execute(), "");
}

#[test]
fn lctl_reports_processes_of_other_users_as_permission_denied() {
    /// Processes that all belong to another user.
    struct OfOthers;

    impl Processes for OfOthers {
        fn ask(&self, _: &control::Request) -> Vec<Reply> {
            Vec::new()
        }

        fn silent(&self) -> Vec<Silent> {
            Vec::new()
        }

        fn denied(&self) -> bool {
            true
        }
    }

    let run = |line: &str| {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        run_with(&OfOthers, &args)
    };
    let hint = "the Sheen processes here belong to other users; run lctl as their user or as root\n";
    for command in ["get_param", "list_param"] {
        let said = format!("error: {command}: param_path 'osc/*/active': Permission denied\n{hint}");
        assert_eq!(run(&format!("{command} osc.*.active")), (13, String::new(), said));
    }
    let set = "error: set_param: setting 'osc/*/active'='1': Permission denied\n";
    let said = format!("error: set_param: param_path 'osc/*/active': Permission denied\n{hint}{set}");
    assert_eq!(run("set_param osc.*.active=1"), (13, String::new(), said));
}

/// A process of root, as an ordinary user sees it, and perhaps a process of the user.
struct OfRoot {
    public: Params,
    own: Option<Params>,
}

impl Processes for OfRoot {
    fn ask(&self, request: &Request) -> Vec<Reply> {
        self.own.iter().map(|own| control::answer(request, own)).collect()
    }

    fn ask_public(&self, request: &Request) -> Vec<Reply> {
        vec![match request {
            Request::Nids => Reply::Error { errno: Errno::EACCES.0 },
            request => control::answer(request, &self.public.public_view()),
        }]
    }

    fn silent(&self) -> Vec<Silent> {
        Vec::new()
    }
}

#[test]
fn ordinary_user_reads_public_parameters_and_sets_only_its_own() {
    let [mount, server] = processes();
    server.register("mdt.sheen-MDT0000.job_stats", Param::text(|| "secret".into()));
    let run = |processes: &OfRoot, line: &str| {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        run_with(processes, &args)
    };
    let mut users = OfRoot { public: server, own: None };
    let blocksize = "obdfilter.sheen-OST0000.blocksize=4096\n";
    assert_eq!(run(&users, "get_param obdfilter.*.blocksize"), (0, blocksize.into(), String::new()));
    let hint = "the Sheen processes here belong to other users; run lctl as their user or as root\n";
    let said = format!("error: get_param: param_path 'mdt/*/job_stats': Permission denied\n{hint}");
    assert_eq!(run(&users, "get_param mdt.*.job_stats"), (13, String::new(), said));
    users.public.register("osc.sheen-OST0009-osc-MDT0000.active", Param::bool(|| true, |_| panic!("set")));
    let said = "error: set_param: setting osc/sheen-OST0009-osc-MDT0000/active=0: Permission denied\n\
                error: set_param: setting 'osc/*/active'='0': Permission denied\n";
    assert_eq!(run(&users, "set_param osc.*.active=0"), (13, String::new(), said.into()));
    users.own = Some(mount);
    let set = "osc.sheen-OST0001-osc-ff00.max_rpcs_in_flight=9\n";
    assert_eq!(run(&users, "set_param osc.*OST0001*.max_rpcs_in_flight=9"), (0, set.into(), String::new()));
    let hint = "processes of other users show only a part of their parameters\n";
    let said = format!("error: get_param: param_path 'mdt/*/job_stats': No such file or directory\n{hint}");
    assert_eq!(run(&users, "get_param mdt.*.job_stats"), (2, String::new(), said));
}

#[test]
fn ordinary_user_lists_devices_of_other_users_and_changes_none() {
    let [own, server] = processes();
    own.add_device("MGC", || Device::new("mgc", "MGC", "a080"));
    server.add_device("sheen-OST0000", || Device::new("obdfilter", "sheen-OST0000", "sheen-OST0000_UUID"));
    let users = OfRoot { public: server, own: Some(own) };
    let run = |line: &str| {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        run_with(&users, &args)
    };
    let (code, out, err) = run("dl");
    assert_eq!((code, err.as_str()), (0, ""));
    let names: Vec<_> = out.lines().map(|line| line.split_whitespace().nth(3).unwrap()).collect();
    assert_eq!(names[names.len() - 1], "sheen-OST0000", "those of others come last: {out}");
    assert!(names.contains(&"MGC"), "{out}");
    let number = names.len() - 1;
    for device in ["sheen-OST0000".to_owned(), number.to_string()] {
        let said = format!(
            "error: abort_recovery: '{device}' belongs to a process of another user; \
             run lctl as that user or as root\n"
        );
        assert_eq!(run(&format!("--device {device} abort_recovery")), (13, String::new(), said));
    }
}

#[test]
fn get_param_reports_a_process_that_is_busy() {
    struct Busy;

    impl Processes for Busy {
        fn ask(&self, _: &Request) -> Vec<Reply> {
            vec![Reply::Error { errno: Errno::EBUSY.0 }]
        }

        fn silent(&self) -> Vec<Silent> {
            Vec::new()
        }
    }

    let want = "error: get_param: param_path 'version': Device or resource busy\n\
                a process serves too many requests of other users now; try again\n";
    let args = ["get_param", "version"].map(str::to_owned);
    assert_eq!(run_with(&Busy, &args), (16, String::new(), want.into()));
}

#[test]
fn deactivate_sets_active_of_one_connection_by_name_or_number() {
    let mount = Params::new();
    let active: Vec<_> = (0..2).map(|_| Arc::new(AtomicU64::new(1))).collect();
    for (i, cell) in active.iter().enumerate() {
        let name = format!("sheen-OST000{i}-osc-ff00");
        mount.register(&format!("osc.{name}.active"), Param::atomic(0..=1, cell.clone()));
        mount.add_device(&name.clone(), move || Device::new("osc", &name, "a080"));
    }
    mount.add_device("MDS", || Device::new("mds", "MDS", "MDS_uuid"));
    let mount = [mount];
    let values = || active.iter().map(|cell| cell.load(std::sync::atomic::Ordering::Relaxed)).collect::<Vec<_>>();
    let done = (0, String::new(), String::new());
    assert_eq!(lctl(&mount, "--device sheen-OST0001-osc-ff00 deactivate"), done);
    assert_eq!(values(), [1, 0]);
    let dl = lctl(&mount, "dl").1;
    let number =
        |name: &str| dl.lines().find(|l| l.contains(name)).unwrap().trim().split(' ').next().unwrap().to_owned();
    assert_eq!(lctl(&mount, &format!("--device {} deactivate", number("OST0000"))), done);
    assert_eq!(lctl(&mount, "--device sheen-OST0001-osc-ff00 activate"), done);
    assert_eq!(values(), [0, 1]);
    let (code, out, err) = lctl(&mount, "--device sheen-OST0007-osc-ff00 deactivate");
    assert_eq!((code, out.as_str()), (19, ""));
    assert!(err.contains("no device 'sheen-OST0007-osc-ff00'"), "{err}");
    let (code, _, err) = lctl(&mount, "--device MDS deactivate");
    assert!(code == 22 && err.contains("no connection to an OST"), "{err}");
    // In interactive mode, `device` selects the connection of the commands that follow.
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let processes = Fakes(&mount);
    let mut tool =
        Tool { processes: &processes, fsname: None, device: None, colors: false, out: &mut out, err: &mut err };
    let mut execute = |line: &str| tool.execute(&line.split(' ').map(OsString::from).collect::<Vec<_>>()).unwrap();
    let codes = ["device sheen-OST0000-osc-ff00", "activate", "device $sheen-OST0001-osc-ff00", "deactivate"];
    assert_eq!(codes.map(&mut execute), [0; 4]);
    assert_eq!((execute("device nosuch"), execute("device")), (19, usage::EXIT));
    assert_eq!(values(), [1, 0]);
    assert_eq!(lctl(&mount, "deactivate").0, usage::EXIT);
    assert_eq!(lctl(&mount, "--device").0, usage::EXIT);
}

#[test]
fn abort_recovery_of_a_data_service_sets_its_parameter_although_dl_does_not_list_it() {
    let (server, aborted) = (Params::new(), Arc::new(AtomicU64::new(0)));
    server.register("dom.sheen-MDT0000-dom.abort_recovery", Param::atomic(0..=1, aborted.clone()));
    let server = [server];
    let done = (0, String::new(), String::new());
    assert_eq!(lctl(&server, "--device sheen-MDT0000-dom abort_recovery"), done);
    assert_eq!(aborted.load(std::sync::atomic::Ordering::Relaxed), 1);
    let (code, out, err) = lctl(&server, "--device sheen-MDT0007-dom abort_recovery");
    assert!(code == 22 && out.is_empty() && err.contains("'sheen-MDT0007-dom' is no MDT or OST"), "{err}");
}
