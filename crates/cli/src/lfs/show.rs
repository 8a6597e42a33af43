//! Layouts in the formats of `lfs getstripe`: labelled lines, the table of objects, YAML. A
//! composite layout has a header, followed by its components.
//!
//! The order of fields, their spacing, and the fields of a directory are Lustre's:
//! * A single field is printed without its label.
//! * The fields of a directory are on one line.
//! * If only a few fields of a composite layout are requested and no component is selected, they
//!   are those of its last component with objects.
//! * If a field that only components have is requested, a plain layout is shown as one component.

mod component_view;

use std::fmt::Write;

use sheen_layout::{
    Asked, Layout, Pattern, Spec,
    codec::{COMP_ENTRY_BYTES, COMP_HEADER_BYTES, Magic},
};
use sheen_wire::Fid;

pub use self::component_view::ComponentView;
use super::getstripe::{Selection, flag};

/// A set of fields to show, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fields(u32);

impl Fields {
    /// Number of stripes.
    pub const COUNT: Fields = Fields(1);
    /// Stripe size.
    pub const SIZE: Fields = Fields(1 << 1);
    /// Pattern: raid0, overstriped, mdt.
    pub const PATTERN: Fields = Fields(1 << 2);
    /// Layout generation.
    pub const GENERATION: Fields = Fields(1 << 3);
    /// First OST.
    pub const OFFSET: Fields = Fields(1 << 4);
    /// Pool.
    pub const POOL: Fields = Fields(1 << 5);
    /// The objects.
    pub const OBJECTS: Fields = Fields(1 << 6);
    /// The file's FID.
    pub const FID: Fields = Fields(1 << 7);
    /// Magic number, the FID's parts, sizes of the binary form.
    pub const DETAIL: Fields = Fields(1 << 8);
    /// Number of components of a composite layout.
    pub const COMP_COUNT: Fields = Fields(1 << 9);
    /// Component id.
    pub const COMP_ID: Fields = Fields(1 << 10);
    /// Component flags.
    pub const COMP_FLAGS: Fields = Fields(1 << 11);
    /// Component start.
    pub const COMP_START: Fields = Fields(1 << 12);
    /// Component end.
    pub const COMP_END: Fields = Fields(1 << 13);
    /// Number of mirrors.
    pub const MIRROR_COUNT: Fields = Fields(1 << 14);
    /// Mirror that a component belongs to.
    pub const MIRROR_ID: Fields = Fields(1 << 15);
    /// Extension size of a self-extending component.
    pub const EXT_SIZE: Fields = Fields(1 << 16);
    /// The fields shown if none is requested.
    pub const DEFAULT: Fields = Fields(0x1_fe7f);
    /// The fields that only components have.
    const OF_COMPONENTS: Fields = Fields(0x3e00);

    /// Whether any bit of `other` is set.
    pub fn has(self, other: Fields) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of both sets.
    pub fn and(self, other: Fields) -> Fields {
        Fields(self.0 | other.0)
    }

    /// Whether no field is requested.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the whole layout is shown, not only some of its fields.
    fn is_whole(self) -> bool {
        self.0 & Fields::DEFAULT.0 == Fields::DEFAULT.0
    }
}

/// Output format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// As YAML.
    pub yaml: bool,
    /// OST indices in hex.
    pub hex: bool,
    /// Mark the objects of this OST.
    pub mark: Option<u32>,
}

/// The fields of a composite layout that do not belong to a component.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Header {
    magic: u32,
    flags: u16,
    layout_gen: u32,
    mirrors: u16,
    /// Number of components as printed; 0 for a plain layout that is shown as composite.
    entries: usize,
}

/// The layout of a file, or the default of a directory, in the form in which it is printed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayoutView {
    is_dir: bool,
    fid: Fid,
    /// Index of the MDT that holds the file; -1 for any.
    mdt: i32,
    /// `None` in a plain layout.
    header: Option<Header>,
    parts: Vec<ComponentView>,
}

impl LayoutView {
    /// Describes a file's layout. `mdt` is the index of the MDT that holds the file.
    pub fn of_file(layout: &Layout, fid: Fid, mdt: i32) -> LayoutView {
        let header = layout.composite().map(|c| Header {
            magic: Magic::CompV1 as u32,
            flags: c.flags,
            layout_gen: c.layout_gen,
            mirrors: c.mirror_count,
            entries: layout.components().len(),
        });
        let plain = header.is_none();
        let parts = layout.components().iter().map(|c| ComponentView::of_component(c, plain)).collect();
        LayoutView { is_dir: false, fid, mdt, header, parts }
    }

