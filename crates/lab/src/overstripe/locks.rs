//! The kind of the OSTs' locks. The end of a run takes it back.

use std::io;

use crate::{overstripe::args::Locks, program::Sheen};

/// Default of a mount's `lockless_write_kb`.
const LOCKLESS_KB: u32 = 256;

/// Parameters with the values that they had.
pub struct Saved<'a> {
    program: &'a Sheen,
    fsname: &'a str,
    values: Vec<(String, String)>,
}

impl<'a> Saved<'a> {
    /// Notes the values of a file system.
    ///
    /// # Errors
    /// No server or no mount of it is a process of the user on this host.
    pub fn new(program: &'a Sheen, fsname: &'a str) -> io::Result<Saved<'a>> {
        let mut values = Vec::new();
        for pattern in [of_osts(fsname, "lock_expand"), of_osts(fsname, "lock_adaptive"), of_mounts(fsname)] {
            values.extend(program.values(&pattern)?);
        }
        Ok(Saved { program, fsname, values })
    }

    /// Sets the kind of locks.
    ///
    /// # Errors
    /// A process refuses it.
    pub fn set(&self, locks: Locks) -> io::Result<()> {
        let switch = |name: &str, on: bool| self.program.set_param(&of_osts(self.fsname, name), u8::from(on));
        switch("lock_expand", locks != Locks::Exact)?;
        switch("lock_adaptive", locks == Locks::Adaptive)?;
        // Without adaptive locks, clients take locks for large writes, as Lustre's do. With them,
        // they leave that to the OST, as by default.
        let from_kb = if locks == Locks::Adaptive { LOCKLESS_KB } else { 0 };
        self.program.set_param(&of_mounts(self.fsname), from_kb)
    }
}

impl Drop for Saved<'_> {
    fn drop(&mut self) {
        for (name, value) in &self.values {
            if let Err(e) = self.program.set_param(name, value) {
                eprintln!("sheen lab: cannot set {name} back to {value}: {e}");
            }
        }
    }
}

fn of_osts(fsname: &str, name: &str) -> String {
    format!("ldlm.namespaces.filter-{fsname}-OST*.{name}")
}

fn of_mounts(fsname: &str) -> String {
    format!("llite.{fsname}-*.lockless_write_kb")
}
