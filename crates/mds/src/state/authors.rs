//! Commit on sharing (Lustre's COS): a client that changes what another one has changed gets its
//! answer only when the other one's change is durable. So nothing that was answered depends on a
//! change that only another client could replay.
//!
//! A change depends on the changes of the files and names concerned. Names in one directory do not
//! depend on each other, but on the creation of the directory. The removal of a directory depends
//! on the changes of its entries.
//!
//! Invariant: there is an entry for every uncommitted change that was made with the switch on.

use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheen_namespace::Done;
use sheen_wire::{
    Fid,
    ldlm::bits,
    mds::{Reply, Request, flags},
};

/// The authors of the uncommitted changes.
#[derive(Debug, Default)]
pub(crate) struct Authors {
    of: FxHashMap<Key, Author>,
}

/// Something that has a last change.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    File(Fid),
    Name(Fid, Bytes),
    /// The entries of a directory.
    Entries(Fid),
}

/// The last change of something.
#[derive(Clone, Copy, Debug)]
struct Author {
    /// Export id of the client.
    client: u64,
    transno: u64,
    /// The last change before it by another client.
    other: Option<u64>,
}

impl Author {
    /// Returns the last change by another client than this one.
    fn other_than(&self, client: u64) -> Option<u64> {
        if self.client == client { self.other } else { Some(self.transno) }
    }
}

impl Authors {
    /// Records a request that this client has just made. Returns the last change of another client
    /// on which it depends.
    pub fn executed(&mut self, client: u64, request: &Request, done: &Done) -> Option<u64> {
        let names = names(request);
        let is_parent = |fid: Fid| names.iter().flatten().any(|(parent, _)| *parent == fid);
        let removes_dir = matches!(request, Request::Unlink { dir: true, .. } | Request::Rename { .. });
        let mut depends = to_write(request, done).and_then(|fid| self.last(client, &Key::File(fid)));
        if done.transno == 0 {
            return depends;
        }
        for (fid, bits) in &done.invalidations {
            let file = Key::File(*fid);
            if *bits == bits::UPDATE && is_parent(*fid) {
                depends = depends.max(self.last(client, &file));
                self.change(client, done.transno, Key::Entries(*fid));
            } else {
                if removes_dir {
                    depends = depends.max(self.last(client, &Key::Entries(*fid)));
                }
                depends = depends.max(self.change(client, done.transno, file));
            }
        }
        if let Some(fid) = created(request, done) {
            self.change(client, done.transno, Key::File(fid));
        }
        for (parent, name) in names.into_iter().flatten() {
            depends = depends.max(self.change(client, done.transno, Key::Name(parent, name.clone())));
        }
        depends
    }

    /// Returns the last change of something by another client.
    fn last(&self, client: u64, key: &Key) -> Option<u64> {
        self.of.get(key)?.other_than(client)
    }

    /// Records a change. Returns the last one by another client.
    fn change(&mut self, client: u64, transno: u64, key: Key) -> Option<u64> {
        let other = self.last(client, &key);
        self.of.insert(key, Author { client, transno, other });
        other
    }

    /// Forgets the changes up to this transno, which are durable.
    pub fn committed(&mut self, last: u64) {
        self.of.retain(|_, author| author.transno > last);
    }
}

/// Returns the names that a request adds or removes.
fn names(request: &Request) -> [Option<(Fid, &Bytes)>; 2] {
    use Request::*;
    match request {
        Create { parent, name, .. }
        | OpenCreate { parent, name, .. }
        | Unlink { parent, name, .. }
        | Link { parent, name, .. } => [Some((*parent, name)), None],
        Rename { parent, name, new_parent, new_name, .. } => [Some((*parent, name)), Some((*new_parent, new_name))],
        _ => [None, None],
    }
}

/// Returns the file that a request has opened for writing. Its data is lost if the file is.
fn to_write(request: &Request, done: &Done) -> Option<Fid> {
    let (Request::Open { flags, .. } | Request::OpenCreate { flags, .. }) = request else { return None };
    match &done.reply {
        Reply::Opened { entry, .. } if flags::writes(*flags) => Some(entry.attr.fid),
        _ => None,
    }
}

