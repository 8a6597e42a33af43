//! Sets the recommended layout.

use std::path::Path;

use crate::program::Sheen;

/// Returns the command of `lfs` that sets a layout, without its path.
pub fn command<'a>(path: &Path, layout: &'a [String]) -> Vec<&'a str> {
    let verb = if path.is_file() { "migrate" } else { "setstripe" };
    ["lfs", verb].into_iter().chain(layout.iter().map(String::as_str)).collect()
}

/// Runs it: a directory gets the layout for new files, a file is migrated.
///
/// # Errors
/// A message for the user.
pub fn apply(path: &Path, layout: &[String]) -> Result<(), String> {
    let program = Sheen::here().map_err(|e| e.to_string())?;
    let path_word = path.to_string_lossy();
    let words = command(path, layout).into_iter().chain([path_word.as_ref()]);
    program.run(words).map(drop).map_err(|e| e.to_string())
}
