//! The complete layout of a new file, resolved from all levels; plain or composite.
//!
//! The first level that specifies anything determines whether the layout is plain or composite: the
//! user, the directory, or the root directory. It replaces composite layouts of later levels as a
//! whole, and a composite layout replaces all later levels. As in Lustre, values that are left
//! open come from:
//!
//! * the user's request: the file system's defaults. Only the pool is inherited from the default
//!   that would otherwise apply; from a composite one, its first pool.
//! * a composite default: the file system's defaults.
//! * a plain default of the directory: a plain default of the root, then the file system's
//!   defaults.
//!
//! Sizes are then adapted to the components, as in Lustre:
//!
//! * An unspecified stripe size is reduced until it divides the component's end.
//! * Stripes that would stay empty in a short component are omitted.
//! * Data on the MDT ends at the MDT's limit.

use sheen_wire::Fid;

use crate::{
    Asked, Count, Defaults, Layout, LayoutError, Pool, STRIPE_SIZE_UNIT, Spec, Stripe, Template, TemplateComponent,
    Wanted, resolve,
    template::{stripe_size_within, stripes_within},
};

/// A complete layout request: an [`Asked`] in which only the choice of OSTs is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WantedLayout {
    /// The same parameters for the whole file.
    Plain(Wanted),
    /// Components by mirror, then by offset. Each mirror begins with a component that starts at
    /// 0.
    Composite(Vec<WantedComponent>),
}

/// A range of the file, and how its bytes are stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedComponent {
    /// First byte.
    pub start: u64,
    /// Byte after the last; `u64::MAX` for no end.
    pub end: u64,
    /// Flags of [`crate::flags::ASKABLE`].
    pub flags: u32,
    /// Storage of the bytes.
    pub holds: Holds,
}

/// Storage of a component's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holds {
    /// Objects on OSTs.
    Objects(Wanted),
    /// The MDT.
    Mdt,
    /// None: an extension. The component before it, which has these parameters, grows by this
    /// number of bytes at a time.
    Extension(u64, Wanted),
}

impl WantedLayout {
    /// Returns the parameters of the components that get objects at the creation of the file: the
    /// first component of each mirror, unless it is on the MDT. Each has the component's position.
    pub fn first(&self) -> Vec<(usize, &Wanted)> {
        match self {
            WantedLayout::Plain(wanted) => vec![(0, wanted)],
            WantedLayout::Composite(components) => {
                components.iter().enumerate().filter(|(_, c)| c.start == 0).filter_map(objects).collect()
            }
        }
    }

    /// Returns the parameters of all components that are placed on OSTs, now or later.
    pub fn all(&self) -> Vec<(usize, &Wanted)> {
        match self {
            WantedLayout::Plain(wanted) => vec![(0, wanted)],
            WantedLayout::Composite(components) => components.iter().enumerate().filter_map(objects).collect(),
        }
    }

    /// Creates the layout of `file`, with the objects of each of [`WantedLayout::first`].
    ///
    /// # Errors
    /// EINVAL if other objects are given. ERANGE if the layout is too large.
    pub fn layout(&self, file: Fid, objects: Vec<(usize, Vec<Stripe>)>) -> Result<Layout, LayoutError> {
        match self {
            WantedLayout::Plain(wanted) => {
                let stripes = objects.into_iter().next().map(|(_, stripes)| stripes).unwrap_or_default();
                Layout::new(file, wanted.stripe_size, wanted.pool.clone(), stripes)
            }
            WantedLayout::Composite(components) => Layout::from_template(file, components, objects),
        }
    }
}

fn objects((at, c): (usize, &WantedComponent)) -> Option<(usize, &Wanted)> {
    match &c.holds {
        Holds::Objects(wanted) => Some((at, wanted)),
        _ => None,
    }
}

