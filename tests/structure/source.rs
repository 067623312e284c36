//! The product code as a graph: which file names which, and which types each defines.
//!
//! In: `src` without tests, with or without the sandbox. Out: [`Sources`]. Paths in macro calls are not seen: they are tokens to the parser.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{
    Item, ItemMod, ItemUse, Meta, UseTree, Visibility,
    visit::{self, Visit},
};

use crate::guides::blocks::files_with_extension;

/// Module paths, from the crate's root: `["runtime", "store"]`.
pub(crate) type ModulePath = Vec<String>;

/// One file, parsed.
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) lines: usize,
    pub(crate) types: Vec<String>,
    /// Absolute paths that it names.
    named: BTreeSet<ModulePath>,
    /// Re-exports of its `pub use`, from the last segment to the absolute path.
    reexports: BTreeMap<String, ModulePath>,
    /// Modules that it re-exports as a whole.
    globs: Vec<ModulePath>,
}

/// All files by module.
pub(crate) struct Sources {
    pub(crate) files: BTreeMap<ModulePath, SourceFile>,
}

impl Sources {
    /// Reads the product code below `src`.
    pub(crate) fn read() -> Self {
        Self::read_where(is_product)
    }

    /// Reads the product code and the sandbox.
    pub(crate) fn with_sandbox() -> Self {
        Self::read_where(is_source)
    }

    fn read_where(is_included: fn(&Path) -> bool) -> Self {
        let mut files = BTreeMap::new();
        let all = files_with_extension(Path::new("src"), "rs");
        let modules: BTreeSet<ModulePath> = all.iter().map(|path| module_of(path)).collect();
        for path in all.iter().filter(|path| is_included(path)) {
            let module = module_of(path);
            files.insert(module.clone(), read_file(path, &module, &modules));
        }
        Self { files }
    }

    /// Returns the other files that each file names.
    pub(crate) fn edges(&self) -> BTreeMap<&ModulePath, BTreeSet<&ModulePath>> {
        let targets = |module: &ModulePath, file: &SourceFile| {
            let found = file.named.iter().filter_map(|path| self.home(path, 0));
            let found: BTreeSet<&ModulePath> = found.filter(|target| *target != module).collect();
            found
        };
        self.files.iter().map(|(module, file)| (module, targets(module, file))).collect()
    }

    /// Returns the file that defines the item at `path`. Re-exports are followed.
    fn home(&self, path: &[String], depth: usize) -> Option<&ModulePath> {
        let length = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]))?;
        let (module, file) = self.files.get_key_value(&path[..length])?;
        let Some(name) = path.get(length).filter(|_| depth < 8) else {
            return Some(module);
        };
        if let Some(target) = file.reexports.get(name) {
            let rest: ModulePath = target.iter().chain(&path[length + 1..]).cloned().collect();
            return self.home(&rest, depth + 1);
        }
        let from_glob = file.globs.iter().find(|glob| self.files.get(*glob).is_some_and(|it| it.types.contains(name)));
        from_glob.and_then(|glob| self.files.get_key_value(glob)).map(|(module, _)| module).or(Some(module))
    }
}

/// Returns `true` for files of tests.
pub(crate) fn is_test(path: &Path) -> bool {
    let is_test = |part: &std::ffi::OsStr| {
        let part = part.to_string_lossy();
        part == "tests" || part.ends_with("tests.rs") || part == "samples.rs"
    };
    path.iter().any(is_test)
}

/// Returns `true` for files of the sandbox and of its demo.
pub(crate) fn is_sandbox(path: &Path) -> bool {
    path.to_string_lossy().starts_with("src/sandbox")
}

/// Returns `true` unless the file belongs to the tests, or is the root of the crate or of the program.
fn is_source(path: &Path) -> bool {
    let is_root = path.ends_with("src/main.rs") || path.ends_with("src/lib.rs");
    !is_test(path) && !is_root
}

/// Returns `true` for sources outside of the sandbox.
pub(crate) fn is_product(path: &Path) -> bool {
    is_source(path) && !is_sandbox(path)
}

fn module_of(path: &Path) -> ModulePath {
    let inside = path.strip_prefix("src").expect("a file of the crate").with_extension("");
    let mut parts: ModulePath = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib" || last == "main") {
        parts.pop();
    }
    parts
}

fn read_file(path: &Path, module: &[String], modules: &BTreeSet<ModulePath>) -> SourceFile {
    let text = fs::read_to_string(path).expect("a readable file");
    let tree = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let inline_tests = text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let mut reader = Reader {
        module: module.to_vec(),
        modules,
        file: SourceFile {
            path: path.to_owned(),
            lines: text[..inline_tests].lines().count(),
            types: Vec::new(),
            named: BTreeSet::new(),
            reexports: BTreeMap::new(),
            globs: Vec::new(),
        },
    };
    reader.visit_file(&tree);
    reader.file
}

struct Reader<'a> {
    module: ModulePath,
    modules: &'a BTreeSet<ModulePath>,
    file: SourceFile,
}

impl Reader<'_> {
    /// Returns the absolute path of `segments`, if they lead into the crate.
    fn absolute(&self, segments: &[String]) -> Option<ModulePath> {
        let mut base = self.module.clone();
        let mut rest = segments;
        match rest.first()?.as_str() {
            "crate" => base.clear(),
            "self" => {}
            "super" => drop(base.pop()),
            child => {
                let inside: ModulePath = base.iter().cloned().chain([child.to_owned()]).collect();
                return self.modules.contains(&inside).then(|| base.iter().chain(rest).cloned().collect());
            }
        }
        rest = &rest[1..];
        while rest.first().is_some_and(|segment| segment == "super") {
            base.pop();
            rest = &rest[1..];
        }
        Some(base.into_iter().chain(rest.iter().cloned()).collect())
    }

    fn import(&mut self, prefix: &[String], tree: &UseTree, is_public: bool) {
        let with = |name: String| -> ModulePath { prefix.iter().cloned().chain([name]).collect() };
        match tree {
            UseTree::Path(path) => self.import(&with(path.ident.to_string()), &path.tree, is_public),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(prefix, tree, is_public)),
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                let path = if name == "self" { prefix.to_vec() } else { with(name.clone()) };
                self.record_import(&path, &name, is_public);
            }
            UseTree::Rename(rename) => {
                self.record_import(&with(rename.ident.to_string()), &rename.rename.to_string(), is_public)
            }
            UseTree::Glob(_) => {
                let Some(path) = self.absolute(prefix) else { return };
                if is_public {
                    self.file.globs.push(path.clone());
                }
                self.file.named.insert(path);
            }
        }
    }

    /// Records an imported path. A re-export does not count as a use.
    fn record_import(&mut self, path: &[String], name: &str, is_public: bool) {
        let Some(path) = self.absolute(path) else { return };
        if is_public {
            self.file.reexports.insert(name.to_owned(), path);
        } else {
            self.file.named.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let name = match item {
            Item::Struct(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        self.file.types.extend(name.map(ToString::to_string));
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let is_test = item.attrs.iter().any(|attribute| match &attribute.meta {
            Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string().contains("test"),
            _ => false,
        });
        if !is_test && item.content.is_some() {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(&[], &item.tree, !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: ModulePath = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if path.leading_colon.is_none() && segments.len() > 1 {
            self.file.named.extend(self.absolute(&segments));
        }
        visit::visit_path(self, path);
    }
}
