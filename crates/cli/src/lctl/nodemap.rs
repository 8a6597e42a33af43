//! `lctl nodemap_add` and the other commands for nodemaps.
//!
//! The MGS makes each change, and refuses invalid ones. Its process has a parameter
//! `mgs.MGS.nodemaps`, which shows the nodemaps; writing to it changes them
//! (`sheen_mgs::nodemaps`). MDTs receive a change from the MGS a moment later. As in Lustre, a
//! change prints nothing if it succeeds.
//!
//! * `change`: the commands that change nodemaps;
//! * `refusal`: the reason for which the MGS refused a change, as text;
//! * `show`: the commands that show nodemaps;
//! * `stored`: the nodemaps that the MGS stores.

mod change;
mod refusal;
mod show;
mod stored;

use std::io;

use super::tool::Tool;

/// The commands.
pub const COMMANDS: [&str; 12] = [
    "nodemap_activate",
    "nodemap_add",
    "nodemap_del",
    "nodemap_modify",
    "nodemap_add_range",
    "nodemap_del_range",
    "nodemap_add_idmap",
    "nodemap_del_idmap",
    "nodemap_set_fileset",
    "nodemap_info",
    "nodemap_test_nid",
    "nodemap_test_id",
];

/// Runs one of [`COMMANDS`].
///
/// # Errors
/// The output cannot be written.
pub fn run(command: &str, args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    match command {
        "nodemap_info" => show::info(args, tool),
        "nodemap_test_nid" => show::test_nid(args, tool),
        "nodemap_test_id" => show::test_id(args, tool),
        _ => change::run(command, args, tool),
    }
}

#[cfg(test)]
mod tests;
