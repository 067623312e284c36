//! Subcommand `man`: manual pages of the program and of each command, generated from the parser. Only in builds with the feature
//! `completions`.
//!
//! In: the name of a page, and the whole parser. Out: the page in the format of `man(7)`; without a name, the names of all pages.

use clap::{Arg, ArgMatches, Command};
use clap_mangen::Man;

use super::{ACR_CREDENTIAL_PROVIDER, NAME as PROGRAM, NODE_MANAGER, VERSION, health_probe_proxy};
use crate::flags::quoted;

pub(super) const NAME: &str = "man";

const PAGE: &str = "page";

/// Commands that are also programs with the same name.
const PROGRAMS: [&str; 3] = [NODE_MANAGER, health_probe_proxy::NAME, ACR_CREDENTIAL_PROVIDER];

pub(super) fn subcommand() -> Command {
    let page = Arg::new(PAGE).help("Name of the page. Without it, the names of all pages are printed.");
    Command::new(NAME).about("Print a manual page, for man(1)").hide(true).arg(page)
}

/// Returns the requested page, or the names of all pages if none is requested. The error names the pages, too.
pub(super) fn page(chosen: &ArgMatches, parser: &Command) -> Result<String, Vec<String>> {
    let all = pages(parser);
    let names = |separator: &str| all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(separator);
    let Some(requested) = chosen.get_one::<String>(PAGE) else { return Ok(names("\n") + "\n") };
    match all.iter().find(|(name, _)| name == requested) {
        Some((name, command)) => Ok(render(name, command)),
        None => Err(vec![format!("unknown manual page {}: expected one of {}", quoted(requested), names(", "))]),
    }
}

/// Returns the pages of the program and of each visible command, with their names.
fn pages(parser: &Command) -> Vec<(String, Command)> {
    let shown = parser.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    let named = |command: &Command| {
        let name = command.get_name();
        let title = if PROGRAMS.contains(&name) { name.to_owned() } else { format!("{PROGRAM}-{name}") };
        (title, command.clone())
    };
    std::iter::once((PROGRAM.to_owned(), parser.clone())).chain(shown.map(named)).collect()
}

fn render(title: &str, command: &Command) -> String {
    let typed =
        title.strip_prefix(PROGRAM).map_or(title.to_owned(), |rest| format!("{PROGRAM} {}", rest.trim_start_matches('-')));
    let command = command.clone().name(title.to_owned()).bin_name(typed.trim_end().to_owned());
    let man = Man::new(command).title(title.to_uppercase()).section("1").source(format!("{PROGRAM} {VERSION}"));
    let mut page = Vec::new();
    // Writing to memory does not fail.
    let _ = man.manual("Cloud Controller Manager").render(&mut page);
    String::from_utf8_lossy(&page).into_owned()
}
