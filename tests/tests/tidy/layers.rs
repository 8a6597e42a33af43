//! Circles of files: a file uses what another file defines, and the other way round.
//!
//! Files of a crate form layers, as the crates do. Two files in a circle can only be understood
//! together. The usual cure is to move the shared type or function into a file below both.
//!
//! * An edge goes from the file that names something to the file that defines it, through any
//!   re-exports in between.
//! * A re-export is no use. A method call has no path and is no use either.
//! * Code behind `#[cfg(test)]`, files that `#[path]` names and arguments of macros are not read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{Attribute, Expr, ExprLit, Item, ItemUse, Lit, Meta, UseTree, Visibility, visit::Visit};

/// Maximum number of re-exports between a name and its definition. More would be a re-export of
/// itself.
const HOPS_MAX: usize = 16;

#[test]
fn every_crate_has_no_circle_of_files() {
    let mut sources = Vec::new();
    super::sources(&super::root(), &mut sources);
    sources.sort();
    let mut wrong = Vec::new();
    let mut crates = 0;
    for root in sources.iter().filter(|file| file.ends_with("lib.rs") || file.ends_with("main.rs")) {
        let dir = root.parent().expect("a file has a folder");
        let name = dir.strip_prefix(super::root()).expect("below the root").to_str().expect("UTF-8");
        let graph = Graph::read(root);
        let circles = graph.circles();
        for circle in &circles {
            println!("{name}: a circle of {} files", circle.len());
            for line in graph.uses_within(circle, dir) {
                println!("    {line}");
            }
        }
        if !circles.is_empty() {
            wrong.push(format!("{name} has {} circles of files", circles.len()));
        }
        crates += 1;
    }
    assert!(crates > 20, "found too few crates: {crates}");
    assert!(wrong.is_empty(), "{wrong:#?}; the circles are listed above");
}

/// The path of a module or an item: one identifier per element.
type Name = Vec<String>;

/// A module, and what its source names.
#[derive(Default)]
struct Module {
    /// The index of its file.
    file: usize,
    children: BTreeSet<String>,
    /// Names that `use` imports, and the paths that they come from.
    imports: BTreeMap<String, Name>,
    /// Modules from which `use` imports everything.
    globs: Vec<Name>,
    /// Names of items that it defines.
    items: BTreeSet<String>,
    /// Paths of two or more identifiers, and paths that a private `use` imports.
    paths: Vec<Name>,
    /// Names that it re-exports. They count as used if they are in [`Module::single`].
    reexports: Vec<(String, Name)>,
    /// Paths of one identifier.
    single: BTreeSet<String>,
}

/// Of each file that a file uses, the identifiers that it uses.
type Uses = BTreeMap<usize, BTreeSet<String>>;

/// The files of one crate, and their uses of each other.
pub struct Graph {
    files: Vec<PathBuf>,
    uses: Vec<Uses>,
}

impl Graph {
    /// Reads the crate with this root file.
    pub fn read(root: &Path) -> Graph {
        let mut reader = Reader::default();
        reader.file(root, Vec::new(), root.parent().expect("a file has a folder"));
        let mut uses = vec![Uses::new(); reader.files.len()];
        for (name, module) in &reader.modules {
            for path in &module.paths {
                if let Some((file, ident)) = reader.definition(name, path, 0)
                    && file != module.file
                {
                    uses[module.file].entry(file).or_default().insert(ident);
                }
            }
        }
        Graph { files: reader.files, uses }
    }

    /// Returns the circles: largest sets of files in which each file reaches all others.
    fn circles(&self) -> BTreeSet<BTreeSet<usize>> {
        let reach: Vec<BTreeSet<usize>> = (0..self.files.len()).map(|from| self.reachable(from)).collect();
        let circle = |from: usize| -> BTreeSet<usize> {
            reach[from].iter().copied().filter(|to| reach[*to].contains(&from)).collect()
        };
        (0..self.files.len()).map(circle).filter(|circle| circle.len() > 1).collect()
    }

