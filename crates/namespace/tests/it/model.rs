//! Random operations, compared with the simplest tree that can do them.

use std::collections::BTreeMap;

use crate::common::*;
use proptest::prelude::*;
use sheen_namespace::Config;
use sheen_wire::{
    Errno, Fid, FileKind, Result,
    fid::ROOT,
    mds::rename::{EXCHANGE, NOREPLACE},
};

/// Directories as maps from name to node; files as numbers.
#[derive(Default)]
struct Model {
    nodes: BTreeMap<Fid, Node>,
}

enum Node {
    File { nlink: u32 },
    Dir { parent: Fid, entries: BTreeMap<String, Fid> },
}

impl Model {
    fn dir(&mut self, fid: Fid) -> Result<&mut BTreeMap<String, Fid>> {
        match self.nodes.get_mut(&fid) {
            Some(Node::Dir { entries, .. }) => Ok(entries),
            Some(_) => Err(Errno::ENOTDIR),
            None => Err(Errno::ENOENT),
        }
    }

    fn is_dir(&self, fid: Fid) -> bool {
        matches!(self.nodes.get(&fid), Some(Node::Dir { .. }))
    }

    fn is_empty(&self, fid: Fid) -> bool {
        matches!(self.nodes.get(&fid), Some(Node::Dir { entries, .. }) if entries.is_empty())
    }

    fn find(&mut self, dir: Fid, name: &str) -> Result<Option<Fid>> {
        Ok(self.dir(dir)?.get(name).copied())
    }

    fn can_make(&mut self, dir: Fid, name: &str) -> Result<()> {
        if self.find(dir, name)?.is_some() { Err(Errno::EEXIST) } else { Ok(()) }
    }

    fn made(&mut self, dir: Fid, name: &str, fid: Fid, is_dir: bool) {
        let node = if is_dir { Node::Dir { parent: dir, entries: BTreeMap::new() } } else { Node::File { nlink: 1 } };
        self.nodes.insert(fid, node);
        self.dir(dir).unwrap().insert(name.into(), fid);
    }

    fn lose(&mut self, fid: Fid) {
        match self.nodes.get_mut(&fid) {
            Some(Node::File { nlink }) if *nlink > 1 => *nlink -= 1,
            _ => drop(self.nodes.remove(&fid)),
        }
    }

    fn remove(&mut self, dir: Fid, name: &str, want_dir: bool) -> Result<()> {
        let fid = self.find(dir, name)?.ok_or(Errno::ENOENT)?;
        match (want_dir, self.is_dir(fid)) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) if !self.is_empty(fid) => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.dir(dir)?.remove(name);
        self.lose(fid);
        Ok(())
    }

    fn link(&mut self, fid: Fid, dir: Fid, name: &str) -> Result<()> {
        self.can_make(dir, name)?;
        match self.nodes.get_mut(&fid) {
            Some(Node::File { nlink }) => *nlink += 1,
            Some(_) => return Err(Errno::EPERM),
            None => return Err(Errno::ENOENT),
        }
        self.dir(dir)?.insert(name.into(), fid);
        Ok(())
    }

    fn inside(&self, mut dir: Fid, above: Fid) -> bool {
        loop {
            match self.nodes.get(&dir) {
                _ if dir == above => return true,
                Some(Node::Dir { parent, .. }) if dir != ROOT => dir = *parent,
                _ => return false,
            }
        }
    }

    fn rename(&mut self, (d, n): (Fid, &str), (e, m): (Fid, &str), flags: u32) -> Result<()> {
        let source = self.find(d, n)?;
        let target = self.find(e, m)?;
        let source = source.ok_or(Errno::ENOENT)?;
        if target.is_some() && flags == NOREPLACE {
            return Err(Errno::EEXIST);
        }
        if target.is_none() && flags == EXCHANGE {
            return Err(Errno::ENOENT);
        }
        if self.is_dir(source) && self.inside(e, source) {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = target {
            if self.is_dir(target) && self.inside(d, target) {
                return Err(if flags == EXCHANGE { Errno::EINVAL } else { Errno::ENOTEMPTY });
            }
            if source == target {
                return Ok(());
            }
            if flags != EXCHANGE {
                match (self.is_dir(source), self.is_dir(target)) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) => return Err(Errno::EISDIR),
                    (true, true) if !self.is_empty(target) => return Err(Errno::ENOTEMPTY),
                    _ => {}
                }
                self.lose(target);
            }
        }
        self.dir(d)?.remove(n);
        self.dir(e)?.insert(m.into(), source);
        self.adopt(source, e);
        if let (Some(target), EXCHANGE) = (target, flags) {
            self.dir(d)?.insert(n.into(), target);
            self.adopt(target, d);
        }
        Ok(())
    }

    fn adopt(&mut self, fid: Fid, by: Fid) {
        if let Some(Node::Dir { parent, .. }) = self.nodes.get_mut(&fid) {
            *parent = by;
        }
    }

    /// Compares the whole file system with the whole model.
    fn compare(&mut self, fs: &mut Fs) {
        fs.check();
        assert_eq!(fs.ns.files(), self.nodes.len() as u64);
        for (fid, node) in &self.nodes {
            let attr = fs.attr(*fid);
            match node {
                Node::File { nlink } => assert_eq!((attr.kind, attr.nlink), (FileKind::Regular, *nlink)),
                Node::Dir { parent, entries } => {
                    assert_eq!(fs.ls(*fid), entries.keys().cloned().collect::<Vec<_>>());
                    assert_eq!(fs.lookup(&ROOT_CRED, *fid, "..").unwrap().fid, *parent);
                    for (name, at) in entries {
                        assert_eq!(fs.lookup(&ROOT_CRED, *fid, name).unwrap().fid, *at);
                    }
                }
            }
        }
    }
}

