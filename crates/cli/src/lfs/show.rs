//! Layouts as `lfs getstripe` prints them: labelled lines, the table of objects, YAML.
//!
//! The order of fields, their spacing, and which of them a directory has are Lustre's (`lov_dump_user_lmm_header`). A lone field
//! is printed without its label; a directory's fields lie on one line.

use std::fmt::Write;

use sheen_layout::{Layout, Pattern, Spec};
use sheen_wire::Fid;

/// What to show: a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fields(u32);

impl Fields {
    /// Number of stripes.
    pub const COUNT: Fields = Fields(1);
    /// Stripe size.
    pub const SIZE: Fields = Fields(1 << 1);
    /// raid0, overstriped.
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
    /// Magic number and the FID's parts.
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
    /// Mirrors, extension size: what a plain layout has none of.
    pub const NOTHING: Fields = Fields(1 << 14);
    /// What is shown where nothing else is asked for.
    pub const DEFAULT: Fields = Fields(0x7f);

    /// Whether any bit of `other` is set.
    pub fn has(self, other: Fields) -> bool {
        self.0 & other.0 != 0
    }

    /// Both.
    pub fn and(self, other: Fields) -> Fields {
        Fields(self.0 | other.0)
    }

    /// Whether nothing is asked for.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// How to show it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// As YAML.
    pub yaml: bool,
    /// OST indices in hex.
    pub hex: bool,
    /// Mark the objects of this OST.
    pub mark: Option<u32>,
}

/// What there is to show of a file or of a directory's default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Picture {
    is_dir: bool,
    fid: Fid,
    magic: u32,
    count: i32,
    size: u32,
    pattern: String,
    generation: u16,
    /// -1: any.
    offset: i32,
    pool: Option<String>,
    /// OST and object; no object in a directory's default.
    objects: Vec<(u32, Option<Fid>)>,
}

impl Picture {
    /// A file's.
    pub fn of_file(layout: &Layout, fid: Fid) -> Picture {
        let stripes = layout.stripes();
        Picture {
            is_dir: false,
            fid,
            magic: if layout.pool().is_some() { 0x0BD3_0BD0 } else { 0x0BD1_0BD0 },
            count: stripes.len() as i32,
            size: layout.stripe_size(),
            pattern: layout.pattern().to_string(),
            // The attribute hides the generation behind 0xffff; without migration it is 0.
            generation: if layout.layout_gen() == u16::MAX { 0 } else { layout.layout_gen() },
            offset: stripes.first().map_or(-1, |s| s.ost as i32),
            pool: layout.pool().map(|p| p.to_string()),
            objects: stripes.iter().map(|s| (s.ost, Some(s.object))).collect(),
        }
    }

    /// A directory's default, `None` where it has none; what it leaves open is shown as `count` and `size`.
    pub fn of_dir(spec: Option<&Spec>, fid: Fid, count: i32, size: u32) -> Picture {
        let nothing = Spec::default();
        let pattern = spec.map_or(Pattern(0), Spec::pattern);
        let spec = spec.unwrap_or(&nothing);
        Picture {
            is_dir: true,
            fid,
            magic: 0,
            count: spec.count.map_or(count, |c| c.to_number()),
            size: spec.stripe_size.unwrap_or(size),
            pattern: pattern.to_string(),
            generation: 0,
            offset: spec.start.or(spec.osts.first().copied()).map_or(-1, |i| i as i32),
            pool: spec.pool.as_ref().map(|p| p.to_string()),
            objects: spec.osts.iter().map(|ost| (*ost, None)).collect(),
        }
    }

    /// Whether there is an object on this OST.
    pub fn is_on(&self, ost: u32) -> bool {
        self.objects.iter().any(|(index, _)| *index == ost)
    }

    /// The text, without the path before it and the empty line after it.
    pub fn draw(&self, fields: Fields, style: Style) -> String {
        let mut out = String::new();
        self.draw_component(&mut out, fields);
        self.draw_header(&mut out, fields, style);
        if fields.has(Fields::OBJECTS) && !self.objects.is_empty() {
            if style.yaml { self.draw_yaml_objects(&mut out, style) } else { self.draw_table(&mut out, style) }
        }
        out
    }

