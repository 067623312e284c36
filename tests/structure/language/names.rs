//! Checks of names: bindings, fields, functions and tests.

use syn::visit::{self, Visit};

use super::{
    report::{Finding, Source},
    words::{NAME_PARTS, WHOLE_NAMES, row_of},
};

/// Longest name of a test.
const LONGEST_TEST_NAME: usize = 60;
/// Words that no test name starts with.
const RIDDLES: &[&str] = &["what", "who", "which", "whoever", "nobody", "nothing", "one", "those", "where", "when", "how"];
/// Names that are contracts, and why.
const CONTRACTS: &[(&str, &str)] = &[("second_look", "method of a public trait")];

/// Returns the findings of I1, I2 and T1.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut visitor = Names { source, findings: Vec::new() };
    visitor.visit_file(&source.tree());
    visitor.findings
}

struct Names<'a> {
    source: &'a Source,
    findings: Vec<Finding>,
}

impl Names<'_> {
    fn report(&mut self, check: &'static str, ident: &syn::Ident, hint: String) {
        let line = ident.span().start().line;
        self.findings.push(self.source.finding(check, line, ident.to_string(), hint));
    }

    fn check(&mut self, ident: &syn::Ident) {
        let name = ident.to_string().to_lowercase();
        let name = name.trim_start_matches("r#").trim_start_matches('_');
        if CONTRACTS.iter().any(|(contract, _)| name == *contract) {
            return;
        }
        if let Some(instead) = row_of(WHOLE_NAMES, name) {
            self.report("I2", ident, instead.to_owned());
        } else if let Some(instead) = name.split('_').find_map(|part| row_of(NAME_PARTS, part)) {
            self.report("I1", ident, instead.to_owned());
        }
    }

    fn check_function(&mut self, ident: &syn::Ident, attributes: &[syn::Attribute]) {
        let is_test = attributes.iter().any(|it| it.path().segments.last().is_some_and(|last| last.ident == "test"));
        if !is_test {
            return self.check(ident);
        }
        let name = ident.to_string();
        let first = name.split('_').next().unwrap_or_default();
        if name.len() > LONGEST_TEST_NAME {
            self.report("T1 length", ident, format!("at most {LONGEST_TEST_NAME} characters: subject_condition_outcome"));
        }
        if RIDDLES.contains(&first) {
            self.report("T1 words", ident, "start with the subject: subject_condition_outcome".to_owned());
        } else if let Some(instead) = name.split('_').find_map(|part| row_of(NAME_PARTS, part)) {
            self.report("T1 words", ident, instead.to_owned());
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.check(&pattern.ident);
        visit::visit_pat_ident(self, pattern);
    }

    /// Allows `left` and `right` in closures without a block, such as `|left, right| left.cmp(right)`.
    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        let found = self.findings.len();
        closure.inputs.iter().for_each(|input| self.visit_pat(input));
        if !matches!(&*closure.body, syn::Expr::Block(_)) {
            let inputs = self.findings.split_off(found);
            self.findings.extend(inputs.into_iter().filter(|it| it.text != "left" && it.text != "right"));
        }
        self.visit_expr(&closure.body);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(ident) = &field.ident {
            self.check(ident);
        }
        visit::visit_field(self, field);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.check_function(&item.sig.ident, &item.attrs);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check(&item.sig.ident);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.check(&item.sig.ident);
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.check(&item.ident);
        visit::visit_item_const(self, item);
    }
}
