//! Layouts from other sources: `--copy` from a file or directory, `--yaml` from the output of
//! `lfs getstripe --yaml`.
//!
//! A copy takes over the striping but not the OSTs, which the MDT chooses anew. YAML also takes
//! over the OSTs that it names.

use std::{fs::File, io::Read, path::Path};

use sheen_admin::not_sheen;
use sheen_layout::{Asked, Component, Count, Layout, Pattern, Pool, Spec, Template, TemplateComponent};
use sheen_wire::{Errno, FileKind, Result};

use super::super::{getstripe::flag, numbers::parse_signed, tool::Tool};

/// Most bytes of a YAML file that are read. A layout of 64 KiB has fewer than 2,800 objects of
/// about 60 characters each.
const YAML_BYTES_MAX: u64 = 1 << 20;

/// Returns a request for the layout of a file, or for the default of a directory.
pub fn copy(tool: &Tool, path: &Path) -> Result<Asked> {
    let path = tool.fs.resolve(path)?;
    let value = match tool.fs.get(&path, "lustre.lov") {
        Ok(value) => value,
        Err(Errno::ENODATA) => return Ok(Asked::default()),
        Err(e) => return Err(not_sheen(e)),
    };
    match tool.fs.kind(&path, true)? {
        FileKind::Dir => Ok(Asked::decode(&value)?),
        _ => Ok(again(&Layout::decode(&value)?)),
    }
}

fn again(layout: &Layout) -> Asked {
    match layout.composite() {
        None => Asked::Plain(layout.components().first().map_or_else(Spec::default, spec_of)),
        Some(composite) => {
            let components = layout.components().iter().map(component_of).collect();
            Asked::Composite(Template { components, mirrors: composite.mirror_count.max(1) })
        }
    }
}

fn component_of(c: &Component) -> TemplateComponent {
    let flags = c.flags & flag::ASKABLE;
    if c.is_on_mdt() {
        return TemplateComponent { flags, ..TemplateComponent::on_mdt(c.end) };
    }
    let mut spec = spec_of(c);
    let extension_size = c.extension_size();
    if c.is_extension() {
        spec.stripe_size = None;
    }
    TemplateComponent { flags, extension_size, ..TemplateComponent::striped(c.start, c.end, spec) }
}

fn spec_of(c: &Component) -> Spec {
    Spec {
        stripe_size: (c.stripe_size != 0).then_some(c.stripe_size),
        count: Count::from_raw(c.stripe_count),
        overstripe: c.pattern.has(Pattern::OVERSTRIPING),
        pool: c.pool.clone(),
        ..Spec::default()
    }
}

/// Reads a template file. Reports errors in it.
pub fn yaml(tool: &mut Tool, file: &Path) -> Result<Asked, ()> {
    let mut text = String::new();
    let read = File::open(file).and_then(|f| f.take(YAML_BYTES_MAX).read_to_string(&mut text));
    let name = file.display();
    let wrong = match read {
        Ok(_) => match parse(&text) {
            Ok(asked) => return Ok(asked),
            Err(wrong) => wrong,
        },
        Err(e) => format!("cannot open '{name}': {}", Errno::from(e)),
    };
    tool.complain(format_args!(
        "lfs setstripe: cannot parse YAML file {name}
yaml:
    - builder:
          errno: -1
          descr: {wrong}
    - from comp yaml:
          errno: -22
          descr: can't parse
error: setstripe: can't create composite layout from template file {name}"
    ));
    Err(())
}

/// A component while its lines are parsed.
#[derive(Default)]
struct YamlComponent {
    component: TemplateComponent,
    is_extension: bool,
}

/// Keys that getstripe writes and that have no meaning for a new file.
const IGNORED_KEYS: &[&str] = &[
    "composite_header",
    "components",
    "sub_layout",
    "lcm_magic",
    "lcm_size",
    "lcm_flags",
    "lcm_layout_gen",
    "lcm_entry_count",
    "lcme_mirror_id",
    "lcme_timestamp",
    "lcme_offset",
    "lcme_size",
    "magic",
    "seq",
    "object_id",
    "fid",
    "layout_gen",
    "mdt_index",
    "objects",
    "l_fid",
];

/// Parses the YAML that getstripe writes. Its nesting is fixed, so the lines are parsed one by one.
/// `lcme_id` begins a component. Keys that getstripe never writes are refused, because otherwise a
/// misspelt stripe count would be ignored.
fn parse(text: &str) -> Result<Asked, String> {
    let mut mirrors = 1;
    let mut components: Vec<YamlComponent> = Vec::new();
    let (mut plain, mut lines) = (YamlComponent::default(), 0);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim().trim_start_matches("- ").trim_start();
        if line.is_empty() || line.starts_with('#') || line == "---" {
            continue;
        }
        lines += 1;
        let wrong = || format!("line {number}: '{line}'");
        let (key, value) = line.split_once(':').ok_or_else(wrong)?;
        let value = value.trim();
        match key {
            "lcm_mirror_count" => mirrors = value.parse().map_err(|_| wrong())?,
            "lcme_id" => components.push(YamlComponent::default()),
            _ => components.last_mut().unwrap_or(&mut plain).set(key, value).ok_or_else(wrong)?,
        }
    }
    if lines == 0 {
        return Err("the file contains no layout".to_owned());
    }
    if components.is_empty() {
        return Ok(Asked::Plain(plain.finish().spec));
    }
    let components = components.into_iter().map(YamlComponent::finish).collect();
    Ok(Asked::Composite(Template { components, mirrors }))
}

