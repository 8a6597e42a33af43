//! The options of `lfs migrate`: those of `setstripe`, and its own.

use super::{
    super::{
        getopt::{self, Value},
        pace,
        setdirstripe::mdt_list,
        setstripe::{LAYOUT_LONG, Wrong},
    },
    job::Job,
};

/// Lustre's options.
pub const OPTIONS: getopt::Spec = getopt::Spec {
    short: "0AbBc:C:dDE:hi:I:L:m:nN::o:p:s:S:vW:x:y:z:",
    long: &getopt::join::<{ LAYOUT_LONG.len() + OWN_LONG.len() }>(LAYOUT_LONG, OWN_LONG),
};

/// The long options that only `migrate` has.
const OWN_LONG: &[getopt::Long] = &[
    ("auto", Value::No, "A"),
    ("auto-stripe", Value::No, "A"),
    ("block", Value::No, "b"),
    ("non-block", Value::No, "n"),
    ("non-direct", Value::No, "D"),
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
];

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
