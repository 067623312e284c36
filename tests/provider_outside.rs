//! A provider outside of this crate has flags and metrics of its own: they are read, shown in the help and on the reference pages, and
//! counted. It is the example of `docs/guides/writing-a-provider.md`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{ffi::OsString, sync::Arc};

use cloud_controller_manager::{
    cli::{self, CliCommand, RegisteredProviders, UsageError, config::ManagerConfig},
    cloud_provider::{CloudError, CloudProvider, CloudResult, Registry, registry::ProviderConfig},
    metrics::Metrics,
    serving,
};

use crate::conformance::example::provider::{ExampleMetrics, FLAGS, REGION};

/// Fails with the value of the flag that it was given.
fn factory(config: &ProviderConfig) -> CloudResult<Arc<dyn CloudProvider>> {
    Err(CloudError::invalid(config.flags.read(&REGION)))
}

fn registry() -> Registry {
    Registry::new().register("example", factory).with_flags("Example", FLAGS).with_metrics::<ExampleMetrics>()
}

fn parse(registry: &Registry, words: &[&str]) -> Result<CliCommand, UsageError> {
    let all = registry.names();
    let providers = RegisteredProviders { all: &all, flags: registry.flags(), ..RegisteredProviders::default() };
    cli::parse_for(["program"].iter().chain(words).map(OsString::from), providers)
}

fn config(words: &[&str]) -> ManagerConfig {
    match parse(&registry(), words) {
        Ok(CliCommand::Run(config)) => *config,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn printed(words: &[&str]) -> String {
    match parse(&registry(), words) {
        Ok(CliCommand::Print(text)) => text,
        other => panic!("{words:?}: {other:?}"),
    }
}

#[test]
fn the_factory_reads_the_flag() {
    let region = |words: &[&str]| {
        let factory = registry().get("example").unwrap();
        factory(&config(words).cloud.config).err().unwrap().to_string()
    };
    assert!(region(&[]).contains("north"));
    for words in [&["--example-region=south"][..], &["--example_region", "south"]] {
        assert!(region(words).contains("south"), "{words:?}");
    }
    let flagz = config(&["--example-region=south"]).flagz();
    assert!(flagz.contains(&("example-region".to_owned(), "south".to_owned())));
}

#[test]
fn the_flag_is_in_the_help_and_on_the_reference_page() {
    let help = printed(&["--help"]);
    assert!(help.contains("Example:") && help.contains("--example-region"), "{help}");
    let page = printed(&["generate-docs", "flags"]);
    let (_, section) = page.split_once("## Example\n").unwrap();
    assert!(
        section.contains("| `--example-region` | `string` | `north` | yes |  |  |  | Region of the machines. |"),
        "{section}"
    );
    assert!(section.contains("`--node-filter-requirements`"), "flags that all providers share follow: {section}");
    assert!(!page.contains("## Azure"), "Azure is not in this program");
}

#[test]
fn usage_errors_are_reported_as_for_other_flags() {
    let complaint = |words: &[&str]| parse(&registry(), words).unwrap_err().to_string();
    assert_eq!(complaint(&["--example-regio=x"]), "unknown flag --example-regio: did you mean --example-region?");
    assert_eq!(complaint(&["--example-region"]), "--example-region <string> needs a value");
    let other = Registry::new().register("example", factory);
    assert!(parse(&other, &["--example-region=x"]).unwrap_err().to_string().starts_with("unknown flag --example-region"));
}

#[test]
fn invalid_value_is_reported_as_for_other_flags() {
    mod counted {
        cloud_controller_manager::flags::declare_flags! {
            COUNT: i32 = "example-count" "1" "A number.";
        }
    }
    let registry = registry().with_flags("More", counted::FLAGS);
    let error = parse(&registry, &["--example-count=x"]).unwrap_err().to_string();
    assert!(error.starts_with("invalid value \"x\" for --example-count: expected a whole number"), "{error}");
}

#[test]
fn duplicate_flag_name_is_refused() {
    mod duplicate {
        cloud_controller_manager::flags::declare_flags! {
            CLUSTER: String = "cluster-name" "" "Another name of the cluster.";
        }
    }
    let registry = registry().with_flags("More", duplicate::FLAGS);
    let error = parse(&registry, &[]).unwrap_err().to_string();
    assert!(error.contains("two flags are called \"cluster-name\""), "{error}");
}

#[test]
fn the_metric_is_counted_and_on_the_reference_page() {
    let (registry, metrics) = (registry(), Metrics::new().unwrap());
    registry.register_metrics(&metrics).unwrap();
    metrics.table::<ExampleMetrics>().unwrap().api_requests.with_label_values(&["list"]).inc();
    let text = metrics.render().unwrap();
    assert!(text.contains("example_api_requests_total{operation=\"list\"} 1"), "{text}");
    let page = serving::metrics_reference(&registry.metrics());
    assert!(page.contains("| `example_api_requests_total` | counter | alpha | `operation` |"), "{page}");
    assert!(!page.contains("arm_request_duration_seconds"), "Azure is not in this program");
}

#[test]
fn the_guide_shows_the_tables_of_the_example() {
    let (guide, source) =
        (include_str!("../docs/guides/writing-a-provider.md"), include_str!("../docs/guides/example-provider/provider.rs"));
    for table in ["declare_flags! {", "declare_metrics! {"] {
        let (_, code) = source.split_once(&format!("\n{table}")).unwrap();
        let (rows, _) = code.split_once("\n}").unwrap();
        assert!(guide.contains(&format!("{table}{rows}\n}}")), "{table}{rows}");
    }
}
