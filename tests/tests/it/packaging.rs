//! The files that packages install: the program under its names, manual pages, completions, and the
//! units of systemd.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sheen_tests::{output, run, run_command, sheen};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the project").to_owned()
}

/// Returns the files of a directory, sorted.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

#[test]
fn manual_pages_are_complete_and_groff_accepts_them() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("pages");
    run(sheen(), [OsStr::new("man"), pages.as_os_str()]).ok();
    let mut wanted = vec!["sheen.1".to_owned(), "sheen-up.1".to_owned(), "mount.sheen.8".to_owned()];
    for tool in ["lfs", "lctl"] {
        wanted.push(format!("{tool}.1"));
        let commands = run(sheen(), [tool, "--list-commands"]).ok();
        let commands = commands.split_whitespace().filter(|command| !command.starts_with('-'));
        wanted.extend(commands.map(|command| format!("{tool}-{command}.1")));
    }
    let files = files(&pages);
    for page in wanted {
        assert!(files.contains(&pages.join(&page)), "{page} is missing");
    }
    if Command::new("groff").arg("--version").output().is_err() {
        return eprintln!("skipped a part: groff is missing, the pages are not formatted");
    }
    // Not all categories: each release of groff has others, and its own macros cause warnings.
    let warnings = ["-wbreak", "-wchar", "-wdelim", "-wescape", "-wmac", "-wsyntax"];
    let mut args: Vec<&OsStr> = ["-man", "-z", "-Tutf8"].into_iter().chain(warnings).map(OsStr::new).collect();
    args.extend(files.iter().map(|file| file.as_os_str()));
    let said = run("groff", args);
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "", ""));
}

/// Returns the long options that the help of a command lists.
fn options_of(command: &str) -> BTreeSet<String> {
    let help = run(sheen(), [command, "--help"]).ok();
    let words = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter(|word| word.len() > 2 && word.starts_with("--")).map(str::to_owned).collect()
}

/// Returns the value of a setting of a unit or a configuration.
fn setting<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn units_and_their_examples_use_options_that_exist() {
    let packaging = root().join("packaging");
    let units = files(&packaging.join("systemd"));
    assert_eq!(units.len(), 3, "{units:?}");
    for unit in units {
        let name = unit.display();
        let text = fs::read_to_string(&unit).expect("UTF-8");
        let line = setting(&text, "ExecStart").expect("a command line");
        let file = setting(&text, "EnvironmentFile").expect("a file of options");
        let file = file.strip_prefix("/etc/sheen/").expect("a file in /etc/sheen").replace("%i", "a");
        let example = fs::read_to_string(packaging.join("examples").join(&file)).expect("an example");
        let options = setting(&example, "OPTIONS").expect("options").trim_matches('"');
        let line = line.replace("$OPTIONS", options);
        let words: Vec<&str> = line.split_whitespace().collect();
        let [program, command, arguments @ ..] = &words[..] else { panic!("{name}: {line}") };
        assert_eq!(*program, "/usr/bin/sheen", "{name}");
        let known = options_of(command);
        for word in arguments.iter().filter(|word| word.starts_with('-')) {
            let option = word.split('=').next().unwrap();
            assert!(known.contains(option), "{name}: {option} is not an option of sheen {command}");
        }
        assert!(arguments.contains(&"--dir"), "{name}: {line}");
    }
}

#[test]
fn installation_has_all_names_pages_and_completions() {
    if Command::new("strip").arg("--version").output().is_err() {
        return eprintln!("skipped: strip is missing");
    }
    let dir = tempfile::tempdir().unwrap();
    let program = sheen();
    let mut install = Command::new(root().join("packaging/install.sh"));
    install.env("DESTDIR", dir.path()).env("BIN", &program).env("LIBDIR", program.parent().expect("a directory"));
    for name in ["PREFIX", "LIBRARIES", "SBINDIR", "ZSHDIR", "SHEEN"] {
        install.env_remove(name);
    }
    run_command(install).ok();
    let local = dir.path().join("usr/local");
    for name in [
        "bin/sheen",
        "bin/lfs",
        "bin/lctl",
        "lib/liblustreapi.so",
        "lib/liblustreapi.a",
        "include/lustre/lustreapi.h",
        "include/linux/lustre/lustre_user.h",
        "include/linux/lustre/lustre_ioctl.h",
        "share/man/man1/lfs-setstripe.1",
        "share/man/man8/mount.fuse.sheen.8",
        "share/bash-completion/completions/lctl",
        "share/fish/vendor_completions.d/lfs.fish",
        "share/zsh/site-functions/_sheen",
        "share/doc/sheen/docs/install.md",
        "share/doc/sheen/docs/pictures/dashboard.svg",
        "share/doc/sheen/examples/mgs.conf",
    ] {
        assert!(local.join(name).exists(), "{name} is missing");
    }
    let helper = fs::read_link(dir.path().join("sbin/mount.sheen")).unwrap();
    assert_eq!(helper, Path::new("/usr/local/bin/sheen"));
    let version = output(Command::new(local.join("bin/lfs")).arg("--version")).stdout;
    assert!(version.starts_with(b"lfs "), "{}", String::from_utf8_lossy(&version));
    let unit = fs::read_to_string(local.join("lib/systemd/system/sheen-oss@.service")).unwrap();
    assert_eq!(setting(&unit, "ExecStart"), Some("/usr/local/bin/sheen oss $OPTIONS"));
    let config = fs::read_to_string(local.join("lib/pkgconfig/lustreapi.pc")).unwrap();
    assert!(config.contains("\nlibdir=/usr/local/lib\n") && !config.contains('@'), "{config}");
    // Programs for Lustre look for it under this name, and include headers without `lustre/`.
    assert_eq!(fs::read_to_string(local.join("lib/pkgconfig/lustre.pc")).unwrap(), config);
    assert!(config.contains("\nCflags: -I${includedir} -I${includedir}/lustre\n"), "{config}");
}
