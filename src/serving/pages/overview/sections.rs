//! The parts of the page, from top to bottom. In: what to show. Out: markup with texts in it. Pure.

use super::{
    facts::{self, OverviewInput, ReportedProblem, WaitingKey},
    html::{HtmlPage, percent_encoded},
};
use crate::status::{BucketStatus, ControllerStatus, ManagerStatus};

/// Largest number of rows of Services.
const MAX_SERVICES: usize = 500;
const MAX_NODES: usize = 100;
const MAX_PROBLEMS: usize = 40;
const MAX_OTHERS: usize = 60;
const MAX_DRIFT: usize = 50;

pub(super) fn all(page: &mut HtmlPage, input: &OverviewInput<'_>) {
    // The controllers of a replica that does not lead are idle: what they have not settled says nothing.
    let works = facts::works(input.status);
    let (services, others) = if works { facts::waiting(input.status) } else { Default::default() };
    let problems = facts::problems(input.status, input.readiness, input.show_reasons);
    head(page, input);
    banner(page, input.status, works);
    tiles(page, input, works.then_some((services.len(), others.len())));
    problem_table(page, &problems);
    stages(page, input.status);
    waiting_table(page, "<h2 id=\"nodes\">Nodes and other work that waits</h2>", &others, MAX_NODES, false);
    drift(page, input.status);
    budget(page, input.status);
    controllers(page, input.status);
    waiting_table(page, "<h2 id=\"services\">Services that wait</h2>", &services, MAX_SERVICES, input.has_plan);
}

fn head(page: &mut HtmlPage, input: &OverviewInput<'_>) {
    page.markup("<header><h1>cloud-controller-manager <small>").text(&input.status.version).markup("</small></h1><nav>");
    if input.has_plan {
        page.markup("<a href=\"/planz\">Plan: what would be written now</a> · ");
    }
    page.markup("<a href=\"/statusz\">all values</a> · <a href=\"/metrics\">metrics</a> · <a href=\"/flagz\">flags</a></nav></header>");
}

fn banner(page: &mut HtmlPage, status: &ManagerStatus, works: bool) {
    if status.shadow {
        page.markup("<p><b>Shadow manager (--dry-run): it writes nothing and never leads.</b> <a href=\"/reportz\">The report</a> says what it would write, \
             what it refuses, and whether it is ready to switch.</p>");
    } else if !works {
        page.markup("<p>This replica does not lead. What waits and fails is on the page of the leader.</p>");
    }
}

fn tiles(page: &mut HtmlPage, input: &OverviewInput<'_>, waiting: Option<(usize, usize)>) {
    let failing = input.readiness.iter().filter(|probe| matches!(probe.result, Some(Err(_)))).count();
    page.markup("<main><ul class=\"tiles\">");
    match input.status.leading {
        Some(true) => tile(page, "<li class=\"good\">Leader<b>", "this replica"),
        Some(false) if input.status.shadow => tile(page, "<li>Leader<b>", "never: this is a shadow"),
        Some(false) => tile(page, "<li>Leader<b>", "another replica, or none"),
        None => {}
    }
    match failing {
        0 => tile(page, "<li class=\"good\">Ready<b>", "yes"),
        count => tile(page, "<li class=\"bad\">Ready<b>", &format!("no: {count} of {} checks fail", input.readiness.len())),
    }
    if let Some((services, others)) = waiting {
        tile(page, "<li>Services that wait<b>", &services.to_string());
        tile(page, "<li>Nodes and other work that waits<b>", &others.to_string());
    }
    if let Some(count) = input.status.controllers.iter().find_map(|controller| controller.uninitialized_nodes) {
        tile(page, "<li>Nodes not initialized<b>", &count.to_string());
    }
    let provider = &input.status.cloud_provider;
    if let (Some(name), Some(state)) = (&provider.name, &provider.state) {
        tile(page, "<li>Cloud provider<b>", &format!("{name}: {state}"));
    }
    page.markup("</ul>");
}

fn tile(page: &mut HtmlPage, open: &'static str, value: &str) {
    page.element(open, value, "</b></li>");
}

/// Writes a table with rows up to a limit, then how many more there are.
fn table<T>(
    page: &mut HtmlPage,
    (title, columns): (&'static str, &'static str),
    all: &[T],
    limit: usize,
    mut row: impl FnMut(&mut HtmlPage, &T),
) {
    page.markup(title);
    if all.is_empty() {
        page.markup("<p class=\"faint\">None.</p>");
        return;
    }
    page.markup("<table><thead><tr>").markup(columns).markup("</tr></thead><tbody>");
    let mut shown = 0;
    for item in all.iter().take(limit) {
        if page.is_full() {
            break;
        }
        row(page, item);
        shown += 1;
    }
    page.markup("</tbody></table>");
    if shown < all.len() {
        page.element(
            "<p class=\"faint\">",
            &(all.len() - shown).to_string(),
            " more are not shown; <a href=\"/statusz\">all values</a> has them.</p>",
        );
    }
}

