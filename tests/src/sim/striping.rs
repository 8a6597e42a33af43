//! Layouts of files in the simulation: plain, overstriped and composite. The components are small
//! enough for writes to cross their boundaries. If the MDT has a data service, the first component
//! may be on the MDT.

use std::fmt;

use bytes::Bytes;
use sheen_client::{Caller, Client};
use sheen_layout::{Asked, Component, Count, Layout, Spec, Template, TemplateComponent};
use sheen_wire::{Errno, Fid};

use super::OSSES;

/// Extended attribute with the layout of a file, or with the default layout of a directory.
pub static LOV: Bytes = Bytes::from_static(b"lustre.lov");
/// Maximum number of components.
const PARTS_MAX: usize = 3;
/// End of a component without an end.
const EOF: u64 = u64::MAX;
const K: u64 = 1 << 10;
/// Extension size of a self-extending component. It extends once, at the first write into it.
const EXTENSION: u64 = 64 << 20;

/// A component.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its end (exclusive) in bytes, [`u64::MAX`] for no end.
    pub end: u64,
    /// Stripe count. 0: there is no such component.
    pub count: u16,
    /// Stripe size in bytes.
    pub size: u32,
    /// Location of its data.
    pub kind: Kind,
}

/// Location of a component's data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// On OSTs.
    Striped,
    /// On OSTs, self-extending.
    Growing,
    /// On the MDT.
    OnMdt,
}

/// Layout of a file, or default layout of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Striping {
    /// The components in order, followed by unused ones. A single component stands for a plain
    /// layout.
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

/// Layouts that the simulation requests. No component is shorter than its stripes. The components
/// before a self-extending one have other stripe sizes, so that [`Striping::of_layout`] can tell
/// them apart.
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

/// Further layouts that the simulation requests if the MDT has a data service.
pub const ON_MDT: [Striping; 4] = [
    Striping { parts: [on_mdt(64 * K), part(EOF, 1, 64 * K), NONE] },
    Striping { parts: [on_mdt(64 * K), part(192 * K, 2, 64 * K), part(EOF, 4, 64 * K)] },
    Striping { parts: [on_mdt(128 * K), part(EOF, 7, 64 * K), NONE] },
    Striping { parts: [on_mdt(64 * K), part(256 * K, 1, 64 * K), growing(2, 128 * K)] },
];

impl Striping {
    /// The layout of files for which none was requested.
    pub const DEFAULT: Striping = Striping::plain(1, sheen_layout::STRIPE_SIZE_DEFAULT as u64);

    /// Returns a plain layout.
    const fn plain(count: u16, size: u64) -> Striping {
        Striping { parts: [part(EOF, count, size), NONE, NONE] }
    }

    /// Returns the components.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.count > 0)
    }

    /// Returns whether a component is self-extending.
    pub fn grows(&self) -> bool {
        self.parts().any(|part| part.kind == Kind::Growing)
    }

    /// Returns whether there are several components.
    pub fn is_composite(&self) -> bool {
        self.parts().count() > 1
    }

    /// Returns whether a file may have data in several objects on a cluster with this many OSTs.
    pub fn spreads(&self, osts: usize) -> bool {
        self.is_composite() || osts > 1 && self.parts().any(|part| part.count > 1)
    }

    /// Returns the request for this layout. More stripes than OSTs are requested as overstriping.
    pub fn asked(&self) -> Asked {
        if !self.is_composite() {
            return Asked::Plain(self.parts[0].spec());
        }
        Asked::Composite(Template::new(self.components()))
    }

    /// Returns the request for a mirrored file with one mirror of each layout.
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

    /// Returns the striping of a directory's default layout. `None` if it is not one of the
    /// requested ones.
    pub fn of_asked(asked: &Asked) -> Option<Striping> {
        STRIPINGS.into_iter().chain(ON_MDT).find(|striping| striping.asked() == *asked)
    }

    /// Returns the striping of a file's layout. Extension components count as part of the component
    /// that extends into them. So does a component that the MDT repeated because it could not be
    /// extended on its OSTs.
    ///
    /// # Panics
    /// If the layout was never requested by the simulation.
    pub fn of_layout(layout: &Layout) -> Striping {
        let grows = layout.components().iter().any(Component::is_extension);
        let mut parts: Vec<Part> = Vec::new();
        for c in layout.components() {
            match parts.last_mut() {
                Some(last) if c.is_extension() => (last.end, last.kind) = (c.end, Kind::Growing),
                None if c.is_on_mdt() => parts.push(on_mdt(c.end)),
                Some(last) if grows && last.kind != Kind::OnMdt && last.size == c.stripe_size => last.end = c.end,
                _ => parts.push(part(c.end, c.stripe_count, u64::from(c.stripe_size))),
            }
        }
        let mut found = Striping { parts: [NONE; PARTS_MAX] };
        assert!(parts.len() <= PARTS_MAX, "{layout:?} was never asked for");
        found.parts[..parts.len()].copy_from_slice(&parts);
        found
    }

    /// Returns the same striping with all stripe counts 1.
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

/// Reads the layout of a file through a client.
///
/// # Errors
/// EBADMSG if the MDT returned no valid layout. Errors of the client.
pub async fn layout(client: &Client, fid: Fid) -> Result<Layout, Errno> {
    let value = client.getxattr(&Caller::ROOT, fid, &LOV).await?;
    Layout::decode(&value).map_err(|_| Errno::EBADMSG)
}
