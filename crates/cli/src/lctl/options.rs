//! Options of a command, and the errors for invalid ones.

use std::ffi::OsString;
use std::io;

use super::{tool::Tool, usage};
use crate::lfs::getopt::{Item, Spec, Value};

/// `--fsname NAME`, for [`Spec::long`] of the commands that it confines.
pub const FSNAME: (&str, Value, &str) = ("fsname", Value::Required, "fsname");

/// The parsed arguments.
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedArgs {
    /// By letter, in order, with their values.
    options: Vec<(&'static str, Option<String>)>,
    /// The operands, in order.
    pub rest: Vec<String>,
}

impl ParsedArgs {
    /// Returns whether an option was given, by its letter.
    pub fn has(&self, letter: &str) -> bool {
        self.options.iter().any(|(id, _)| *id == letter)
    }

    /// Returns the value of an option, by its letter. If it was given several times, the last one
    /// counts.
    pub fn value(&self, letter: &str) -> Option<&str> {
        self.options.iter().rev().find(|(id, _)| *id == letter).and_then(|(_, value)| value.as_deref())
    }
}

/// Parses the arguments of a command. Stores the value of [`FSNAME`] in `tool`. Returns `None`
/// after a usage error, which it has printed.
///
/// # Errors
/// The output cannot be written.
pub fn parse(command: &str, spec: &Spec, args: &[String], tool: &mut Tool<'_>) -> io::Result<Option<ParsedArgs>> {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let mut given = ParsedArgs { options: Vec::new(), rest: Vec::new() };
    for item in spec.parse(&args) {
        match item {
            Item::Option { id: "fsname", value, .. } => tool.fsname = value.map(|v| v.to_string_lossy().into_owned()),
            Item::Option { id, value, .. } => {
                given.options.push((id, value.map(|v| v.to_string_lossy().into_owned())));
            }
            Item::Operand(operand) => given.rest.push(operand.to_string_lossy().into_owned()),
            Item::Unrecognized(arg) => {
                writeln!(tool.err, "{command}: unrecognized option '{}'", arg.to_string_lossy())?;
                tool.out.write_all(usage::of(command).unwrap_or_default().as_bytes())?;
                return Ok(None);
            }
        }
    }
    Ok(Some(given))
}

/// Prints the usage of a command after an invalid call. Returns the exit code.
///
/// # Errors
/// The output cannot be written.
pub fn wrong(command: &str, tool: &mut Tool<'_>) -> io::Result<i32> {
    tool.out.write_all(usage::of(command).unwrap_or_default().as_bytes())?;
    Ok(usage::EXIT)
}