fn problem_table(page: &mut HtmlPage, problems: &[ReportedProblem]) {
    let head = ("<h2 id=\"errors\">Errors and what to do</h2>", "<th>What<th>Error<th>What to do");
    table(page, head, problems, MAX_PROBLEMS, |page, problem| {
        page.element("<tr><td><b>", &problem.subject, "</b></td>")
            .element("<td class=\"bad\">", &problem.error, "</td>")
            .element("<td data-of=\"Do\">", &problem.remedy, "</td></tr>");
    });
}

fn stages(page: &mut HtmlPage, status: &ManagerStatus) {
    let head = ("<h2 id=\"stages\">Services by stage</h2>", "<th>Stage<th>Services");
    table(page, head, &facts::stages(status), MAX_OTHERS, |page, (stage, count)| {
        page.element("<tr><td>", stage, "</td>").element("<td data-of=\"Services\">", &count.to_string(), "</td></tr>");
    });
}

fn waiting_table(page: &mut HtmlPage, title: &'static str, waiting: &[WaitingKey<'_>], limit: usize, has_plan: bool) {
    table(page, (title, "<th>Name<th>Stage<th>Turn<th>Failures<th>Why"), waiting, limit, |page, row| {
        page.markup("<tr><td>");
        name(page, row.key, has_plan);
        page.element("</td><td data-of=\"Stage\">", &row.stage, "</td>")
            .element("<td data-of=\"Turn\">", &row.next_step, "</td>")
            .element("<td data-of=\"Failures\">", &row.failures.to_string(), "</td>")
            .element("<td>", row.reason, "</td></tr>");
    });
}

fn name(page: &mut HtmlPage, key: &str, has_plan: bool) {
    if has_plan {
        page.element("<a href=\"/planz?service=", &percent_encoded(key), "\">").element("", key, "</a>");
    } else {
        page.text(key);
    }
}

fn drift(page: &mut HtmlPage, status: &ManagerStatus) {
    let found = status.drift();
    if found.is_empty() {
        return;
    }
    let head = ("<h2 id=\"drift\">External changes</h2>", "<th>Name<th>Found<th>Response<th>Change");
    table(page, head, &found, MAX_DRIFT, |page, note| {
        page.element("<tr><td>", &note.about, "</td>")
            .element("<td data-of=\"Found\">", &note.found.to_string(), "</td>")
            .element("<td data-of=\"Done\">", facts::response(note.outcome), "</td>")
            .element("<td>", &note.detail, "</td></tr>");
    });
}

fn budget(page: &mut HtmlPage, status: &ManagerStatus) {
    let buckets = status.details().map(|details| details.session.request_budget.buckets.as_slice()).unwrap_or_default();
    if buckets.is_empty() {
        return;
    }
    let head = ("<h2 id=\"budget\">Request budget</h2>", "<th>Quota<th>Left<th>Refill per second<th>Paused<th>Waiting");
    table(page, head, buckets, MAX_OTHERS, bucket_row);
}

fn bucket_row(page: &mut HtmlPage, bucket: &BucketStatus) {
    let BucketStatus { remaining, capacity, refill_per_second, paused_for_seconds, .. } = bucket;
    let paused = if *paused_for_seconds > 0.0 { format!("{paused_for_seconds:.0} s") } else { String::new() };
    let waiting: Vec<_> = bucket.waiting.iter().map(|(urgency, count)| format!("{urgency}: {count}")).collect();
    page.element("<tr><td>", &bucket.bucket, " <small>")
        .element("", bucket.resource.as_deref().unwrap_or_default(), "</small></td>")
        .element("<td data-of=\"Left\"><meter min=\"0\" max=\"", &format!("{capacity:?}"), "\" value=\"")
        .element("", &format!("{remaining:?}"), "\"></meter> ")
        .element("", &format!("{remaining:?} of {capacity:?}"), "</td>")
        .element("<td data-of=\"Refill per second\">", &format!("{refill_per_second:?}"), "</td>")
        .element("<td data-of=\"Paused\">", &paused, "</td>")
        .element("<td data-of=\"Waiting\">", &waiting.join(", "), "</td></tr>");
}

fn controllers(page: &mut HtmlPage, status: &ManagerStatus) {
    let running = status.controllers.iter().map(|controller| (&controller.name, summary(controller)));
    let skipped = status.not_running.iter().map(|(name, reason)| (name, format!("does not run: {reason}")));
    let all: Vec<_> = running.chain(skipped).collect();
    let head = ("<h2 id=\"controllers\">Controllers</h2>", "<th>Controller<th>State");
    table(page, head, &all, MAX_OTHERS, |page, (name, state)| {
        page.element("<tr><td>", name, "</td>").element("<td>", state, "</td></tr>");
    });
}

fn summary(controller: &ControllerStatus) -> String {
    // Load balancers have a table of their own.
    let facts = controller.facts.iter().filter(|(name, _)| !name.starts_with("load balancers: "));
    let facts = facts.map(|(name, value)| format!("{name}: {value}"));
    let waiting = format!("waiting: {}", controller.unsettled.len());
    controller.problem.clone().into_iter().chain([waiting]).chain(facts).collect::<Vec<_>>().join("; ")
}
