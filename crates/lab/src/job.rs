//! The jobs of tasks, of all tools.

use std::io;

use serde::{Deserialize, Serialize};

use crate::{ior, mdtest, team::Member};

/// The job of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    /// A task of IOR.
    Ior(ior::step::Job),
    /// A task of mdtest.
    Mdtest(mdtest::step::Job),
}

impl Job {
    /// Executes the job.
    ///
    /// # Errors
    /// Of the tool.
    pub fn work(&self, member: &mut Member) -> io::Result<()> {
        match self {
            Job::Ior(job) => ior::task::work(job, member),
            Job::Mdtest(job) => mdtest::task::work(job, member),
        }
    }
}