type At = (u8, u8);

#[derive(Clone, Debug)]
enum Op {
    Mkdir(At),
    Create(At),
    Unlink(At),
    Rmdir(At),
    Link(At, At),
    Rename(At, At, u32),
    Commit,
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let at = || (0..8u8, 0..5u8);
    prop_oneof![
        5 => at().prop_map(Op::Mkdir),
        5 => at().prop_map(Op::Create),
        3 => at().prop_map(Op::Unlink),
        3 => at().prop_map(Op::Rmdir),
        3 => (at(), at()).prop_map(|(a, b)| Op::Link(a, b)),
        8 => (at(), at(), 0..3u32).prop_map(|(a, b, f)| Op::Rename(a, b, f)),
        1 => Just(Op::Commit),
        1 => Just(Op::Restart),
    ]
}

fn run(ops: &[Op], config: Config) {
    let mut fs = Fs::on(Default::default(), config);
    let mut model = Model::default();
    model.nodes.insert(ROOT, Node::Dir { parent: ROOT, entries: BTreeMap::new() });
    // Every file ever created, so that operations also meet removed files, and files used as
    // directories.
    let mut fids = vec![ROOT];
    let c = &ROOT_CRED;
    for op in ops {
        let dir = |d: u8| fids[usize::from(d) % fids.len()];
        let name = |n: u8| format!("n{n}");
        match *op {
            Op::Mkdir((d, n)) => {
                let (dir, name) = (dir(d), name(n));
                let made = fs.mkdir(c, dir, &name, 0o755);
                assert_eq!(made.map(drop), model.can_make(dir, &name), "{op:?}");
                if let Ok(fid) = made {
                    model.made(dir, &name, fid, true);
                    fids.push(fid);
                }
            }
            Op::Create((d, n)) => {
                let (dir, name) = (dir(d), name(n));
                let made = fs.create(c, dir, &name, sheen_wire::mds::flags::EXCL, 0o644);
                assert_eq!(made.map(drop), model.can_make(dir, &name), "{op:?}");
                if let Ok(open) = made {
                    fs.close(open).unwrap();
                    model.made(dir, &name, open.0, false);
                    fids.push(open.0);
                }
            }
            Op::Unlink((d, n)) => {
                assert_eq!(fs.unlink(c, dir(d), &name(n)), model.remove(dir(d), &name(n), false), "{op:?}");
            }
            Op::Rmdir((d, n)) => {
                assert_eq!(fs.rmdir(c, dir(d), &name(n)), model.remove(dir(d), &name(n), true), "{op:?}");
            }
            Op::Link((f, _), (d, n)) => {
                let real = fs.link(c, dir(f), dir(d), &name(n)).map(drop);
                assert_eq!(real, model.link(dir(f), dir(d), &name(n)), "{op:?}");
            }
            Op::Rename((d, n), (e, m), flags) => {
                let real = fs.rename(c, (dir(d), &name(n)), (dir(e), &name(m)), flags);
                assert_eq!(real, model.rename((dir(d), &name(n)), (dir(e), &name(m)), flags), "{op:?}");
            }
            Op::Commit => fs.commit(),
            Op::Restart => {
                fs.commit();
                fs = fs.crash();
            }
        }
    }
    model.compare(&mut fs);
    fs.commit();
    model.compare(&mut fs.crash());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_agree_with_the_tree_model(ops in prop::collection::vec(op(), 1..200)) {
        run(&ops, Config::default());
    }

    /// Without caches every operation reads the layers and the store.
    #[test]
    fn random_operations_agree_with_the_tree_model_without_caches(ops in prop::collection::vec(op(), 1..100)) {
        run(&ops, Config { cache_bytes_max: 0, ..Config::default() });
    }

    /// With a hash of two bits nearly all names collide.
    #[test]
    fn random_operations_agree_with_the_tree_model_when_names_collide(ops in prop::collection::vec(op(), 1..100)) {
        run(&ops, Config { hash_bits: 2, ..Config::default() });
    }
}