    fn reachable(&self, from: usize) -> BTreeSet<usize> {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            next.extend(self.uses[file].keys().filter(|to| reached.insert(**to)));
        }
        reached
    }

    /// Returns, of each room below `src`, the other rooms that it uses, and the identifiers that it
    /// uses of them. A room is a directory or a file directly below `src`; `lib` is none.
    pub fn rooms(&self, src: &Path) -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
        let room = |file: usize| {
            let path = self.files[file].strip_prefix(src).ok()?.components().next()?;
            let name = Path::new(path.as_os_str()).file_stem()?.to_str()?;
            (name != "lib").then(|| name.to_owned())
        };
        let mut rooms: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (from, uses) in self.uses.iter().enumerate() {
            let Some(from) = room(from) else { continue };
            let used = rooms.entry(from.clone()).or_default();
            for (to, idents) in uses {
                let to = room(*to).unwrap_or_else(|| "lib".to_owned());
                if to != from {
                    used.entry(to).or_default().extend(idents.iter().cloned());
                }
            }
        }
        rooms
    }

    /// Returns one line for each use of a file of `circle` by another one, with the identifiers.
    fn uses_within(&self, circle: &BTreeSet<usize>, dir: &Path) -> Vec<String> {
        let name = |file: usize| self.files[file].strip_prefix(dir).unwrap_or(&self.files[file]).display();
        let mut lines = Vec::new();
        for &from in circle {
            for (&to, idents) in self.uses[from].iter().filter(|(to, _)| circle.contains(to)) {
                let idents: Vec<&str> = idents.iter().map(String::as_str).collect();
                lines.push(format!("{} uses {}: {}", name(from), name(to), idents.join(", ")));
            }
        }
        lines
    }
}

/// Reads the modules of a crate.
#[derive(Default)]
struct Reader {
    files: Vec<PathBuf>,
    modules: BTreeMap<Name, Module>,
}

impl Reader {
    /// Reads a file as the module `name`. `dir` contains the files of its children.
    fn file(&mut self, path: &Path, name: Name, dir: &Path) {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.files.push(path.to_owned());
        self.module(self.files.len() - 1, parsed.items, name, dir);
    }

    /// Reads a module whose file an attribute `path` names, relative to that of the attribute.
    fn elsewhere(&mut self, file: usize, attributes: &[Attribute], name: Name) {
        let here = self.files[file].parent().expect("a file has a folder").to_owned();
        let path = here.join(path_of(attributes).expect("an attribute `path`"));
        let children = if path.ends_with("mod.rs") { path.with_file_name("") } else { path.with_extension("") };
        self.file(&path, name, &children);
    }

    fn module(&mut self, file: usize, items: Vec<Item>, name: Name, dir: &Path) {
        let mut module = Module { file, ..Module::default() };
        for item in items {
            if is_for_tests(attributes(&item)) || is_elsewhere(attributes(&item)) {
                continue;
            }
            match item {
                Item::Mod(child) => {
                    let ident = child.ident.to_string();
                    let child_name: Name = name.iter().cloned().chain([ident.clone()]).collect();
                    let child_dir = dir.join(&ident);
                    match child.content {
                        Some((_, items)) => self.module(file, items, child_name, &child_dir),
                        None if path_of(&child.attrs).is_some() => self.elsewhere(file, &child.attrs, child_name),
                        None => self.file(&file_of_module(dir, &ident), child_name, &child_dir),
                    }
                    module.children.insert(ident);
                }
                Item::Use(import) => {
                    let reexports = !matches!(import.vis, Visibility::Inherited);
                    module.import(&import.tree, Vec::new(), reexports);
                }
                item => {
                    module.items.extend(defined(&item));
                    PathsOfItem(&mut module).visit_item(&item);
                }
            }
        }
        let used = module.reexports.iter().filter(|(name, _)| module.single.contains(name));
        let used: Vec<Name> = used.map(|(_, path)| path.clone()).collect();
        module.paths.extend(used);
        self.modules.insert(name, module);
    }

