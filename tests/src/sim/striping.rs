//! How files of the simulation are striped: plainly, overstriped, and by ranges of the file that
//! are small enough for writes to cross; where the MDT has a data service the first of them may lie
//! there.

use std::fmt;

use sheen_layout::{Asked, Component, Count, Layout, Spec, Template, TemplateComponent};

use super::OSSES;

/// Most ranges.
const PARTS_MAX: usize = 3;
/// No end.
const EOF: u64 = u64::MAX;
const K: u64 = 1 << 10;
/// By which a range grows that grows by itself: it does so once, as soon as it is written into.
const EXTENSION: u64 = 64 << 20;

/// A range of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Byte after its last, [`u64::MAX`] for no end.
    pub end: u64,
    /// Stripes; 0: there is no such range.
    pub count: u16,
    /// Bytes of a stripe.
    pub size: u32,
    /// Where its bytes are.
    pub kind: Kind,
}

/// Where the bytes of a range are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// On OSTs.
    Striped,
    /// On OSTs; it grows by itself.
    Growing,
    /// On the MDT.
    OnMdt,
}

/// How a file is striped, or those made in a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Striping {
    /// In order, those that there are before those that there are not. A single one is the whole
    /// file, of a plain layout.
    parts: [Part; PARTS_MAX],
}

const fn part(end: u64, count: u16, size: u64) -> Part {
    Part { end, count, size: size as u32, kind: Kind::Striped }
}

const fn growing(count: u16, size: u64) -> Part {
    Part { kind: Kind::Growing, ..part(EOF, count, size) }
}

const fn on_mdt(end: u64) -> Part {
    Part { kind: Kind::OnMdt, ..part(end, 1, end) }
}

const NONE: Part = part(EOF, 0, 0);

/// Stripings that are asked for. No range is too short for its stripes; the sizes of those before
/// one that grows are others than its.
pub const STRIPINGS: [Striping; 12] = [
    Striping::plain(1, 64 * K),
    Striping::plain(2, 64 * K),
    Striping::plain(3, 128 * K),
    Striping::plain(4, 64 * K),
    Striping::plain(7, 64 * K),
    Striping::plain(8, 192 * K),
    Striping { parts: [part(64 * K, 1, 64 * K), part(192 * K, 2, 64 * K), part(EOF, 4, 64 * K)] },
    Striping { parts: [part(64 * K, 1, 64 * K), part(256 * K, 3, 64 * K), part(EOF, 8, 64 * K)] },
    Striping { parts: [part(128 * K, 2, 64 * K), part(EOF, 3, 128 * K), NONE] },
    Striping { parts: [part(128 * K, 1, 128 * K), part(192 * K, 1, 64 * K), part(EOF, 7, 64 * K)] },
    Striping { parts: [part(128 * K, 1, 64 * K), growing(2, 128 * K), NONE] },
    Striping { parts: [part(64 * K, 1, 64 * K), part(256 * K, 1, 128 * K), growing(1, 64 * K)] },
];

/// Those that are asked for where the MDT has a data service, as well.
pub const ON_MDT: [Striping; 4] = [
    Striping { parts: [on_mdt(64 * K), part(EOF, 1, 64 * K), NONE] },
    Striping { parts: [on_mdt(64 * K), part(192 * K, 2, 64 * K), part(EOF, 4, 64 * K)] },
    Striping { parts: [on_mdt(128 * K), part(EOF, 7, 64 * K), NONE] },
    Striping { parts: [on_mdt(64 * K), part(256 * K, 1, 64 * K), growing(2, 128 * K)] },
];

impl Striping {
    /// What nobody asked for.
    pub const DEFAULT: Striping = Striping::plain(1, sheen_layout::STRIPE_SIZE_DEFAULT as u64);

    /// The same for the whole file.
    const fn plain(count: u16, size: u64) -> Striping {
        Striping { parts: [part(EOF, count, size), NONE, NONE] }
    }

    /// Its ranges.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.count > 0)
    }

    /// Whether one of them grows by itself.
    pub fn grows(&self) -> bool {
        self.parts().any(|part| part.kind == Kind::Growing)
    }

    /// Whether it has several.
    pub fn is_composite(&self) -> bool {
        self.parts().count() > 1
    }

    /// Whether bytes of one file lie in several objects, if there are so many OSTs.
    pub fn spreads(&self, osts: usize) -> bool {
        self.is_composite() || osts > 1 && self.parts().any(|part| part.count > 1)
    }

    /// What a user asks for; more stripes than OSTs overstripe.
    pub fn asked(&self) -> Asked {
        if !self.is_composite() {
            return Asked::Plain(self.parts[0].spec());
        }
        Asked::Composite(Template::new(self.components()))
    }

    /// What a user asks for who wants a mirror each.
    pub fn mirrors(all: &[Striping]) -> Asked {
        let components = all.iter().flat_map(Striping::components).collect();
        Asked::Composite(Template { components, mirrors: all.len() as u16 })
    }

    fn components(&self) -> Vec<TemplateComponent> {
        let (mut start, mut components) = (0, Vec::new());
        for part in self.parts() {
            let component = TemplateComponent::striped(start, part.end, part.spec());
            match part.kind {
                Kind::OnMdt => components.push(TemplateComponent::on_mdt(part.end)),
                Kind::Growing => components.extend(component.extendable(EXTENSION)),
                Kind::Striped => components.push(component),
            }
            start = part.end;
        }
        components
    }

    /// What a directory passes on. `None`: nothing that was asked for.
    pub fn of_asked(asked: &Asked) -> Option<Striping> {
        STRIPINGS.into_iter().chain(ON_MDT).find(|striping| striping.asked() == *asked)
    }

    /// A file's. Extensions count as part of what grows into them, and so does what was repeated
    /// because it could not grow where it was.
    ///
    /// # Panics
    /// If no such striping can be asked for.
    pub fn of_layout(layout: &Layout) -> Striping {
        let grows = layout.components().iter().any(Component::is_extension);
        let mut parts: Vec<Part> = Vec::new();
        for c in layout.components() {
            match parts.last_mut() {
                Some(last) if c.is_extension() => (last.end, last.kind) = (c.end, Kind::Growing),
                None if c.is_on_mdt() => parts.push(on_mdt(c.end)),
                Some(last) if grows && last.size == c.stripe_size => last.end = c.end,
                _ => parts.push(part(c.end, c.stripe_count, u64::from(c.stripe_size))),
            }
        }
        let mut found = Striping { parts: [NONE; PARTS_MAX] };
        assert!(parts.len() <= PARTS_MAX, "{layout:?} was never asked for");
        found.parts[..parts.len()].copy_from_slice(&parts);
        found
    }

    /// The same, whatever the number of stripes.
    pub fn without_counts(mut self) -> Striping {
        self.parts.iter_mut().for_each(|part| part.count = part.count.min(1));
        self
    }
}

impl Part {
    fn spec(&self) -> Spec {
        Spec {
            stripe_size: Some(self.size),
            count: Some(Count::Stripes(self.count)),
            overstripe: usize::from(self.count) > OSSES.len(),
            ..Spec::default()
        }
    }
}

impl fmt::Debug for Striping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Part { end, count, size, kind } in self.parts() {
            match kind {
                Kind::Striped => write!(f, "[{count} x {size}")?,
                Kind::Growing => write!(f, "[{count} x {size} growing")?,
                Kind::OnMdt => write!(f, "[on the MDT")?,
            }
            if *end < EOF { write!(f, " to {end}]")? } else { write!(f, "]")? }
        }
        Ok(())
    }
}
