//! Executes a run: deletes leftovers of earlier runs, plays all rows, deletes what they created, and reports.

use futures::{StreamExt, stream};
use parking_lot::Mutex;

use super::{
    cleanup,
    cloud::VerifiedCloud,
    play::{RowPlayer, RowVerdict},
    report::{PlayedRow, RunReport},
    table::{Assumption, AssumptionTable},
    wire::{PREFIX, RunControl},
};
use crate::runtime::{clock::Clock, shutdown::Shutdown};

/// Settings of a run.
pub struct RunSettings {
    /// Rows that are played at the same time.
    pub parallel: usize,
    /// Name that distinguishes the runs in one group.
    pub run: String,
    pub location: String,
}

/// Plays all rows. The resources of a row are deleted after it, also when `stop` begins.
pub async fn run(
    cloud: &VerifiedCloud,
    table: &AssumptionTable,
    settings: &RunSettings,
    stop: &Shutdown,
    progress: &(dyn Fn(&str) + Sync),
) -> RunReport {
    let control = RunControl::new(stop, None);
    let failed = Mutex::new(Vec::new());
    let play = |(index, row): (usize, &Assumption)| {
        let (control, row, failed) = (control.clone(), row.clone(), &failed);
        async move {
            let prefix = format!("{PREFIX}{}-{index}-", settings.run);
            let (verdict, cleaned) = play_row(cloud, table, &row, control, prefix, &settings.location).await;
            if let Err(problem) = cleaned {
                failed.lock().push(problem);
            }
            progress(&line(&row, &verdict));
            PlayedRow { row, verdict }
        }
    };
    let mut rows: Vec<(usize, PlayedRow)> = stream::iter(table.rows.iter().enumerate())
        .map(|entry| {
            let index = entry.0;
            let played = Box::pin(play(entry));
            async move { (index, played.await) }
        })
        .buffer_unordered(settings.parallel.max(1))
        .collect()
        .await;
    rows.sort_by_key(|(index, _)| *index);
    let leftovers = sweep(cloud, &format!("{PREFIX}{}-", settings.run), failed).await;
    RunReport {
        endpoint: cloud.arm.clone(),
        group: cloud.group.name().to_owned(),
        location: settings.location.clone(),
        finished: Clock::System.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        leftovers,
    }
}

/// Plays one row and deletes what it created.
pub async fn play_row(
    cloud: &VerifiedCloud,
    table: &AssumptionTable,
    row: &Assumption,
    control: RunControl,
    prefix: String,
    location: &str,
) -> (RowVerdict, Result<(), String>) {
    if control.is_stopped() {
        return (RowVerdict::Interrupted, Ok(()));
    }
    let player = RowPlayer { table, cloud, control, prefix, location: location.to_owned(), created: Mutex::default() };
    let verdict = Box::pin(player.play(row)).await;
    let mut created = player.created.into_inner();
    created.reverse();
    (verdict, cleanup::delete(cloud, &created).await)
}

/// Deletes possible leftovers of the run, and returns those that remain.
async fn sweep(cloud: &VerifiedCloud, prefix: &str, failed: Mutex<Vec<String>>) -> Option<String> {
    let swept = async {
        let found = cleanup::find(cloud, prefix).await?;
        cleanup::delete(cloud, &found).await
    };
    let failed = failed.into_inner();
    match swept.await {
        Ok(()) => None,
        Err(problem) => Some([failed, vec![problem]].concat().join("\n")),
    }
}

fn line(row: &Assumption, verdict: &RowVerdict) -> String {
    match verdict {
        RowVerdict::Holds => format!("holds        {}", row.id),
        RowVerdict::Interrupted => format!("interrupted  {}", row.id),
        RowVerdict::NotPlayed(reason) => format!("not played   {}: {reason}", row.id),
        RowVerdict::Wrong { differences, .. } => {
            let all = differences.iter().map(|difference| {
                format!("{}: expected {}, found {}", difference.subject, difference.expected, difference.found)
            });
            format!("WRONG        {}: {}", row.id, all.collect::<Vec<_>>().join("; "))
        }
    }
}
