//! Patterns of file names as in glob(7): `*`, `?`, `[a-z]`, `[!abc]`, `[[:digit:]]`, and `\` before
//! a literal character.
//!
//! Names are bytes. As in find(1), a leading dot is an ordinary character.
//!
//! No library does this. `wildmatch` has no sets. In `globset`, braces are special, `[:digit:]` is
//! an ordinary set, and patterns are text. Patterns of parameter names (`sheen_params::matches`)
//! differ as well: a dot is a separator there, and `\` is an ordinary character.

/// A pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob(Vec<Piece>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    /// `*`
    Any,
    /// `?`
    One,
    /// A byte.
    Byte(u8),
    /// `[…]`: ranges of bytes, and whether the set is negated.
    Set(Vec<(u8, u8)>, bool),
}

impl Glob {
    /// Parses a pattern. Every pattern is valid: a bracket that is never closed is literal.
    pub fn new(pattern: &[u8]) -> Glob {
        let mut pieces = Vec::new();
        let mut rest = pattern;
        while let [first, after @ ..] = rest {
            rest = after;
            pieces.push(match (first, after) {
                (b'*', _) => Piece::Any,
                (b'?', _) => Piece::One,
                (b'[', _) => match set(after) {
                    Some((piece, after)) => {
                        rest = after;
                        piece
                    }
                    None => Piece::Byte(b'['),
                },
                (b'\\', [quoted, after @ ..]) => {
                    rest = after;
                    Piece::Byte(*quoted)
                }
                (byte, _) => Piece::Byte(*byte),
            });
        }
        // Several stars in a row equal one. Merging them limits matching to quadratic time.
        pieces.dedup_by(|a, b| *a == Piece::Any && *b == Piece::Any);
        Glob(pieces)
    }

    /// Whether the pattern matches the whole of `name`.
    pub fn matches(&self, name: &[u8]) -> bool {
        let (mut piece, mut at) = (0, 0);
        // Where matching continues if the last star has to take one more byte.
        let mut retry = None;
        loop {
            match (self.0.get(piece), name.get(at)) {
                (Some(Piece::Any), _) => {
                    retry = Some((piece + 1, at));
                    piece += 1;
                    continue;
                }
                (Some(this), Some(byte)) if this.takes(*byte) => {
                    (piece, at) = (piece + 1, at + 1);
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            match retry {
                Some((after, from)) if from < name.len() => {
                    retry = Some((after, from + 1));
                    (piece, at) = (after, from + 1);
                }
                _ => return false,
            }
        }
    }
}

impl Piece {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Piece::Any | Piece::One => true,
            Piece::Byte(b) => *b == byte,
            Piece::Set(ranges, not) => ranges.iter().any(|(from, to)| (*from..=*to).contains(&byte)) != *not,
        }
    }
}

/// Parses a set after its `[`. Returns the set and the text after its `]`.
fn set(rest: &[u8]) -> Option<(Piece, &[u8])> {
    let not = matches!(rest, [b'!' | b'^', ..]);
    let mut rest = &rest[usize::from(not)..];
    let mut ranges = Vec::new();
    let mut first = true;
    loop {
        match rest {
            [b']', after @ ..] if !first => return Some((Piece::Set(ranges, not), after)),
            [b'[', b':', after @ ..] => {
                let end = after.windows(2).position(|two| two == b":]")?;
                ranges.extend(class(&after[..end])?);
                rest = &after[end + 2..];
            }
            _ => {
                let (from, after) = byte(rest)?;
                let (to, after) = match after {
                    [b'-', end @ ..] if !matches!(end, [] | [b']', ..]) => byte(end)?,
                    _ => (from, after),
                };
                ranges.push((from, to));
                rest = after;
            }
        }
        first = false;
    }
}

/// Parses a byte of a set, which may be quoted.
fn byte(rest: &[u8]) -> Option<(u8, &[u8])> {
    match rest {
        [b'\\', quoted, after @ ..] => Some((*quoted, after)),
        [byte, after @ ..] => Some((*byte, after)),
        [] => None,
    }
}

/// Returns the ranges of `[:name:]`.
fn class(name: &[u8]) -> Option<Vec<(u8, u8)>> {
    Some(match name {
        b"alpha" => vec![(b'a', b'z'), (b'A', b'Z')],
        b"digit" => vec![(b'0', b'9')],
        b"alnum" => vec![(b'a', b'z'), (b'A', b'Z'), (b'0', b'9')],
        b"lower" => vec![(b'a', b'z')],
        b"upper" => vec![(b'A', b'Z')],
        b"space" => vec![(9, 13), (b' ', b' ')],
        b"blank" => vec![(b'\t', b'\t'), (b' ', b' ')],
        b"punct" => vec![(b'!', b'/'), (b':', b'@'), (b'[', b'`'), (b'{', b'~')],
        b"xdigit" => vec![(b'0', b'9'), (b'a', b'f'), (b'A', b'F')],
        b"cntrl" => vec![(0, 31), (127, 127)],
        b"print" => vec![(b' ', b'~')],
        b"graph" => vec![(b'!', b'~')],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_glob_matches_like_glob7() {
        for (pattern, fits, others) in [
            ("one", &["one"][..], &["ones", "on", "ONE", ""][..]),
            ("o*", &["o", "one", "over"], &["two", ""]),
            ("*.mpg", &[".mpg", "a.mpg", "a.mpg.mpg"], &["a.mpgx", "mpg"]),
            ("*", &["", ".hidden", "a"], &[]),
            ("a?c", &["abc", "a.c"], &["ac", "abbc"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "x", "-x"]),
            ("[!a-c]x", &["dx"], &["ax", "x"]),
            ("[]x]", &["]", "x"], &["[", ""]),
            ("[a-]", &["a", "-"], &["b"]),
            ("[[:digit:]_]*", &["1a", "_"], &["a1"]),
            ("[ab", &["[ab"], &["a"]),
            ("\\*", &["*"], &["a"]),
            ("a*b*c", &["abc", "aXbYc", "abbcbc"], &["acb", "ab"]),
            ("\\", &["\\"], &[""]),
        ] {
            for name in fits {
                assert!(Glob::new(pattern.as_bytes()).matches(name.as_bytes()), "{pattern} fits {name:?}");
            }
            for name in others {
                assert!(!Glob::new(pattern.as_bytes()).matches(name.as_bytes()), "{pattern} does not fit {name:?}");
            }
        }
    }

    #[test]
    fn find_glob_with_many_stars_ends_quickly() {
        let pattern = "*a".repeat(100) + "b";
        assert!(!Glob::new(pattern.as_bytes()).matches(&[b'a'; 255]));
    }
}
