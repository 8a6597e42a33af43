//! Documents with tables of stored records, such as `docs/performance.md` with those of
//! `docs/measurements/`.
//!
//! A block begins with a line `<!-- table: NAME -->` and ends with a line `<!-- end -->`. NAME is
//! that of a record, without `.json`: the block has its command, its tables and its circumstances.
//! `<!-- table: NAME: TITLE -->` selects one table of a record. The other lines are the author's.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{clock, record::Circumstances, stats::counted, table::Table};

const BEGIN: &str = "<!-- table: ";
const BEGIN_END: &str = " -->";
const END: &str = "<!-- end -->";
/// Columns of a line of text.
const WIDTH: usize = 100;
/// Unit in which the memory of a machine is shown, in bytes.
const GIB: f64 = 1_073_741_824.0;

/// A stored record, as far as documents show it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Stored {
    /// The circumstances of the run.
    #[serde(flatten)]
    pub run: Circumstances,
    /// The tables.
    pub tables: Vec<Table>,
    /// Remark of a person, such as the source of figures that no tool has written.
    #[serde(default)]
    pub note: String,
}

/// Returns a document with all blocks rendered from the records in a directory.
///
/// # Errors
/// A message for the user: a block has no end, or its record cannot be read or lacks the table.
pub fn rendered(document: &str, records: &Path) -> Result<String, String> {
    render(document, |name| {
        let path = path_of(records, name);
        let failed = |e: String| format!("{}: {e}", path.display());
        let text = fs::read_to_string(&path).map_err(|e| failed(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| failed(e.to_string()))
    })
}

/// Returns the file of a record.
pub fn path_of(records: &Path, name: &str) -> PathBuf {
    records.join(format!("{name}.json"))
}

/// Returns the names of the records that a document shows, in its order.
pub fn names(document: &str) -> Vec<&str> {
    document.lines().filter_map(begin).map(|(name, _)| name).collect()
}

/// Returns the name of the record and the title of the table, if a line begins a block.
fn begin(line: &str) -> Option<(&str, Option<&str>)> {
    let words = line.strip_prefix(BEGIN)?.strip_suffix(BEGIN_END)?;
    Some(words.split_once(": ").map_or((words, None), |(name, title)| (name, Some(title))))
}

fn render(document: &str, read: impl Fn(&str) -> Result<Stored, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        out += line;
        out.push('\n');
        let Some((name, title)) = begin(line) else { continue };
        out += &block(&read(name)?, title).map_err(|e| format!("{name}: {e}"))?;
        if !lines.any(|line| line == END) {
            return Err(format!("the table {name} has no line {END}"));
        }
        out += END;
        out.push('\n');
    }
    Ok(out)
}

/// Renders a block: the command, the tables, and the circumstances.
fn block(stored: &Stored, title: Option<&str>) -> Result<String, String> {
    let wanted = |table: &&Table| title.is_none_or(|title| table.title == title);
    let tables: Vec<&Table> = stored.tables.iter().filter(wanted).collect();
    if tables.is_empty() {
        return Err(title.map_or("it has no table".into(), |title| format!("it has no table {title}")));
    }
    let mut out = String::from("\n");
    let command = command(&stored.run.command);
    if !command.is_empty() {
        out += &format!("```sh\n{command}\n```\n\n");
    }
    for table in &tables {
        if tables.len() > 1 {
            out += &format!("{}\n", wrapped(&format!("{}:", table.title)));
        }
        out += &format!("{}\n", table.markdown());
    }
    out += &format!("{}\n", wrapped(&circumstances(stored)));
    Ok(out)
}

/// Options for files of results, which commands of a document are shown without.
const FILES: [&str; 2] = ["--json", "--report"];

/// Returns a command line without [`FILES`].
fn command(words: &str) -> String {
    let mut shown = Vec::new();
    let mut words = words.split_whitespace();
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some((option, _)) if FILES.contains(&option) => {}
            None if FILES.contains(&word) => {
                words.next();
            }
            _ => shown.push(word),
        }
    }
    shown.join(" ")
}

