//! Patterns as in glob(7): `*`, `?`, `[a-z]`, `[!abc]`, `[[:digit:]]`, and `\` before a literal
//! character.
//!
//! There are two kinds of patterns:
//! * [`Glob::of_names`]: names of files, as in find(1). A leading dot is an ordinary character.
//! * [`Glob::of_params`]: names of parameters, as in `lctl get_param`. The MGS stores such patterns
//!   ([`crate::mgs::Setting`]). A name is matched with `/` between its components, because a
//!   component may contain dots (`mgc/MGC10.0.2.15@tcp/active`). In the pattern, `.` matches a
//!   separator or a dot, and `/` only a separator. Wildcards and sets never match a separator.
//!
//! Names and patterns are bytes, which need not be UTF-8. Every pattern is valid: a bracket that is
//! never closed is literal.

/// A pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob {
    pieces: Vec<Piece>,
    /// The byte that wildcards and sets never match.
    separator: Option<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    /// `*`
    Any,
    /// `?`
    One,
    /// A byte.
    Byte(u8),
    /// `.` in a pattern of parameters.
    DotOrSlash,
    /// `[…]`: ranges of bytes, and whether the set is negated.
    Set(Vec<(u8, u8)>, bool),
}

impl Glob {
    /// Parses a pattern of names of files.
    pub fn of_names(pattern: &[u8]) -> Glob {
        Glob { pieces: pieces(pattern), separator: None }
    }

    /// Parses a pattern of names of parameters.
    pub fn of_params(pattern: &str) -> Glob {
        let mut pieces = pieces(pattern.as_bytes());
        for piece in pieces.iter_mut().filter(|piece| **piece == Piece::Byte(b'.')) {
            *piece = Piece::DotOrSlash;
        }
        Glob { pieces, separator: Some(b'/') }
    }

    /// Returns whether the pattern matches the whole of `name`. Takes time in proportion to the
    /// product of their lengths.
    pub fn matches(&self, name: impl AsRef<[u8]>) -> bool {
        let end = self.pieces.len();
        // Which pieces may match next. The last element: the pattern may end here.
        let mut next = vec![false; end + 1];
        next[0] = true;
        self.skip_stars(&mut next);
        for byte in name.as_ref() {
            next[end] = false;
            for (at, piece) in self.pieces.iter().enumerate().rev() {
                let taken = next[at] && self.takes(piece, *byte);
                next[at] = taken && *piece == Piece::Any;
                next[at + 1] |= taken && *piece != Piece::Any;
            }
            self.skip_stars(&mut next);
            if !next.contains(&true) {
                return false;
            }
        }
        next[end]
    }

    /// Adds the pieces behind stars, which may match nothing.
    fn skip_stars(&self, next: &mut [bool]) {
        for (at, _) in self.pieces.iter().enumerate().filter(|(_, piece)| **piece == Piece::Any) {
            next[at + 1] |= next[at];
        }
    }

    fn takes(&self, piece: &Piece, byte: u8) -> bool {
        let is_separator = self.separator == Some(byte);
        match piece {
            Piece::Any | Piece::One => !is_separator,
            Piece::Byte(b) => *b == byte,
            Piece::DotOrSlash => matches!(byte, b'.' | b'/'),
            Piece::Set(ranges, not) => {
                !is_separator && ranges.iter().any(|(from, to)| (*from..=*to).contains(&byte)) != *not
            }
        }
    }
}

/// Parses a pattern.
fn pieces(pattern: &[u8]) -> Vec<Piece> {
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
    // Several stars in a row equal one.
    pieces.dedup_by(|a, b| *a == Piece::Any && *b == Piece::Any);
    pieces
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
    fn glob_of_names_matches_like_glob7() {
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
                assert!(Glob::of_names(pattern.as_bytes()).matches(name), "{pattern} fits {name:?}");
            }
            for name in others {
                assert!(!Glob::of_names(pattern.as_bytes()).matches(name), "{pattern} does not fit {name:?}");
            }
        }
    }

    #[test]
    fn glob_with_many_stars_ends_quickly() {
        let pattern = "*a".repeat(100) + "b";
        assert!(!Glob::of_names(pattern.as_bytes()).matches([b'a'; 255]));
    }

    #[test]
    fn glob_of_names_matches_bytes_that_are_no_utf8() {
        let latin1 = b"caf\xe9.txt";
        for pattern in [&b"caf?.txt"[..], b"*.txt", b"caf\xe9*", b"caf[\xe0-\xef].*", b"caf[!a-z].txt"] {
            assert!(Glob::of_names(pattern).matches(latin1), "{pattern:?}");
        }
        assert!(!Glob::of_names("café.txt".as_bytes()).matches(latin1));
    }

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::of_params(pattern).matches(name)
    }

    #[test]
    fn glob_wildcards_do_not_match_separators() {
        assert!(matches("osc.*.max_rpcs_in_flight", "osc/sheen-OST0000-osc-1/max_rpcs_in_flight"));
        assert!(matches("osc/*/max_*", "osc/a/max_dirty_mb"));
        assert!(matches("osc.*OST000[0-1]*.active", "osc/sheen-OST0001-osc/active"));
        assert!(matches("osc.*OST000[!0-1]*.active", "osc/sheen-OST0002-osc/active"));
        assert!(matches("version", "version"));
        assert!(matches("*", "version"));
        for (pattern, name) in [
            ("*", "osc/a"),
            ("osc.*", "osc/a/active"),
            ("osc.*.active", "osc/a/b/active"),
            ("osc.*.active", "osc/a/active_x"),
            ("osc?a.active", "osc/a/active"),
            ("osc.*OST000[!0-1]*.active", "osc/sheen-OST0001-osc/active"),
            ("", "version"),
            ("version", ""),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn glob_dot_matches_dots_inside_a_component() {
        let name = "mgc/MGC10.0.2.15@tcp/active";
        assert!(matches("mgc.*.active", name));
        assert!(matches("mgc.*.*", name));
        assert!(matches("mgc.MGC10.0.2.15@tcp.active", name));
        assert!(matches("mgc/MGC10.0.2.15@tcp/active", name));
        assert!(!matches("mgc/MGC10/0.2.15@tcp/active", name));
    }

    #[test]
    fn glob_treats_unclosed_brackets_as_literals() {
        assert!(matches("a[b", "a[b"));
        assert!(!matches("a[b", "ab"));
        assert!(matches("a[]]", "a]"));
        assert!(!matches("[", ""));
        assert!(!matches("[!", "x"));
        let stars = "*a".repeat(50);
        assert!(!matches(&stars, &"a".repeat(49)));
        assert!(matches(&stars, &"a".repeat(50)));
    }
}
