//! Conversion of options to components. `-E`, `-N` and the end of the command line each complete
//! the component that the options before them describe.
//!
//! A component begins where the previous one ends. It inherits stripe size, stripe count and pool
//! from the previous one unless options set them. A component on the MDT has none to inherit. With
//! `-z` a component becomes two: a small one, and its extension space, of which it takes one
//! extension size at a time.

use sheen_layout::{EXTENSION_SIZE_MIN, MIRRORS_MAX, Pool, STRIPE_SIZE_UNIT, Spec, Template, TemplateComponent};

/// A component as described by the options since the last `-E` or `-N`.
#[derive(Clone, Default)]
pub struct Draft {
    /// Striping, except for the pool, which is still in `pool`.
    pub spec: Spec,
    /// `-c` or `-C` of this component; not inherited.
    pub count: Option<i64>,
    /// `-S` of this component; not inherited.
    pub size: Option<u32>,
    /// `-p`; empty for no pool.
    pub pool: Option<String>,
    /// `-L mdt`.
    pub is_mdt: bool,
    /// `-E`; 0 for none.
    pub end: u64,
    /// `-z`, in bytes.
    pub extension: Option<u64>,
    /// `--comp-flags`.
    pub flags: u32,
}

impl Draft {
    /// Returns the draft with which the next component begins.
    fn next(&self) -> Draft {
        if self.is_mdt {
            return Draft::default();
        }
        let Spec { stripe_size, count, overstripe, .. } = self.spec;
        let spec = Spec { stripe_size, count, overstripe, ..Spec::default() };
        Draft { spec, pool: self.pool.clone(), ..Draft::default() }
    }

    /// Whether an option describes the striping.
    pub fn is_striped(&self) -> bool {
        let listed = !self.spec.osts.is_empty() || self.spec.start.is_some();
        self.count.is_some() || self.size.is_some() || listed || self.is_mdt
    }

    /// Returns the striping in Lustre's terms. With a list of OSTs, the list alone decides the
    /// count.
    pub fn spec(&self) -> Spec {
        let mut spec = self.spec.clone();
        if !spec.osts.is_empty() {
            spec.count = None;
        }
        // An invalid name is refused together with the names of pools that do not exist.
        spec.pool = self.pool.as_deref().and_then(|name| Pool::new(name).ok());
        spec
    }

