//! Resolution of layout requests and stripe sizes, compared with files of Lustre.

use super::*;
use crate::{MDT_BYTES_DEFAULT, Pool};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const EOF: u64 = u64::MAX;

fn count(n: u16) -> Spec {
    Spec { count: Some(Count::Stripes(n)), ..Spec::default() }
}

fn template(parts: Vec<TemplateComponent>) -> Asked {
    let asked = Asked::Composite(Template::new(parts));
    asked.check().unwrap();
    asked
}

fn striped(start: u64, end: u64, spec: Spec) -> TemplateComponent {
    TemplateComponent::striped(start, end, spec)
}

fn resolved(asked: &Asked, directory: Option<&Asked>, root: Option<&Asked>) -> WantedLayout {
    resolve_asked(asked, directory, root, &Defaults::default(), MDT_BYTES_DEFAULT)
}

fn components(wanted: WantedLayout) -> Vec<WantedComponent> {
    match wanted {
        WantedLayout::Composite(components) => components,
        WantedLayout::Plain(wanted) => panic!("{wanted:?}"),
    }
}

fn plain(wanted: WantedLayout) -> Wanted {
    match wanted {
        WantedLayout::Plain(wanted) => wanted,
        WantedLayout::Composite(components) => panic!("{components:?}"),
    }
}

/// Start, end, stripe size, stripe count. The count is 0 for bytes without objects.
fn shape(components: &[WantedComponent]) -> Vec<(u64, u64, u64, i32)> {
    let one = |c: &WantedComponent| match &c.holds {
        Holds::Objects(w) => (c.start, c.end, u64::from(w.stripe_size), w.count.to_number()),
        Holds::Mdt => (c.start, c.end, 0, 0),
        Holds::Extension(size, _) => (c.start, c.end, *size, 0),
    };
    components.iter().map(one).collect()
}

#[test]
fn resolve_adapts_stripe_sizes_to_the_components() {
    let all = Spec { count: Some(Count::All), ..Spec::default() };
    let pfl = template(vec![striped(0, M, count(1)), striped(M, 4096 * M, count(4)), striped(4096 * M, EOF, all)]);
    let shapes = shape(&components(resolved(&pfl, None, None)));
    assert_eq!(shapes, [(0, M, M, 1), (M, 4096 * M, 4 * M, 4), (4096 * M, EOF, 4 * M, -1)]);
    // `-E 1M -E 4M -c 2 -E eof -c 4`: the second component has room for one stripe.
    let pfl4 =
        template(vec![striped(0, M, Spec::default()), striped(M, 4 * M, count(2)), striped(4 * M, EOF, count(4))]);
    let shapes = shape(&components(resolved(&pfl4, None, None)));
    assert_eq!(shapes, [(0, M, M, 1), (M, 4 * M, 4 * M, 1), (4 * M, EOF, 4 * M, 4)]);
    // The stripe size is the largest power of two that divides the end.
    let odd =
        template(vec![striped(0, 7 * M, count(8)), striped(7 * M, 14 * M, count(8)), striped(14 * M, EOF, count(8))]);
    let shapes = shape(&components(resolved(&odd, None, None)));
    assert_eq!(shapes, [(0, 7 * M, M, 7), (7 * M, 14 * M, 2 * M, 4), (14 * M, EOF, 4 * M, 8)]);
}

#[test]
fn resolve_takes_the_kind_from_the_first_level_that_specifies() {
    let composite = template(vec![striped(0, M, count(1)), striped(M, EOF, count(2))]);
    let other = template(vec![striped(0, EOF, count(3))]);
    let nothing = Asked::default();
    let eight = Asked::Plain(Spec { stripe_size: Some(65536), ..count(8) });
    assert_eq!(components(resolved(&nothing, Some(&composite), Some(&eight))).len(), 2);
    assert_eq!(components(resolved(&nothing, None, Some(&composite))).len(), 2);
    assert_eq!(components(resolved(&other, Some(&composite), None)).len(), 1);
    // A plain layout replaces a composite one wholly, and the levels behind that one as well.
    let sized = Asked::Plain(Spec { stripe_size: Some(1 << 20), ..Spec::default() });
    let w = plain(resolved(&sized, Some(&composite), Some(&eight)));
    assert_eq!((w.stripe_size, w.count), (1 << 20, Count::Stripes(1)));
    let w = plain(resolved(&nothing, Some(&sized), Some(&composite)));
    assert_eq!((w.stripe_size, w.count), (1 << 20, Count::Stripes(1)));
    // Plain defaults are combined by parameter, but a user's request is not completed by them.
    let w = plain(resolved(&nothing, Some(&sized), Some(&eight)));
    assert_eq!((w.stripe_size, w.count), (1 << 20, Count::Stripes(8)));
    for (directory, root) in [(Some(&eight), None), (None, Some(&eight))] {
        let w = plain(resolved(&sized, directory, root));
        assert_eq!((w.stripe_size, w.count), (1 << 20, Count::Stripes(1)));
    }
    let w = plain(resolved(&nothing, None, Some(&eight)));
    assert_eq!((w.stripe_size, w.count), (65536, Count::Stripes(8)));
    assert_eq!(plain(resolved(&nothing, None, None)).stripe_size, 4 << 20);
}

