//! The epoch of an OST's data: a number that changes when answered writes may be lost that no sync
//! has made durable. That is so if the OST's host was restarted, or another host serves the OST,
//! and the OST had not been stopped in order.
//!
//! The file `DIR/epoch` has three words: the epoch, the boot of the host, and whether the OST was
//! stopped in order. Both numbers are hexadecimal.
//!
//! Invariant: the word `stopped` is in the file only while everything is durable and no process
//! writes.

use std::{
    io,
    path::{Path, PathBuf},
};

use sheen_rt::Rt;

/// Name of the file.
pub const EPOCH: &str = "epoch";
const STOPPED: &str = "stopped";
const SERVING: &str = "serving";
/// Stands for a boot that no host has.
const NO_BOOT: u64 = 0;

/// The epoch of an OST that is served.
pub struct Epoch {
    rt: Rt,
    path: PathBuf,
    number: u64,
    is_new: bool,
}

impl Epoch {
    /// Reads the epoch of the directory, or begins a new one.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn open(rt: &Rt, dir: &Path) -> io::Result<Epoch> {
        let path = dir.join(EPOCH);
        let before = match rt.disk().read(&path) {
            // Not a file of Sheen, or a damaged one: data may be lost as well.
            Ok(bytes) => Some(still_valid(&bytes, rt.boot_id())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        let (number, is_new) = match before {
            Some(Some(number)) => (number, false),
            Some(None) => (rt.random_u64(), true),
            // A new OST, or one of an earlier release, which used the boot itself.
            None => (rt.boot_id(), true),
        };
        let epoch = Epoch { rt: rt.clone(), path, number, is_new };
        epoch.write(SERVING)?;
        Ok(epoch)
    }

    /// Returns the number of the epoch.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the epoch began with this start.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Records that everything is durable and nothing will be written.
    ///
    /// # Errors
    /// The file cannot be written: the next start on another boot begins a new epoch.
    pub fn stopped(&self) -> io::Result<()> {
        self.write(STOPPED)
    }

    /// Records that data of this epoch may be lost already, because it could not be made durable.
    /// The next start begins another epoch, also in this boot.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn failed(&self) -> io::Result<()> {
        self.write_as(SERVING, NO_BOOT)
    }

    fn write(&self, state: &str) -> io::Result<()> {
        self.write_as(state, self.rt.boot_id())
    }

    fn write_as(&self, state: &str, boot: u64) -> io::Result<()> {
        let text = format!("{:016x} {boot:016x} {state}\n", self.number);
        self.rt.disk().write_atomic(&self.path, text.as_bytes())
    }
}

/// Returns the epoch in the file, if all of its data is still there in this boot.
fn still_valid(bytes: &[u8], boot: u64) -> Option<u64> {
    let mut words = str::from_utf8(bytes).ok()?.split_whitespace();
    let mut number = || u64::from_str_radix(words.next()?, 16).ok();
    let (epoch, of) = (number()?, number()?);
    (words.next()? == STOPPED || of == boot).then_some(epoch)
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    #[test]
    fn epoch_ends_with_the_boot_unless_the_ost_stopped_in_order() {
        let sim = Sim::new(1, SimConfig::default());
        sim.run(async {
            let dir = Path::new("/ost");
            sim.rt(1).disk().create_dir_all(dir).unwrap();
            sim.rt(1).disk().sync_fs("/").await.unwrap();
            let open = || Epoch::open(&sim.rt(1), dir).unwrap();
            let first = open().number();
            assert_eq!(open().number(), first, "the process was killed");
            sim.crash_host(1);
            let second = open();
            assert_ne!(second.number(), first);
            second.stopped().unwrap();
            sim.crash_host(1);
            let third = open();
            assert_eq!(third.number(), second.number(), "stopped in order");
            sim.crash_host(1);
            assert_ne!(open().number(), third.number());
            let fourth = open();
            fourth.failed().unwrap();
            assert_ne!(open().number(), fourth.number(), "a sync failed");
            sim.rt(1).disk().write_atomic(dir.join(EPOCH), b"damaged").unwrap();
            assert_ne!(open().number(), third.number());
        })
        .unwrap();
    }
}
