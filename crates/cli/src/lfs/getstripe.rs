//! `lfs getstripe`: prints layouts of files and defaults of directories, as text, as YAML, or
//! drawn.

mod draw;
pub mod flag;
mod select;
mod svg;

use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use sheen_layout::{Defaults, Layout, Pattern};
use sheen_wire::{
    Errno, Fid, FileKind, Result,
    control::{self, MountInfo, TargetInfo},
    fid::ROOT,
    mgs::TargetKind,
};

use super::{
    getopt::{self, Item, Value},
    numbers::parse_unsigned,
    show::{Fields, LayoutView, Style},
    tool::{EXIT_USAGE, Tool, keep_first, text},
    usage,
};

pub use select::Selection;

const OPTIONS: getopt::Spec = getopt::Spec {
    short: "cdDE::FghiI::LmMNO:pqrRSvyz",
    long: &[
        ("comp-count", Value::No, "comp-count"),
        ("component-count", Value::No, "comp-count"),
        ("comp-flags", Value::Optional, "comp-flags"),
        ("component-flags", Value::Optional, "comp-flags"),
        ("comp-start", Value::Optional, "comp-start"),
        ("component-start", Value::Optional, "comp-start"),
        ("stripe-count", Value::No, "c"),
        ("stripe_count", Value::No, "c"),
        ("count", Value::No, "c"),
        ("directory", Value::No, "d"),
        ("default", Value::No, "D"),
        ("draw", Value::Optional, "draw"),
        ("comp-end", Value::Optional, "E"),
        ("component-end", Value::Optional, "E"),
        ("fid", Value::No, "F"),
        ("generation", Value::No, "g"),
        ("help", Value::No, "h"),
        ("hex-idx", Value::No, "hex-idx"),
        ("stripe-index", Value::No, "i"),
        ("stripe_index", Value::No, "i"),
        ("index", Value::No, "i"),
        ("comp-id", Value::Optional, "I"),
        ("component-id", Value::Optional, "I"),
        ("layout", Value::No, "L"),
        ("mdt", Value::No, "m"),
        ("mdt-index", Value::No, "m"),
        ("mdt_index", Value::No, "m"),
        ("mirror-count", Value::No, "N"),
        ("mirror-index", Value::Required, "mirror-index"),
        ("mirror-id", Value::Required, "mirror-id"),
        ("no-follow", Value::No, "no-follow"),
        ("obd", Value::Required, "O"),
        ("ost", Value::Required, "O"),
        ("pool", Value::No, "p"),
        ("quiet", Value::No, "q"),
        ("recursive", Value::No, "r"),
        ("raw", Value::No, "R"),
        ("stripe-size", Value::No, "S"),
        ("stripe_size", Value::No, "S"),
        ("size", Value::No, "S"),
        ("verbose", Value::No, "v"),
        ("yaml", Value::No, "y"),
        ("extension-size", Value::No, "z"),
        ("ext-size", Value::No, "z"),
    ],
};

/// The options of a call.
#[derive(Default)]
struct Asked {
    fields: Fields,
    quiet: bool,
    /// Only a directory's own default, as `-d` and every single field imply.
    shallow: bool,
    recursive: bool,
    /// A directory's default as stored, without values for what it leaves open.
    raw: bool,
    no_follow: bool,
    mdt: bool,
    /// The selected components.
    selection: Selection,
    ost: Option<String>,
    style: Style,
    draw: Draw,
}

/// Whether to draw the layout instead of printing text, and where.
#[derive(Default)]
enum Draw {
    #[default]
    No,
    Here,
    /// Into this file, as SVG.
    File(PathBuf),
}

impl Asked {
    /// Whether the path is printed before the layout.
    fn names(&self) -> bool {
        !self.style.yaml && (self.recursive || !self.shallow || self.fields.has(Fields::DETAIL))
    }

    fn field(&mut self, field: Fields) {
        self.shallow = true;
        if !self.fields.has(Fields::DETAIL) {
            self.fields = self.fields.and(field);
        }
    }

