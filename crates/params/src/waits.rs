//! Waits: which client or operation waits for what, since when, and which clients hold it. The
//! parameters `*.*.waits` of servers and mounts have this form.
//!
//! ```text
//! waits:
//! - { "secs": 4.215, "kind": "lock", "target": "sheen-MDT0000", "client": "1d0e…", … }
//! ```
//!
//! The text is YAML. A line without its `- ` is also an object of JSON, so programs can read the
//! lines one by one ([`parse_waits`]). A field that does not apply is left out.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use sheen_wire::ldlm::{FlockKind, Mode, Policy, Resource, bits};

/// Maximum number of waits that a parameter shows: those that have lasted longest.
pub const WAITS_MAX: usize = 256;
/// Maximum number of holders that a parameter shows for one wait.
pub const HOLDERS_MAX: usize = 8;
/// The first line of the text.
const HEAD: &str = "waits:\n";
/// The begin of the line of a wait.
const ITEM: &str = "- ";

/// Kind of a wait: what ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// A lock that conflicts with others: of other clients, or of programs on the same mount.
    Lock,
    /// Locks that clients have to cancel before the server changes or reads something.
    Cancel,
    /// A slot for a request: the limit of requests in flight is reached.
    Slot,
    /// Room for dirty data: `max_dirty_mb` is reached.
    Dirty,
    /// A connection to the target.
    Connection,
    /// The recovery of a restarted target.
    Recovery,
    /// The reply to a request.
    #[default]
    Reply,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

/// A wait.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wait {
    /// Age in seconds.
    pub secs: f64,
    /// Its kind.
    pub kind: WaitKind,
    /// The MDT or OST.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// Uuid of the waiting client. Empty: the server itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client: String,
    /// Its address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nid: String,
    /// The job that waits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub job: String,
    /// Id of the operation that waits, as in log lines.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub op: String,
    /// The request, as in the statistics.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// The FID of the locked file or object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// Mode of the lock.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Kind and locked part of the lock, such as `extent 0-EOF`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// State of the connection to the target.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// The locks for which it waits, at most [`HOLDERS_MAX`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<Holder>,
}

/// A lock for which another one waits.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Holder {
    /// Uuid of the client that has it. Empty: the server itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client: String,
    /// The client's address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nid: String,
    /// Mode of the lock.
    pub mode: String,
    /// Kind and locked part.
    pub part: String,
    /// Whether it is granted. Otherwise it is an earlier request that waits as well.
    pub granted: bool,
    /// Seconds since it was granted or, if it waits, requested.
    pub secs: f64,
    /// Seconds since the blocking callback, or since the last I/O under the lock after it. `None`:
    /// there was no callback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_secs: Option<f64>,
}

impl WaitKind {
    /// Returns its name in the text.
    pub fn name(self) -> &'static str {
        match self {
            WaitKind::Lock => "lock",
            WaitKind::Cancel => "cancel",
            WaitKind::Slot => "slot",
            WaitKind::Dirty => "dirty",
            WaitKind::Connection => "connection",
            WaitKind::Recovery => "recovery",
            WaitKind::Reply => "reply",
            WaitKind::Other => "other",
        }
    }
}

impl Wait {
    /// Sets the lock that is waited for.
    pub fn of_lock(self, resource: Resource, mode: Mode, policy: &Policy) -> Wait {
        Wait { object: resource.fid.to_string(), mode: mode.name().to_owned(), part: part_of(policy), ..self }
    }
}

/// Returns kind and locked part of a lock: `extent 0-4095`, `ibits LOOKUP|UPDATE`,
/// `flock 0-EOF pid 17`. Extents of group locks have the id of the group.
pub fn part_of(policy: &Policy) -> String {
    match policy {
        Policy::Extent { start, end, gid: 0 } => format!("extent {start}-{}", end_of(*end)),
        Policy::Extent { start, end, gid } => format!("extent {start}-{} group {gid}", end_of(*end)),
        Policy::Bits { bits, try_bits } => format!("ibits {}", names_of_bits(bits | try_bits)),
        Policy::Flock(lock) => {
            let kind = match lock.kind {
                FlockKind::Posix => "posix",
                FlockKind::Flock => "flock",
            };
            format!("{kind} {}-{} pid {}", lock.start, end_of(lock.end), lock.pid)
        }
    }
}

fn end_of(end: u64) -> String {
    if end == u64::MAX { "EOF".to_owned() } else { end.to_string() }
}

fn names_of_bits(set: u64) -> String {
    let names = [
        (bits::LOOKUP, "LOOKUP"),
        (bits::UPDATE, "UPDATE"),
        (bits::OPEN, "OPEN"),
        (bits::LAYOUT, "LAYOUT"),
        (bits::PERM, "PERM"),
        (bits::XATTR, "XATTR"),
        (bits::DOM, "DOM"),
    ];
    let found: Vec<&str> = names.iter().filter(|(bit, _)| set & bit != 0).map(|(_, name)| *name).collect();
    found.join("|")
}

