//! The layout that the job's files have at present.

use std::{collections::BTreeSet, path::Path};

use sheen_layout::{Asked, Count, Layout, Pattern, Spec};

use crate::{
    predict::{
        load::Workload,
        shape::{Shape, read_lov},
    },
    processes::mount_info,
};

/// Returns the layout of a file, or that of new files in a directory: of the component with most of
/// the bytes. `None`: these are on the MDT, or there is no layout of Sheen.
pub fn shape(path: &Path, workload: &Workload, osts: u32) -> Option<Shape> {
    let bytes = workload.size * if workload.files { 1 } else { u64::from(workload.tasks) };
    if path.is_file() {
        return Shape::of_files(&[path.to_owned()], bytes).map(|shape| Shape { all_osts: None, ..shape });
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

/// Returns a property of this layout that one of the adviser does not have.
pub fn loses(path: &Path) -> Option<&'static str> {
    if path.is_file() {
        return loses_of_file(&read_lov(path)?);
    }
    let root = mount_info(path).ok()?.mountpoint;
    loses_of_directory(&asked(path).or_else(|| asked(Path::new(&root)))?)
}

fn asked(dir: &Path) -> Option<Asked> {
    Asked::decode(&read_lov(dir)?).ok()
}

fn property(mirrors: usize, pool: bool) -> Option<&'static str> {
    match () {
        () if mirrors > 1 => Some("mirrors"),
        () if pool => Some("a pool"),
        () => None,
    }
}

fn loses_of_file(lov: &[u8]) -> Option<&'static str> {
    let layout = Layout::decode(lov).ok()?;
    property(layout.mirror_ids().len(), layout.components().iter().any(|part| part.pool.is_some()))
}

fn loses_of_directory(asked: &Asked) -> Option<&'static str> {
    match asked {
        Asked::Plain(spec) => property(1, spec.pool.is_some()),
        Asked::Composite(template) => {
            let pool = template.components.iter().any(|part| part.spec.pool.is_some());
            property(template.mirrors.into(), pool)
        }
    }
}

fn of_asked(asked: &Asked, default: &Spec, bytes: u64, osts: u32) -> Option<Shape> {
    let spec = match asked {
        Asked::Plain(spec) => spec,
        Asked::Composite(template) => {
            let parts = template.components.iter().filter(|part| part.extension_size.is_none());
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
    use sheen_layout::Pool;

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
        let pool = Spec { pool: Pool::new("fast").ok(), ..Spec::default() };
        assert_eq!(loses_of_directory(&Asked::Plain(pool)), Some("a pool"));
        assert_eq!((property(2, false), property(1, false)), (Some("mirrors"), None));
    }
}