    fn option(&mut self, id: &str, value: Option<&str>) {
        match id {
            "c" => self.field(Fields::COUNT),
            "S" => self.field(Fields::SIZE),
            "i" => self.field(Fields::OFFSET),
            "p" => self.field(Fields::POOL),
            "L" => self.field(Fields::PATTERN),
            "g" => self.field(Fields::GENERATION),
            "F" => self.field(Fields::FID),
            "N" => self.field(Fields::MIRROR_COUNT),
            "z" => self.field(Fields::EXT_SIZE),
            "comp-count" => self.field(Fields::COMP_COUNT),
            "I" => self.field(Fields::COMP_ID),
            "comp-flags" => self.field(Fields::COMP_FLAGS),
            "comp-start" => self.field(Fields::COMP_START),
            "E" => self.field(Fields::COMP_END),
            "m" => (self.mdt, self.shallow) = (true, true),
            "v" => self.fields = Fields::DEFAULT.and(Fields::DETAIL).and(Fields::FID),
            "q" => self.quiet = true,
            "d" => self.shallow = true,
            "r" => self.recursive = true,
            "R" => self.raw = true,
            "y" => self.style.yaml = true,
            "hex-idx" => self.style.hex = true,
            "no-follow" => self.no_follow = true,
            "O" => self.ost = value.map(str::to_owned),
            "draw" => self.draw = value.map_or(Draw::Here, |file| Draw::File(file.into())),
            // -D and -M have no effect.
            _ => {}
        }
    }
}

/// Options that select components if they have a value.
const SELECTORS: &[&str] = &["I", "comp-flags", "comp-start", "E", "mirror-id", "mirror-index"];

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let items = OPTIONS.parse(args);
    let mut asked = Asked::default();
    let mut paths = Vec::new();
    // Changes between options and operands. With more than one, operands lie between options.
    let mut changes = 0;
    let mut last_is_operand = None;
    // A `!` negates the next selector.
    let mut not = false;
    for item in &items {
        if matches!(item, Item::Operand(arg) if arg == "!") {
            not = true;
            continue;
        }
        let is_operand = matches!(item, Item::Operand(_));
        changes += usize::from(last_is_operand.replace(is_operand).is_some_and(|last| last != is_operand));
        match item {
            Item::Option { id: "h", .. } => return tool.help(usage::GETSTRIPE),
            Item::Option { id, value: Some(value), .. } if SELECTORS.contains(id) => {
                if let Err(wrong) = asked.selection.add(id, text(value), std::mem::take(&mut not)) {
                    return tool.usage(usage::GETSTRIPE, format_args!("{wrong}"));
                }
            }
            Item::Option { id, value, .. } => asked.option(id, value.as_deref().map(text)),
            Item::Operand(path) => paths.push(PathBuf::from(path)),
            Item::Unrecognized(arg) => {
                return tool.usage(usage::GETSTRIPE, format_args!("lfs: unrecognized option '{}'", arg.display()));
            }
        }
    }
    if changes > 1 {
        let wrong = "error: getstripe: filename|dirname must either precede options or follow options";
        return tool.usage(usage::GETSTRIPE, format_args!("{wrong}"));
    }
    if paths.is_empty() {
        tool.help(usage::GETSTRIPE);
        return EXIT_USAGE;
    }
    if matches!(asked.draw, Draw::File(_)) && (paths.len() > 1 || asked.recursive) {
        let wrong = "error: getstripe: --draw=FILE draws one file or directory";
        return tool.usage(usage::GETSTRIPE, format_args!("{wrong}"));
    }
    asked.shallow |= matches!(asked.draw, Draw::File(_));
    if asked.quiet {
        asked.fields = Fields::OBJECTS;
    } else if asked.fields.is_empty() {
        asked.fields = Fields::DEFAULT;
    }
    let mut code = 0;
    for path in &paths {
        if let Err(e) = getstripe(tool, path, &mut asked) {
            tool.complain(format_args!("lfs: getstripe for '{}' failed: {e}", path.display()));
            keep_first(&mut code, e);
        }
    }
    code
}

