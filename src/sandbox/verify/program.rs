//! The mode `verify-azure`: arguments, confirmation, run, report files, exit code.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{BufRead, IsTerminal, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use clap::Parser;

use super::{
    arguments::VerifyArguments,
    cleanup,
    cloud::VerifiedCloud,
    estimate::RunEstimate,
    run::{self, RunSettings},
    simulated,
    table::AssumptionTable,
    wire::PREFIX,
};
use crate::{
    providers::azure::{
        auth::ReqwestTransport,
        config::{AzureConfig, EnvironmentOverrides},
        config_source::{ConfigLoader, ConfigSource},
    },
    runtime::{clock::Clock, shutdown::Shutdown},
    sandbox::azure::world::Serving,
};

/// Runs with the arguments after `verify-azure`.
pub async fn run(arguments: impl IntoIterator<Item = OsString>, stop: Shutdown) -> ExitCode {
    let program = OsString::from("verify-azure");
    let arguments = match VerifyArguments::try_parse_from(std::iter::once(program).chain(arguments)) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match Box::pin(verify(&arguments, &stop)).await {
        Ok(code) => ExitCode::from(code),
        Err(problem) => {
            say(&format!("verify-azure: {problem}"));
            ExitCode::from(2)
        }
    }
}

async fn verify(arguments: &VerifyArguments, stop: &Shutdown) -> Result<u8, String> {
    let table = match &arguments.table {
        Some(path) => AssumptionTable::of_file(&read(path)?)?,
        None => AssumptionTable::built_in()?,
    };
    let table = table.select(&arguments.only, &arguments.without);
    let (_simulated, cloud) = connect(arguments).await?;
    let location = cloud.location(&cloud.read_group().await?);
    let leftovers = cleanup::find(&cloud, PREFIX).await?;
    say(&format!(
        "{} in the resource group {} ({location})",
        RunEstimate::of(&table, arguments.parallel).text(),
        cloud.group
    ));
    if !leftovers.is_empty() {
        let names: Vec<&str> = leftovers.iter().map(|id| id.name()).collect();
        say(&format!("{} leftovers of an earlier run are deleted first: {}", leftovers.len(), names.join(", ")));
    }
    confirm(arguments, stop).await?;
    cleanup::delete(&cloud, &leftovers).await?;
    let run = uuid::Uuid::new_v4().simple().to_string()[..6].to_owned();
    let settings = RunSettings { parallel: arguments.parallel, run, location };
    let announcement = tokio::spawn(announce(stop.clone()));
    let report = Box::pin(run::run(&cloud, &table, &settings, stop, &say)).await;
    announcement.abort();
    write(&arguments.report.with_extension("md"), &report.markdown())?;
    write(&arguments.report.with_extension("json"), &format!("{:#}\n", report.json()))?;
    say(&format!("{}; see {}", report.summary(), arguments.report.with_extension("md").display()));
    report.leftovers.iter().for_each(|leftovers| say(leftovers));
    Ok(report.exit_code())
}

async fn announce(stop: Shutdown) {
    stop.begun().await;
    say("stopping: what this run created is deleted; a second signal leaves it in the resource group");
}

/// Ends a simulated Azure with the run.
struct SimulatedCloud(Shutdown);

impl Drop for SimulatedCloud {
    fn drop(&mut self) {
        self.0.begin();
    }
}

async fn connect(arguments: &VerifyArguments) -> Result<(Option<SimulatedCloud>, VerifiedCloud), String> {
    let mut environment = environment();
    if !arguments.sandbox {
        let group = arguments.resource_group.as_deref().unwrap_or_default();
        let config = load(arguments.cloud_config.as_deref(), &environment).await?;
        let cloud = open(config, group, &environment).await?;
        return Ok((None, cloud));
    }
    let shutdown = Shutdown::new();
    let guard = SimulatedCloud(shutdown.clone());
    let folder = std::env::temp_dir().join(format!("verify-azure-{}", std::process::id()));
    let ca_file = folder.with_extension("pem");
    let simulation = simulated::build_world(Clock::System).map_err(|error| error.to_string())?;
    let serving = Serving { port: 0, ca_file: Some(ca_file.clone()), shutdown };
    let url = simulation.serve(serving).await.map_err(|error| error.to_string())?;
    let config_file = folder.with_extension("json");
    write(&config_file, &simulation.config().to_string())?;
    environment.insert("SSL_CERT_FILE".to_owned(), ca_file.display().to_string());
    environment.insert("IMDS_ENDPOINT".to_owned(), url);
    let opened = async { open(load(Some(&config_file), &environment).await?, simulated::GROUP, &environment).await };
    let cloud = opened.await;
    for file in [ca_file, config_file] {
        // A missing file needs no removal.
        let _ = std::fs::remove_file(file);
    }
    Ok((Some(guard), cloud?))
}

async fn open(config: AzureConfig, group: &str, environment: &BTreeMap<String, String>) -> Result<VerifiedCloud, String> {
    let wire = ReqwestTransport::new(environment).map_err(|error| error.to_string())?;
    VerifiedCloud::connect(config, group, environment, Arc::new(wire), Clock::System).await
}

async fn load(file: Option<&Path>, environment: &BTreeMap<String, String>) -> Result<AzureConfig, String> {
    let loader = ConfigLoader {
        source: ConfigSource { file: file.map(Path::to_owned), secret: None },
        client: None,
        environment: EnvironmentOverrides::of(environment.clone()),
        is_strict: false,
    };
    loader.load().await.map(|loaded| loaded.config).map_err(|error| error.to_string())
}

/// Returns the environment of the process, without variables that are not UTF-8.
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

async fn confirm(arguments: &VerifyArguments, stop: &Shutdown) -> Result<(), String> {
    if arguments.yes || arguments.sandbox {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err("nothing was created: standard input is not a terminal; confirm with --yes (YES=1)".to_owned());
    }
    say("type yes to create these resources, and to delete them again:");
    // The prompt has its own thread, so that a signal ends the wait.
    let confirmation = tokio::task::spawn_blocking(|| {
        let mut confirmation = String::new();
        std::io::stdin().lock().read_line(&mut confirmation).map(|_| confirmation)
    });
    let confirmation = tokio::select! {
        biased;
        confirmation = confirmation => confirmation.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?,
        () = stop.begun() => String::new(),
    };
    if confirmation.trim() == "yes" { Ok(()) } else { Err("nothing was created".to_owned()) }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a line to standard error; errors are ignored.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
