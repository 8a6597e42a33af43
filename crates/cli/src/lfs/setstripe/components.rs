//! From options to components: `-E`, `-N` and the end of the line each complete the component that
//! the options before described.
//!
//! A component begins where the one before ends, and takes over its stripe size, count and pool
//! where it is given none (not from a component on the MDT, which has none). With `-z` it becomes
//! two: one that begins small, and behind it an extension of which it takes so much at a time.

use sheen_layout::{EXTENSION_SIZE_MIN, MIRRORS_MAX, Pool, STRIPE_SIZE_UNIT, Spec, Template, TemplateComponent};

/// What the options since the last `-E` or `-N` say.
#[derive(Clone, Default)]
pub struct Draft {
    /// Striping. The pool is in `pool` yet.
    pub spec: Spec,
    /// `-c` or `-C`, as given here and not taken over.
    pub count: Option<i64>,
    /// `-S`, as given here.
    pub size: Option<u32>,
    /// `-p`; empty for none.
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
    /// What the component after this one begins with.
    fn next(&self) -> Draft {
        if self.is_mdt {
            return Draft::default();
        }
        let Spec { stripe_size, count, overstripe, .. } = self.spec;
        let spec = Spec { stripe_size, count, overstripe, ..Spec::default() };
        Draft { spec, pool: self.pool.clone(), ..Draft::default() }
    }

    /// Whether anything is said of the striping.
    pub fn is_striped(&self) -> bool {
        let listed = !self.spec.osts.is_empty() || self.spec.start.is_some();
        self.count.is_some() || self.size.is_some() || listed || self.is_mdt
    }

    /// The striping, in Lustre's terms complete: a count that only repeats the list's length is the
    /// list's.
    pub fn spec(&self) -> Spec {
        let mut spec = self.spec.clone();
        if !spec.osts.is_empty() {
            spec.count = None;
        }
        // A name that cannot be a pool's is refused with those that are none.
        spec.pool = self.pool.as_deref().and_then(|name| Pool::new(name).ok());
        spec
    }

    /// Lists and starts that contradict each other.
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

    /// What a component on the MDT cannot have.
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

/// What `-N` began.
struct Mirror {
    /// So many of it.
    count: u64,
    /// For its components that have none.
    flags: u32,
    components: Vec<TemplateComponent>,
}

/// The components so far.
#[derive(Default)]
pub struct Builder {
    mirrors: Vec<Mirror>,
    /// Without `-N`.
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

    /// `-N`: `draft` described the mirror before this one.
    pub fn begin_mirror(&mut self, draft: &mut Draft, count: u64) -> Result<(), String> {
        if self.is_mirrored() {
            self.complete_mirror(draft)?;
        } else if !self.components.is_empty() {
            return Err("Components before the first mirror belong to none".to_owned());
        }
        self.mirrors.push(Mirror { count, flags: 0, components: Vec::new() });
        Ok(())
    }

    /// Flags of the mirror that is being built; false if there is none.
    pub fn set_mirror_flags(&mut self, flags: u32) -> bool {
        self.mirrors.last_mut().map(|m| m.flags = flags).is_some()
    }

    /// The end of a mirror: it reaches the end of the file unless said otherwise.
    pub fn complete_mirror(&mut self, draft: &mut Draft) -> Result<(), String> {
        if draft.end == 0 {
            draft.end = u64::MAX;
        }
        self.complete(draft)
    }

    /// Adds the component that `draft` describes, which becomes the next one's. An error says what
    /// is wrong with it.
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

    /// All of it.
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
            // One more than can be is refused; more than that need not be built for it.
            for _ in 0..mirror.count.min(u64::from(MIRRORS_MAX) + 1) {
                components.extend(mirror.components.iter().map(flagged));
            }
        }
        Template { components, mirrors }
    }
}