fn getstripe(tool: &mut Tool, path: &Path, asked: &mut Asked) -> Result<()> {
    // A dangling link is reported as missing, unless the link itself is asked for.
    let followed = if asked.no_follow { Ok(FileKind::Symlink) } else { tool.fs.kind(path, true) };
    let kind = tool.fs.kind(path, false).and_then(|kind| followed.map(|_| kind))?;
    if kind == FileKind::Dir {
        tool.check_readable("getstripe", path)?;
    }
    if let Some(ost) = &asked.ost {
        if kind != FileKind::Dir {
            let e = Errno::ENOTDIR;
            tool.complain(format_args!("lfs getstripe: open {} failed: {e} ({})", path.display(), e.0));
            return Err(e);
        }
        asked.style.mark = Some(find_ost(tool, path, ost)?);
    }
    let mut first = Ok(());
    show(tool, path, kind, asked)?;
    if kind == FileKind::Dir && (asked.recursive || !asked.shallow) {
        descend(tool, path, asked, &mut first);
    }
    first
}

/// Shows the entries of a directory; with `-r` the whole tree. Continues after a failure and stores
/// the first one in `first`.
fn descend(tool: &mut Tool, path: &Path, asked: &Asked, first: &mut Result<()>) {
    // A stack instead of recursion, because the depth of a user's tree is unbounded.
    let mut stack = vec![tool.children("getstripe", path, first)];
    while let Some(level) = stack.last_mut() {
        let Some(child) = level.pop() else {
            stack.pop();
            continue;
        };
        let kind = tool.fs.kind(&child, false);
        if kind == Ok(FileKind::Dir)
            && let Err(e) = tool.check_readable("getstripe", &child)
        {
            *first = first.and(Err(e));
            continue;
        }
        let shown = kind.and_then(|kind| show(tool, &child, kind, asked).map(|()| kind));
        match shown {
            Ok(FileKind::Dir) if asked.recursive => stack.push(tool.children("getstripe", &child, first)),
            Ok(_) => {}
            Err(e) => {
                tool.complain(format_args!("lfs getstripe: cannot get layout of '{}': {e} ({})", child.display(), e.0));
                *first = first.and(Err(e));
            }
        }
    }
}

fn show(tool: &mut Tool, path: &Path, kind: FileKind, asked: &Asked) -> Result<()> {
    let fid = tool.fs.fid(path).inspect_err(|e| {
        if *e == Errno::ENOTTY {
            tool.complain(format_args!(
                "lfs getstripe: cb_getstripe: '{}' not on a Lustre fs?: {e} ({})",
                path.display(),
                e.0
            ));
        }
    })?;
    if asked.mdt {
        let index = tool.fs.get(path, control::MDT).unwrap_or_else(|_| b"0".to_vec());
        tool.print(format_args!("{}\n", String::from_utf8_lossy(&index)));
        return Ok(());
    }
    let picture = match kind {
        FileKind::Dir => dir_picture(tool, path, fid, asked.raw)?,
        FileKind::Regular => match file_layout(tool, path)? {
            Some(layout) => {
                let picture = LayoutView::of_file(&layout, fid, mdt_of(tool, path, &layout));
                let is_complete = picture.is_composite() || !asked.fields.has(Fields::GENERATION);
                if is_complete { picture } else { picture.of_generation(generation(tool, path)) }
            }
            None => return no_stripes(tool, path),
        },
        _ => return no_stripes(tool, path),
    };
    match &asked.draw {
        Draw::No => {}
        Draw::Here => {
            let drawing = draw::Drawing::of(&picture);
            tool.print_bytes(path.as_os_str().as_bytes());
            tool.print(format_args!("\n{}\n", drawing.text()));
            return Ok(());
        }
        Draw::File(file) => return write_svg(tool, path, &picture, file),
    }
    if asked.style.mark.is_some_and(|ost| !picture.is_on(ost)) {
        return Ok(());
    }
    if asked.names() {
        tool.print_bytes(path.as_os_str().as_bytes());
        tool.print(format_args!("\n"));
    }
    tool.print(format_args!("{}", picture.draw(asked.fields, asked.style, &asked.selection)));
    Ok(())
}

