//! The options of `lfs migrate`: those of `setstripe` and its own.

use sheen_wire::{Errno, Result};

use super::{
    super::{
        getopt::{self, Value},
        numbers::parse_size,
        setstripe::Wrong,
    },
    Job,
};

/// As Lustre's.
pub const OPTIONS: getopt::Spec = getopt::Spec {
    short: "0AbBc:C:dDE:hi:I:L:m:nN::o:p:s:S:vW:x:y:z:",
    long: &[
        ("stripe-count", Value::Required, "c"),
        ("stripe_count", Value::Required, "c"),
        ("count", Value::Required, "c"),
        ("overstripe-count", Value::Required, "C"),
        ("delete", Value::No, "d"),
        ("help", Value::No, "h"),
        ("stripe-index", Value::Required, "i"),
        ("stripe_index", Value::Required, "i"),
        ("index", Value::Required, "i"),
        ("layout", Value::Required, "L"),
        ("ost", Value::Required, "o"),
        ("ost-list", Value::Required, "o"),
        ("pool", Value::Required, "p"),
        ("stripe-size", Value::Required, "S"),
        ("stripe_size", Value::Required, "S"),
        ("size", Value::Required, "S"),
        ("comp-add", Value::No, "add"),
        ("component-add", Value::No, "add"),
        ("comp-del", Value::No, "del"),
        ("component-del", Value::No, "del"),
        ("comp-set", Value::No, "set"),
        ("component-set", Value::No, "set"),
        ("comp-end", Value::Required, "E"),
        ("component-end", Value::Required, "E"),
        ("mirror-count", Value::Optional, "N"),
        ("ext-size", Value::Required, "z"),
        ("extension-size", Value::Required, "z"),
        ("copy", Value::Required, "copy"),
        ("yaml", Value::Required, "y"),
        ("foreign", Value::Optional, "foreign"),
        ("xattr", Value::Required, "x"),
        ("auto", Value::No, "A"),
        ("auto-stripe", Value::No, "A"),
        ("bandwidth", Value::Required, "W"),
        ("bandwidth-limit", Value::Required, "W"),
        ("block", Value::No, "b"),
        ("non-block", Value::No, "n"),
        ("non-direct", Value::No, "D"),
        ("verbose", Value::No, "v"),
        ("restripe", Value::No, "restripe"),
        ("stats", Value::No, "stats"),
        ("stats-interval", Value::Required, "stats-interval"),
        ("checksum", Value::No, "checksum"),
        ("null", Value::No, "0"),
        ("files-from", Value::Required, "files-from"),
        ("mdt-index", Value::Required, "m"),
        ("mdt", Value::Required, "m"),
    ],
};

/// A bandwidth below this is in MB/s, whatever is said.
const MIB_BELOW: u64 = 1 << 20;

impl Job {
    /// Takes an option that is not `setstripe`'s; `None`: it is.
    pub fn option(&mut self, id: &str, value: Option<&str>) -> Option<Result<(), Wrong>> {
        match id {
            "b" => self.how.block = true,
            "n" => self.how.block = false,
            "D" => self.how.direct = false,
            "v" => self.verbose = true,
            "stats" | "stats-interval" => self.stats = true,
            "checksum" => self.how.checksum = true,
            "restripe" => {}
            "W" => match value.and_then(parse_size).filter(|bytes| *bytes > 0) {
                Some(bytes) => self.how.bandwidth = Some(if bytes < MIB_BELOW { bytes << 20 } else { bytes }),
                None => {
                    let text = format!("lfs migrate migrate: invalid bandwidth '{}'", value.unwrap_or_default());
                    return Some(Err(Wrong::Call(text)));
                }
            },
            "A" => self.auto = true,
            "m" => {
                let e = Errno::EOPNOTSUPP;
                let text = format!("lfs migrate: moving files between MDTs: {e} ({})", e.0);
                return Some(Err(Wrong::Value(text, e)));
            }
            _ => return None,
        }
        Some(Ok(()))
    }
}

/// `migrate`
pub const USAGE: &str = "\
migrate file objects from one OST layout to another\n\
(safe while others read and write the files).\n\
Usage: migrate   [--component-end|-E END_OFFSET]\n\
\t\t[--copy=SOURCE_LAYOUT_FILE]|--yaml|-y YAML_TEMPLATE_FILE]\n\
\t\t[--extension-size|--ext-size|-z EXT_SIZE]\n\
\t\t[--help|-h]\n\
\t\t[--layout|-L PATTERN]\n\
\t\t[--mirror-count|-N[MIRROR_COUNT]]\n\
\t\t[--ost|-o OST_INDEX[,OST_INDEX,...]]\n\
\t\t[--overstripe-count|-C STRIPE_COUNT]\n\
\t\t[--pool|-p POOL_NAME]\n\
\t\t[--stripe-count|-c STRIPE_COUNT]\n\
\t\t[--stripe-index|-i START_OST_IDX]\n\
\t\t[--stripe-size|-S STRIPE_SIZE]\n\
\t\t[--bandwidth|-W BANDWIDTH_MB[MG]]\n\
\t\t[--auto|--auto-stripe|-A]\n\
\t\t[--block|-b] [--non-block|-n] [--checksum]\n\
\t\t[--non-direct|-D] [--verbose|-v]\n\
\t\t[--restripe] [--stats]\n\
\t\t-0|--null|--files-from=LIST_FILE|FILENAME ...\n\
\n\
";
