//! A manual page as roff source, with the macros of man(7).

/// Section of the pages of programs for all users.
pub const USER_COMMANDS: u8 = 1;
/// Section of the pages of programs for administrators.
pub const ADMINISTRATION: u8 = 8;

/// A manual page. Its methods append to it.
pub struct Page {
    name: String,
    section: u8,
    text: String,
}

impl Page {
    /// Returns a page with a title. Its text is neither hyphenated nor justified.
    pub fn new(name: &str, section: u8) -> Page {
        let title = escaped(&name.to_uppercase());
        let version = env!("CARGO_PKG_VERSION");
        let text = format!(".TH \"{title}\" \"{section}\" \"\" \"Sheen {version}\" \"Sheen\"\n.nh\n.ad l\n");
        Page { name: name.to_owned(), section, text }
    }

    /// Returns the name of the page's file.
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }

    /// Returns the source.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Begins a section.
    pub fn heading(&mut self, title: &str) {
        self.line(".SH ", &escaped(title));
    }

    /// Adds the section NAME, which apropos(1) reads.
    pub fn name_section(&mut self, names: &str, summary: &str) {
        self.heading("NAME");
        self.line("", &format!("{} \\- {}", escaped(names), escaped(summary)));
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.text.push_str(".PP\n");
        self.filled(text);
    }

    /// Adds a call of a command. It is broken only between the arguments.
    pub fn call(&mut self, command: &str, arguments: &[String]) {
        self.text.push_str(".HP 4\n");
        self.line("", &format!("\\fB{}\\fR", escaped(command)));
        for argument in arguments {
            // Without this roff takes `...` at the end of a line for the end of a sentence.
            let end = if argument.contains("...") { "\\&" } else { "" };
            self.line("", &(escaped(argument).replace(' ', "\\ ") + end));
        }
    }

    /// Adds a word and its meaning.
    pub fn item(&mut self, term: &str, meaning: &str) {
        self.text.push_str(".TP\n");
        self.line("", &format!("\\fB{}\\fR", escaped(term)));
        self.filled(meaning);
    }

    /// Adds lines that are shown as they are, without their common indentation of two columns.
    pub fn verbatim(&mut self, lines: &str) {
        self.text.push_str(".PP\n.RS 4\n.nf\n");
        for line in lines.lines() {
            self.line("", &escaped(line.strip_prefix("  ").unwrap_or(line)));
        }
        self.text.push_str(".fi\n.RE\n");
    }

    /// Adds source of clap_mangen. It escapes all that is special in roff, except for backquotes
    /// and characters beyond ASCII.
    pub fn push_roff(&mut self, source: &str) {
        for c in source.chars() {
            match c {
                '`' => self.text.push_str("\\(ga"),
                c if c.is_ascii() => self.text.push(c),
                c => self.text.push_str(&beyond_ascii(c)),
            }
        }
    }

    /// Adds text that is broken into lines anywhere.
    fn filled(&mut self, text: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        self.line("", &escaped(&words.join(" ")));
    }

    /// Adds a macro, or text that must not be taken for one.
    fn line(&mut self, request: &str, escaped: &str) {
        self.text.push_str(request);
        if request.is_empty() && escaped.starts_with('.') {
            self.text.push_str("\\&");
        }
        self.text.push_str(escaped);
        self.text.push('\n');
    }
}

/// Escapes what is special in roff, and what a terminal would show as another character.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\(rs"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '"' => escaped.push_str("\\(dq"),
            '`' => escaped.push_str("\\(ga"),
            '^' => escaped.push_str("\\(ha"),
            '~' => escaped.push_str("\\(ti"),
            '\t' => escaped.push(' '),
            c if c.is_ascii() => escaped.push(c),
            c => escaped.push_str(&beyond_ascii(c)),
        }
    }
    escaped
}

fn beyond_ascii(c: char) -> String {
    match c {
        '…' => "...".to_owned(),
        c => format!("\\[u{:04X}]", u32::from(c)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text below the title.
    fn body(fill: impl FnOnce(&mut Page)) -> String {
        let mut page = Page::new("a-b", 8);
        fill(&mut page);
        let (head, body) = page.text().split_once(".ad l\n").unwrap();
        assert!(head.starts_with(".TH \"A\\-B\" \"8\" \"\" \"Sheen "), "{head}");
        assert_eq!(page.file_name(), "a-b.8");
        body.to_owned()
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(body(|page| page.paragraph(".a 'b'\n\\n")), ".PP\n\\&.a \\(aqb\\(aq \\(rsn\n");
        assert_eq!(
            body(|page| page.item("-x", "a  `b` … \"é\"")),
            ".TP\n\\fB\\-x\\fR\na \\(gab\\(ga ... \\(dq\\[u00E9]\\(dq\n"
        );
        assert_eq!(body(|page| page.verbatim("  .a\n    ^b")), ".PP\n.RS 4\n.nf\n\\&.a\n  \\(hab\n.fi\n.RE\n");
        assert_eq!(body(|page| page.heading("A B")), ".SH A B\n");
        assert_eq!(body(|page| page.name_section("a-b", "c")), ".SH NAME\na\\-b \\- c\n");
        assert_eq!(body(|page| page.push_roff(".B `a…`\n")), ".B \\(gaa...\\(ga\n");
    }

    #[test]
    fn calls_are_broken_between_arguments_only() {
        let arguments = ["[-a N]".to_owned(), "FILE ...".to_owned(), "...".to_owned()];
        let call = body(|page| page.call("lfs x", &arguments));
        assert_eq!(call, ".HP 4\n\\fBlfs x\\fR\n[\\-a\\ N]\nFILE\\ ...\\&\n\\&...\\&\n");
    }
}
