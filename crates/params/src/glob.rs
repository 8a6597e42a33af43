//! Shell patterns over parameter names.
//!
//! A name is stored with `/` between its components, because a component may contain dots
//! (`mgc/MGC10.0.2.15@tcp/active`). A pattern may use either: `.` matches a separator or a dot, `/`
//! only a separator. Wildcards never match a separator.

/// Returns whether `pattern` (with `*`, `?`, `[abc]`, `[!a-z]`) matches the whole of `name` (with
/// `/` between components).
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    // On a mismatch, go back to the last star and let it match one byte more. Linear in memory, and
    // at most pattern × name in time.
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p + 1, n));
            p += 1;
            continue;
        }
        if let Some(next) = one(pattern, p, name[n]) {
            (p, n) = (next, n + 1);
            continue;
        }
        match star {
            Some((after, from)) if name[from] != b'/' => {
                star = Some((after, from + 1));
                (p, n) = (after, from + 1);
            }
            _ => return false,
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// Matches one byte against the pattern at `p`. Returns the position after it, or `None`.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match *pattern.get(p)? {
        b'?' => (byte != b'/').then_some(p + 1),
        b'.' => (byte == b'.' || byte == b'/').then_some(p + 1),
        b'[' => match class(&pattern[p + 1..], byte) {
            Some((len, hit)) => (hit && byte != b'/').then_some(p + 1 + len),
            None => (byte == b'[').then_some(p + 1),
        },
        literal => (literal == byte).then_some(p + 1),
    }
}

/// Parses a bracket expression after its `[`. Returns its length including the `]`, and whether it
/// contains `byte`. Returns `None` if it has no `]`.
fn class(pattern: &[u8], byte: u8) -> Option<(usize, bool)> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    let end = start + 1 + pattern.get(start + 1..)?.iter().position(|&b| b == b']')?;
    let set = &pattern[start..end];
    let (mut hit, mut i) = (false, 0);
    while i < set.len() {
        if i + 2 < set.len() && set[i + 1] == b'-' {
            hit |= (set[i]..=set[i + 2]).contains(&byte);
            i += 3;
        } else {
            hit |= set[i] == byte;
            i += 1;
        }
    }
    Some((end + 1, hit != negated))
}

#[cfg(test)]
mod tests {
    use super::matches;

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