/// Fills the unspecified parameters of `asked`. All requests must have passed [`Asked::check`].
/// Data on the MDT is limited to `mdt_bytes_max`, rounded down to 64 KiB (Lustre's
/// `dom_stripesize`). With 0, no data goes to the MDT.
pub fn resolve_asked(
    asked: &Asked,
    directory: Option<&Asked>,
    root: Option<&Asked>,
    defaults: &Defaults,
    mdt_bytes_max: u64,
) -> WantedLayout {
    let nothing = Spec::default();
    if !asked.is_default() {
        let pool = inherited_pool(directory, root);
        return match asked {
            Asked::Composite(template) => WantedLayout::Composite(template.resolve(pool, defaults, mdt_bytes_max)),
            Asked::Plain(spec) => WantedLayout::Plain(resolve(spec, Some(&Spec { pool, ..nothing }), None, defaults)),
        };
    }
    let mut levels = [directory, root].into_iter().flatten();
    match levels.next() {
        Some(Asked::Composite(template)) => WantedLayout::Composite(template.resolve(None, defaults, mdt_bytes_max)),
        Some(Asked::Plain(first)) => {
            let next = levels.next().and_then(Asked::plain);
            WantedLayout::Plain(resolve(&nothing, Some(first), next, defaults))
        }
        None => WantedLayout::Plain(resolve(&nothing, None, None, defaults)),
    }
}

/// Returns the pool that a user's request inherits. A plain root completes a plain directory.
fn inherited_pool(directory: Option<&Asked>, root: Option<&Asked>) -> Option<Pool> {
    match (directory, root) {
        (Some(Asked::Plain(directory)), Some(Asked::Plain(root))) => directory.pool.as_ref().or(root.pool.as_ref()),
        (Some(default), _) | (None, Some(default)) => default.pools().next(),
        (None, None) => None,
    }
    .cloned()
}

impl Template {
    /// See [`resolve_asked`]. `pool` is that of components that specify none.
    fn resolve(&self, pool: Option<Pool>, defaults: &Defaults, mdt_bytes_max: u64) -> Vec<WantedComponent> {
        let mut wanted: Vec<WantedComponent> = Vec::with_capacity(self.components.len());
        let asked = cut_mdt(&self.components, mdt_bytes_max - mdt_bytes_max % u64::from(STRIPE_SIZE_UNIT));
        for (i, c) in asked.iter().enumerate() {
            let grows = asked.get(i + 1).is_some_and(TemplateComponent::is_extension);
            let before = wanted.last().map(|w| &w.holds);
            let holds = match (c.extension_size, before) {
                (Some(size), Some(Holds::Objects(before))) => Holds::Extension(size, before.clone()),
                _ if c.is_on_mdt() => Holds::Mdt,
                _ => Holds::Objects(c.stripes(pool.as_ref(), defaults, grows)),
            };
            wanted.push(WantedComponent { start: c.start, end: c.end, flags: c.flags, holds });
        }
        wanted
    }
}

impl TemplateComponent {
    fn stripes(&self, pool: Option<&Pool>, defaults: &Defaults, grows: bool) -> Wanted {
        let spec = &self.spec;
        let stripe_size = spec.stripe_size.unwrap_or_else(|| stripe_size_within(self.end, defaults.stripe_size));
        let fitting = stripes_within(self.start, self.end, stripe_size).filter(|_| !grows).unwrap_or(u16::MAX);
        let count = match (spec.osts.len(), spec.count.unwrap_or(defaults.count)) {
            (0, Count::Stripes(n)) => Count::Stripes(n.min(fitting)),
            (0, count) => count,
            (n, _) => Count::Stripes(n as u16),
        };
        Wanted {
            stripe_size,
            count,
            overstripe: spec.overstripe,
            start: spec.start,
            osts: spec.osts.clone(),
            pool: spec.pool.as_ref().or(pool).cloned(),
            room: if grows { self.end - self.start } else { 0 },
        }
    }
}

/// Limits Data-on-MDT components to `max` bytes; the component behind them then begins there. If
/// `max` is 0, that component begins the file. If there is none, the whole file is stored in
/// objects.
fn cut_mdt(components: &[TemplateComponent], max: u64) -> Vec<TemplateComponent> {
    let mut out: Vec<TemplateComponent> = Vec::with_capacity(components.len());
    let mut cut: Option<(u64, u64)> = None;
    let mut rest = components.iter().cloned().peekable();
    while let Some(mut c) = rest.next() {
        if let Some((end, now)) = cut.take()
            && c.start == end
        {
            c.start = now;
        }
        if c.is_on_mdt() && c.end > max {
            let followed = rest.peek().is_some_and(|next| next.start == c.end);
            cut = followed.then_some((c.end, max));
            if max == 0 && followed {
                continue;
            }
            match max {
                0 => c = TemplateComponent { flags: c.flags, ..TemplateComponent::striped(0, c.end, Spec::default()) },
                _ => c.end = max,
            }
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests;
