//! The file that passes the work before a stonewall from one run to the next: a number.

use std::{fs, fs::OpenOptions, io, path::Path};

use crate::output::named;

/// Reads the number.
///
/// # Errors
/// If the file cannot be read, or contains no number.
pub fn load(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path).map_err(|e| named("read", path, &e))?;
    text.trim().parse().map_err(|_| io::Error::other(format!("{}: expected a number", path.display())))
}

/// Writes the number.
///
/// # Errors
/// If the file cannot be written.
pub fn store(path: &Path, number: u64) -> io::Result<()> {
    fs::write(path, format!("{number}\n")).map_err(|e| named("write", path, &e))
}

/// Checks before a run that it can write the file, or read it.
///
/// # Errors
/// A message for the user.
pub fn check(path: Option<&Path>, write: bool) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let checked = if write {
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        opened.map(drop).map_err(|e| named("write", path, &e))
    } else {
        load(path).map(drop)
    };
    checked.map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status");
        assert!(check(Some(&path), false).unwrap_err().contains("cannot read"));
        check(Some(&path), true).unwrap();
        assert!(check(Some(&path), false).unwrap_err().contains("expected a number"));
        store(&path, 17).unwrap();
        check(Some(&path), true).unwrap();
        assert_eq!(load(&path).unwrap(), 17, "a check changes nothing");
        assert!(check(Some(dir.path()), true).unwrap_err().contains("cannot write"));
    }
}
