//! Layouts that move to another file. A migration gives a file the objects of an orphan. A
//! swap exchanges the objects of two files, under new names.

use std::collections::BTreeMap;

use sheen_wire::Fid;

use crate::{Component, Composite, Layout, LayoutError};

impl Layout {
    /// Returns this layout as layout of `file` with generation `generation` (see
    /// [`Layout::generation`]). The objects on OSTs stay the same. Objects on the MDT are named
    /// after their file, so they get new names.
    ///
    /// # Errors
    /// ERANGE if the generation is too large for a plain layout.
    pub fn adopted(&self, file: Fid, generation: u32) -> Result<Layout, LayoutError> {
        let mut components: Vec<Component> = self.components().to_vec();
        for c in &mut components {
            c.fid = file;
            if c.is_on_mdt() {
                c.entry_gen = generation;
            }
        }
        let mut composite = self.composite().cloned();
        match (&mut composite, &mut components[..]) {
            (Some(composite), _) => composite.layout_gen = generation,
            (None, [only]) => {
                only.layout_gen = u16::try_from(generation).map_err(|_| LayoutError::Generation(generation))?;
            }
            (None, _) => return Err(LayoutError::NotComposite),
        }
        Ok(Layout::assemble(composite, components))
    }

    /// Returns this layout with the version `version` of its object on the MDT
    /// ([`MDT_OST`](crate::MDT_OST)). The file must not have used this version before.
    pub fn on_mdt_as(&self, version: u32) -> Layout {
        let mut components: Vec<Component> = self.components().to_vec();
        components.iter_mut().filter(|c| c.is_on_mdt()).for_each(|c| c.entry_gen = version.saturating_sub(1));
        Layout::assemble(self.composite().cloned(), components)
    }

    /// Returns the Data-on-MDT components as a layout, for a caller that removes them. `None` if
    /// there are none.
    pub fn part_on_mdt(&self) -> Option<Layout> {
        let components: Vec<Component> = self.components().iter().filter(|c| c.is_on_mdt()).cloned().collect();
        let alone = |c: Composite| Composite { flags: 0, mirror_count: 1, ..c };
        (!components.is_empty()).then(|| Layout::assemble(self.composite().cloned().map(alone), components))
    }

    /// Returns this layout with objects renamed as `names` says; other objects keep their names.
    /// Objects on the MDT are named after their file, so a new name may change the component's
    /// file.
    pub fn renamed(&self, names: &BTreeMap<Fid, Fid>) -> Layout {
        let mut components: Vec<Component> = self.components().to_vec();
        for c in components.iter_mut().filter(|c| c.is_on_mdt()) {
            if let Some(name) = names.get(&c.object_on_mdt()) {
                (c.fid, c.entry_gen) = (Fid { ver: 0, ..*name }, name.ver.saturating_sub(1));
            }
        }
        for stripe in components.iter_mut().filter(|c| c.is_instantiated()).flat_map(|c| &mut c.stripes) {
            stripe.object = names.get(&stripe.object).copied().unwrap_or(stripe.object);
        }
        Layout::assemble(self.composite().cloned(), components)
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::Errno;

    use super::*;
    use crate::{Stripe, codec::fixtures};

    #[test]
    fn adopted_keeps_objects_and_changes_file_and_generation() {
        let (one, other) = (Fid::new(0x2_0000_0401, 1), Fid::new(0x2_0000_0401, 2));
        let stripes: Vec<_> = (0..3).map(|ost| Stripe { object: Fid::new(9, ost + 1), ost }).collect();
        let layout = Layout::new(one, 1 << 20, None, stripes.clone()).unwrap();
        let adopted = layout.adopted(other, 7).unwrap();
        assert_eq!((adopted.fid(), adopted.generation(), adopted.stripes()), (other, 7, &stripes[..]));
        assert_eq!(Layout::decode(&adopted.encode()).unwrap(), adopted);
        let refused = layout.adopted(other, 1 << 16).unwrap_err();
        assert_eq!((refused.errno(), refused), (Errno::ERANGE, LayoutError::Generation(1 << 16)));
        assert_eq!(layout.part_on_mdt(), None);
        let renamed = layout.renamed(&[(Fid::new(9, 1), Fid::new(9, 8)), (Fid::new(9, 3), Fid::new(9, 7))].into());
        let objects: Vec<_> = renamed.stripes().iter().map(|s| (s.ost, s.object.oid)).collect();
        assert_eq!(objects, [(0, 8), (1, 2), (2, 7)]);
        assert_eq!(Layout::decode(&renamed.encode()).unwrap(), renamed);
    }

    #[test]
    fn adopted_names_the_mdt_object_by_file_and_version() {
        let theirs = Layout::decode(&fixtures::bytes(fixtures::DOM)).unwrap();
        let file = Fid::new(0x2_0000_0401, 1);
        let named = |layout: &Layout| layout.stripes()[0].object;
        assert_eq!(named(&theirs), Fid { ver: 1, ..theirs.fid() });
        assert_eq!(named(&theirs.adopted(file, 7).unwrap()), Fid { ver: 8, ..file });
        let ours = theirs.adopted(file, 7).unwrap().on_mdt_as(77);
        assert_eq!(named(&ours), Fid { ver: 77, ..file });
        let part = Layout::decode(&ours.part_on_mdt().unwrap().encode()).unwrap();
        assert_eq!(part.all_objects().map(|s| s.object).collect::<Vec<_>>(), [Fid { ver: 77, ..file }]);
    }
}
