//! Checks of documentation comments.

use syn::{
    Attribute, Expr, ExprLit, Lit, Meta,
    visit::{self, Visit},
};

use super::{
    lexer::{PieceKind, pieces},
    report::{Finding, Source},
};

/// Words of the longest first paragraph.
const LONGEST_PARAGRAPH: usize = 30;
/// Words in `s` that are no third-person verbs.
const NO_VERBS: &str = "Addresses Always Arguments As Bytes Containers Controllers Credentials Documents Entries Errors Events Facts \
    Fields Files Findings Flags Has Headers Hosts Instances Is Its Keys Kubernetes Less Lines Load-balancers Machines Members \
    Metrics Milliseconds Names Nodes Options Others Parts Paths Plus Pods Pools Ports Requests Resources Routes Rules Seconds \
    Secrets Services Settings Status Subnets Tags Things This Times Unless Users Values Was Words Yes";
/// Words that no documentation starts with.
const RIDDLES: &str = "What Who Whose Whom Which How Why Where When Whether That Those These This It Its One Some Something Somebody \
    Someone Nobody Everybody Everything Nothing All Such Likewise";

#[derive(Clone, Copy, PartialEq)]
enum ItemKind {
    File,
    Function,
    BoolField,
    Other,
}

/// Returns the findings of D1 to D6.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let is_code = |piece: &super::lexer::Piece<'_>| piece.kind != PieceKind::Comment;
    let code = pieces(&source.text).into_iter().filter(is_code).map(|piece| piece.text).collect::<String>();
    let mut visitor = Docs { source, code, findings: Vec::new() };
    let tree = source.tree();
    visitor.check(&tree.attrs, ItemKind::File);
    visitor.visit_file(&tree);
    visitor.findings
}

struct Docs<'a> {
    source: &'a Source,
    /// Text of the file without comments.
    code: String,
    findings: Vec<Finding>,
}

/// Returns the text of an attribute of documentation.
pub(crate) fn doc_line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value else { return None };
    pair.path.is_ident("doc").then(|| text.value())
}

fn is_word(text: &str) -> bool {
    text.contains(char::is_alphanumeric)
}

impl Docs<'_> {
    fn report(&mut self, check: &'static str, line: usize, text: &str, hint: &str) {
        let first: String = text.chars().take(90).collect();
        let finding = self.source.finding(check, line, first, hint);
        if finding.area != "tests" {
            self.findings.push(finding);
        }
    }

    fn check(&mut self, attributes: &[Attribute], kind: ItemKind) {
        let lines: Vec<String> = attributes.iter().filter_map(doc_line).collect();
        let Some(first) = attributes.iter().find(|it| doc_line(it).is_some()) else { return };
        let line = first.pound_token.span.start().line;
        let text = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n");
        let paragraph = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let words = paragraph.split(' ').filter(|word| is_word(word)).count();
        let first = paragraph.split([' ', '.', ',', ':', '\'', '’']).next().unwrap_or_default();
        if kind == ItemKind::Function && !is_verb(first) {
            self.report("D1", line, &paragraph, "start with a third-person verb: `Returns …`, `Plans …`");
        }
        let is_reference = paragraph.starts_with("See the module") || paragraph.starts_with("The same");
        if is_reference {
            self.report("D4", line, &paragraph, "name what it is instead of referring to another place");
        } else if RIDDLES.split_whitespace().any(|it| it == first) && !(first == "Whether" && kind == ItemKind::BoolField) {
            self.report("D2", line, &paragraph, "start with the noun; `Whether` is for `bool` fields");
        }
        let is_code = paragraph.starts_with('`') && paragraph.trim_end_matches(['.', ',']).ends_with('`');
        if words <= 3 && !is_code {
            self.report("D3", line, &paragraph, "delete it, or say what name and type do not");
        }
        if words > LONGEST_PARAGRAPH {
            self.report("D5", line, &paragraph, "at most 30 words; begin a second paragraph");
        }
        if kind == ItemKind::Function {
            self.check_references(&text, line);
        }
    }

    /// Checks that quoted names occur in the code of the file.
    fn check_references(&mut self, text: &str, line: usize) {
        let is_name = |quoted: &&str| {
            quoted.starts_with(|first: char| first.is_ascii_lowercase())
                && quoted.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_')
        };
        let quoted: Vec<&str> = text.split('`').skip(1).step_by(2).filter(is_name).collect();
        for name in quoted.into_iter().filter(|name| *name != "true" && *name != "false") {
            let is_part = |found: Option<char>| found.is_some_and(|it| it.is_alphanumeric() || it == '_');
            let mut found = self.code.match_indices(name);
            let is_whole = |at: usize| {
                !is_part(self.code[..at].chars().next_back()) && !is_part(self.code[at + name.len()..].chars().next())
            };
            if !found.any(|(at, _)| is_whole(at)) {
                self.report("D6", line, name, "no such parameter or name in this file");
            }
        }
    }
}

/// Whether a function's documentation may start with `word`.
fn is_verb(word: &str) -> bool {
    let is_form = word.len() > 2 && word.starts_with(|first: char| first.is_ascii_uppercase()) && word.ends_with('s');
    is_form && !word.contains('`') && !NO_VERBS.split_whitespace().any(|it| it == word)
}

impl<'ast> Visit<'ast> for Docs<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Const(item) => self.check(&item.attrs, ItemKind::Other),
            syn::Item::Enum(item) => self.check(&item.attrs, ItemKind::Other),
            syn::Item::Fn(item) => self.check(&item.attrs, ItemKind::Function),
            syn::Item::Mod(item) => self.check(&item.attrs, ItemKind::Other),
            syn::Item::Static(item) => self.check(&item.attrs, ItemKind::Other),
            syn::Item::Struct(item) => self.check(&item.attrs, ItemKind::Other),
            syn::Item::Trait(item) => self.check(&item.attrs, ItemKind::Other),
            syn::Item::Type(item) => self.check(&item.attrs, ItemKind::Other),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        let is_bool = matches!(&field.ty, syn::Type::Path(path) if path.path.is_ident("bool"));
        self.check(&field.attrs, if is_bool { ItemKind::BoolField } else { ItemKind::Other });
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.check(&variant.attrs, ItemKind::Other);
        visit::visit_variant(self, variant);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check(&item.attrs, ItemKind::Function);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.check(&item.attrs, ItemKind::Function);
        visit::visit_trait_item_fn(self, item);
    }
}