/// Returns the file that a request has created.
fn created(request: &Request, done: &Done) -> Option<Fid> {
    match (request, &done.reply) {
        (Request::Create { fid, .. } | Request::TmpFile { fid, .. }, _) => Some(*fid),
        (Request::OpenCreate { fid, .. }, Reply::Opened { created: true, .. }) => Some(*fid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheen_wire::{
        Attr, Cred, FileKind, Time,
        fid::ROOT,
        mds::{Entry, NewNode},
    };

    const DIR: Fid = Fid::new(7, 1);
    const FILE: Fid = Fid::new(7, 2);

    fn done(transno: u64, invalidations: &[(Fid, u64)]) -> Done {
        let (reply, time, orphan) = (Reply::Ok, Time::default(), None);
        Done { reply, transno, time, invalidations: invalidations.into(), orphan, repeated: false }
    }

    fn create(parent: Fid, name: &'static str, fid: Fid, node: NewNode) -> Request {
        Request::Create { cred: Cred::ROOT, parent, name: name.into(), fid, node, mode: 0o755, umask: 0 }
    }

    fn file(name: &'static str, fid: Fid) -> Request {
        create(DIR, name, fid, NewNode::Node { kind: FileKind::Fifo, rdev: 0 })
    }

    #[test]
    fn change_depends_on_another_clients_change_of_the_same_file_or_name() {
        let mut authors = Authors::default();
        let update = [(DIR, bits::UPDATE)];
        assert_eq!(authors.executed(1, &create(ROOT, "d", DIR, NewNode::Dir), &done(1, &[(ROOT, bits::UPDATE)])), None);
        assert_eq!(authors.executed(1, &file("a", FILE), &done(2, &update)), None, "its own directory");
        assert_eq!(authors.executed(2, &file("b", Fid::new(8, 1)), &done(3, &update)), Some(1), "the directory is new");
        authors.committed(1);
        assert_eq!(authors.executed(1, &file("c", Fid::new(7, 3)), &done(4, &update)), None, "another name");
        let unlink =
            |name: &'static str| Request::Unlink { cred: Cred::ROOT, parent: DIR, name: name.into(), dir: false };
        let removed = [(DIR, bits::UPDATE), (FILE, bits::LOOKUP | bits::UPDATE)];
        assert_eq!(authors.executed(2, &unlink("a"), &done(5, &removed)), Some(2));
        assert_eq!(authors.executed(1, &file("a", Fid::new(7, 4)), &done(6, &update)), Some(5), "the name was removed");
        assert_eq!(authors.executed(1, &file("a", Fid::new(7, 5)), &done(6, &update)), Some(5), "not durable yet");
        authors.committed(6);
        assert_eq!(authors.executed(2, &unlink("a"), &done(7, &removed)), None, "all is durable");
    }

    #[test]
    fn removal_of_a_directory_depends_on_other_clients_changes_of_its_entries() {
        let mut authors = Authors::default();
        let unlink =
            |parent, name: &'static str, dir| Request::Unlink { cred: Cred::ROOT, parent, name: name.into(), dir };
        let without = |fid| [(DIR, bits::UPDATE), (fid, bits::LOOKUP | bits::UPDATE)];
        assert_eq!(authors.executed(1, &unlink(DIR, "a", false), &done(3, &without(FILE))), None);
        assert_eq!(authors.executed(2, &unlink(DIR, "b", false), &done(4, &without(Fid::new(7, 3)))), None);
        let rmdir = unlink(ROOT, "d", true);
        let removed = [(ROOT, bits::UPDATE), (DIR, bits::LOOKUP | bits::UPDATE)];
        assert_eq!(authors.executed(2, &rmdir, &done(5, &removed)), Some(3));
    }

    #[test]
    fn open_for_writing_depends_on_another_clients_create() {
        let mut authors = Authors::default();
        authors.executed(1, &file("a", FILE), &done(3, &[(DIR, bits::UPDATE)]));
        let mut open = |client, flags| {
            let attr = Attr::new(FILE, FileKind::Regular, 0o644, Time::default());
            let entry = Entry { attr, layout: None, xattrs: false };
            let done = Done { reply: Reply::Opened { handle: 1, entry, created: false, tight: false }, ..done(0, &[]) };
            authors.executed(client, &Request::Open { cred: Cred::ROOT, fid: FILE, flags }, &done)
        };
        assert_eq!(open(2, flags::RDONLY), None);
        assert_eq!(open(2, flags::RDWR), Some(3));
        assert_eq!(open(1, flags::RDWR), None);
    }
}