#[test]
fn users_composite_layout_inherits_the_pool_alone() {
    let pool = Pool::new("flash").unwrap();
    let with_pool = Spec { stripe_size: Some(1 << 20), pool: Some(pool.clone()), ..Spec::default() };
    let plain = Asked::Plain(Spec { osts: vec![2, 3], ..with_pool.clone() });
    let composite = template(vec![striped(0, M, count(1)), striped(M, EOF, with_pool)]);
    let none = Asked::Plain(count(2));
    let asked = template(vec![striped(0, 64 * M, Spec::default()), striped(64 * M, EOF, count(4))]);
    for (directory, root, want) in [
        (Some(&plain), None, Some(&pool)),
        (None, Some(&plain), Some(&pool)),
        (Some(&composite), None, Some(&pool)),
        (Some(&none), Some(&plain), Some(&pool)),
        (Some(&none), Some(&composite), None),
    ] {
        let all = resolved(&asked, directory, root);
        let wanted: Vec<&Wanted> = all.all().into_iter().map(|(_, w)| w).collect();
        assert!(wanted.iter().all(|w| w.stripe_size == 4 << 20 && w.osts.is_empty()), "{wanted:?}");
        assert!(wanted.iter().all(|w| w.pool.as_ref() == want), "{wanted:?}");
        assert_eq!([wanted[0].count, wanted[1].count], [Count::Stripes(1), Count::Stripes(4)]);
    }
    // A composite default is not completed by the root's.
    let all = resolved(&Asked::default(), Some(&asked), Some(&plain));
    assert!(all.all().into_iter().all(|(_, w)| w.stripe_size == 4 << 20 && w.pool.is_none()));
}

#[test]
fn resolve_limits_dom_components_to_the_mdt_limit() {
    let dom = |end| template(vec![TemplateComponent::on_mdt(end), striped(end, EOF, count(2))]);
    let with = |asked: &Asked, max| shape(&components(resolve_asked(asked, None, None, &Defaults::default(), max)));
    assert_eq!(with(&dom(64 * K), M), [(0, 64 * K, 0, 0), (64 * K, EOF, 4 * M, 2)]);
    assert_eq!(with(&dom(2 * M), M), [(0, M, 0, 0), (M, EOF, 4 * M, 2)]);
    assert_eq!(with(&dom(2 * M), M + 1), [(0, M, 0, 0), (M, EOF, 4 * M, 2)]);
    assert_eq!(with(&dom(2 * M), 0), [(0, EOF, 4 * M, 2)]);
    let alone = template(vec![TemplateComponent::on_mdt(2 * M)]);
    assert_eq!(with(&alone, M), [(0, M, 0, 0)]);
    assert_eq!(with(&alone, 0), [(0, 2 * M, 2 * M, 1)]);
    let endless = template(vec![TemplateComponent::on_mdt(EOF)]);
    assert_eq!(with(&endless, M), [(0, M, 0, 0)]);
}

#[test]
fn resolve_preserves_the_stripes_of_growing_components() {
    let grows = striped(0, EOF, Spec { stripe_size: Some(64 << 20), ..count(4) }).extendable(64 * M);
    let components = components(resolved(&template(grows), None, None));
    assert_eq!(shape(&components), [(0, 64 * M, 64 * M, 4), (64 * M, EOF, 64 * M, 0)]);
    assert!(matches!(&components[1].holds, Holds::Extension(_, w) if w.count == Count::Stripes(4)));
}

#[test]
fn first_returns_the_components_that_begin_a_mirror_on_osts() {
    let mirror = [striped(0, M, count(1)), striped(M, EOF, count(2))];
    let dom = [TemplateComponent::on_mdt(64 * K), striped(64 * K, EOF, count(1))];
    let asked = Asked::Composite(Template { components: [&mirror[..], &dom, &mirror].concat(), mirrors: 3 });
    asked.check().unwrap();
    let wanted = resolved(&asked, None, None);
    assert_eq!(wanted.first().into_iter().map(|(i, _)| i).collect::<Vec<_>>(), [0, 4]);
    assert_eq!(wanted.all().into_iter().map(|(i, _)| i).collect::<Vec<_>>(), [0, 1, 3, 4, 5]);
    let plain = WantedLayout::Plain(resolve(&count(2), None, None, &Defaults::default()));
    assert_eq!(plain.first().len(), 1);
}
