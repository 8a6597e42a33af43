//! How we write, as far as a program can check it: width, length of sentences, words that stand for
//! a term of the field.
//!
//! Checked are comments and string literals of Rust sources, and Markdown outside of code blocks.

use std::{fs, path::Path};

/// Columns of a line of a comment or of a document.
const WIDTH_MAX: usize = 100;
/// Words of a sentence. Code between backticks counts as one word.
const WORDS_MAX: usize = 30;

/// Phrases that stand for a term, and the terms. A word matches as a whole, whatever its case.
///
/// Missing are the phrases that are the right words elsewhere: "off" of a switch, "moved" of a
/// directory, "the rest" of anything but a write, "beginning" of a file.
const BANNED: &[(&[&str], &str)] = &[
    (
        &[
            "give up",
            "gives up",
            "gave up",
            "given up",
            "giving up",
            "gave this client up",
            "given this client up",
            "gives it up",
            "gave it up",
        ],
        "evict (a client), cancel (a lock), stop, fail",
    ),
    (&["give back", "gives back", "gave back", "given back", "giving back"], "cancel (a lock), release, return"),
    (
        &[
            "lose a lock",
            "loses a lock",
            "lost a lock",
            "lose the lock",
            "loses the lock",
            "lose its lock",
            "loses its lock",
            "lose its locks",
            "loses its locks",
            "lose their locks",
            "losing a lock",
            "losing the lock",
        ],
        "cancel (a lock), evict (a client), drop (locks)",
    ),
    (
        &[
            "call back",
            "calls back",
            "called back",
            "calling back",
            "ask back",
            "asks back",
            "asked back",
            "asking back",
            "want back",
            "wants back",
            "wanted back",
            "want it back",
            "wants it back",
            "wanted it back",
        ],
        "blocking callback, revoke",
    ),
    (&["promise", "promises", "promised", "promising"], "grant, guarantee"),
    (
        &[
            "is away",
            "are away",
            "was away",
            "were away",
            "be away",
            "been away",
            "goes away",
            "went away",
            "go away",
            "going away",
        ],
        "disconnected, stopped, absent",
    ),
    (&["throw away", "throws away", "threw away", "thrown away"], "discard"),
    (&["gone"], "deleted, disconnected, evicted, expired"),
    (&["are no more", "that is no more"], "deleted"),
    (&["kept"], "cached, dirty, stored, retained, held"),
    (&["keeps a write", "keep a write", "written last", "has not travelled", "get old", "gets old"], "dirty, buffered"),
    (&["told"], "reported, notified, returned"),
    (&["touched"], "changed, used; invalidations (of a reply)"),
    (&["ask ahead", "asks ahead", "asked ahead", "asking ahead", "asked for ahead"], "statahead, requested in advance"),
    (
        &["rest of a write", "rest of the write", "rest of a large write", "write's rest", "the rests", "rests"],
        "split-write tail",
    ),
    (&["overtaken"], "stale (layout, reply); retry"),
    (&["moved meanwhile", "have become another"], "stale layout, retry"),
    (
        &[
            "close an object",
            "close objects",
            "close the object",
            "close the objects",
            "closes the objects",
            "closed object",
            "closed objects",
            "closing of objects",
        ],
        "seal",
    ),
    (&["reopen objects", "reopens objects", "reopen the objects", "reopens the objects"], "unseal"),
    (&["the place of a file", "a file's place", "place of the file"], "layout, layout lookup"),
    (&["whoever", "for who", "of who", "to who", "by who", "makes who"], "a named subject"),
    (&["nameless"], "orphan"),
    (&["in the way", "in whose way", "in its way", "in their way"], "conflicts with, blocks"),
    (&["nobody's", "for nobody", "counts for nothing"], "a named owner, or none"),
    (&["is no address", "is no number", "is no nid", "is no size", "is no path"], "invalid …: expected …"),
    (&["going without", "go without", "goes without"], "without; the consequence"),
    (&["sees to it", "see to it", "saw to it"], "the action itself"),
    (&["is to be had", "are to be had"], "there is, is available"),
    (&["the moment at which", "the moment of which"], "when"),
    (&["weakly"], "holds a `Weak`"),
];

/// Words that no name in a source has as a part, with the names to take instead.
const BANNED_IN_NAMES: &[(&[&str], &str)] = &[
    (&["kept"], "cached, dirty, stored, retained, idle"),
    (&["told"], "reported, delivered, registered"),
    (&["gone"], "deleted, ended, released"),
    (&["touched"], "changed, invalidations"),
    (&["beginning"], "inline_dom"),
    (&["promise", "promised"], "grant"),
    (&["away"], "disconnected, unavailable, discard"),
    (&["nameless"], "orphan"),
    (&["overtaken"], "stale"),
];

/// Words that no sentence begins with, for its subject would be a clause without a noun.
const BEGINNINGS: &[&str] = &["Who", "Whoever", "Whose", "What", "Whatever"];

/// One finding: a line's number and what is wrong there.
pub type Finding = (usize, String);

/// Prose of one kind in a row: the lines' numbers and texts, without the marks of a comment.
type Block<'a> = Vec<(usize, &'a str)>;

/// Everything that `path` says against the rules. Unknown kinds of files say nothing.
pub fn findings(path: &Path) -> Vec<Finding> {
    let Ok(text) = fs::read_to_string(path) else { return Vec::new() };
    let mut found = Vec::new();
    match path.extension().and_then(|e| e.to_str()) {
        Some("rs") => source(&text, &mut found),
        Some("md") => prose(&text.lines().enumerate().map(|(n, l)| (n + 1, l)).collect(), true, &mut found),
        _ => {}
    }
    found.sort();
    found
}