    /// Refuses a list of OSTs that contradicts the stripe count or the first OST.
    pub fn check_list(&self) -> Result<(), String> {
        let listed = self.spec.osts.len();
        match (self.count, self.spec.start) {
            _ if listed == 0 => Ok(()),
            (Some(count), _) if count > 0 && usize::try_from(count) != Ok(listed) => {
                Err(format!("stripe_count({count}) != nr_tgts({listed})"))
            }
            (_, Some(start)) if !self.spec.osts.contains(&start) => {
                Err(format!("Invalid stripe offset '{start}', not in the target list"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses options that a component on the MDT cannot have.
    fn check_mdt(&self, bytes: u64) -> Result<(), String> {
        let option = |name: &str, value: String| {
            Err(format!("Option '{name}' can't be specified with Data-on-MDT component: {value}"))
        };
        match (self.count, self.size, self.spec.osts.len(), self.spec.start, &self.pool) {
            (Some(count), ..) if count != 0 => option("stripe-count", count.to_string()),
            (_, Some(size), ..) if u64::from(size) != bytes => option("stripe-size", size.to_string()),
            (_, _, listed, ..) if listed != 0 => option("ost-list", format!("'{listed}'")),
            (_, _, _, Some(start), _) => option("stripe-offset", start.to_string()),
            (_, _, _, _, Some(pool)) if !pool.is_empty() => option("pool", format!("'{pool}'")),
            _ => Ok(()),
        }
    }
}

/// The mirrors that one `-N` describes.
struct Mirror {
    /// Number of mirrors with these components.
    count: u64,
    /// Flags for those of its components that have none.
    flags: u32,
    components: Vec<TemplateComponent>,
}

/// The components so far.
#[derive(Default)]
pub struct Builder {
    mirrors: Vec<Mirror>,
    /// Components without `-N`.
    components: Vec<TemplateComponent>,
}

impl Builder {
    /// Whether `-N` was given.
    pub fn is_mirrored(&self) -> bool {
        !self.mirrors.is_empty()
    }

    /// Whether there is a component yet.
    pub fn is_empty(&self) -> bool {
        self.mirrors.is_empty() && self.components.is_empty()
    }

    /// Whether the mirror that is being built has a component yet.
    pub fn has_first(&self) -> bool {
        !self.mirrors.last().map_or(&self.components, |m| &m.components).is_empty()
    }

    /// `-N`: completes the previous mirror with the component in `draft` and begins a new one.
    pub fn begin_mirror(&mut self, draft: &mut Draft, count: u64) -> Result<(), String> {
        if self.is_mirrored() {
            self.complete_mirror(draft)?;
        } else if !self.components.is_empty() {
            return Err("Components before the first -N belong to no mirror".to_owned());
        }
        self.mirrors.push(Mirror { count, flags: 0, components: Vec::new() });
        Ok(())
    }

    /// Sets the flags of the mirror that is being built. Returns false if there is none.
    pub fn set_mirror_flags(&mut self, flags: u32) -> bool {
        self.mirrors.last_mut().map(|m| m.flags = flags).is_some()
    }

    /// Completes a mirror with the component in `draft`. Without `-E` it ends at the end of the
    /// file.
    pub fn complete_mirror(&mut self, draft: &mut Draft) -> Result<(), String> {
        if draft.end == 0 {
            draft.end = u64::MAX;
        }
        self.complete(draft)
    }

    /// Adds the component that `draft` describes. `draft` becomes the beginning of the next one.
    /// The error is the message for the user.
    pub fn complete(&mut self, draft: &mut Draft) -> Result<(), String> {
        let components = self.mirrors.last_mut().map_or(&mut self.components, |m| &mut m.components);
        let start = components.last().map_or(0, |c| c.end);
        if start == u64::MAX {
            return Err("Add component failed. Invalid argument".to_owned());
        }
        if draft.end < start {
            return Err(format!("Set extent [{start}, {}) failed. Invalid argument", draft.end));
        }
        let flags = draft.flags;
        let component = if draft.is_mdt {
            draft.check_mdt(draft.end - start)?;
            TemplateComponent { flags, ..TemplateComponent::on_mdt(draft.end) }
        } else {
            draft.check_list()?;
            TemplateComponent { flags, ..TemplateComponent::striped(start, draft.end, draft.spec()) }
        };
        match draft.extension {
            None => components.push(component),
            Some(_) if draft.is_mdt => return Err("DoM components cannot be followed by extension space".to_owned()),
            Some(bytes) if bytes < EXTENSION_SIZE_MIN || !bytes.is_multiple_of(u64::from(STRIPE_SIZE_UNIT)) => {
                return Err(format!("Set stripe size {bytes} failed: Invalid argument"));
            }
            Some(bytes) => components.extend(component.extendable(bytes)),
        }
        *draft = draft.next();
        Ok(())
    }

    /// Returns the finished layout request.
    pub fn finish(self) -> Template {
        if !self.is_mirrored() {
            return Template::new(self.components);
        }
        let count: u64 = self.mirrors.iter().map(|m| m.count).sum();
        let mirrors = u16::try_from(count).unwrap_or(u16::MAX);
        let mut components = Vec::new();
        for mirror in self.mirrors {
            let flagged = |c: &TemplateComponent| {
                let flags = if c.flags == 0 { mirror.flags } else { c.flags };
                TemplateComponent { flags, ..c.clone() }
            };
            // One mirror more than the limit is enough for the check to refuse the layout.
            for _ in 0..mirror.count.min(u64::from(MIRRORS_MAX) + 1) {
                components.extend(mirror.components.iter().map(flagged));
            }
        }
        Template { components, mirrors }
    }
}
