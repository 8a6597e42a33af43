//! Names of component flags, on command lines and in listings.

pub use sheen_layout::flags::*;

/// Preferred for reads and writes.
pub const PREFER: u32 = PREF_RD | PREF_WR;

/// The flags in the order in which they are printed. A name for several bits comes before the names
/// of the single bits.
const NAMES: &[(u32, &str)] = &[
    (INIT, "init"),
    (STALE, "stale"),
    (PREFER, "prefer"),
    (PREF_RD, "prefrd"),
    (PREF_WR, "prefwr"),
    (0x8, "offline"),
    (NOSYNC, "nosync"),
    (EXTENSION, "extension"),
];

/// Formats flags, such as `init,stale`. No flags are `0`. Flags without a name are in hex.
pub fn names(flags: u32) -> String {
    let mut left = flags;
    let mut names: Vec<String> = Vec::new();
    for (bits, name) in NAMES {
        if left & bits == *bits {
            left &= !bits;
            names.push((*name).to_owned());
        }
    }
    if left != 0 || names.is_empty() {
        names.push(if left == 0 { "0".to_owned() } else { format!("{left:#x}") });
    }
    names.join(",")
}

/// Flags that must be set, and flags that must be clear.
pub type Wanted = (u32, u32);

/// Parses `init,^stale`. The error names the unknown flag. It is `None` if no flag is given, or if
/// one is given both ways.
pub fn parse(text: &str) -> Result<Wanted, Option<String>> {
    let (mut set, mut clear) = (0, 0);
    for name in text.split(',').filter(|name| !name.is_empty()) {
        let (bare, to) = match name.strip_prefix('^') {
            Some(bare) => (bare, &mut clear),
            None => (name, &mut set),
        };
        let known = NAMES.iter().find(|(_, known)| *known == bare);
        *to |= known.ok_or_else(|| Some(name.to_owned()))?.0;
    }
    if set | clear == 0 || set & clear != 0 { Err(None) } else { Ok((set, clear)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn component_flag_names_are_formatted_and_parsed() {
        assert_eq!(names(0), "0");
        assert_eq!(names(INIT | STALE), "init,stale");
        assert_eq!(names(PREFER | INIT), "init,prefer");
        assert_eq!(names(PREF_RD | EXTENSION | 0x1000), "prefrd,extension,0x1000");
        assert_eq!(parse("init,^stale"), Ok((INIT, STALE)));
        assert_eq!(parse("prefer"), Ok((PREFER, 0)));
        assert_eq!(parse("bogus,init"), Err(Some("bogus".to_owned())));
        assert_eq!(parse("init,^init"), Err(None));
        assert_eq!(parse(""), Err(None));
    }
}
