//! A component in the form in which it is printed.

use sheen_layout::{
    Component, Pattern, SEL_UNIT, Spec, TemplateComponent,
    codec::{Magic, OBJECT_BYTES, V1_BYTES, V3_BYTES},
};
use sheen_wire::Fid;

use super::super::getstripe::flag;

/// A component, or the whole of a plain layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ComponentView {
    /// Component id; 0 in a plain layout and in a directory's default.
    pub id: u32,
    /// Lustre's `LCME_FL_*`.
    pub flags: u32,
    /// First byte.
    pub start: u64,
    /// Byte after the last; `u64::MAX` for no end.
    pub end: u64,
    /// Time of the last resync in seconds since 1970; 0 for never.
    pub timestamp: u64,
    pub magic: Magic,
    /// Stripe count. -1: all OSTs; -2 to -32: that many stripes per OST.
    pub count: i32,
    /// Stripe size in bytes. In an extension: the extension size in bytes.
    pub size: u64,
    /// Layout pattern.
    pub pattern: Pattern,
    pub generation: u16,
    /// First OST; -1: any.
    pub offset: i32,
    pub pool: Option<String>,
    /// OST index and object of each stripe. The object is `None` if there is only a list of OSTs:
    /// in a directory's default and in a component without objects.
    pub objects: Vec<(u32, Option<Fid>)>,
}

impl ComponentView {
    pub fn of_component(c: &Component, plain: bool) -> ComponentView {
        let has_objects = plain || c.flags & flag::INIT != 0;
        let first = c.stripes.first().map(|s| s.ost as i32);
        // `layout_gen` shares its two bytes with the stripe offset. With objects they are the
        // generation, which the attribute shows as 0xffff. Without objects they are the first OST.
        let any = |raw: u16| if raw == u16::MAX { -1 } else { i32::from(raw) };
        let timestamp = c.entry_rest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let part = ComponentView {
            id: c.id,
            flags: c.flags,
            start: c.start,
            end: c.end,
            timestamp,
            magic: if c.pool.is_some() { Magic::V3 } else { Magic::V1 },
            count: if plain { c.stripes.len() as i32 } else { i32::from(c.stripe_count as i16) },
            size: u64::from(c.stripe_size),
            pattern: c.pattern,
            generation: if has_objects && c.layout_gen != u16::MAX { c.layout_gen } else { 0 },
            offset: first.unwrap_or(if has_objects { -1 } else { any(c.layout_gen) }),
            pool: c.pool.as_ref().map(|p| p.to_string()),
            objects: c.stripes.iter().map(|s| (s.ost, has_objects.then_some(s.object))).collect(),
        };
        if part.is_extension() { ComponentView { size: part.size * SEL_UNIT, ..part } } else { part }
    }

    pub fn of_template(c: &TemplateComponent) -> ComponentView {
        let part = ComponentView { flags: c.flags, start: c.start, end: c.end, ..ComponentView::of_spec(&c.spec) };
        match c.extension_size {
            Some(bytes) => ComponentView { size: bytes, ..part },
            None if c.is_on_mdt() => ComponentView { pattern: Pattern::MDT, size: c.end, ..part },
            None => part,
        }
    }

    pub fn of_spec(spec: &Spec) -> ComponentView {
        ComponentView {
            id: 0,
            flags: 0,
            start: 0,
            end: u64::MAX,
            timestamp: 0,
            magic: if spec.pool.is_some() { Magic::V3 } else { Magic::V1 },
            count: match spec.osts.len() {
                0 => spec.count.map_or(0, |c| c.to_number()),
                listed => listed as i32,
            },
            size: u64::from(spec.stripe_size.unwrap_or(0)),
            pattern: spec.pattern(),
            generation: 0,
            offset: spec.start.or(spec.osts.first().copied()).map_or(-1, |i| i as i32),
            pool: spec.pool.as_ref().map(|p| p.to_string()),
            objects: spec.osts.iter().map(|ost| (*ost, None)).collect(),
        }
    }

    /// Whether this is the extension space of the component before it.
    pub fn is_extension(&self) -> bool {
        self.flags & flag::EXTENSION != 0
    }

    /// Mirror id; 0 in a file without mirrors.
    pub fn mirror(&self) -> u32 {
        self.id >> 16
    }

    pub fn is_on(&self, ost: u32) -> bool {
        self.objects.iter().any(|(index, object)| *index == ost && object.is_some())
    }

    /// Returns the size in the binary form in bytes. As in Lustre, a file's component without
    /// objects has room for one.
    pub fn bytes(&self, is_dir: bool) -> usize {
        let head = if self.magic == Magic::V3 { V3_BYTES } else { V1_BYTES };
        let least = !is_dir && self.flags & flag::INIT == 0 && self.pattern != Pattern::MDT;
        head + self.objects.len().max(usize::from(least)) * OBJECT_BYTES
    }
}
