//! Parses the usage texts of `lfs` and `lctl`. They consist of prose, of calls that begin with
//! `usage:`, and of lists of words with their meanings.

/// Length of a first line from which on the next line may continue it.
const SUMMARY_MAX: usize = 50;
/// Largest length of an argument that must stay on one line.
const ARGUMENT_MAX: usize = 50;

/// A paragraph, or an item of a list.
#[derive(Debug, PartialEq, Eq)]
pub enum Block {
    /// Text without line breaks.
    Paragraph(String),
    /// A word and its meaning.
    Item(String, String),
}

/// A way to call a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// Its purpose, where the text says it.
    pub purpose: Option<String>,
    /// The command with its arguments, without the name of the tool.
    pub words: String,
}

/// A parsed usage text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UsageText {
    /// The calls.
    pub calls: Vec<Call>,
    /// All other text, in order.
    pub blocks: Vec<Block>,
}

impl UsageText {
    /// Parses a usage text of `tool`.
    pub fn parse(tool: &str, text: &str) -> UsageText {
        let mut parser = Parser { tool, found: UsageText::default(), in_call: false, in_paragraph: false };
        text.lines().for_each(|line| parser.line(line));
        parser.found
    }

    /// Returns the first sentence without its period.
    pub fn summary(&self) -> Option<&str> {
        let Some(Block::Paragraph(text)) = self.blocks.first() else { return None };
        let sentence = text.split_once(". ").map_or(text.as_str(), |(sentence, _)| sentence);
        Some(sentence.trim_end_matches(['.', ':']))
    }
}

impl Call {
    /// Splits the call into the command, if it begins with its name, and the arguments.
    pub fn split(&self) -> (Option<&str>, Vec<String>) {
        let (first, others) = self.words.split_once(' ').unwrap_or((self.words.as_str(), ""));
        let is_name = first.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_name { (Some(first), arguments(others)) } else { (None, arguments(&self.words)) }
    }
}

/// Splits arguments: an option and its value, and all between brackets, are one argument.
fn arguments(words: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match found.last_mut().filter(|argument| continues(argument, word)) {
            Some(argument) => {
                argument.push(' ');
                argument.push_str(word);
            }
            None => found.push(word.to_owned()),
        }
    }
    found
}

/// Returns whether `word` continues `argument`.
fn continues(argument: &str, word: &str) -> bool {
    let count = |brackets: [char; 2]| argument.matches(brackets).count();
    let is_open = count(['[', '{']) > count([']', '}']);
    let is_value = argument.starts_with('-') && !argument.contains(' ') && !word.starts_with(['-', '[']);
    argument.len() + word.len() < ARGUMENT_MAX && (is_open || is_value || word == "...")
}

struct Parser<'a> {
    tool: &'a str,
    found: UsageText,
    /// The line before belongs to a call.
    in_call: bool,
    /// The line before belongs to the last paragraph.
    in_paragraph: bool,
}

impl Parser<'_> {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        let is_indented = line.starts_with([' ', '\t']);
        if text.is_empty() {
            self.in_paragraph = false;
        } else if let Some(call) = text.strip_prefix("usage:").or_else(|| text.strip_prefix("Usage:")) {
            self.push_call(call, None);
        } else if self.is_alternative(text) {
            let purpose = self.take_purpose();
            self.push_call(text, purpose);
        } else if self.in_call && self.begins_call(is_indented, text) {
            self.push_call(text, None);
        } else if self.in_call && is_indented && is_purpose(text) {
            if let Some(call) = self.found.calls.last_mut() {
                call.purpose = Some(text.to_owned());
            }
        } else if self.in_call && (text.starts_with(['[', '{', '<']) || is_indented && item(text).is_none()) {
            self.extend_call(text);
        } else {
            self.in_call = false;
            self.prose(is_indented, text);
        }
    }

    fn push_call(&mut self, text: &str, purpose: Option<String>) {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        if words.first() == Some(&self.tool) {
            words.remove(0);
        }
        self.found.calls.push(Call { purpose, words: words.join(" ") });
        (self.in_call, self.in_paragraph) = (true, false);
    }

    fn extend_call(&mut self, text: &str) {
        let Some(call) = self.found.calls.last_mut() else { return };
        for word in text.split_whitespace() {
            call.words.push(' ');
            call.words.push_str(word);
        }
    }

    /// Returns the first word of the first call: the name of the command.
    fn command(&self) -> Option<&str> {
        self.found.calls.first()?.words.split(' ').next()
    }

    /// Returns whether a line is another call: it begins with the names of the tool and the
    /// command. The tool may be missing in an indented line.
    fn begins_call(&self, is_indented: bool, text: &str) -> bool {
        let mut words = text.split_whitespace().peekable();
        let has_tool = words.next_if_eq(&self.tool).is_some();
        (has_tool || is_indented) && words.next().is_some_and(|word| self.command() == Some(word))
    }

    /// Returns whether a line is a call of this command or another one, as `setdirstripe|mkdir`.
    fn is_alternative(&self, text: &str) -> bool {
        let word = text.split_whitespace().next().unwrap_or_default();
        word.contains('|') && word.split('|').any(|name| Some(name) == self.command())
    }

    /// Removes and returns the last paragraph if it introduces what follows.
    fn take_purpose(&mut self) -> Option<String> {
        match self.found.blocks.pop() {
            Some(Block::Paragraph(text)) if text.ends_with(':') => Some(text),
            other => {
                self.found.blocks.extend(other);
                None
            }
        }
    }

    fn prose(&mut self, is_indented: bool, text: &str) {
        if is_indented && let Some((term, meaning)) = item(text) {
            self.found.blocks.push(Block::Item(term.to_owned(), meaning.to_owned()));
            self.in_paragraph = false;
            return;
        }
        let is_first = self.found.blocks.len() == 1;
        match self.found.blocks.last_mut() {
            Some(Block::Item(_, last)) if is_indented => append(last, text),
            Some(Block::Paragraph(last)) if self.in_paragraph && !(is_first && is_summary(last, text)) => {
                append(last, text);
            }
            _ => self.found.blocks.push(Block::Paragraph(text.to_owned())),
        }
        self.in_paragraph = true;
    }
}