    /// Sets the generation of a plain layout, which its bytes in `lustre.lov` do not contain.
    pub fn of_generation(mut self, generation: u16) -> LayoutView {
        if let (None, [only]) = (&self.header, &mut self.parts[..]) {
            only.generation = generation;
        }
        self
    }

    /// Describes a directory's default; `None` if it has none. `count` and `size` stand for values
    /// that the default leaves open.
    pub fn of_dir(default: Option<&Asked>, fid: Fid, count: i32, size: u32) -> LayoutView {
        let (header, mut parts) = match default {
            Some(Asked::Composite(template)) => {
                let entries = template.components.len();
                let (magic, mirrors) = (Magic::CompV1 as u32, template.mirrors);
                let parts = template.components.iter().map(ComponentView::of_template).collect();
                (Some(Header { magic, flags: 0, layout_gen: 0, mirrors, entries }), parts)
            }
            Some(Asked::Plain(spec)) => (None, vec![ComponentView::of_spec(spec)]),
            None => (None, vec![ComponentView { pattern: Pattern(0), ..ComponentView::of_spec(&Spec::default()) }]),
        };
        for part in parts.iter_mut().filter(|p| p.pattern != Pattern::MDT && !p.is_extension()) {
            part.count = if part.count == 0 { count } else { part.count };
            part.size = if part.size == 0 { u64::from(size) } else { part.size };
        }
        LayoutView { is_dir: true, fid, mdt: -1, header, parts }
    }

    /// The components. A plain layout has one.
    pub fn parts(&self) -> &[ComponentView] {
        &self.parts
    }

    /// Whether the layout is composite.
    pub fn is_composite(&self) -> bool {
        self.header.is_some()
    }

    /// Index of the MDT that holds the file; -1 for any.
    pub fn mdt(&self) -> i32 {
        self.mdt
    }

    /// Whether the layout has an object on this OST.
    pub fn is_on(&self, ost: u32) -> bool {
        self.parts.iter().any(|p| p.is_on(ost))
    }

    /// Formats the layout, without the path before it.
    pub fn draw(&self, fields: Fields, style: Style, selection: &Selection) -> String {
        let mut out = String::new();
        let by_component = selection.is_of_components() || (!fields.is_whole() && fields.has(Fields::OF_COMPONENTS));
        match (&self.header, self.parts.first()) {
            (Some(header), _) => self.draw_composite(&mut out, header, &self.parts, fields, style, selection),
            (None, Some(part)) if by_component => {
                let part = ComponentView { flags: if self.is_dir { 0 } else { flag::INIT }, ..part.clone() };
                let magic = part.magic as u32;
                let header = Header { magic, flags: 0, layout_gen: 0, mirrors: 1, entries: 0 };
                self.draw_composite(&mut out, &header, &[part], fields, style, selection);
            }
            (None, Some(part)) => {
                self.draw_part(&mut out, part, fields, style, "");
                if fields.has(Fields::OBJECTS) && !part.objects.is_empty() {
                    if style.yaml {
                        draw_yaml_objects(&mut out, part, style, "")
                    } else {
                        draw_table(&mut out, part, style)
                    }
                }
                end_part(&mut out, style);
            }
            (None, None) => {}
        }
        out
    }

    fn draw_composite(
        &self,
        out: &mut String,
        header: &Header,
        parts: &[ComponentView],
        fields: Fields,
        style: Style,
        selection: &Selection,
    ) {
        let sizes: Vec<usize> = parts.iter().map(|p| p.bytes(self.is_dir)).collect();
        let first = COMP_HEADER_BYTES + parts.len() * COMP_ENTRY_BYTES;
        self.draw_header(out, header, first + sizes.iter().sum::<usize>(), fields, style);
        let last = (!fields.is_whole() && selection.is_everything()).then(|| last_of_interest(parts, fields));
        let mut offset = first;
        for ((i, part), bytes) in parts.iter().enumerate().zip(sizes) {
            let has_objects = part.flags & flag::INIT != 0;
            let shown = match last {
                Some(last) => i == last,
                None => selection.picks(parts, i) && style.mark.is_none_or(|ost| has_objects && part.is_on(ost)),
            };
            if shown {
                self.draw_entry(out, part, (offset, bytes), fields, style);
                self.draw_part(out, part, fields, style, SUB_INDENT);
                if fields.has(Fields::OBJECTS) && !part.objects.is_empty() && (has_objects || last.is_some()) {
                    if style.yaml {
                        draw_yaml_objects(out, part, style, SUB_INDENT);
                    } else {
                        draw_objects(out, part, style);
                    }
                }
                end_part(out, style);
            }
            offset += bytes;
        }
    }

