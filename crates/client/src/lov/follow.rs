//! Results of operations on several objects of which some were sealed meanwhile, and the lookup of
//! the new names of sealed objects.

use std::collections::BTreeMap;

use sheen_layout::Layout;
use sheen_rt::join::join_all;
use sheen_wire::{
    Bulk, Errno, Fid,
    ost::{Reply, Request},
};

use super::{Lov, split::by_ost};
use crate::failure::{Failure, Result};

/// Combines the results of requests that were sent together. [`Failure::MOVED`]: none was executed,
/// because objects are sealed. [`Failure::MOVED_PARTLY`]: some may have been executed.
pub(super) fn together(answers: Vec<Result<()>>) -> Result<()> {
    let is_moved = |answer: &Result<()>| answer.as_ref().is_err_and(Failure::is_moved);
    if !answers.iter().any(is_moved) {
        return answers.into_iter().collect();
    }
    let nothing = answers.iter().all(|answer| *answer == Err(Failure::MOVED));
    Err(Failure::LayoutMoved { partly: !nothing })
}

/// Adjusts the result of requests that followed others. `done`: whether some of those were
/// executed.
pub(super) fn after<T>(done: bool, answer: Result<T>) -> Result<T> {
    answer.map_err(|failure| if done && failure.is_moved() { Failure::MOVED_PARTLY } else { failure })
}

impl Lov {
    /// Returns the layout with the present names of its objects, even if another file has them now.
    ///
    /// # Errors
    /// MOVED: an object is sealed and has no new name. EAGAIN: an object has a new name, but is
    /// being sealed under it as well. Otherwise the error of an OST.
    pub async fn follow(&self, layout: &Layout) -> Result<Layout> {
        let groups = by_ost(layout, 0..layout.stripe_count())?;
        let calls = groups.into_iter().map(|(ost, stripes)| async move {
            let objects: Vec<Fid> = stripes.into_iter().map(|s| layout.stripes()[s].object).collect();
            match self.call(ost, Request::Follow { objects: objects.clone() }, Bulk::new()).await?.0 {
                Reply::Objects(now) if now.len() == objects.len() => {
                    Ok(objects.into_iter().zip(now).collect::<Vec<_>>())
                }
                _ => Err(Errno::EPROTO.into()),
            }
        });
        let names: Vec<_> = join_all(calls).await.into_iter().collect::<Result<_>>()?;
        let names: BTreeMap<Fid, Fid> = names.into_iter().flatten().collect();
        Ok(layout.renamed(&names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_results_distinguish_moved_from_moved_partly() {
        let moved = || Err(Failure::MOVED);
        let partly = || Err(Failure::MOVED_PARTLY);
        let full = || Err(Errno::ENOSPC.into());
        for (answers, all) in [
            (vec![Ok(()), Ok(())], Ok(())),
            (vec![moved(), moved()], moved()),
            (vec![moved(), Ok(())], partly()),
            (vec![moved(), full()], partly()),
            (vec![partly()], partly()),
            (vec![full(), Ok(())], full()),
        ] {
            assert_eq!(together(answers.clone()), all, "{answers:?}");
        }
        let adjusted = [after(true, moved()), after(false, moved()), after(true, full())];
        assert_eq!(adjusted, [partly(), moved(), full()]);
    }
}