/// Names in a Rust source that have a banned part: `is_away`, `MaxKept`.
pub fn names(path: &Path) -> Vec<Finding> {
    let Ok(text) = fs::read_to_string(path) else { return Vec::new() };
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("//") {
            continue;
        }
        let code: String = line.split('"').step_by(2).collect::<Vec<_>>().join(" ");
        let code = code.split(" //").next().unwrap_or_default();
        for name in code.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let is_banned = |words: &[&str]| parts(name).any(|part| words.contains(&part.as_str()));
            let instead = BANNED_IN_NAMES.iter().find(|(words, _)| is_banned(words));
            found.extend(instead.map(|(_, instead)| (number, format!("name `{name}`: {instead}"))));
        }
    }
    found
}

/// The words of a name in any case: `is_away`, `IsAway` and `IS_AWAY` have the same ones.
fn parts(name: &str) -> impl Iterator<Item = String> {
    let mut words = String::new();
    let mut lower = false;
    for c in name.chars() {
        if lower && c.is_uppercase() {
            words.push('_');
        }
        lower = c.is_lowercase();
        words.extend(c.to_lowercase());
    }
    words.split('_').map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// A Rust source: blocks of comments of the same mark, and the literals of the other lines.
fn source(text: &str, found: &mut Vec<Finding>) {
    let mut block: Block = Vec::new();
    let mut mark = "";
    for (number, line) in (1..).zip(text.lines()) {
        let trimmed = line.trim_start();
        let this = ["//!", "///", "//"].into_iter().find(|m| trimmed.starts_with(m)).unwrap_or("");
        if this != mark {
            prose(&std::mem::take(&mut block), false, found);
            mark = this;
        }
        if this.is_empty() {
            for literal in literals(line) {
                banned(number, literal, found);
            }
        } else {
            let columns = line.chars().count();
            if columns > WIDTH_MAX && trimmed.contains(' ') {
                found.push((number, format!("{columns} columns")));
            }
            block.push((number, &trimmed[this.len()..]));
        }
    }
    prose(&block, false, found);
}

/// What stands between quotes in a line of code, roughly: a literal of several lines is seen by parts.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

/// Splits a block into paragraphs, items and cells, and checks the sentences of each.
fn prose(block: &Block, markdown: bool, found: &mut Vec<Finding>) {
    let mut fenced = false;
    let mut paragraph = (0, String::new());
    for (number, line) in block {
        let text = line.trim();
        if text.starts_with("```") {
            fenced = !fenced;
        }
        let columns = line.chars().count();
        let ends = text.is_empty() || fenced || text.starts_with("```") || text.starts_with(['#', '|']);
        if ends || item(text).is_some() {
            sentences(&std::mem::take(&mut paragraph), found);
        }
        if fenced || text.starts_with("```") {
            continue;
        }
        if text.starts_with('|') {
            for cell in text.split('|') {
                sentences(&(*number, cell.trim().to_owned()), found);
            }
        } else {
            if markdown && columns > WIDTH_MAX && text.contains(' ') {
                found.push((*number, format!("{columns} columns")));
            }
            if text.starts_with('#') && markdown {
                sentences(&(*number, text.trim_start_matches('#').trim().to_owned()), found);
            } else {
                if paragraph.1.is_empty() {
                    paragraph.0 = *number;
                }
                paragraph.1 += item(text).unwrap_or(text);
                paragraph.1.push(' ');
            }
        }
    }
    sentences(&paragraph, found);
}

/// The text of an item of a list.
fn item(text: &str) -> Option<&str> {
    let numbered = text.split_once(". ").filter(|(n, _)| n.len() < 3 && n.parse::<u32>().is_ok());
    text.strip_prefix("* ").or_else(|| text.strip_prefix("- ")).or(numbered.map(|(_, rest)| rest))
}

/// Checks the sentences of a paragraph that begins at a line.
fn sentences((number, text): &(usize, String), found: &mut Vec<Finding>) {
    let text = without_code(text);
    banned(*number, &text, found);
    let mut words: Vec<&str> = Vec::new();
    let mut all = text.split_whitespace().peekable();
    while let Some(word) = all.next() {
        words.push(word);
        let bare = word.trim_end_matches([')', '"', '*', '_', '\'']);
        let next_is_new = all.peek().is_none_or(|w| !w.starts_with(char::is_lowercase));
        if !(bare.ends_with(['.', '!', '?']) && next_is_new || all.peek().is_none()) {
            continue;
        }
        let counted = words.iter().filter(|w| w.contains(char::is_alphanumeric)).count();
        let start = words.iter().take(6).copied().collect::<Vec<_>>().join(" ");
        if counted > WORDS_MAX {
            found.push((*number, format!("a sentence of {counted} words: {start} …")));
        }
        let first = words[0].trim_start_matches(['(', '*', '"', '_']);
        if BEGINNINGS.contains(&first) && !bare.ends_with('?') {
            found.push((*number, format!("no noun is the subject: {start} …")));
        }
        words.clear();
    }
}

/// The text with each span between backticks as one word.
fn without_code(text: &str) -> String {
    let spans = text.split('`').enumerate();
    spans.map(|(n, span)| if n % 2 == 0 { span } else { "`c`" }).collect()
}

fn banned(number: usize, text: &str, found: &mut Vec<Finding>) {
    let words = text.to_lowercase();
    for (phrases, instead) in BANNED {
        for phrase in *phrases {
            let whole = words.match_indices(phrase).any(|(at, _)| {
                let borders = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
                borders(words[..at].chars().next_back()) && borders(words[at + phrase.len()..].chars().next())
            });
            if whole {
                found.push((number, format!("'{phrase}': {instead}")));
            }
        }
    }
}