/// Returns the text of a parameter: the oldest waits first, at most [`WAITS_MAX`].
pub fn waits_text(waits: &[Wait]) -> String {
    let mut oldest: Vec<&Wait> = waits.iter().collect();
    oldest.sort_by(|a, b| b.secs.total_cmp(&a.secs));
    let mut out = String::from(HEAD);
    for wait in oldest.into_iter().take(WAITS_MAX) {
        let Wait { secs, kind, target, client, nid, job, op, request, object, mode, part, state, held_by } = wait;
        // Writing to a string cannot fail.
        let _ = write!(out, "{ITEM}{{ \"secs\": {secs:.3}, \"kind\": \"{}\"", kind.name());
        let fields = [
            ("target", target),
            ("client", client),
            ("nid", nid),
            ("job", job),
            ("op", op),
            ("request", request),
            ("object", object),
            ("mode", mode),
            ("part", part),
            ("state", state),
        ];
        push_fields(&mut out, &fields);
        if !held_by.is_empty() {
            let holders: Vec<String> = held_by.iter().take(HOLDERS_MAX).map(holder_text).collect();
            let _ = write!(out, ", \"held_by\": [ {} ]", holders.join(", "));
        }
        out.push_str(" }\n");
    }
    out
}

fn holder_text(holder: &Holder) -> String {
    let Holder { client, nid, mode, part, granted, secs, callback_secs } = holder;
    let mut out = format!("{{ \"secs\": {secs:.3}, \"granted\": {granted}");
    push_fields(&mut out, &[("client", client), ("nid", nid), ("mode", mode), ("part", part)]);
    if let Some(secs) = callback_secs {
        let _ = write!(out, ", \"callback_secs\": {secs:.3}");
    }
    out.push_str(" }");
    out
}

/// Appends the fields that have a value. Clients choose their uuids. So characters that need an
/// escape, or that are not printable ASCII, become `_`.
fn push_fields(out: &mut String, fields: &[(&str, &String)]) {
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        let is_plain = |c: char| (c.is_ascii_graphic() || c == ' ') && !matches!(c, '"' | '\\');
        let plain = |c: char| if is_plain(c) { c } else { '_' };
        let value: String = value.chars().map(plain).collect();
        let _ = write!(out, ", \"{name}\": \"{value}\"");
    }
}

/// Returns the objects in a parameter's text, each with JSON of one wait.
pub fn parse_waits(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix(ITEM))
}

#[cfg(test)]
mod tests {
    use sheen_wire::{Fid, ldlm::Flock};

    use super::*;

    #[test]
    fn waits_are_lines_with_an_object_each_and_the_oldest_is_first() {
        let holder = Holder {
            client: "holder".into(),
            nid: "0@lo".into(),
            mode: "PW".into(),
            part: "extent 0-EOF".into(),
            granted: true,
            secs: 9.0,
            callback_secs: Some(1.25),
        };
        let young = Wait { secs: 0.5, kind: WaitKind::Slot, request: "read".into(), ..Wait::default() };
        let old = Wait { secs: 2.0, kind: WaitKind::Lock, client: "a\"b\n".into(), ..Wait::default() };
        let old = old.of_lock(Resource::extent(Fid::new(7, 1)), Mode::Pr, &Policy::extent(0, 4095));
        let text = waits_text(&[young, Wait { held_by: vec![holder], ..old }]);
        let fid = Fid::new(7, 1);
        let want = format!(
            "waits:\n- {{ \"secs\": 2.000, \"kind\": \"lock\", \"client\": \"a_b_\", \"object\": \"{fid}\", \
             \"mode\": \"PR\", \"part\": \"extent 0-4095\", \"held_by\": [ {{ \"secs\": 9.000, \"granted\": true, \
             \"client\": \"holder\", \"nid\": \"0@lo\", \"mode\": \"PW\", \"part\": \"extent 0-EOF\", \
             \"callback_secs\": 1.250 }} ] }}\n- {{ \"secs\": 0.500, \"kind\": \"slot\", \"request\": \"read\" }}\n"
        );
        assert_eq!(text, want);
        assert_eq!(parse_waits(&text).count(), 2);
        assert!(parse_waits(&text).all(|object| object.starts_with("{ \"secs\"") && object.ends_with(" }")));
        assert_eq!(waits_text(&[]), "waits:\n");
    }

    #[test]
    fn only_printable_ascii_of_uuids_gets_into_the_text() {
        let hostile = Wait { client: "a b\u{202e}\u{9b}\u{2028}é\\\x1b~".into(), ..Wait::default() };
        let text = waits_text(&[hostile]);
        assert!(text.contains("\"client\": \"a b______~\""), "{text}");
    }

    #[test]
    fn text_of_waits_is_bounded() {
        let many = vec![Wait::default(); WAITS_MAX + 1];
        assert_eq!(parse_waits(&waits_text(&many)).count(), WAITS_MAX);
    }

    #[test]
    fn locked_part_names_ranges_bits_and_owners() {
        let flock = Flock { start: 0, end: u64::MAX, owner: 5, pid: 17, kind: FlockKind::Flock };
        for (policy, text) in [
            (Policy::extent(4096, 8191), "extent 4096-8191"),
            (Policy::group(7), "extent 0-EOF group 7"),
            (Policy::bits(bits::LOOKUP | bits::DOM), "ibits LOOKUP|DOM"),
            (Policy::Flock(flock), "flock 0-EOF pid 17"),
            (Policy::Flock(Flock { end: 9, kind: FlockKind::Posix, ..flock }), "posix 0-9 pid 17"),
        ] {
            assert_eq!(part_of(&policy), text);
        }
    }
}
