//! Fenced blocks of the documentation.
//!
//! In: README.md and the pages below `docs`. Out: every fenced block with its page, line, language and the words after the language.
//! A block inside a list loses the indentation of its fence.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Fenced block of a page.
pub(crate) struct Block {
    /// Path from the root of the tree.
    pub(crate) page: String,
    /// Line of the opening fence, from 1.
    pub(crate) line: usize,
    pub(crate) language: String,
    /// Words after the language: `example`, `file=NAME`.
    pub(crate) words: Vec<String>,
    pub(crate) text: String,
}

impl Block {
    /// Returns `true` if readers run the text as commands.
    pub(crate) fn has_commands(&self) -> bool {
        ["sh", "bash", "shell", "console"].contains(&self.language.as_str())
    }

    pub(crate) fn is_example(&self) -> bool {
        self.words.iter().any(|word| word == "example")
    }

    /// Returns the file that readers write the text into.
    pub(crate) fn file(&self) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix("file="))
    }

    /// Returns the commands without the lines that they print.
    pub(crate) fn commands(&self) -> String {
        if self.language != "console" {
            return self.text.clone();
        }
        self.text.lines().filter_map(|line| line.strip_prefix("$ ")).map(|line| format!("{line}\n")).collect()
    }

    /// Returns page and line.
    pub(crate) fn location(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns every file below `folder` whose name ends with this extension, sorted.
pub(crate) fn files_with_extension(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_with_extension(&path, extension));
        } else if path.extension().is_some_and(|ending| ending == extension) {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Returns the paths from the root and the texts of all pages.
pub(crate) fn pages() -> Vec<(String, String)> {
    let mut paths = files_with_extension(&root().join("docs"), "md");
    paths.push(root().join("README.md"));
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        (name, fs::read_to_string(path).unwrap())
    };
    paths.into_iter().map(read).collect()
}

/// Returns the blocks of a page, in order.
pub(crate) fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
        let text = inside.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect();
        let mut words = info.split_whitespace().map(str::to_owned);
        let language = words.next().unwrap_or_default();
        found.push(Block { page: page.to_owned(), line: index + 1, language, words: words.collect(), text });
    }
    found
}