    /// Returns the file that defines what `path` names in `module`, and its identifier. `None`: the
    /// path leads out of the crate.
    fn definition(&self, module: &[String], path: &[String], hops: usize) -> Option<(usize, String)> {
        if hops > HOPS_MAX {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let (at, rest): (Name, &[String]) = match first.as_str() {
            "crate" => (Vec::new(), rest),
            "self" => (module.to_vec(), rest),
            "super" => (module.split_last()?.1.to_vec(), rest),
            _ => (module.to_vec(), path),
        };
        let here = self.modules.get(&at)?;
        let Some((next, beyond)) = rest.split_first() else {
            return Some((here.file, at.last().cloned().unwrap_or_else(|| "crate".to_owned())));
        };
        if next == "super" || next == "self" {
            return self.definition(&at, rest, hops + 1);
        }
        if here.children.contains(next) {
            let child: Name = at.iter().cloned().chain([next.clone()]).collect();
            let inside: Name = ["self".to_owned()].into_iter().chain(beyond.iter().cloned()).collect();
            return self.definition(&child, &inside, hops + 1);
        }
        if let Some(from) = here.imports.get(next) {
            let whole: Name = from.iter().chain(beyond).cloned().collect();
            return self.definition(&at, &whole, hops + 1);
        }
        if here.items.contains(next) {
            return Some((here.file, next.clone()));
        }
        here.globs.iter().find_map(|glob| {
            let whole: Name = glob.iter().chain(rest).cloned().collect();
            self.definition(&at, &whole, hops + 1)
        })
    }
}

impl Module {
    /// Records what a `use` imports or re-exports.
    fn import(&mut self, tree: &UseTree, mut prefix: Name, reexports: bool) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix, reexports);
            }
            UseTree::Name(name) => self.import_one(name.ident.to_string(), name.ident.to_string(), prefix, reexports),
            UseTree::Rename(name) => {
                self.import_one(name.ident.to_string(), name.rename.to_string(), prefix, reexports);
            }
            UseTree::Glob(_) => {
                if !reexports {
                    self.paths.push(prefix.clone());
                }
                self.globs.push(prefix);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, prefix.clone(), reexports));
            }
        }
    }

    fn import_one(&mut self, name: String, as_name: String, mut path: Name, reexports: bool) {
        let mut as_name = as_name;
        if name != "self" {
            path.push(name);
        } else if as_name == "self" {
            as_name = path.last().cloned().unwrap_or_default();
        }
        match reexports {
            true => self.reexports.push((as_name.clone(), path.clone())),
            false => self.paths.push(path.clone()),
        }
        // `use name::name` would lead to itself.
        if path.first() != Some(&as_name) || path.len() == 1 {
            self.imports.insert(as_name, path);
        }
    }
}

/// Records the paths in an item.
struct PathsOfItem<'a>(&'a mut Module);

impl<'ast> Visit<'ast> for PathsOfItem<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Name = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        match &names[..] {
            [name] => drop(self.0.single.insert(name.clone())),
            _ if path.leading_colon.is_none() => self.0.paths.push(names),
            _ => {}
        }
        syn::visit::visit_path(self, path);
    }

    /// A `use` in the body of a function.
    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        self.0.import(&import.tree, Vec::new(), false);
    }
}

fn file_of_module(dir: &Path, ident: &str) -> PathBuf {
    let flat = dir.join(ident).with_extension("rs");
    if flat.exists() { flat } else { dir.join(ident).join("mod.rs") }
}

/// Returns the file that an attribute `path` names.
fn path_of(attributes: &[Attribute]) -> Option<String> {
    let of = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    };
    attributes.iter().find_map(of)
}

/// Returns the name that an item defines.
fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Macro(i) => i.ident.as_ref()?,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// Returns whether `#[path]` is among the attributes: the module's file belongs to another crate.
fn is_elsewhere(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| a.path().is_ident("path"))
}

/// Returns whether `#[cfg(test)]` is among the attributes.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_test = |path: syn::Path| path.is_ident("test");
    attributes.iter().any(|a| a.path().is_ident("cfg") && a.parse_args().is_ok_and(is_test))
}
