//! The layout that the job's files have at present: its shape, and the properties that a
//! recommended one retains.

use std::{collections::BTreeSet, path::Path};

use sheen_layout::{Asked, Count, Layout, Pattern, Pool, Spec, TemplateComponent, flags};

use crate::{
    predict::{
        load::Workload,
        shape::{JobLayout, Shape, read_lov},
    },
    processes::mount_info,
};

/// Returns the layout of a file, or that of new files in a directory: of the component with most of
/// the bytes. `None`: these are on the MDT, or there is no layout of Sheen.
pub fn shape(path: &Path, workload: &Workload, osts: u32) -> Option<Shape> {
    let bytes = workload.size * if workload.files { 1 } else { u64::from(workload.tasks) };
    if path.is_file() {
        let layout = JobLayout::of_files(&[path.to_owned()], bytes)?;
        return Some(Shape { all_osts: None, ..layout.shape });
    }
    let info = mount_info(path).ok()?;
    let default = Spec {
        stripe_size: Some(info.default_stripe_size),
        count: Count::from_number(info.default_stripe_count.into()).ok().flatten(),
        ..Spec::default()
    };
    let asked = asked(path).or_else(|| asked(Path::new(&info.mountpoint))).unwrap_or_default();
    of_asked(&asked, &default, bytes, osts)
}

/// Properties of a layout beside its shape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traits {
    /// Number of mirrors, at least 1.
    pub mirrors: u16,
    /// Number of mirrors that are up to date; all of a new file.
    pub fresh: u16,
    /// The pool; `None`: none, or several ones.
    pub pool: Option<String>,
    /// Whether parts of it are in several pools, or one in a pool and another one in none.
    pub several_pools: bool,
    /// Whether its mirrors have flags: some are preferred, or not resynced.
    pub flagged_mirrors: bool,
}

impl Traits {
    /// Those of a layout without mirrors and pools.
    pub const PLAIN: Traits = Traits { mirrors: 1, fresh: 1, pool: None, several_pools: false, flagged_mirrors: false };

    /// Returns those of the parts that have objects: the flags and the pool of each.
    fn of<'a>(mirrors: u16, fresh: u16, parts: impl Iterator<Item = (u32, Option<&'a Pool>)>) -> Traits {
        let (flags_of_parts, mut pools): (Vec<u32>, Vec<Option<&Pool>>) = parts.unzip();
        pools.dedup();
        let several_pools = pools.len() > 1;
        let pool = pools.first().copied().flatten().filter(|_| !several_pools);
        let flags_of_mirrors = flags::PREF_RD | flags::PREF_WR | flags::NOSYNC;
        Traits {
            mirrors: mirrors.max(1),
            fresh: fresh.max(1),
            pool: pool.map(|pool| pool.as_str().to_owned()),
            several_pools,
            flagged_mirrors: mirrors > 1 && flags_of_parts.iter().any(|flags| flags & flags_of_mirrors != 0),
        }
    }

    /// Returns a property that no recommended layout has. `asked_pool`: the user wants another
    /// pool.
    pub fn lost(&self, asked_pool: bool) -> Option<&'static str> {
        match () {
            () if self.several_pools && !asked_pool => Some("parts in different pools"),
            () if self.flagged_mirrors => Some("mirrors that are preferred, or not resynced"),
            () => None,
        }
    }
}

/// Returns the properties of the layout of a file, or of new files in a directory.
pub fn traits(path: &Path) -> Traits {
    if path.is_file() {
        let layout = read_lov(path).and_then(|lov| Layout::decode(&lov).ok());
        return layout.map_or(Traits::PLAIN, |layout| traits_of_file(&layout));
    }
    let root = mount_info(path).ok().and_then(|info| asked(Path::new(&info.mountpoint)));
    traits_of_directory(asked(path).as_ref(), root.as_ref())
}

fn asked(dir: &Path) -> Option<Asked> {
    Asked::decode(&read_lov(dir)?).ok()
}

fn traits_of_file(layout: &Layout) -> Traits {
    let parts = layout.components().iter().filter(|part| !part.is_on_mdt() && !part.is_extension());
    let mirrors = if layout.is_mirrored() { layout.mirrors().len() } else { 1 };
    let fresh = if layout.is_mirrored() { layout.fresh_mirrors().len() } else { 1 };
    // A file has at most 16.
    Traits::of(mirrors as u16, fresh as u16, parts.map(|part| (part.flags, part.pool.as_ref())))
}

/// `directory` and `root`: what they ask for.
fn traits_of_directory(directory: Option<&Asked>, root: Option<&Asked>) -> Traits {
    match directory.or(root) {
        // A plain request without a pool takes that of a plain request of the root.
        Some(Asked::Plain(spec)) => {
            let inherited = root.and_then(Asked::plain).and_then(|root| root.pool.as_ref());
            Traits::of(1, 1, std::iter::once((0, spec.pool.as_ref().or(inherited))))
        }
        Some(Asked::Composite(template)) => {
            let is_part = |part: &&TemplateComponent| !part.pattern.has(Pattern::MDT) && part.extension_size.is_none();
            let parts = template.components.iter().filter(is_part);
            Traits::of(template.mirrors, template.mirrors, parts.map(|part| (part.flags, part.spec.pool.as_ref())))
        }
        None => Traits::PLAIN,
    }
}