/// Describes a run: date, rounds, machine, commit, noise, the remark, and warnings.
fn circumstances(stored: &Stored) -> String {
    let Circumstances { began, rounds, machine, commit, noise, warnings, .. } = &stored.run;
    let word = |key: &str| machine[key].as_str().filter(|word| !word.is_empty());
    let processors = machine["processors"].as_u64().map(|number| {
        let name = word("processor").map_or(String::new(), |name| format!(" ({name})"));
        format!("{}{name}", counted(number, "processor"))
    });
    let memory = machine["memory_bytes"].as_f64().map(|bytes| format!("{:.0} GiB", bytes / GIB));
    let system = word("system").map(|name| [Some(name), word("release")].into_iter().flatten().collect::<Vec<_>>());
    let on = [processors, memory, system.map(|words| words.join(" "))];
    let on: Vec<String> = on.into_iter().flatten().collect();
    let date = if began.is_empty() { String::new() } else { format!(" on {}", clock::date(began)) };
    let mut text = format!("Measured{date} in {}, with {}.", counted(*rounds, "round"), on.join(", "));
    if let Some(commit) = commit {
        text += &format!(" Commit {commit}.");
    }
    if let Some(noise) = noise {
        text += &format!(" Noise of the machine: {:.1} %.", noise * 100.0);
    }
    for remark in std::iter::once(&stored.note).chain(warnings).filter(|remark| !remark.is_empty()) {
        let (mut letters, end) = (remark.chars(), if remark.ends_with('.') { "" } else { "." });
        let first = letters.next().into_iter().flat_map(char::to_uppercase).collect::<String>();
        text += &format!(" {first}{}{end}", letters.as_str());
    }
    text
}

/// Breaks a text into lines of at most [`WIDTH`] columns, unless a word is longer.
fn wrapped(text: &str) -> String {
    let (mut out, mut columns) = (String::new(), 0);
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if columns > 0 && columns + 1 + len > WIDTH {
            out.push('\n');
            columns = 0;
        } else if columns > 0 {
            out.push(' ');
            columns += 1;
        }
        out += word;
        columns += len;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::Moment;

    fn stored() -> Result<Stored, String> {
        let mut run = Circumstances::new(
            "speed",
            "target/release/speed --json x.json --rounds 5 --report=x.svg",
            5,
            Moment::at(0),
        );
        run.machine = json!({ "processors": 2, "memory_bytes": 24_u64 << 30, "system": "Linux", "release": "6.18" });
        (run.commit, run.noise) = (Some("1234567".into()), Some(0.031));
        let tables = ["first", "second"].map(|title| Table::new(title, ["work"]).with([vec![title]]));
        serde_json::from_value(run.record(json!({ "note": "copied by hand" }), &tables)).map_err(|e| e.to_string())
    }

    #[test]
    fn blocks_are_replaced_and_other_lines_stay() {
        let document = "# Title\n<!-- table: speed: second -->\nold\n<!-- end -->\nText.\n";
        let expected = "\
# Title
<!-- table: speed: second -->

```sh
target/release/speed --rounds 5
```

| work   |
|--------|
| second |

Measured on 1970-01-01 in 5 rounds, with 2 processors, 24 GiB, Linux 6.18. Commit 1234567. Noise of
the machine: 3.1 %. Copied by hand.

<!-- end -->
Text.
";
        let read = |name: &str| if name == "speed" { stored() } else { Err("no such record".into()) };
        assert_eq!(render(document, read).unwrap(), expected);
        assert_eq!(render(expected, read).unwrap(), expected, "again");
        assert_eq!(names(expected), ["speed"]);
        let both = render("<!-- table: speed -->\n<!-- end -->\n", read).unwrap();
        assert!(both.contains("\nfirst:\n\n| work") && both.contains("\nsecond:\n\n| work"), "{both}");
    }

    #[test]
    fn blocks_without_end_record_or_table_are_errors() {
        let read = |name: &str| if name == "speed" { stored() } else { Err("no such record".into()) };
        for (document, message) in [
            ("<!-- table: speed -->\ntext", "the table speed has no line <!-- end -->"),
            ("<!-- table: other -->\n<!-- end -->", "no such record"),
            ("<!-- table: speed: third -->\n<!-- end -->", "speed: it has no table third"),
        ] {
            assert_eq!(render(document, read).unwrap_err(), message);
        }
    }
}
