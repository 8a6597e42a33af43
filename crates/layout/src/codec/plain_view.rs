//! A composite layout as programs see it that know plain ones alone.
//!
//! MPI libraries read `lmm_stripe_size` and `lmm_stripe_count` where the plain forms have them,
//! whatever the magic number says, and divide by them. Lustre answers their ioctl with one
//! component (`lov_getstripe`), so Sheen does, too.

use super::encode_plain;
use crate::{Component, Count, Layout, STRIPES_MAX};

impl Layout {
    /// The bytes of a plain layout that stands for this one: of a plain layout,
    /// [`Layout::encode_xattr`]. Of a composite one, a component of its first mirror that is on
    /// OSTs: the last one with objects, or of an `empty` file the last one.
    ///
    /// `osts`: how many there are. A component without objects has their number if it is to have a
    /// stripe on each.
    pub fn encode_plain_view(&self, empty: bool, osts: usize) -> Vec<u8> {
        if self.is_plain() {
            return self.encode_xattr();
        }
        let mirror = self.components().first().map(Component::mirror_id);
        let of_mirror: Vec<&Component> = self.components().iter().filter(|c| Some(c.mirror_id()) == mirror).collect();
        let on_osts: Vec<&Component> =
            of_mirror.iter().copied().filter(|c| !c.is_on_mdt() && !c.is_extension()).collect();
        let written = on_osts.iter().rfind(|c| !empty && c.is_instantiated());
        let Some(&c) = written.or(on_osts.last()).or(of_mirror.last()) else { return Vec::new() };
        let stripes = c.objects().to_vec();
        let stripe_count = if stripes.is_empty() { stripes_to_come(c, osts) } else { c.stripe_count };
        let layout_gen = if stripes.is_empty() { c.layout_gen } else { u16::MAX };
        let mut out = Vec::new();
        encode_plain(&Component { stripes, stripe_count, ..c.clone() }, layout_gen, &mut out);
        out
    }
}

/// The stripes that a component without objects is to have; at least one.
fn stripes_to_come(c: &Component, osts: usize) -> u16 {
    let most = u16::try_from(osts.clamp(1, STRIPES_MAX)).unwrap_or(u16::MAX);
    match Count::from_raw(c.stripe_count) {
        None => 1,
        Some(Count::Stripes(n)) => n,
        Some(Count::All) => most,
        Some(Count::PerOst(n)) => n.saturating_mul(most),
    }
}