fn write_svg(tool: &mut Tool, path: &Path, picture: &LayoutView, file: &Path) -> Result<()> {
    let svg = draw::Drawing::of(picture).svg(&path.display().to_string());
    std::fs::write(file, svg).map_err(|e| {
        tool.complain(format_args!("lfs getstripe: cannot write '{}': {e}", file.display()));
        Errno::from(e)
    })
}

fn no_stripes(tool: &mut Tool, path: &Path) -> Result<()> {
    tool.print_bytes(path.as_os_str().as_bytes());
    tool.print(format_args!(" has no stripe info\n"));
    Ok(())
}

/// Returns the layout of a file, if it has one.
fn file_layout(tool: &Tool, path: &Path) -> Result<Option<Layout>> {
    match tool.fs.get(path, "lustre.lov") {
        Ok(value) => Ok(Some(Layout::decode(&value)?)),
        Err(Errno::ENODATA) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Returns the generation of a plain layout.
fn generation(tool: &Tool, path: &Path) -> u16 {
    let text = tool.fs.get(path, control::GENERATION).unwrap_or_default();
    std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns the index of the MDT that holds a file's data; 0 if no data is on an MDT.
fn mdt_of(tool: &Tool, path: &Path, layout: &Layout) -> i32 {
    if !layout.components().iter().any(|c| c.pattern == Pattern::MDT) {
        return 0;
    }
    let index = tool.fs.get(path, control::MDT).unwrap_or_default();
    std::str::from_utf8(&index).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Describes the default in force in a directory: its own or, as in Lustre, that of the root.
fn dir_picture(tool: &Tool, path: &Path, fid: Fid, raw: bool) -> Result<LayoutView> {
    use sheen_layout::Asked::{Composite, Plain};
    let own = stored_default(tool, path)?;
    let complete = matches!(&own, Some(Plain(s)) if s.count.is_some() && s.stripe_size.is_some());
    if own.is_some() && (raw || complete) {
        return Ok(LayoutView::of_dir(own.as_ref(), fid, 0, 0));
    }
    let mount: MountInfo = tool.ask(path, control::MOUNT)?;
    let root = if fid == ROOT { None } else { root_default(tool, &mount) };
    let (count, size) = match (&own, &root) {
        _ if raw => (0, 0),
        // A plain default of the root does not complete a composite one.
        (Some(Composite(_)), Some(Plain(_))) => {
            let defaults = Defaults::default();
            (defaults.count.to_number(), defaults.stripe_size)
        }
        _ => (mount.default_stripe_count, mount.default_stripe_size),
    };
    Ok(LayoutView::of_dir(own.or(root).as_ref(), fid, count, size))
}

/// Returns a directory's own default, if it has one.
fn stored_default(tool: &Tool, path: &Path) -> Result<Option<sheen_layout::Asked>> {
    match tool.fs.get(path, "lustre.lov") {
        Ok(value) => Ok(Some(sheen_layout::Asked::decode(&value)?)),
        Err(Errno::ENODATA) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Returns the default of the file system's root. `None`: it has none, or another directory is
/// mounted.
fn root_default(tool: &Tool, mount: &MountInfo) -> Option<sheen_layout::Asked> {
    let point = Path::new(&mount.mountpoint);
    tool.fs.fid(point).ok().filter(|fid| *fid == ROOT)?;
    stored_default(tool, point).ok().flatten()
}

/// Returns the index of an OST that is given by index, `fsname-OST0000` or UUID.
fn find_ost(tool: &mut Tool, path: &Path, name: &str) -> Result<u32> {
    let targets: Vec<TargetInfo> = tool.ask(path, control::DF)?;
    let number = parse_unsigned(name);
    let is_it = |t: &&TargetInfo| {
        t.uuid == name || t.uuid.strip_suffix("_UUID") == Some(name) || number == Some(u64::from(t.index))
    };
    match targets.iter().filter(|t| t.kind == TargetKind::Ost).find(is_it) {
        Some(target) => Ok(target.index),
        None => {
            tool.complain(format_args!("error: getstripe: unknown obduuid: '{name}'"));
            Err(Errno::EINVAL)
        }
    }
}

#[cfg(test)]
mod tests;