    fn draw_header(&self, out: &mut String, header: &Header, bytes: usize, fields: Fields, style: Style) {
        if fields.has(Fields::DETAIL) {
            let flags = match (self.is_dir, header.mirrors > 1) {
                (true, true) => "mirrored",
                (true, false) => "",
                (false, _) => state_name(header.flags),
            };
            let _ = writeln!(out, "composite_header:\n  lcm_magic:         {:#010X}", header.magic);
            let _ = writeln!(out, "  lcm_size:          {bytes}\n  lcm_flags:         {flags}");
        }
        let indent = if style.yaml { "" } else { "  " };
        for (field, label, value) in [
            (Fields::GENERATION, "lcm_layout_gen:    ", header.layout_gen as usize),
            (Fields::MIRROR_COUNT, "lcm_mirror_count:  ", usize::from(header.mirrors)),
            (Fields::COMP_COUNT, "lcm_entry_count:   ", header.entries),
        ] {
            if fields.has(field) {
                let (indent, label) = if fields == field { ("", "") } else { (indent, label) };
                let _ = writeln!(out, "{indent}{label}{value}");
            }
        }
        if fields.has(Fields::DETAIL) || style.yaml {
            out.push_str("components:\n");
        }
    }

    /// Prints the entry of a component in the composite layout. `place` is the component's offset
    /// and size in the binary form, in bytes.
    fn draw_entry(&self, out: &mut String, part: &ComponentView, place: (usize, usize), fields: Fields, style: Style) {
        let known = |n: u32| if part.id == 0 { "N/A".to_owned() } else { n.to_string() };
        let end = if part.end == u64::MAX { "EOF".to_owned() } else { part.end.to_string() };
        let synced = part.flags & flag::NOSYNC != 0 || part.timestamp != 0;
        for (field, label, value) in [
            (Fields::COMP_ID, "lcme_id:             ", Some(known(part.id))),
            (Fields::MIRROR_ID, "lcme_mirror_id:      ", Some(known(part.mirror()))),
            (Fields::COMP_FLAGS, "lcme_flags:          ", Some(flag::names(part.flags))),
            (Fields::COMP_FLAGS, "lcme_timestamp:      ", synced.then(|| part.timestamp.to_string())),
            (Fields::COMP_START, "lcme_extent.e_start: ", Some(part.start.to_string())),
            (Fields::COMP_END, "lcme_extent.e_end:   ", Some(end)),
        ] {
            let begins = field == Fields::COMP_ID && (style.yaml || fields.has(Fields::DETAIL));
            let Some(value) = value.filter(|_| fields.has(field) || (begins && style.yaml)) else { continue };
            let (indent, label) = match (begins, fields == field) {
                (true, _) => ("  - ", label),
                (false, true) => ("", ""),
                (false, false) => ("    ", label),
            };
            let _ = writeln!(out, "{indent}{label}{value}");
        }
        if style.yaml {
            out.push_str("    sub_layout:\n");
        } else if fields.has(Fields::DETAIL) {
            let (offset, bytes) = place;
            let _ = writeln!(out, "    lcme_offset:         {offset}\n    lcme_size:           {bytes}");
            out.push_str("    sub_layout:\n");
        }
    }

    fn draw_part(&self, out: &mut String, part: &ComponentView, fields: Fields, style: Style, indent: &str) {
        let prefix = if self.is_dir { "" } else { "lmm_" };
        if fields.has(Fields::DETAIL) && !self.is_dir {
            let _ = writeln!(out, "{indent}lmm_magic:         {:#010X}", part.magic as u32);
            let _ = writeln!(out, "{indent}lmm_seq:           {:#x}", self.fid.seq);
            let _ = writeln!(out, "{indent}lmm_object_id:     {:#x}", self.fid.oid);
        }
        let fid = if style.yaml { bare(self.fid) } else { self.fid.to_string() };
        let count = if part.is_extension() { 0 } else { part.count };
        let size = if part.is_extension() {
            (Fields::EXT_SIZE, prefix, "extension_size: ")
        } else {
            (Fields::SIZE, prefix, "stripe_size:   ")
        };
        let (place, index) = match part.pattern {
            Pattern::MDT => ("mdt_index:     ", self.mdt),
            _ => ("stripe_offset: ", part.offset),
        };
        let index = match u32::try_from(index) {
            Ok(index) if style.hex && !self.is_dir => hex(index),
            _ => index.to_string(),
        };
        let generation = (!self.is_dir).then(|| part.generation.to_string());
        let between = if self.is_dir && !style.yaml { " " } else { "\n" };
        let mut separator = "";
        for ((field, prefix, label), value, after) in [
            ((Fields::FID, "lmm_", "fid:           "), Some(fid), "\n"),
            ((Fields::COUNT, prefix, "stripe_count:  "), Some(count.to_string()), between),
            (size, Some(part.size.to_string()), between),
            ((Fields::PATTERN, prefix, "pattern:       "), Some(part.pattern.to_string()), between),
            ((Fields::GENERATION, prefix, "layout_gen:    "), generation, between),
            ((Fields::OFFSET, prefix, place), Some(index), between),
            ((Fields::POOL, prefix, "pool:          "), part.pool.clone(), between),
        ] {
            let Some(value) = value.filter(|_| fields.has(field)) else { continue };
            out.push_str(separator);
            if fields != field {
                let _ = write!(out, "{indent}{prefix}{label}");
            }
            out.push_str(&value);
            separator = after;
        }
        if !separator.is_empty() {
            out.push('\n');
        }
    }
}

