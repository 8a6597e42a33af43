//! Which OSTs the user chose (`-i`, `-o`, or a directory's default that names them). For other
//! files, Lustre and Sheen each chose their own OSTs. Each OST is then named by the number of OSTs
//! that occur before it, so that the order of the stripes is still compared. An OST that is not in
//! the pool of its file is not masked.

use std::{collections::BTreeSet, path::Path, sync::LazyLock};

use regex::{Captures, Regex};

/// A layout in hexadecimal: magic, pattern, FID, stripe size, count, generation, perhaps a pool,
/// then the objects.
static LOV: LazyLock<Regex> = LazyLock::new(|| {
    let head = r"\b(0x)?(d00bd[13]0b[0-9a-f]{8})([0-9a-f]{32})([0-9a-f]{16})";
    Regex::new(&format!(r"{head}([0-9a-f]{{32}})?((?:[0-9a-f]{{48}})*)\b")).expect("a pattern")
});
static INDEX: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(\t +|      - l_ost_idx: |lmm_stripe_offset: |stripe_offset: )(\d+)(\t.*)?$").expect("a pattern")
});

/// The OSTs of the record's pools: the first and the last one.
const POOLS: [(&str, [u32; 2]); 3] = [("findp", [0, 1]), ("p1", [0, 1]), ("p2", [2, 3])];

/// Returns whether an OST is in the pool that this layout has, if it has one.
fn is_in_pool(ost: &str, layout: &str) -> bool {
    let Some(pool) = layout.lines().find_map(|line| line.strip_prefix("lmm_pool:")) else { return true };
    POOLS.iter().any(|(name, [first, last])| {
        *name == pool.trim() && ost.parse().is_ok_and(|ost: u32| (*first..=*last).contains(&ost))
    })
}

/// The OSTs of a file, in the order in which they first occur.
#[derive(Debug, Default)]
struct Order {
    seen: Vec<String>,
}

impl Order {
    /// Returns `+N`: N other OSTs occurred before this one.
    fn number(&mut self, ost: &str) -> String {
        let at = self.seen.iter().position(|seen| seen == ost).unwrap_or_else(|| {
            self.seen.push(ost.to_owned());
            self.seen.len() - 1
        });
        format!("+{at}")
    }
}

/// The files and directories whose OSTs the user has chosen so far.
#[derive(Debug, Default, Clone)]
pub struct Placement {
    chosen: BTreeSet<String>,
}

impl Placement {
    /// Remembers what a command chose.
    pub fn follow(&mut self, command: &str) {
        for command in command.split([';', '\n', '|']) {
            let words: Vec<&str> = command.split_whitespace().collect();
            match &words[..] {
                ["lfs", "setstripe", options @ .., path] => {
                    let chooses =
                        options.iter().any(|w| w.starts_with("-o") || *w == "-i" || w.starts_with("--stripe-index="))
                            && !options.ends_with(&["-i", "-1"]);
                    self.set(path, chooses || self.parent_chose(path));
                }
                ["lfs", "migrate", options @ .., path] => {
                    self.set(path, options.iter().any(|w| ["-i", "-o"].contains(w)))
                }
                ["touch" | "mkdir", path] if self.parent_chose(path) => self.set(path, true),
                _ => {}
            }
        }
    }

    fn set(&mut self, path: &str, chosen: bool) {
        if chosen {
            self.chosen.insert(path.to_owned());
        } else {
            self.chosen.remove(path);
        }
    }

    fn parent_chose(&self, path: &str) -> bool {
        Path::new(path).parent().and_then(Path::to_str).is_some_and(|p| self.chosen.contains(p))
    }

