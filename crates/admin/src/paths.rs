//! Operations on paths that keep them as the user wrote them.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// Returns the directory that holds `path`.
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns `directory/name`, with a single slash between them.
pub fn join(directory: &Path, name: &OsStr) -> PathBuf {
    let mut path = directory.as_os_str().as_bytes().to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name.as_bytes());
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_of_and_join_handle_bare_names_and_slashes() {
        assert_eq!(parent_of(Path::new("f")), Path::new("."));
        assert_eq!(parent_of(Path::new("/f")), Path::new("/"));
        assert_eq!(join(Path::new("."), "f".as_ref()).as_os_str(), "./f");
        assert_eq!(join(Path::new("d/"), "f".as_ref()).as_os_str(), "d/f");
    }
}