fn append(text: &mut String, line: &str) {
    text.push(' ');
    text.push_str(line);
}

/// Returns whether the first line of a usage text is a sentence, which `next` does not continue.
fn is_summary(first: &str, next: &str) -> bool {
    first.len() < SUMMARY_MAX || first.ends_with('.') || !next.starts_with(char::is_lowercase)
}

/// Returns whether an indented line below a call states its purpose: it begins with four words, and
/// the first one with a small letter.
fn is_purpose(text: &str) -> bool {
    let is_word = |word: &str| word.chars().all(|c| c.is_ascii_alphabetic());
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && item(text).is_none()
        && text.split(' ').take_while(|word| is_word(word)).count() >= 4
}

/// Splits an item of a list: one word, then two spaces or a colon, then its meaning.
fn item(text: &str) -> Option<(&str, &str)> {
    let (term, meaning) = text.split_once("  ").or_else(|| text.split_once(": "))?;
    (!term.contains(char::is_whitespace)).then(|| (term, meaning.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(text: &UsageText) -> Vec<&str> {
        text.calls.iter().map(|call| call.words.as_str()).collect()
    }

    fn paragraph(text: &str) -> Block {
        Block::Paragraph(text.to_owned())
    }

    fn item(term: &str, meaning: &str) -> Block {
        Block::Item(term.to_owned(), meaning.to_owned())
    }

    #[test]
    fn usage_text_is_split_into_calls_prose_and_items() {
        let text = UsageText::parse(
            "lctl",
            "check it\nOnly on the MGS.\nusage: lfsck {-M|--device} DEVICE\n             [{-t|--type} TYPE]\n       \
             lfsck {-A|--all}\n  name  of an MDT: names,\n        and more\n  -x  all\nNothing is\nrepaired.\n",
        );
        assert_eq!(calls(&text), ["lfsck {-M|--device} DEVICE [{-t|--type} TYPE]", "lfsck {-A|--all}"]);
        assert_eq!(text.summary(), Some("check it"));
        let wanted = [
            paragraph("check it"),
            paragraph("Only on the MGS."),
            item("name", "of an MDT: names, and more"),
            item("-x", "all"),
            paragraph("Nothing is repaired."),
        ];
        assert_eq!(text.blocks, wanted);
    }

    #[test]
    fn calls_of_the_tool_and_of_alternatives_are_calls() {
        let text = UsageText::parse(
            "lfs",
            "make a directory.\nusage: lfs mkdir\n\t\t[--count|-c N]\n\n{-x X}\nlfs mkdir -d\nWith a layout :\nmkdir|setdirstripe -x  X\n\t !: not\n",
        );
        assert_eq!(calls(&text), ["mkdir [--count|-c N] {-x X}", "mkdir -d", "mkdir|setdirstripe -x X"]);
        assert_eq!(text.calls[2].purpose.as_deref(), Some("With a layout :"));
        assert_eq!(text.blocks, [paragraph("make a directory."), item("!", "not")]);
        assert_eq!(text.calls[0].split(), (Some("mkdir"), vec!["[--count|-c N]".to_owned(), "{-x X}".to_owned()]));
        assert_eq!(text.calls[2].split().0, None);
        let device = UsageText::parse("lctl", "usage: --device DEVICE activate\n");
        assert_eq!((device.summary(), device.calls[0].split().0), (None, None));
    }

    #[test]
    fn purpose_below_a_call_is_not_an_argument() {
        let text = UsageText::parse(
            "lfs",
            "change it.\nusage: project [-d] FILE...\n         list project ID and flags\n       project -c\n               \
             FILE...\n         check project ID and flags, print outliers\n",
        );
        assert_eq!(calls(&text), ["project [-d] FILE...", "project -c FILE..."]);
        let purposes: Vec<_> = text.calls.iter().map(|call| call.purpose.as_deref()).collect();
        assert_eq!(purposes, [Some("list project ID and flags"), Some("check project ID and flags, print outliers")]);
        assert_eq!(text.blocks, [paragraph("change it.")]);
    }

    #[test]
    fn long_first_line_continues_in_the_next_one() {
        let first = "list the layout pattern for a given file or files in a";
        let text = UsageText::parse("lfs", &format!("{first}\ndirectory. And more\nfor all.\nusage: x\n"));
        assert_eq!(text.summary(), Some(format!("{first} directory").as_str()));
        assert_eq!(text.blocks.len(), 1);
    }

    #[test]
    fn arguments_include_values_and_all_between_brackets() {
        for (words, wanted) in [
            ("[--a|-a [+-]N] <f> ...", vec!["[--a|-a [+-]N]", "<f> ..."]),
            ("--gid|-g GID [-n] --name|-n <name>", vec!["--gid|-g GID", "[-n]", "--name|-n <name>"]),
            ("-P -d PARAM1 [PARAM2 ...]", vec!["-P", "-d PARAM1", "[PARAM2 ...]"]),
        ] {
            assert_eq!(arguments(words), wanted);
        }
        let long = format!("[{} b]", "a".repeat(ARGUMENT_MAX));
        assert_eq!(arguments(&long).len(), 2);
    }
}
