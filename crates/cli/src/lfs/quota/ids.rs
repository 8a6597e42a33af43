//! Users, groups and projects as users of `lfs quota` and `lfs setquota` name them.

use sheen_wire::{
    project,
    quota::{Id, Kind},
};

use super::super::host;

/// Returns Lustre's word for a kind.
pub fn short(kind: Kind) -> &'static str {
    match kind {
        Kind::User => "usr",
        Kind::Group => "grp",
        Kind::Project => "prj",
    }
}

/// Parses a name or a number. `u:USER` and `g:GROUP` stand for projects with their ids.
pub fn parse(kind: Kind, text: &str) -> Option<Id> {
    let id = match (kind, text.split_once(':')) {
        (Kind::User, _) => host::user(text)?,
        (Kind::Group, _) => host::group(text)?,
        (Kind::Project, Some(("u", name))) => host::user(name)?,
        (Kind::Project, Some(("g", name))) => host::group(name)?,
        (Kind::Project, _) => host::project(text)?,
    };
    // The next number means none, for users and groups as well.
    (id <= project::ID_MAX).then_some(Id { kind, id })
}

/// Returns the name of a user, a group or a project. `None`: it has none on this host.
pub fn name(id: Id) -> Option<String> {
    match id.kind {
        Kind::User => host::user_name(id.id),
        Kind::Group => host::group_name(id.id),
        Kind::Project => host::project_name(id.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_names_or_numbers() {
        for (kind, text, want) in [
            (Kind::User, "root", Some(0)),
            (Kind::User, "4000001000", Some(4_000_001_000)),
            (Kind::User, "4294967295", None),
            (Kind::User, "4294967296", None),
            (Kind::User, "-1", None),
            (Kind::User, "no such user", None),
            (Kind::Group, "root", Some(0)),
            (Kind::Project, "7", Some(7)),
            (Kind::User, "+5", None),
            (Kind::Project, "+5", None),
            (Kind::Project, "root", None),
            (Kind::Project, "u:root", Some(0)),
            (Kind::Project, "g:12", Some(12)),
            (Kind::Project, "x:1", None),
        ] {
            assert_eq!(parse(kind, text), want.map(|id| Id { kind, id }), "{kind:?} {text}");
        }
    }
}
