//! The interactive mode of `lfs` and `lctl`: commands from standard input, one per line.
//!
//! As in Lustre, a script ends at the first command that fails. After `ignore_errors` the script
//! goes on, and its exit code is still that of the first failure. On a terminal, the next command
//! is read. Unlike in Lustre, an unknown command is a failure, too.

use std::{
    ffi::OsString,
    io::{self, BufRead, IsTerminal},
    os::unix::ffi::OsStringExt,
};

/// Exit code of a line that cannot be split into words.
const EXIT_UNCLOSED: i32 = 1;

/// Input of a tool, and the tool's answers to it.
pub trait Interpreter {
    /// Prints the prompt.
    fn prompt(&mut self) -> io::Result<()>;
    /// Executes a command, which has at least one word. Returns its exit code.
    fn execute(&mut self, words: &[OsString]) -> io::Result<i32>;
    /// Reports an invalid line.
    fn report(&mut self, text: &str) -> io::Result<()>;
}

/// Executes the commands of standard input, until its end, `quit` or `exit`. Returns the exit code.
///
/// # Errors
/// The input cannot be read, or the output not be written.
pub fn run(tool: &mut dyn Interpreter) -> io::Result<i32> {
    let stdin = io::stdin();
    let is_terminal = stdin.is_terminal();
    // The lock is released while a command runs: it may read from standard input, too.
    interpret(&mut |line| stdin.lock().read_until(b'\n', line), is_terminal, tool)
}

/// As [`run`]. `read` appends a line to its argument, and returns the number of bytes.
fn interpret(
    read: &mut dyn FnMut(&mut Vec<u8>) -> io::Result<usize>,
    is_terminal: bool,
    tool: &mut dyn Interpreter,
) -> io::Result<i32> {
    let (mut ignores_errors, mut first_error) = (false, 0);
    for number in 1_u64.. {
        if is_terminal {
            tool.prompt()?;
        }
        let mut line = Vec::new();
        if read(&mut line)? == 0 {
            break;
        }
        let code = match words(&line) {
            None => {
                tool.report(&format!("line {number}: unclosed quote"))?;
                EXIT_UNCLOSED
            }
            Some(words) => match words.first().map(|word| word.to_string_lossy()).as_deref() {
                None => 0,
                Some("quit" | "exit") => break,
                Some("ignore_errors" | "--ignore_errors") => {
                    ignores_errors = true;
                    0
                }
                Some(_) => tool.execute(&words)?,
            },
        };
        if code != 0 && !is_terminal {
            first_error = if first_error == 0 { code } else { first_error };
            if !ignores_errors {
                break;
            }
        }
    }
    Ok(first_error)
}

/// Splits a line into words. Quotes protect white space. A backslash protects the next character;
/// in double quotes only `"` and `\`, and in single quotes none. Returns `None` if a quote is not
/// closed.
fn words(line: &[u8]) -> Option<Vec<OsString>> {
    let (mut words, mut word): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
    let mut quote = None;
    let mut bytes = line.strip_suffix(b"\n").unwrap_or(line).iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\'' | b'"', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (byte, Some(open)) if byte == open => quote = None,
            (b'\\', None) => word.get_or_insert_default().extend(bytes.next()),
            (b'\\', Some(b'"')) if matches!(bytes.clone().next(), Some(b'"' | b'\\')) => {
                word.get_or_insert_default().extend(bytes.next());
            }
            (byte, None) if byte.is_ascii_whitespace() => words.extend(word.take()),
            (byte, _) => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    quote.is_none().then(|| words.into_iter().map(OsString::from_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_like_in_a_shell() {
        let split = |line: &str| words(line.as_bytes());
        for (line, want) in [
            ("get_param  osc.*.active\n", vec!["get_param", "osc.*.active"]),
            ("\t a 'b c' \"d 'e\" f\\ g", vec!["a", "b c", "d 'e", "f g"]),
            ("a'b'\"c\" '' \"\\\"\" '\\'", vec!["abc", "", "\"", "\\"]),
            (r#""a\b \"\\" a\b 'a\b'"#, vec![r#"a\b "\"#, "ab", r"a\b"]),
            (" \n", vec![]),
        ] {
            let want: Vec<OsString> = want.into_iter().map(OsString::from).collect();
            assert_eq!(split(line), Some(want), "{line}");
        }
        assert_eq!((split("a 'b"), split("\"a\\\"")), (None, None));
    }

    /// Records what it executes. `fail` fails with 7.
    #[derive(Default)]
    struct Recorder {
        said: Vec<String>,
        prompts: usize,
    }

    impl Interpreter for Recorder {
        fn prompt(&mut self) -> io::Result<()> {
            self.prompts += 1;
            Ok(())
        }

        fn execute(&mut self, words: &[OsString]) -> io::Result<i32> {
            let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
            self.said.push(words.join("|"));
            Ok(if words == ["fail"] { 7 } else { 0 })
        }

        fn report(&mut self, text: &str) -> io::Result<()> {
            self.said.push(text.to_owned());
            Ok(())
        }
    }

    /// Returns the exit code, the commands, and the number of prompts.
    fn interpreted(mut input: &[u8], is_terminal: bool) -> (i32, Vec<String>, usize) {
        let mut recorder = Recorder::default();
        let code = interpret(&mut |line| input.read_until(b'\n', line), is_terminal, &mut recorder).unwrap();
        (code, recorder.said, recorder.prompts)
    }

    #[test]
    fn script_ends_at_its_end_at_quit_and_at_an_error() {
        let said = |commands: &[&str]| commands.iter().map(|command| (*command).to_owned()).collect::<Vec<_>>();
        assert_eq!(interpreted(b"a 1\n\nb '2 3'", false), (0, said(&["a|1", "b|2 3"]), 0));
        assert_eq!(interpreted(b"a\nquit\nb\n", false), (0, said(&["a"]), 0));
        assert_eq!(interpreted(b"fail\na\n", false), (7, said(&["fail"]), 0));
        assert_eq!(interpreted(b"ignore_errors\nfail\na\n", false), (7, said(&["fail", "a"]), 0));
        assert_eq!(interpreted(b"ignore_errors\nfail\na 'b\nquit\n", false).0, 7);
        assert_eq!(interpreted(b"a\n\na 'b\nc\n", false), (1, said(&["a", "line 3: unclosed quote"]), 0));
    }

    #[test]
    fn terminal_gets_prompts_and_goes_on_after_errors() {
        let (code, said, prompts) = interpreted(b"fail\na 'b\nc\nexit\n", true);
        assert_eq!((code, said, prompts), (0, vec!["fail".into(), "line 2: unclosed quote".into(), "c".into()], 4));
    }
}