    /// A plain layout as a composite one of no components.
    fn draw_component(&self, out: &mut String, fields: Fields) {
        for (field, label, value) in [
            (Fields::COMP_COUNT, "lcm_entry_count:   ", "0"),
            (Fields::COMP_ID, "lcme_id:             ", "N/A"),
            (Fields::COMP_FLAGS, "lcme_flags:          ", "init"),
            (Fields::COMP_START, "lcme_extent.e_start: ", "0"),
            (Fields::COMP_END, "lcme_extent.e_end:   ", "EOF"),
        ] {
            if fields.has(field) {
                let label = if fields == field { "" } else { label };
                let _ = writeln!(out, "{label}{value}");
            }
        }
    }

    fn draw_header(&self, out: &mut String, fields: Fields, style: Style) {
        let prefix = if self.is_dir { "" } else { "lmm_" };
        if fields.has(Fields::DETAIL) && !self.is_dir {
            let _ = writeln!(out, "lmm_magic:         {:#010X}", self.magic);
            let _ = writeln!(out, "lmm_seq:           {:#x}", self.fid.seq);
            let _ = writeln!(out, "lmm_object_id:     {:#x}", self.fid.oid);
        }
        let fid = if style.yaml { bare(self.fid) } else { self.fid.to_string() };
        let offset = match u32::try_from(self.offset) {
            Ok(index) if style.hex && !self.is_dir => hex(index),
            _ => self.offset.to_string(),
        };
        let pool = self.pool.as_deref();
        let between = if self.is_dir && !style.yaml { " " } else { "\n" };
        let mut separator = "";
        for (field, prefix, label, value, after) in [
            (Fields::FID, "lmm_", "fid:           ", Some(fid.as_str()), "\n"),
            (Fields::COUNT, prefix, "stripe_count:  ", Some(self.count.to_string().as_str()), between),
            (Fields::SIZE, prefix, "stripe_size:   ", Some(self.size.to_string().as_str()), between),
            (Fields::PATTERN, prefix, "pattern:       ", Some(self.pattern.as_str()), between),
            (
                Fields::GENERATION,
                prefix,
                "layout_gen:    ",
                (!self.is_dir).then_some(self.generation.to_string().as_str()),
                between,
            ),
            (Fields::OFFSET, prefix, "stripe_offset: ", Some(offset.as_str()), between),
            (Fields::POOL, prefix, "pool:          ", pool, between),
        ] {
            let Some(value) = value.filter(|_| fields.has(field)) else { continue };
            out.push_str(separator);
            if fields != field {
                out.push_str(prefix);
                out.push_str(label);
            }
            out.push_str(value);
            separator = after;
        }
        if !separator.is_empty() {
            out.push('\n');
        }
    }

    fn draw_table(&self, out: &mut String, style: Style) {
        out.push_str("\tobdidx\t\t objid\t\t objid\t\t group\n");
        for (ost, object) in &self.objects {
            let index = if style.hex { hex(*ost) } else { ost.to_string() };
            let mark = if style.mark == Some(*ost) { " *" } else { "" };
            let _ = match object {
                Some(o) => writeln!(out, "\t{index:>6}\t{0:>14}\t{0:>#13x}\t{1:>#14x}{mark}", o.oid, o.seq),
                None => writeln!(out, "\t{index:>6}\t{0:>14}\t{0:>13}\t{0:>14}{mark}", "N/A"),
            };
        }
    }

    fn draw_yaml_objects(&self, out: &mut String, style: Style) {
        out.push_str("lmm_objects:\n");
        for (ost, object) in &self.objects {
            let index = if style.hex { hex(*ost) } else { ost.to_string() };
            // Where there is no object yet Lustre prints the old form of its id, which begins with the OST's index.
            let object = object.unwrap_or(Fid::new((1 << 32) | u64::from(*ost) << 16, 0));
            let _ = writeln!(out, "      - l_ost_idx: {index}\n        l_fid:     {}", bare(object));
        }
    }
}

/// A FID without brackets, as in YAML.
fn bare(fid: Fid) -> String {
    let text = fid.to_string();
    text.trim_matches(['[', ']']).to_owned()
}

/// C's `%#x`, which leaves a zero bare.
fn hex(n: u32) -> String {
    if n == 0 { "0".to_owned() } else { format!("{n:#x}") }
}
