//! Words that the language guide replaces, and phrase search.

/// Parts of names that are no terms (I1), each with what to write instead.
pub(crate) const NAME_PARTS: &[(&str, &str)] = &[
    ("ask asks asked asking", "request"),
    ("answer answers answered", "response, result or reply"),
    ("told tell tells", "report, notify or record"),
    ("who whose whom", "identity, service, owner or caller"),
    ("hear heard felt", "receive, observe"),
    ("news", "event, change"),
    ("anew", "again, or a verb with re-"),
    ("seat seats seated seating", "assignment, location"),
    ("newcomer newcomers", "pending creation"),
    ("standing standings stands", "cached, excluded, current"),
    ("goes going", "is_deleting, removed"),
    ("stays", "retained, unchanged"),
    ("look looks looked", "get, list, lookup or read"),
    ("hindered", "blocked"),
    ("culprit culprits", "blamed requests"),
    ("stranger strangers", "unowned, unlisted"),
    ("whoever nobody somebody everybody", "the actor"),
    ("lived", "observed_interval, lifetime"),
    ("keies", "keys"),
    ("patience", "timeout"),
    ("linger", "min_delay"),
    ("scout scouting", "sentinel"),
    ("blind", "needs_sentinel"),
    ("worth", "needs_"),
];

/// Words that may not be a whole name (I2), each with what to write instead.
pub(crate) const WHOLE_NAMES: &[(&str, &str)] = &[
    ("what", "key, kind, subject or detail"),
    ("why", "reason, cause or message"),
    ("which one ones", "the noun of the item"),
    ("wanted unwanted", "desired, required or expected"),
    ("known unknown", "observed, cached, existing or tracked"),
    ("held", "reserved, blocked, guard"),
    ("kept", "retained, unchanged"),
    ("left", "remaining, leftover, omitted"),
    ("gone", "deleted, missing"),
    ("got made done given taken", "the noun of the result"),
    ("place places", "index, location"),
    ("world", "context, state"),
    ("flow", "pipeline"),
    ("turn turns", "permit, guard, slot, batch"),
    ("apart", "separately"),
    ("doubt doubtful unsure", "unconfirmed, mismatch"),
    ("granted", "accepted"),
    ("reached linked", "the noun of the result"),
    ("fresh", "new, needs_relist"),
    ("nothing", "empty_…, none_…"),
    ("sane right wrong", "valid, invalid, baseline"),
    ("meant", "intended, desired"),
    ("again", "retry, requeue_at"),
];

/// Idioms in comments (C1) and in texts for users (M1).
pub(crate) const IDIOMS: &[(&str, &str)] = &[
    ("told", "reported, notified, recorded"),
    ("tell", "report, notify, record"),
    ("tells", "reports, notifies, records"),
    ("whoever", "the caller"),
    ("somebody", "the component, another writer"),
    ("nobody", "no component, no caller"),
    ("everybody", "all Services, all callers"),
    ("anybody", "any caller"),
    ("anew", "again, or a verb with re-"),
    ("as asked", "as requested"),
    ("what there is", "the observed state"),
    ("in vain", "without success"),
    ("put right", "repaired"),
    ("by now", "a word about the current state"),
    ("likewise", "the noun itself"),
];

/// Softer idioms in comments (C2).
pub(crate) const SOFT_IDIOMS: &[(&str, &str)] = &[
    ("ask", "request"),
    ("asks", "requests"),
    ("asked", "requested"),
    ("goes", "is deleted, is removed"),
    ("stand", "be"),
    ("stands", "is"),
    ("shall", "must"),
    ("has to be", "must be"),
    ("need not", "does not have to"),
    ("by itself", "directly"),
    ("beside", "next to, in addition to"),
    ("under way", "in progress"),
    ("as it is", "unchanged"),
    ("take away", "remove"),
    ("takes away", "removes"),
    ("let go", "release"),
    ("lets go", "releases"),
];

/// Idioms in texts for users only (M1).
pub(crate) const TEXT_IDIOMS: &[(&str, &str)] =
    &[("is no", "is not a valid …"), ("stays", "remains, is kept"), ("looked at", "read, checked")];

/// British forms (S1): parts of a word, and whole words.
pub(crate) const BRITISH_PARTS: &str = "initialis synchronis authoris recognis optimis normalis summaris serialis minimis \
    randomis neighbour behaviour colour honour labelled";

/// Second spellings of Azure's and Kubernetes' terms (S2).
pub(crate) const SECOND_SPELLINGS: &[(&str, &str)] = &[
    ("front end", "frontend"),
    ("front ends", "frontends"),
    ("back end", "backend"),
    ("back ends", "backends"),
    ("back-end", "backend"),
    ("back-ends", "backends"),
    ("back-off", "backoff"),
];

/// Returns the row of `table` whose space-separated words contain `word`.
pub(crate) fn row_of(table: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    table.iter().find(|(words, _)| words.split(' ').any(|it| it == word)).map(|(_, instead)| *instead)
}

/// Returns every occurrence of a phrase of `table` in `text`: its position and its row. Case is ignored; a phrase ends at word boundaries.
pub(crate) fn find_phrases<'t>(text: &str, table: &'t [(&'t str, &'t str)]) -> Vec<(usize, &'t (&'t str, &'t str))> {
    let lower = text.to_ascii_lowercase();
    let is_inside = |found: Option<char>| found.is_some_and(|it| it.is_alphanumeric() || it == '_' || it == '-');
    let mut hits = Vec::new();
    for row in table {
        for (position, phrase) in lower.match_indices(row.0) {
            let (before, after) = (&lower[..position], &lower[position + phrase.len()..]);
            if !is_inside(before.chars().next_back()) && !is_inside(after.chars().next()) {
                hits.push((position, row));
            }
        }
    }
    hits.sort_by_key(|(position, _)| *position);
    hits
}
