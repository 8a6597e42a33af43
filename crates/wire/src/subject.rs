//! The subject of a request: the user, and the file that the request is about. For records of
//! denied requests.

use bytes::Bytes;

use crate::{Cred, Fid, mds, ost};

/// The user and the file of a request, as far as it names them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Subject {
    /// The user and the group in the request's credentials. The service may replace them.
    pub cred: Option<(u32, u32)>,
    /// A file, an object, or the directory of `name`. The first one of several.
    pub fid: Option<Fid>,
    /// An entry of the directory, or an extended attribute of the file.
    pub name: Option<Bytes>,
}

impl Subject {
    fn of(cred: &Cred, fid: Fid, name: Option<&Bytes>) -> Subject {
        Subject { cred: Some((cred.uid, cred.gid)), fid: Some(fid), name: name.cloned() }
    }

    fn of_file(fid: Option<Fid>) -> Subject {
        Subject { fid, ..Subject::default() }
    }
}

impl mds::Request {
    /// Returns what the request is about.
    pub fn subject(&self) -> Subject {
        use mds::Request::*;
        match self {
            Lookup { cred, parent, name }
            | Create { cred, parent, name, .. }
            | OpenCreate { cred, parent, name, .. }
            | Unlink { cred, parent, name, .. }
            | Rename { cred, parent, name, .. }
            | Link { cred, parent, name, .. } => Subject::of(cred, *parent, Some(name)),
            GetXattr { cred, fid, name } | SetXattr { cred, fid, name, .. } | RemoveXattr { cred, fid, name } => {
                Subject::of(cred, *fid, Some(name))
            }
            TmpFile { cred, parent, .. } => Subject::of(cred, *parent, None),
            SetAttr { cred, fid, .. }
            | Access { cred, fid, .. }
            | Open { cred, fid, .. }
            | ListXattr { cred, fid }
            | Paths { cred, fid }
            | TakeLayout { cred, fid, .. } => Subject::of(cred, *fid, None),
            SwapLayouts { cred, fids: [fid, _], .. } => Subject::of(cred, *fid, None),
            GetAttr { fid, .. }
            | ReadLink { fid }
            | ReadDir { fid, .. }
            | Parents { fid }
            | LayoutIntent { fid, .. }
            | Capabilities { fid }
            | LayoutMoved { fid, .. } => Subject::of_file(Some(*fid)),
            Sync { fid } => Subject::of_file(*fid),
            Enqueue(lock) => Subject::of_file(Some(lock.resource.fid)),
            Close { files } => Subject::of_file(files.first().map(|file| file.fid)),
            Reopen { files, .. } => Subject::of_file(files.first().map(|file| file.fid)),
            _ => Subject::default(),
        }
    }
}

impl ost::Request {
    /// Returns what the request is about.
    pub fn subject(&self) -> Subject {
        use ost::Request::*;
        Subject::of_file(match self {
            Attrs { objects }
            | Sync { objects }
            | Destroy { objects }
            | Unseal { objects, .. }
            | Follow { objects }
            | Stored { objects } => objects.first().copied(),
            DestroyRange { seq, first, .. } => Some(Fid::new(*seq, *first)),
            Repair { object, .. } | Recreate { object, .. } => Some(*object),
            Seal { objects, .. } => objects.first().map(|(object, _)| *object),
            Link { objects, .. } => objects.first().map(|(object, _)| *object),
            _ => {
                let mut first = None;
                self.uses(|object, _| {
                    first.get_or_insert(object);
                });
                first
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Time,
        mds::flags,
        ost::{Change, Part},
    };

    #[test]
    fn subject_of_a_metadata_request_has_the_user_and_the_file() {
        let (parent, fid) = (Fid::new(7, 1), Fid::new(7, 2));
        let cred = Cred { uid: 1000, gid: 100, groups: None };
        let name = Bytes::from_static(b"name");
        let open = mds::Request::Open { cred: cred.clone(), fid, flags: flags::RDONLY };
        assert_eq!(open.subject(), Subject { cred: Some((1000, 100)), fid: Some(fid), name: None });
        let unlink = mds::Request::Unlink { cred, parent, name: name.clone(), dir: false };
        assert_eq!(unlink.subject(), Subject { cred: Some((1000, 100)), fid: Some(parent), name: Some(name) });
        let list = mds::Request::ReadDir { fid, cookie: 0, max_bytes: 1, attrs: false };
        assert_eq!(list.subject(), Subject { cred: None, fid: Some(fid), name: None });
        assert_eq!(mds::Request::StatFs.subject(), Subject::default());
    }

    #[test]
    fn subject_of_an_object_request_is_its_first_object() {
        let (first, second) = (Fid::new(9, 1), Fid::new(9, 2));
        let parts: Vec<Part> = [first, second].map(|object| Part { object, offset: 0, len: 1 }).into();
        let replayed = Change::Write { file: first, parts: parts.clone(), mtime: Time::default() };
        for request in [
            ost::Request::Read { parts },
            ost::Request::Replay { changes: vec![(1, replayed)], first: true, last: true },
            ost::Request::Destroy { objects: vec![first, second] },
            ost::Request::DestroyRange { seq: 9, first: 1, last: 2 },
            ost::Request::Link { objects: vec![(first, second)], order: 1 },
        ] {
            assert_eq!(request.subject(), Subject { fid: Some(first), ..Subject::default() }, "{request:?}");
        }
        assert_eq!(ost::Request::StatFs.subject(), Subject::default());
    }
}
