//! Multiple-mount protection: at most one server at a time serves a directory on storage that
//! several hosts reach (Lustre's MMP). A local file lock does not suffice there, because other
//! hosts may not see it.
//!
//! The server that owns the directory rewrites a *heartbeat file* once a second. Each beat first
//! checks that the file still names this server, and gives it a *lease*: it may serve until
//! [`Times::lease`] after the beat began. Another server takes the directory over if the file does
//! not change for [`Times::observe`]. It writes its own name, waits [`Times::claim`], and serves if
//! the file still has its name then.
//!
//! Invariants:
//! * at each moment, at most one server has a lease;
//! * a server whose lease has ended, or that finds another name in the file, never serves again:
//!   [`Guard::lost`] resolves, and its process must end at once, without writing anything.
//!
//! A new owner does not wait if the former one was a process of the same boot of its host, and had
//! found its own name within the last lease. Nobody else can have completed a claim since.
//!
//! Why the first one holds: `lease < claim < observe`. The last beat of a former owner began after
//! it had read its own name, hence before the name was replaced. So its lease ends before `claim`
//! is over.
//!
//! Leases are measured by the time since the boot ([`sheen_rt::Rt::boot_time`]), which includes the
//! time for which a host is suspended. The waits of a new owner are not: that would shorten them.
//! [`Options::on_beat`] gets the end of the lease. The server looks at it before each reply and
//! each change of a file ([`sheen_rt::Rt::lease_until`]).
//!
//! A process that is halted between that look and the system call completes the call, and its
//! kernel writes what it had cached. No file can prevent this: it takes a fence (STONITH), as with
//! every such protection (docs/failover.md).

mod guard;
mod options;
mod record;
#[cfg(test)]
mod tests;

pub use guard::{Guard, Lost};
pub use options::{FailoverError, Options, Times, is_protected};
pub use record::Server;
