//! The runbooks in the annotations of the alerts: the text of each page, readable without the repository.
//!
//! Input: the pages and the file of alerts. Output: the same file with the annotation `runbook` of each alert. `UPDATE_DOCS=1` writes it.

use std::{env, fs};

use crate::monitoring::{
    alerts::{PREFIX, RULES, RUNBOOKS},
    path, read,
};

/// Column of the annotation, and of its text.
const KEY: &str = "      ";
const TEXT: &str = "        ";

/// Returns the page of an alert: `NodesWithoutProviderID` has `nodes-without-provider-id.md`. The chart makes links in the same way.
pub(crate) fn page(name: &str) -> String {
    let mut page = String::new();
    let letters: Vec<char> = name.chars().collect();
    for (index, letter) in letters.iter().enumerate() {
        let follows_lowercase = index > 0 && letters[index - 1].is_lowercase();
        if letter.is_uppercase() && follows_lowercase {
            page.push('-');
        }
        page.push(letter.to_ascii_lowercase());
    }
    format!("{RUNBOOKS}/{page}.md")
}

/// Returns a page as plain text: without the title, without markup of headings and code, and with the text of links only.
fn plain(markdown: &str) -> String {
    let (mut plain, mut is_code) = (String::new(), false);
    for line in markdown.lines().skip(1) {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            plain += &format!("    {line}\n");
        } else {
            plain += &format!("{}\n", without_links(trimmed.strip_prefix("## ").unwrap_or(line)));
        }
    }
    plain.trim().to_owned()
}

fn without_links(line: &str) -> String {
    let mut text = line.to_owned();
    while let Some((before, rest)) = text.split_once("](") {
        let (Some((start, label)), Some((_, end))) = (before.rsplit_once('['), rest.split_once(')')) else { break };
        text = format!("{start}{label}{end}");
    }
    text
}

/// Returns the file of alerts with the current runbooks.
fn current(file: &str) -> String {
    let (mut lines, mut alert, mut is_old) = (Vec::new(), None, false);
    let finish = |lines: &mut Vec<String>, alert: &mut Option<String>| {
        let Some(name) = alert.take() else { return };
        lines.push(format!("{KEY}runbook: |-"));
        let text = plain(&read(&page(&name)));
        lines.extend(text.lines().map(|line| format!("{TEXT}{line}").trim_end().to_owned()));
    };
    for line in file.lines() {
        is_old =
            if is_old { line.is_empty() || line.starts_with(TEXT) } else { line.starts_with(&format!("{KEY}runbook: ")) };
        if is_old {
            continue;
        }
        if line.starts_with("  - alert: ") || line.starts_with("- name: ") {
            finish(&mut lines, &mut alert);
            alert = line.strip_prefix("  - alert: ").map(|name| name.strip_prefix(PREFIX).unwrap().to_owned());
        }
        lines.push(line.to_owned());
    }
    finish(&mut lines, &mut alert);
    lines.join("\n") + "\n"
}

#[test]
fn alerts_have_the_text_of_their_runbooks() {
    let file = read(RULES);
    let current = current(&file);
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path(RULES), &current).unwrap();
    }
    assert!(read(RULES) == current, "{RULES} has old runbooks: `make docs` writes them again");
    // Prometheus takes annotations for templates.
    let pages = fs::read_dir(path(RUNBOOKS)).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    pages.for_each(|page| assert!(!page.contains("{{"), "{page}"));
}

#[test]
fn pages_become_plain_text() {
    let text = "# Title\n\n## Look\n\nSee [the rule](../a.md#b), `kubectl`:\n\n```sh example\nkubectl get nodes\n```\n";
    assert_eq!(plain(text), "Look\n\nSee the rule, `kubectl`:\n\n    kubectl get nodes");
    assert_eq!(without_links("[*].key, [a](b) and [c](d)."), "[*].key, a and c.");
    assert_eq!(page("NodesWithoutProviderID"), "docs/runbooks/nodes-without-provider-id.md");
}
