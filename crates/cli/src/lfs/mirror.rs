//! `lfs mirror`: commands for mirrored files, one module per command. [`sheen_admin::mirror`] works
//! on the files. The commands parse arguments and print.

mod copy;
mod create;
mod errors;
mod extend;
mod ids;
mod io;
mod progress;
mod resync;
mod split;
mod usage;
mod verify;

use std::ffi::OsString;

pub use self::resync::resync_stale;
pub use self::usage::USAGE;
use super::tool::{Command, Tool};

const COMMANDS: &[Command] = &[
    Command { name: "create", usage: USAGE, run: create::run },
    Command { name: "extend", usage: USAGE, run: extend::run },
    Command { name: "split", usage: USAGE, run: split::run },
    Command { name: "delete", usage: USAGE, run: split::delete },
    Command { name: "resync", usage: USAGE, run: resync::run },
    Command { name: "verify", usage: USAGE, run: verify::run },
    Command { name: "read", usage: USAGE, run: io::read },
    Command { name: "write", usage: USAGE, run: io::write },
    Command { name: "copy", usage: USAGE, run: copy::run },
];

/// Runs the command that the first argument names.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let Some((name, rest)) = args.split_first() else { return 0 };
    match COMMANDS.iter().find(|c| name == c.name) {
        Some(command) => (command.run)(tool, rest),
        None if name == "--list-commands" => {
            COMMANDS.iter().for_each(|c| tool.print(format_args!("{}\n", c.name)));
            0
        }
        None if name == "help" || name == "--help" => tool.help(USAGE),
        None => {
            let name = name.display();
            tool.complain(format_args!(
                "lfs mirror: '{name}' is not a valid command. See 'lfs mirror --list-commands'."
            ));
            1
        }
    }
}

#[cfg(test)]
mod tests;
