//! The layers inside the crate `client`: which of its rooms uses which.
//!
//! A room is a directory or a file directly below `crates/client/src`. docs/architecture.md draws
//! them. Uses are those of [`Graph`], so `lib.rs`, which only re-exports, is not a room.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use super::layers::Graph;

/// Which rooms a room uses: exactly these. A room stands after those that it uses.
const ROOMS: &[(&str, &[&str])] = &[
    ("limits", &[]),
    ("failure", &[]),
    ("connection", &[]),
    ("access_patterns", &[]),
    ("io_stats", &["access_patterns"]),
    ("stats", &[]),
    ("pools", &[]),
    ("invalidate", &[]),
    ("types", &["limits"]),
    ("rpc_stats", &["limits"]),
    ("locks", &[]),
    ("replay", &[]),
    ("uncommitted", &["replay"]),
    ("capabilities", &["failure"]),
    ("osc", &["locks", "rpc_stats", "connection", "capabilities", "failure"]),
    ("mdc", &["locks", "uncommitted", "connection", "capabilities", "failure", "types"]),
    ("writeback", &["osc", "failure"]),
    ("lov", &["writeback", "osc", "capabilities", "locks", "failure", "limits", "types"]),
    ("cache", &["lov", "mdc", "locks", "invalidate", "failure"]),
    ("results", &["cache", "locks"]),
    ("open", &["cache", "mdc", "replay", "locks", "types", "access_patterns"]),
    ("lock_owners", &["open", "cache", "lov", "writeback", "osc", "mdc", "locks"]),
    ("registered", &["lov", "osc"]),
    (
        "llite",
        &[
            "lock_owners",
            "open",
            "cache",
            "lov",
            "osc",
            "mdc",
            "locks",
            "registered",
            "results",
            "types",
            "pools",
            "invalidate",
            "stats",
            "access_patterns",
            "io_stats",
            "failure",
            "limits",
        ],
    ),
    (
        "params",
        &["llite", "cache", "lov", "writeback", "osc", "mdc", "locks", "registered", "rpc_stats", "io_stats", "limits"],
    ),
    (
        "targets",
        &["params", "lock_owners", "cache", "lov", "osc", "mdc", "capabilities", "pools", "registered", "types"],
    ),
    ("mount_waits", &["types"]),
    (
        "mount",
        &[
            "mount_waits",
            "targets",
            "params",
            "llite",
            "lock_owners",
            "open",
            "cache",
            "lov",
            "mdc",
            "stats",
            "access_patterns",
            "io_stats",
            "types",
        ],
    ),
];

#[test]
fn rooms_of_the_client_use_exactly_the_rooms_that_the_list_names() {
    let src = super::root().join("crates/client/src");
    let uses = Graph::read(&src.join("lib.rs")).rooms(&src);
    let mut wrong = Vec::new();
    for (place, (room, below)) in ROOMS.iter().enumerate() {
        let Some(used) = uses.get(*room) else {
            wrong.push(format!("{room} is in ROOMS and does not exist"));
            continue;
        };
        for (one, idents) in used.iter().filter(|(one, _)| !below.contains(&one.as_str())) {
            let idents: Vec<&str> = idents.iter().map(String::as_str).collect();
            wrong.push(format!("{room} uses {one}, which its entry in ROOMS lacks: {}", idents.join(", ")));
        }
        for one in *below {
            if !used.contains_key(*one) {
                wrong.push(format!("{room} does not use {one}: its entry in ROOMS is too long"));
            }
            if !ROOMS[..place].iter().any(|(earlier, _)| earlier == one) {
                wrong.push(format!("{room} uses {one}, which does not stand before it in ROOMS"));
            }
        }
    }
    let known: BTreeSet<&str> = ROOMS.iter().map(|(room, _)| *room).collect();
    let missing: BTreeMap<_, _> = uses.iter().filter(|(room, _)| !known.contains(room.as_str())).collect();
    for (room, used) in missing {
        let used: Vec<&str> = used.keys().map(String::as_str).collect();
        wrong.push(format!("{room} is missing in ROOMS; it uses {used:?}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Columns of the drawing that hold names of rooms. The description follows.
const NAMES_WIDTH: usize = 22;

#[test]
fn drawing_of_the_client_agrees_with_the_list_of_rooms() {
    let text = fs::read_to_string(super::root().join("docs/architecture.md")).expect("docs/architecture.md");
    let section = text.split("\n## ").find(|section| section.starts_with("The layers of the client\n"));
    let section = section.expect("a section on the layers of the client");
    let drawing = section.split("```").nth(1).expect("a drawing");
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for (number, line) in drawing.lines().enumerate() {
        let names: String = line.chars().take(NAMES_WIDTH).collect();
        let names = names.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty());
        lines.extend(names.map(|name| (name.to_owned(), number)));
    }
    assert!(lines.remove("rpc").is_some(), "the drawing ends with the crate below");
    let mut wrong = Vec::new();
    for drawn in lines.keys().filter(|drawn| !ROOMS.iter().any(|(room, _)| room == drawn)) {
        wrong.push(format!("{drawn} is drawn and is not in ROOMS"));
    }
    for (room, below) in ROOMS {
        let Some(line) = lines.get(*room) else {
            if !section.contains(&format!("`{room}`")) {
                wrong.push(format!("{room} is neither drawn nor named below the drawing"));
            }
            continue;
        };
        for one in below.iter().filter(|one| lines.get(**one).is_some_and(|other| other < line)) {
            wrong.push(format!("{room} uses {one}, which is drawn above it"));
        }
    }
    assert!(wrong.is_empty(), "docs/architecture.md: {}", wrong.join("\n"));
}
