//! The parts of an MDT's state. None of them knows the MDT; the operations and tasks above do.

pub(crate) mod authors;
pub(crate) mod changelog_readers;
pub(crate) mod commits;
pub(crate) mod core;
pub(crate) mod data_service;
pub(crate) mod destroyer;
pub(crate) mod fences;
pub(crate) mod lfsck;
pub(crate) mod locks;
pub(crate) mod nodemaps;
pub(crate) mod osp;
pub(crate) mod osts;
pub(crate) mod quota;
pub(crate) mod quotas;
pub(crate) mod recovery;
pub(crate) mod relayouts;
pub(crate) mod repairs;
pub(crate) mod reserve;
pub(crate) mod sequences;