    /// Masks a layout in hexadecimal. Removes the ids of file and objects, and makes OSTs relative
    /// if the file system chose them.
    fn mask_lov(&self, c: &Captures, file: &str) -> String {
        let mut order = Order::default();
        let file_id = if c[3].bytes().all(|b| b == b'0') { "<none>" } else { "<fid>" };
        let start = c.get(1).map_or("", |m| m.as_str());
        let pool = c.get(5).map_or("", |m| m.as_str());
        let mut out = format!("{start}{} {file_id} {} {} {}{pool}", &c[2], &c[4][..8], &c[4][8..12], &c[4][12..]);
        for at in (0..c[6].len()).step_by(48) {
            let object = &c[6][at..at + 48];
            let relative = order.number(&object[40..]);
            let index = if self.chosen.contains(file) { &object[40..] } else { &relative };
            out += &format!(" <object> {} {index}", &object[32..40]);
        }
        out
    }

    /// Replaces the indexes in `text` by their numbers in their file, if the file system chose
    /// them.
    pub fn mask(&self, text: &str, command: &str) -> String {
        let last = command.split_whitespace().last().unwrap_or_default();
        let mut file = last.trim_matches('"').to_owned();
        let mut order = Order::default();
        let alone = command.contains("lfs getstripe ") && command.contains(" -i ");
        let (mut out, mut rest, mut layout) = (String::new(), text, "");
        for line in text.split_inclusive('\n') {
            let bare = line.trim_end_matches('\n');
            // A layout ends with an empty line.
            if layout.is_empty() {
                layout = rest.split("\n\n").next().unwrap_or_default();
            }
            rest = &rest[line.len()..];
            if bare.is_empty() {
                (order, layout) = (Order::default(), "");
            } else if let Some(name) = bare.strip_prefix("# file: ") {
                name.clone_into(&mut file);
            } else if !bare.contains([' ', '\t', ':']) && bare.parse::<u32>().is_err() {
                (file, order) = (bare.to_owned(), Order::default());
            }
            let chosen = self.chosen.contains(&file);
            match INDEX.captures(bare).filter(|c| !chosen && is_in_pool(&c[2], layout)) {
                Some(c) => {
                    let number = order.number(&c[2]);
                    out.push_str(&format!("{}{number}{}\n", &c[1], c.get(3).map_or("", |m| m.as_str())));
                }
                None if alone && !chosen && bare.parse::<u32>().is_ok() => out.push_str("+0\n"),
                None => out.push_str(&LOV.replace_all(line, |c: &Captures| self.mask_lov(c, &file))),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_makes_osts_relative_unless_the_user_chose_them() {
        let mut placement = Placement::default();
        placement.follow("lfs setstripe -c 2 -i 3 i3c2");
        placement.follow("mkdir d; lfs setstripe -o 1,3 d; touch d/f");
        placement.follow("lfs setstripe -i -1 free");
        let table = "lmm_stripe_offset: 3\n\t     3\t x\n\t     0\t x\n";
        assert_eq!(placement.mask(table, "lfs getstripe i3c2"), table);
        assert_eq!(placement.mask(table, "lfs getstripe d/f"), table);
        assert_eq!(
            placement.mask(table, "lfs getstripe free"),
            "lmm_stripe_offset: +0\n\t     +0\t x\n\t     +1\t x\n"
        );
        assert_eq!(placement.mask("2\n\n", "lfs getstripe -i free"), "+0\n\n");
        assert_eq!(placement.mask("2\n\n", "lfs getstripe -i i3c2"), "2\n\n");
    }

    #[test]
    fn mask_keeps_osts_outside_of_the_pool_of_their_file() {
        let mask = |text: &str| Placement::default().mask(text, "lfs getstripe f");
        let file = |ost: u32, pool: &str| {
            format!("f\nlmm_stripe_offset: {ost}\nlmm_pool:          {pool}\n\t     {ost}\t x\n\n")
        };
        let inside = "f\nlmm_stripe_offset: +0\nlmm_pool:          p2\n\t     +0\t x\n\n";
        assert_eq!(mask(&(file(2, "p2") + &file(3, "p2"))), inside.repeat(2));
        assert_eq!(mask(&(file(3, "p2") + &file(1, "p2"))), inside.to_owned() + &file(1, "p2"));
        assert_eq!(mask(&file(0, "other")), file(0, "other"));
    }
}
