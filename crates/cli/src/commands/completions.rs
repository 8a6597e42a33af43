//! `sheen completions`: completion scripts for shells.
//!
//! clap generates the script of `sheen` itself from its arguments. `lfs` and `lctl` have options in
//! Lustre's form, which only their help texts list. The scripts for bash, zsh and fish therefore
//! ask these tools at run time: for commands, for the options of a command, and `lctl` for
//! parameter names.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;
use sheen_lab::Lab;

use crate::args::Cli;

/// The part of the bash script for `lfs` and `lctl`.
const BASH_TOOLS: &str = r#"
_sheen_tool() {
    local tool="$1" word="$2" command="${COMP_WORDS[1]}" candidate
    local -a words=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t words < <("$tool" --list-commands 2>/dev/null | tr -s ' ' '\n')
    elif [[ "$word" == -* ]]; then
        mapfile -t words < <("$tool" help "$command" 2>/dev/null | grep -oE -- '--[a-z][a-z0-9_-]+' | sort -u)
    elif [[ "$command" == *_param ]]; then
        mapfile -t words < <("$tool" list_param "$word*" 2>/dev/null)
    fi
    # Not compgen -W, which would expand the words.
    COMPREPLY=()
    for candidate in "${words[@]}"; do
        if [[ -n "$candidate" && "$candidate" == "$word"* ]]; then
            COMPREPLY+=("$candidate")
        fi
    done
}
complete -o default -o bashdefault -F _sheen_tool lfs lctl
"#;

/// The part of the fish script for `lfs` and `lctl`.
const FISH_TOOLS: &str = r#"
function __sheen_tool_words
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    if test (count $words) -eq 1
        $words[1] --list-commands 2>/dev/null | string match -ra '\S+'
    else if string match -q -- '-*' $word
        $words[1] help $words[2] 2>/dev/null | string match -ra -- '--[a-z][a-z0-9_-]+' | sort -u
    else if string match -q -- '*_param' $words[2]
        $words[1] list_param "$word*" 2>/dev/null
    end
end
for tool in lfs lctl
    complete -c $tool -n 'test (count (commandline -opc)) -eq 1' -f
    complete -c $tool -a '(__sheen_tool_words)'
end
"#;

/// The first line of clap's zsh script: the commands for which zsh loads the file.
const ZSH_HEAD: &str = "#compdef sheen\n";
/// The beginning of the zsh script, with the part for `lfs` and `lctl`. zsh loads the file at the
/// first completion of any of the three commands.
const ZSH_TOOLS: &str = r#"#compdef sheen lfs lctl

_sheen_tool() {
    local tool=$words[1] command=$words[2]
    if (( CURRENT == 2 )); then
        compadd -- $("$tool" --list-commands 2>/dev/null)
    elif [[ $PREFIX == -* ]]; then
        compadd -- $("$tool" help "$command" 2>/dev/null | grep -oE -- '--[a-z][a-z0-9_-]+' | sort -u)
    elif [[ $command == *_param ]]; then
        compadd -- $("$tool" list_param "$PREFIX*" 2>/dev/null)
    else
        _files
    fi
}
compdef _sheen_tool lfs lctl
if [[ $funcstack[1] == _sheen && $service != sheen ]]; then
    _sheen_tool
    return
fi

"#;

/// Returns the command line of `sheen`, with that of the lab, which parses its own arguments.
pub fn command_line() -> clap::Command {
    Cli::command().mut_subcommand("lab", |_| Lab::command().name("lab"))
}

/// Prints the completion script.
pub fn run(shell: Shell) {
    // A reader that closed the pipe is no error.
    let _ = io::stdout().write_all(&script(shell));
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command_line(), "sheen", &mut script);
    match shell {
        Shell::Bash => script.extend_from_slice(BASH_TOOLS.as_bytes()),
        Shell::Fish => script.extend_from_slice(FISH_TOOLS.as_bytes()),
        Shell::Zsh => {
            let of_sheen = script.strip_prefix(ZSH_HEAD.as_bytes()).unwrap_or(&script);
            return [ZSH_TOOLS.as_bytes(), of_sheen].concat();
        }
        _ => {}
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_complete_the_tools() {
        let text = |shell| String::from_utf8(script(shell)).unwrap();
        for (shell, part) in [
            (Shell::Bash, "complete -o default -o bashdefault -F _sheen_tool lfs lctl"),
            (Shell::Fish, "complete -c $tool -a '(__sheen_tool_words)'"),
            (Shell::Zsh, "compdef _sheen_tool lfs lctl"),
        ] {
            assert!(text(shell).contains(part), "{shell}");
        }
        let zsh = text(Shell::Zsh);
        assert!(zsh.starts_with(ZSH_TOOLS) && !zsh.contains(ZSH_HEAD) && zsh.contains("_sheen() {"), "{zsh}");
    }
}
