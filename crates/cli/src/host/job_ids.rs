//! `jobid_var` and `jobid_name`: how the mounts of a process name the jobs of programs.

use std::sync::Arc;

use sheen_mount::JobIds;
use sheen_params::{Param, Params};
use sheen_wire::Errno;

/// Registers the parameters.
pub(super) fn register(params: &Params, jobs: &Arc<JobIds>) {
    let checked = |is_valid: bool| if is_valid { Ok(()) } else { Err(Errno::EINVAL) };
    let (get, set) = (jobs.clone(), jobs.clone());
    params.register("jobid_var", Param::text_rw(move || get.var(), move |text| checked(set.set_var(text.trim()))));
    let (get, set) = (jobs.clone(), jobs.clone());
    params.register("jobid_name", Param::text_rw(move || get.name(), move |text| checked(set.set_name(text.trim()))));
}
