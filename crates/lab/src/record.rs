//! The record of a run, for programs and for documents. All tools begin it with the same fields,
//! [`Circumstances`]; then come the fields of the tool, and the tables of its report.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{clock::Moment, machine, table::Table};

/// Environment variable with the commit of the program, for the record.
const COMMIT: &str = "SHEEN_COMMIT";
/// Longest value that stays on one line of a record.
const LINE_MAX: usize = 160;

/// The circumstances of a run: the first fields of each record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Circumstances {
    /// Program and version.
    #[serde(rename = "Version")]
    pub version: String,
    /// Commit from which the program was built; `None`: not known.
    pub commit: Option<String>,
    /// When it began, in the form of IOR.
    #[serde(rename = "Began")]
    pub began: String,
    /// The command line.
    #[serde(rename = "Command line")]
    pub command: String,
    /// Number of rounds, of which the medians are.
    pub rounds: u32,
    /// The machine, as [`machine::describe`] describes it.
    pub machine: Value,
    /// Type and source of the measured file system; `None`: none, or not known.
    #[serde(rename = "file system")]
    pub file_system: Option<[String; 2]>,
    /// Spread of a fixed computation: 0.1 is 10 %. `None`: not measured.
    pub noise: Option<f64>,
    /// Reasons to doubt the results.
    pub warnings: Vec<String>,
}

impl Circumstances {
    /// Describes a run. `program`: its name, such as `sheen lab ior`. `words`: its command line.
    pub fn new(program: &str, words: &str, rounds: u32, began: Moment) -> Circumstances {
        Circumstances {
            version: format!("{program} {}", env!("CARGO_PKG_VERSION")),
            commit: std::env::var(COMMIT).ok().filter(|commit| !commit.is_empty()),
            began: began.ctime(),
            command: words.to_owned(),
            rounds,
            machine: machine::describe(),
            file_system: None,
            noise: None,
            warnings: Vec::new(),
        }
    }

    /// Returns the record. `results`: an object with the fields of the tool.
    pub fn record(&self, results: Value, tables: &[Table]) -> Value {
        let mut record = json!(self);
        if let (Value::Object(all), Value::Object(results)) = (&mut record, results) {
            all.extend(results);
            all.insert("tables".into(), json!(tables));
        }
        record
    }

    /// Returns the circumstances as pairs of a name and a text.
    pub fn facts(&self) -> Vec<(String, String)> {
        let machine = &self.machine;
        let facts = [
            ("began", self.began.clone()),
            ("command", self.command.clone()),
            ("version", self.version.clone()),
            ("host", words(&machine["host"])),
            ("system", format!("{} {}", words(&machine["system"]), words(&machine["release"]))),
            ("processors", format!("{} × {}", machine["processors"], words(&machine["processor"]))),
            ("file system", self.file_system.as_ref().map_or_else(|| "unknown".into(), |words| words.join(" "))),
            ("noise of the machine", self.noise.map_or_else(|| "unknown".into(), percent)),
        ];
        facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Formats a record. Short values stay on one line, so that a row of a table is a line.
pub fn text(record: &Value) -> String {
    let mut out = String::new();
    put(record, 0, &mut out);
    out.push('\n');
    out
}

fn put(value: &Value, depth: usize, out: &mut String) {
    let line = value.to_string();
    let (ends, parts): (_, Vec<(String, &Value)>) = match value {
        Value::Array(all) => (['[', ']'], all.iter().map(|part| (String::new(), part)).collect()),
        Value::Object(all) => (['{', '}'], all.iter().map(|(key, part)| (format!("{}: ", json!(key)), part)).collect()),
        _ => ([' '; 2], Vec::new()),
    };
    if parts.is_empty() || depth > 0 && line.chars().count() <= LINE_MAX {
        return out.push_str(&line);
    }
    let indent = "  ".repeat(depth);
    out.push(ends[0]);
    for (number, (key, part)) in parts.into_iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        out.push_str(&format!("{comma}\n{indent}  {key}"));
        put(part, depth + 1, out);
    }
    out.push_str(&format!("\n{indent}{}", ends[1]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_begin_with_the_circumstances_and_end_with_the_tables() {
        let run = Circumstances::new("sheen lab ior", "sheen lab ior -w", 3, Moment::at(0));
        let table = Table::new("Phases", ["access"]).with([vec!["write"]]);
        let record = run.record(json!({ "Results": [1, 2] }), &[table]);
        assert_eq!((&record["rounds"], &record["Results"][1]), (&json!(3), &json!(2)));
        assert_eq!(record["tables"][0]["rows"], json!([["write"]]));
        assert_eq!(serde_json::from_value::<Circumstances>(record).unwrap(), run);
    }

    #[test]
    fn text_is_json_with_a_line_for_each_short_value() {
        let long = "x".repeat(LINE_MAX);
        let record = json!({ "a": [1, { "b": "c\"d" }], "long": [long], "none": [] });
        let shown = text(&record);
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), record);
        assert!(shown.starts_with("{\n  \"a\": [1,{\"b\":\"c\\\"d\"}],\n  \"long\": [\n    \"xxx"), "{shown}");
        assert!(shown.ends_with("\"\n  ],\n  \"none\": []\n}\n"), "{shown}");
    }
}
