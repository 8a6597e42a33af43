//! The options of `lfs migrate`: those of `setstripe`, and its own.

use super::{
    super::{
        getopt::{self, Value},
        pace,
        setdirstripe::mdt_list,
        setstripe::Wrong,
    },
    job::Job,
};

/// Lustre's options.
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
        ("block", Value::No, "b"),
        ("non-block", Value::No, "n"),
        ("non-direct", Value::No, "D"),
        ("verbose", Value::No, "v"),
        ("restripe", Value::No, "restripe"),
        pace::LONG[0],
        pace::LONG[1],
        pace::LONG[2],
        pace::LONG[3],
        ("checksum", Value::No, "checksum"),
        ("null", Value::No, "0"),
        ("files-from", Value::Required, "files-from"),
        ("mdt-index", Value::Required, "m"),
        ("mdt", Value::Required, "m"),
    ],
};

impl Job {
    /// Takes an option. Returns `None` if it belongs to `setstripe`.
    pub fn option(&mut self, id: &str, value: Option<&str>) -> Option<Result<(), Wrong>> {
        match id {
            "b" => self.options.block = true,
            "n" => self.options.block = false,
            "D" => self.options.direct = false,
            "v" => self.verbose = true,
            "checksum" => self.options.checksum = true,
            "restripe" => {}
            "A" => self.auto = true,
            "m" => match mdt_list(value.unwrap_or_default(), self.mdts.len()) {
                Some(list) => self.mdts.extend(list),
                None => {
                    let text = format!("lfs migrate: invalid MDT target(s) '{}'", value.unwrap_or_default());
                    return Some(Err(Wrong::Call(text)));
                }
            },
            _ => match self.manner.option(id, value) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(wrong) => return Some(Err(Wrong::Call(format!("lfs migrate migrate: {wrong}")))),
            },
        }
        Some(Ok(()))
    }
}

/// `migrate`
pub const USAGE: &str = "\
migrate directories and their inodes between MDTs.\n\
usage: migrate --mdt-index|-m MDT_INDEX[,MDT_INDEX,...] [--verbose|-v] DIRECTORY ...\n\
\n\
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
\t\t[--restripe] [--stats] [--stats-interval SECONDS]\n\
\t\t-0|--null|--files-from=LIST_FILE|FILENAME ...\n\
\n\
";
