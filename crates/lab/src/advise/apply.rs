//! Sets the recommended layout.

use std::{
    io,
    path::Path,
    process::{Command, Stdio},
};

use crate::stop;

/// Returns the command of `lfs` that sets a layout, without its path.
fn words<'a>(path: &Path, layout: &'a [String]) -> Vec<&'a str> {
    let verb = if path.is_file() { "migrate" } else { "setstripe" };
    ["lfs", verb].into_iter().chain(layout.iter().map(String::as_str)).collect()
}

/// Returns the command as a user types it. `place`: the path in it.
pub fn command(path: &Path, layout: &[String], place: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=,@%".contains(c);
    let quoted = match place.chars().all(plain) {
        true => place.to_owned(),
        false => format!("'{}'", place.replace('\'', "'\\''")),
    };
    format!("{} {quoted}", words(path, layout).join(" "))
}

/// Sets the layout: a directory gets it for new files, a file is migrated. Ctrl-C also ends the
/// migration, which then changes nothing.
///
/// # Errors
/// It failed, or was interrupted.
pub fn apply(path: &Path, layout: &[String]) -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    let status = command.args(words(path, layout)).arg(path).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    stop::check()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other("the layout could not be set")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_can_be_pasted() {
        let layout = ["-c".to_owned(), "2".to_owned()];
        let of = |place: &str| command(Path::new("/"), &layout, place);
        assert_eq!(of("/mnt/a-b"), "lfs setstripe -c 2 /mnt/a-b");
        assert_eq!(of("it's here"), "lfs setstripe -c 2 'it'\\''s here'");
    }
}
