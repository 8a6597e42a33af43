//! `sheen completions`: completion scripts for shells.
//!
//! clap generates the script of `sheen` itself from its arguments. `lfs` and `lctl` have options in
//! Lustre's form, which only their help texts list. The bash script therefore asks these tools at
//! run time: for commands, for the options of a command, and `lctl` for parameter names.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;
use sheen_lab::Lab;

use crate::args::Cli;

/// The part of the bash script for `lfs` and `lctl`.
const TOOLS: &str = r#"
_sheen_tool() {
    local tool="$1" word="$2" command="${COMP_WORDS[1]}" words=
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="$("$tool" --list-commands 2>/dev/null)"
    elif [[ "$word" == -* ]]; then
        words="$("$tool" help "$command" 2>/dev/null | grep -oE -- '--[a-z][a-z0-9_-]+' | sort -u)"
    elif [[ "$command" == *_param ]]; then
        words="$("$tool" list_param "$word*" 2>/dev/null)"
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -o bashdefault -F _sheen_tool lfs lctl
"#;

/// Prints the completion script.
pub fn run(shell: Shell) {
    let mut text = Vec::new();
    // The lab parses its own arguments.
    let mut command = Cli::command().mut_subcommand("lab", |_| Lab::command().name("lab"));
    clap_complete::generate(shell, &mut command, "sheen", &mut text);
    if shell == Shell::Bash {
        text.extend_from_slice(TOOLS.as_bytes());
    }
    // A reader that closed the pipe is no error.
    let _ = io::stdout().write_all(&text);
}