impl YamlComponent {
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let c = &mut self.component;
        match key.strip_prefix("lmm_").unwrap_or(key) {
            "lcme_flags" if value == "0" => {}
            "lcme_flags" => {
                c.flags = flag::parse(value).ok()?.0 & flag::ASKABLE;
                self.is_extension = c.flags & flag::EXTENSION != 0;
            }
            "lcme_extent.e_start" => c.start = offset(value)?,
            "lcme_extent.e_end" => c.end = offset(value)?,
            "stripe_count" => c.spec.count = Count::from_number(parse_signed(value)?).ok()?,
            "stripe_size" => c.spec.stripe_size = Some(value.parse().ok()?).filter(|size| *size != 0),
            "extension_size" => c.extension_size = Some(value.parse().ok()?),
            "pattern" => match value {
                "mdt" => c.pattern = Pattern::MDT,
                "raid0,overstriped" => c.spec.overstripe = true,
                "raid0" | "" => {}
                _ => return None,
            },
            "stripe_offset" => c.spec.start = u32::try_from(parse_signed(value)?).ok(),
            "pool" => c.spec.pool = Some(Pool::new(value).ok()?),
            "l_ost_idx" => c.spec.osts.push(u32::try_from(parse_signed(value)?).ok()?),
            key if IGNORED_KEYS.contains(&key) => {}
            _ => return None,
        }
        Some(())
    }

    fn finish(self) -> TemplateComponent {
        let mut c = self.component;
        if c.is_on_mdt() {
            return TemplateComponent { spec: Spec::default(), ..c };
        }
        if !c.spec.osts.is_empty() {
            (c.spec.count, c.spec.start) = (None, None);
        }
        if !self.is_extension {
            c.extension_size = None;
        }
        c
    }
}

fn offset(text: &str) -> Option<u64> {
    match text {
        "EOF" | "eof" | "-1" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setstripe_yaml_takes_over_osts() {
        let text = "lcm_layout_gen:    2
lcm_mirror_count:  1
lcm_entry_count:   2
components:
  - lcme_id:             1
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   1048576
    sub_layout:
      lmm_stripe_count:  2
      lmm_stripe_size:   65536
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: 3
      lmm_objects:
      - l_ost_idx: 3
        l_fid:     0x280000401:0x273:0x0
      - l_ost_idx: 0
        l_fid:     0x340000401:0x273:0x0
  - lcme_id:             2
    lcme_extent.e_start: 1048576
    lcme_extent.e_end:   EOF
    sub_layout:
      lmm_stripe_count:  -1
      lmm_stripe_offset: 1
      lmm_pool:          p1
";
        let first = Spec { stripe_size: Some(65536), osts: vec![3, 0], ..Spec::default() };
        let pool = Some(Pool::new("p1").unwrap());
        let second = Spec { count: Some(Count::All), start: Some(1), pool, ..Spec::default() };
        let components =
            vec![TemplateComponent::striped(0, 1 << 20, first), TemplateComponent::striped(1 << 20, u64::MAX, second)];
        assert_eq!(parse(text), Ok(Asked::Composite(Template::new(components))));
    }

    #[test]
    fn setstripe_yaml_parses_plain_directory_default() {
        let text =
            "# saved\nstripe_count:  8\nstripe_size:   4194304\npattern:       raid0,overstriped\nstripe_offset: -1\n";
        let spec =
            Spec { count: Some(Count::Stripes(8)), stripe_size: Some(4 << 20), overstripe: true, ..Spec::default() };
        assert_eq!(parse(text), Ok(Asked::Plain(spec)));
    }

    #[test]
    fn setstripe_yaml_error_names_the_bad_line() {
        assert_eq!(parse("stripe_count: 2\nnonsense\n"), Err("line 2: 'nonsense'".to_owned()));
        assert_eq!(parse("stripe_cuont: 2\n"), Err("line 1: 'stripe_cuont: 2'".to_owned()));
        assert_eq!(
            parse("root:x:0:0:root:/root:/bin/bash\n"),
            Err("line 1: 'root:x:0:0:root:/root:/bin/bash'".to_owned())
        );
        assert_eq!(parse("# nothing\n\n"), Err("the file contains no layout".to_owned()));
        assert_eq!(parse("stripe_count: 2001\n"), Err("line 1: 'stripe_count: 2001'".to_owned()));
        assert_eq!(parse("lmm_pattern: foreign\n"), Err("line 1: 'lmm_pattern: foreign'".to_owned()));
        assert_eq!(parse("lcme_id: 1\nlcme_extent.e_end: x\n"), Err("line 2: 'lcme_extent.e_end: x'".to_owned()));
    }
}
