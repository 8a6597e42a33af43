//! Examples of the documentation: each is run, and must print what the document shows.
//!
//! A block fenced as `console` holds commands (`$ …`, continued by `> …`). Below each command is
//! its output, messages included. `…` stands for anything in a line, a line of `…` alone for any
//! lines. The blocks of a file run in order on a fresh file system named `sheen` with 4 OSTs. It is
//! mounted at `/mnt/sheen`, where the commands run.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use sheen_tests::sandbox::Sandbox;

const MOUNT: &str = "/mnt/sheen";

/// A command and the output that the document shows.
#[derive(Debug, PartialEq, Eq)]
struct Example {
    line: usize,
    command: String,
    prints: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the project").to_owned()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The lines of blocks fenced as `kind`, each block with the number of its first line.
fn blocks(text: &str, kind: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut inside = None;
    for (number, line) in (1..).zip(text.lines()) {
        match (&inside, line.strip_prefix("```")) {
            (None, Some(fence)) => {
                inside = Some(fence == kind);
                if fence == kind {
                    found.push((number + 1, String::new()));
                }
            }
            (Some(_), Some(_)) => inside = None,
            (Some(true), None) => {
                let block = &mut found.last_mut().expect("begun above").1;
                block.push_str(line);
                block.push('\n');
            }
            _ => {}
        }
    }
    found
}

fn examples(text: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    for (first, block) in blocks(text, "console") {
        let before = found.len();
        for (line, text) in (first..).zip(block.lines()) {
            if let Some(command) = text.strip_prefix("$ ") {
                found.push(Example { line, command: command.to_owned(), prints: String::new() });
                continue;
            }
            assert!(found.len() > before, "line {line}: a console block begins with a command");
            let example = found.last_mut().expect("not empty");
            match text.strip_prefix("> ") {
                Some(more) if example.prints.is_empty() => writeln_to(&mut example.command, more),
                _ => example.prints.push_str(&format!("{text}\n")),
            }
        }
    }
    found
}

fn writeln_to(command: &mut String, more: &str) {
    command.push('\n');
    command.push_str(more);
}

/// Returns whether the output is what the document shows. `…` stands for anything.
fn fits(said: &[&str], printed: &[&str]) -> bool {
    match (said.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((&"…", rest)), _) if fits(rest, printed) => true,
        (Some((&"…", _)), Some((_, others))) => fits(said, others),
        (Some((line, rest)), Some((other, others))) => line_fits(line, other) && fits(rest, others),
        _ => false,
    }
}

fn line_fits(said: &str, printed: &str) -> bool {
    let Some((start, rest)) = said.split_once('…') else { return said.trim_end() == printed.trim_end() };
    let Some(mut left) = printed.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('…').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.trim_end().ends_with(end.trim_end())
}

/// Runs the examples of a file, and describes those whose output differs.
fn run(sandbox: &Sandbox, name: &str) -> String {
    let mut wrong = String::new();
    for example in examples(&read(name)) {
        let script = format!("exec 2>&1\n{}", example.command);
        let printed = sandbox.sh(Path::new(MOUNT), &script).out;
        // A blank line before the next command is not part of the output.
        let said = example.prints.trim_end();
        if !fits(&said.lines().collect::<Vec<_>>(), &printed.trim_end().lines().collect::<Vec<_>>()) {
            let _ =
                writeln!(wrong, "{name}:{}: $ {}\nsays\n{said}\nbut prints\n{printed}", example.line, example.command);
        }
    }
    wrong
}

#[test]
fn doc_examples_print_what_the_documents_show() {
    let mut names = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).expect("docs/").flatten() {
        let name = entry.file_name().into_string().expect("UTF-8");
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.retain(|name| !examples(&read(name)).is_empty());
    names.sort();
    for known in ["docs/lfs.md", "docs/lctl.md", "docs/layouts.md"] {
        assert!(names.iter().any(|n| n == known), "{known} has no examples");
    }
    for name in names {
        Sandbox::enter("docs", move |sandbox| {
            // Starts the file system as users do.
            sandbox.up_with("sheen", MOUNT, "");
            let wrong = run(sandbox, &name);
            assert!(wrong.is_empty(), "{wrong}");
        });
    }
}

#[test]
fn readme_quick_start_runs_as_written() {
    let text = read("README.md");
    let blocks = blocks(&text, "sh");
    let (_, block) =
        blocks.iter().find(|(_, b)| b.contains("sheen up --dir /tmp/first")).expect("the commands by hand");
    // The program is built and in the PATH already.
    let commands = block.lines().filter(|l| !l.starts_with("make ") && !l.starts_with("export PATH="));
    let script = commands.fold("set -e\n".to_owned(), |all, line| all + line + "\n");
    Sandbox::enter("readme", move |sandbox| {
        sandbox.sh(Path::new("/"), "mount -t tmpfs -o mode=1777 none /tmp").ok();
        let out = sandbox.sh(Path::new("/"), &script).ok();
        assert!(out.contains("lmm_stripe_count:  4"), "{out}");
        assert!(out.contains("sheen-OST0003_UUID") && out.contains("/tmp/first-mnt[OST:3]"), "{out}");
        assert!(!sandbox.sh(Path::new("/"), "grep -c fuse.sheen /proc/mounts").out.starts_with('1'), "still mounted");
    });
}

#[test]
fn every_command_is_documented() {
    for tool in ["lfs", "lctl"] {
        let list = sheen_tests::run(sheen_tests::sheen(), [tool, "--list-commands"]).ok();
        let page = read(&format!("docs/{tool}.md"));
        for command in list.split_whitespace() {
            let words = format!("{tool} {}", command.trim_start_matches("--"));
            let is_described = page.lines().any(|l| l.starts_with("## ") && l.contains(&words))
                || page.contains(&format!("`{tool} {command}`"));
            assert!(is_described, "docs/{tool}.md does not describe {tool} {command}");
        }
    }
}

#[test]
fn ellipsis_matches_anything_and_other_text_only_itself() {
    let fits =
        |said: &str, printed: &str| fits(&said.lines().collect::<Vec<_>>(), &printed.lines().collect::<Vec<_>>());
    assert!(fits("a … c", "a bb c") && fits("…\nz", "x\ny\nz") && fits("a\n…", "a"));
    assert!(!fits("a … c", "a bb d") && !fits("a", "a\nb") && !fits("…\nz", "x"));
    let text = "x\n```console\n$ a\n> b\n1\n\n2\n$ c\n```\n```sh\n$ no\n```\n";
    let found = examples(text);
    assert_eq!(found[0], Example { line: 3, command: "a\nb".into(), prints: "1\n\n2\n".into() });
    assert_eq!((found.len(), found[1].line, found[1].command.as_str()), (2, 8, "c"));
}