/// Indentation of a component's own layout.
const SUB_INDENT: &str = "      ";

/// Returns the index of the component whose fields stand for the composite layout. It is the last
/// one before the first component without objects. If component 0 has no objects, as in a
/// directory, it is the last component. For the extension size it is the first extension.
fn last_of_interest(parts: &[ComponentView], fields: Fields) -> usize {
    let extension =
        if fields.has(Fields::EXT_SIZE) { parts.iter().position(ComponentView::is_extension) } else { None };
    let last = parts.len().saturating_sub(1);
    let without = match fields.has(Fields::EXT_SIZE) {
        true => None,
        false => parts.iter().position(|p| p.flags & flag::INIT == 0),
    };
    match (extension, without) {
        (Some(extension), _) => extension,
        (None, Some(0) | None) => last,
        (None, Some(n)) => n - 1,
    }
}

/// Ends a component with an empty line, except in YAML.
fn end_part(out: &mut String, style: Style) {
    if !style.yaml {
        out.push('\n');
    }
}

/// Name of a file's mirror state, as stored in `lcm_flags`.
fn state_name(flags: u16) -> &'static str {
    match flags & 0xf {
        0 => "0",
        1 => "ro",
        2 => "wp",
        3 => "sp",
        _ => "unknown",
    }
}

fn draw_table(out: &mut String, part: &ComponentView, style: Style) {
    out.push_str("\tobdidx\t\t objid\t\t objid\t\t group\n");
    for (ost, object) in &part.objects {
        let index = style.index(*ost);
        let mark = style.mark_of(*ost);
        let _ = match object {
            Some(o) => writeln!(out, "\t{index:>6}\t{0:>14}\t{0:>#13x}\t{1:>#14x}{mark}", o.oid, o.seq),
            None => writeln!(out, "\t{index:>6}\t{0:>14}\t{0:>13}\t{0:>14}{mark}", "N/A"),
        };
    }
}

/// Prints the objects of a component.
fn draw_objects(out: &mut String, part: &ComponentView, style: Style) {
    let _ = writeln!(out, "{SUB_INDENT}lmm_objects:");
    for (i, (ost, object)) in part.objects.iter().enumerate() {
        let (index, mark) = (style.index(*ost), style.mark_of(*ost));
        let object = object.unwrap_or(missing_object_fid(*ost));
        let _ = writeln!(out, "{SUB_INDENT}- {i:>3}: {{ l_ost_idx: {index:>3}, l_fid: {object} }}{mark}");
    }
}

fn draw_yaml_objects(out: &mut String, part: &ComponentView, style: Style, indent: &str) {
    let _ = writeln!(out, "{indent}lmm_objects:");
    for (ost, object) in &part.objects {
        let index = style.index(*ost);
        let object = bare(object.unwrap_or(missing_object_fid(*ost)));
        let _ = writeln!(out, "      - l_ost_idx: {index}\n        l_fid:     {object}");
    }
}

impl Style {
    fn index(&self, ost: u32) -> String {
        if self.hex { hex(ost) } else { ost.to_string() }
    }

    fn mark_of(&self, ost: u32) -> &'static str {
        if self.mark == Some(ost) { " *" } else { "" }
    }
}

/// Returns the FID that Lustre prints for an object that does not exist yet: the old form of an
/// object id, which begins with the OST's index.
fn missing_object_fid(ost: u32) -> Fid {
    Fid::new((1 << 32) | u64::from(ost) << 16, 0)
}

/// Formats a FID without brackets, as in YAML.
fn bare(fid: Fid) -> String {
    let text = fid.to_string();
    text.trim_matches(['[', ']']).to_owned()
}

/// Formats like C's `%#x`, which prints zero without a prefix.
fn hex(n: u32) -> String {
    if n == 0 { "0".to_owned() } else { format!("{n:#x}") }
}