fn of_asked(asked: &Asked, default: &Spec, bytes: u64, osts: u32) -> Option<Shape> {
    let spec = match asked {
        Asked::Plain(spec) => spec,
        Asked::Composite(template) => {
            // All mirrors begin at 0. The first one is written.
            let mut first = true;
            let of_first = template.components.iter().take_while(|part| std::mem::take(&mut first) || part.start > 0);
            let parts = of_first.filter(|part| part.extension_size.is_none());
            let largest = parts.max_by_key(|part| part.end.min(bytes).saturating_sub(part.start))?;
            if largest.pattern.has(Pattern::MDT) {
                return None;
            }
            &largest.spec
        }
    };
    let stripes = match spec.count.or(default.count) {
        _ if !spec.osts.is_empty() => spec.osts.len() as u32,
        Some(Count::All) => osts,
        Some(Count::PerOst(each)) => u32::from(each).saturating_mul(osts),
        Some(Count::Stripes(count)) if spec.overstripe => count.into(),
        Some(Count::Stripes(count)) => u32::from(count).min(osts),
        None => 1,
    };
    let stripe_size = spec.stripe_size.or(default.stripe_size).filter(|size| *size > 0).unwrap_or(1 << 20);
    let named: BTreeSet<u32> = spec.osts.iter().copied().collect();
    let own_osts = if named.is_empty() { stripes.min(osts) } else { named.len() as u32 };
    // All files begin on the OST that the layout names.
    let all_osts = (spec.start.is_some() || !spec.osts.is_empty()).then_some(own_osts);
    Some(Shape { stripes, osts: own_osts, stripe_size: stripe_size.into(), all_osts })
}

#[cfg(test)]
mod tests {
    use sheen_layout::Template;

    use super::*;

    #[test]
    fn layout_of_new_files_follows_from_the_directory_and_its_defaults() {
        let default = Spec { stripe_size: Some(4 << 20), count: Some(Count::Stripes(1)), ..Spec::default() };
        let of = |spec: Spec| of_asked(&Asked::Plain(spec), &default, 1 << 30, 4).unwrap();
        let unset = of(Spec::default());
        assert_eq!((unset.stripes, unset.osts, unset.stripe_size, unset.all_osts), (1, 1, 4 << 20, None));
        let all = of(Spec { count: Some(Count::All), stripe_size: Some(1 << 20), ..Spec::default() });
        assert_eq!((all.stripes, all.osts, all.stripe_size), (4, 4, 1 << 20));
        assert_eq!(of(Spec { count: Some(Count::PerOst(2)), overstripe: true, ..Spec::default() }).stripes, 8);
        let many = Some(Count::Stripes(9));
        assert_eq!(of(Spec { count: many, ..Spec::default() }).stripes, 4, "as many as OSTs");
        assert_eq!(of(Spec { count: many, overstripe: true, ..Spec::default() }).stripes, 9);
        let named = of(Spec { start: Some(2), ..Spec::default() });
        assert_eq!(named.all_osts, Some(1), "all files on the named OST");
        let listed = of(Spec { osts: vec![0, 0, 0, 1], overstripe: true, ..Spec::default() });
        assert_eq!((listed.stripes, listed.osts, listed.all_osts), (4, 2, Some(2)));
    }

    fn part(start: u64, flags: u32, pool: &str, stripes: u16) -> TemplateComponent {
        let spec = Spec { pool: Pool::new(pool).ok(), count: Some(Count::Stripes(stripes)), ..Spec::default() };
        TemplateComponent { start, end: u64::MAX, flags, pattern: Pattern::RAID0, spec, extension_size: None }
    }

    fn composite(mirrors: u16, components: Vec<TemplateComponent>) -> Asked {
        Asked::Composite(Template { components, mirrors })
    }

    #[test]
    fn mirrors_and_the_pool_of_new_files_are_retained() {
        let fast = Spec { pool: Pool::new("fast").ok(), ..Spec::default() };
        let (fast, plain) = (Asked::Plain(fast), Asked::Plain(Spec::default()));
        let in_fast = Traits { pool: Some("fast".into()), ..Traits::PLAIN };
        assert_eq!(traits_of_directory(Some(&fast), None), in_fast);
        assert_eq!(traits_of_directory(Some(&plain), Some(&fast)), in_fast, "of the root");
        assert_eq!(traits_of_directory(None, None), Traits::PLAIN);
        let two = composite(2, vec![part(0, 0, "fast", 1), part(0, 0, "fast", 4)]);
        let of_two = traits_of_directory(Some(&two), None);
        assert_eq!(of_two, Traits { mirrors: 2, fresh: 2, ..in_fast });
        assert_eq!(of_two.lost(false), None);
        let shape = of_asked(&two, &Spec::default(), 1 << 30, 4).unwrap();
        assert_eq!(shape.stripes, 1, "the mirror that is written");
    }

    #[test]
    fn different_pools_and_flags_of_mirrors_cannot_be_retained() {
        let of = |asked: &Asked| traits_of_directory(Some(asked), None);
        let pools = of(&composite(2, vec![part(0, 0, "fast", 1), part(0, 0, "slow", 1)]));
        assert_eq!((pools.lost(false), pools.lost(true)), (Some("parts in different pools"), None));
        assert_eq!((pools.mirrors, pools.pool), (2, None));
        let some = of(&composite(1, vec![part(0, 0, "fast", 1), part(1 << 20, 0, "", 1)]));
        assert!(some.several_pools && some.pool.is_none());
        let flagged = of(&composite(2, vec![part(0, flags::PREF_RD, "", 1), part(0, 0, "", 1)]));
        assert!(flagged.lost(true).is_some());
        assert_eq!(of(&composite(1, vec![part(0, flags::PREF_RD, "", 1)])).lost(false), None, "no other mirror");
    }
}
