//! Replays commands that were run on a real Lustre. Compares the layouts and the output with the
//! captures.
//!
//! `../captures/*.txt` are the parts of the captures that create and show composite layouts, in the
//! format of `tests/reference`. The layout engine creates the files, and their stored bytes are
//! shown. Ids and chosen OSTs differ and are masked.

use super::super::super::{
    numbers::parse_size,
    testing::{Fake, lfs},
    usage,
};

/// Masks FIDs, the parts of a FID, and OSTs that the file system chose.
fn mask(line: &str) -> String {
    let mut line = line.to_owned();
    while let Some(colon) = line.find(":0x") {
        let start = line[..colon].rfind("0x").unwrap();
        let id = |c: char| c.is_ascii_hexdigit() || matches!(c, 'x' | ':');
        let len = line[start..].find(|c| !id(c)).unwrap_or(line.len() - start);
        line.replace_range(start..start + len, "<fid>");
    }
    let key = line.trim_start();
    if key.starts_with("lmm_object_id:") || key.starts_with("lmm_seq:") {
        return line[..line.rfind("0x").unwrap()].to_owned();
    }
    if line.starts_with("\t ") {
        return "<object>".to_owned();
    }
    let chosen = line.contains("stripe_offset:") && !line.ends_with("-1");
    if chosen || line.contains("l_ost_idx:") {
        return line.replace(|c: char| c.is_ascii_digit(), "#");
    }
    line
}

fn masked(text: &str, command: &str) -> String {
    let lines = text
        .split('\n')
        .map(|line| if command.contains(" -i ") && line.parse::<u32>().is_ok() { "#".to_owned() } else { mask(line) });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the value of `name=value`.
fn word<'a>(command: &'a str, name: &str) -> Option<&'a str> {
    let mut words = command.split_whitespace();
    words.find_map(|w| w.strip_prefix(name).and_then(|w| w.strip_prefix('=')))
}

/// Runs one of the shell commands that occur in the captures. Returns the exit code, stdout and
/// stderr.
fn run(fake: &mut Fake, command: &str, last: i32) -> (i32, String, String) {
    let done = (0, String::new(), String::new());
    let (program, rest) = command.split_once(' ').unwrap();
    match program {
        // Both commands create mirrored files from the same options.
        "lfs" => lfs(fake, &command.replace("lfs mirror create", "lfs setstripe")),
        "echo" => (0, format!("{}\n", rest.replace("$?", &last.to_string())), String::new()),
        "mkdir" => {
            fake.mkdir(rest);
            done
        }
        "touch" => {
            fake.touch(rest);
            done
        }
        "truncate" => {
            let [_, size, path] = rest.split(' ').collect::<Vec<_>>()[..] else { panic!("{command}") };
            fake.write(path, 0, parse_size(size).unwrap());
            done
        }
        "dd" => {
            let number = |name, default| word(rest, name).map_or(default, |n| parse_size(n).unwrap());
            let block = number("bs", 512);
            fake.write(word(rest, "of").unwrap(), number("seek", 0) * block, number("count", 1) * block);
            done
        }
        _ => panic!("{command}"),
    }
}

fn replay(fake: &mut Fake, captures: &str) -> usize {
    let mut replayed = 0;
    let (_, cases) = captures.split_once('\n').unwrap();
    for case in cases.split("\n===\n").filter(|case| !case.trim().is_empty()) {
        let case = format!("{case}\n");
        let (line, rest) = case.strip_prefix("$ ").unwrap().split_once('\n').unwrap();
        let rest = rest
            .replace("<usage of setstripe>\n", usage::SETSTRIPE)
            .replace("<usage of getstripe>\n", usage::GETSTRIPE);
        let (exit, rest) = rest.split_once('\n').unwrap();
        let (out, err) = rest.split_once("--- stderr\n").unwrap_or((rest, ""));
        let out = out.strip_prefix("--- stdout\n").unwrap_or(out);
        let mut got = (0, String::new(), String::new());
        for command in line.split(';') {
            let (code, out, err) = run(fake, command.trim(), got.0);
            got = (code, got.1 + &out, got.2 + &err);
        }
        assert_eq!(masked(&got.1, line), masked(out, line), "stdout of {line}");
        assert_eq!(masked(&got.2, line), masked(err, line), "stderr of {line}");
        assert_eq!(format!("[exit {}]", got.0), exit, "exit code of {line}");
        replayed += 1;
    }
    replayed
}

#[test]
fn setstripe_and_getstripe_replay_captures_like_lustre() {
    let fake = &mut Fake::new("/mnt/c1");
    assert_eq!(lfs(fake, "lfs setstripe -c 1 m2").0, 0);
    let mut replayed = 0;
    for captures in [
        include_str!("../captures/020-pfl.txt"),
        include_str!("../captures/022-dom.txt"),
        include_str!("../captures/023-sel.txt"),
        include_str!("../captures/024-flr.txt"),
        include_str!("../captures/031-errors.txt"),
    ] {
        replayed += replay(fake, captures);
    }
    assert!(replayed > 90, "{replayed}");
    let replayed = replay(&mut Fake::new("/mnt/c1"), include_str!("../captures/026-flr-fresh.txt"));
    assert!(replayed > 5, "{replayed}");
}

#[test]
fn capture_mask_hides_only_ids_and_chosen_osts() {
    assert_eq!(
        mask("      -   0: { l_ost_idx:   2, l_fid: [0x300000401:0x289:0x0] }"),
        "      -   #: { l_ost_idx:   #, l_fid: [<fid>] }"
    );
    assert_eq!(mask("      lmm_stripe_offset: 2"), "      lmm_stripe_offset: #");
    assert_eq!(mask("      lmm_stripe_offset: -1"), "      lmm_stripe_offset: -1");
    assert_eq!(mask("    lcme_extent.e_end:   1048576"), "    lcme_extent.e_end:   1048576");
    assert_eq!(mask("      lmm_object_id:     0x4e"), "      lmm_object_id:     ");
}
