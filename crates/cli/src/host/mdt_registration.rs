//! The wait for the MGS's reply to the registration of an MDT.

use sheen_mds::Mdt;
use sheen_wire::Errno;

use crate::error::{Failure, Result};

/// Waits until the MGS has registered an MDT. `check`: advice if it has registered another one in
/// its place.
///
/// # Errors
/// The MGS refuses the MDT, or the MDT stops before.
pub(super) async fn registered(mdt: &Mdt, check: &str) -> Result {
    mdt.registered().await.map_err(|errno| refused(mdt.name(), errno, check))
}

fn refused(mdt: &str, errno: Errno, check: &str) -> Failure {
    let failure = Failure::new(format!("the MGS refused to register {mdt}: {errno}"));
    match errno {
        Errno::ESHUTDOWN => Failure::new(format!("{mdt} stopped before the MGS registered it")),
        Errno::EEXIST => failure.advise(format!("another MDT of this file system is registered; {check}")),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_mdt_is_reported_with_advice_if_another_one_is_registered() {
        let text = |errno| refused("sheen-MDT0000", errno, "check --dir").to_string();
        let other = text(Errno::EEXIST);
        assert!(other.ends_with("\n  another MDT of this file system is registered; check --dir"), "{other}");
        assert_eq!(text(Errno::ESHUTDOWN), "sheen-MDT0000 stopped before the MGS registered it");
        assert_eq!(text(Errno::EIO), format!("the MGS refused to register sheen-MDT0000: {}", Errno::EIO));
    }
}
