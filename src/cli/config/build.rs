//! Builds a [`ManagerConfig`] and collects all errors and warnings. The rules are those of upstream's options
//! (`k8s.io/cloud-provider/options`, `k8s.io/client-go/tools/leaderelection`) unless a comment states otherwise. Pure.

mod node_ipam;
mod services;
mod serving;
mod webhooks;

use std::{path::PathBuf, time::Duration};

use super::{KubeCloudSharedOptions, LeaderElectionOptions, ManagerConfig, NodeManagerConfig};
use crate::cli::{
    arguments::FlagArguments,
    controllers,
    feature_gates::{self, FeatureGates},
    flags::{
        FlagSpec, FlagTable, TypedFlag, cloud, controllers as controller_flags, generic, leader_election,
        node_manager as node_flags, provider_config,
    },
    label_selector,
    value::{FlagValue, VersionRequest},
    version::{NAME, NODE_MANAGER, VERSION, user_agent},
};
use crate::cloud_provider::config::{ProviderConfig, SecretRef};
use crate::controllers::node::config::{BetaLabels, NodeControllerConfig};
use crate::controllers::node_lifecycle::config::NodeLifecycleControllerConfig;
use crate::controllers::route::config::{NodeMaskSizes, RouteControllerConfig};
use crate::flags::{FlagTexts, quoted};
use crate::node_manager::config::NodeManagerSettings;
use crate::runtime::{client::KubeClientConfig, leader_election::lease::JITTER_FACTOR};
use crate::serving::config::SecureServingConfig;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Placeholder for the provider in the manifests.
const CLOUD_NOT_SET: &str = "CLOUD-NOT-SET";
/// Default of client-go for requests per second.
const CLIENT_GO_QPS: f32 = 5.0;
/// Default of client-go for the burst.
const CLIENT_GO_BURST: u32 = 10;
/// Minimum of `--delete-uninitialized-nodes-after`: a machine that is being created must appear in all lists within this time.
const MIN_UNINITIALIZED_TIME: Duration = Duration::from_secs(10 * 60);

/// Arguments, with the errors and warnings about them.
struct OptionsBuilder {
    arguments: FlagArguments,
    errors: Vec<String>,
    notices: Vec<String>,
}

/// Builds the configuration of the manager, or returns one line per error.
pub(crate) fn build(arguments: FlagArguments, table: &FlagTable, providers: &[&str]) -> Result<ManagerConfig, Vec<String>> {
    let flagz = arguments.effective(table.all());
    let provider_flags = arguments.texts.only(table.registered());
    let mut builder = OptionsBuilder { notices: notices(&arguments, table.all()), arguments, errors: Vec::new() };
    let feature_gates = builder.feature_gates();
    let cloud = builder.cloud(providers, provider_flags);
    let node_ipam = builder.node_ipam();
    let config = ManagerConfig {
        service: builder.service(cloud.config.load_balancer_classes.clone()),
        cloud,
        kube_api: builder.kube_api(NAME),
        // Tokens of other service accounts are requested with a POST, which a dry run must not send.
        use_service_account_credentials: builder.read(&generic::USE_SERVICE_ACCOUNT_CREDENTIALS)
            && !builder.read(&generic::DRY_RUN),
        leader_election: builder.leader_election(),
        leader_migration: None,
        dry_run: builder.read(&generic::DRY_RUN),
        serving: builder.serving_if_any(&feature_gates),
        webhooks: builder.webhooks_if_any(&feature_gates),
        controllers: builder.controllers(),
        node_filter: builder.node_filter(),
        node: builder.node(),
        node_lifecycle: builder.node_lifecycle(),
        route: RouteControllerConfig { node_masks: builder.node_masks(&node_ipam), ..builder.route(&feature_gates) },
        node_ipam,
        start_interval: builder.read(&generic::CONTROLLER_START_INTERVAL),
        shutdown_grace_period: builder.read(&generic::SHUTDOWN_GRACE_PERIOD),
        logging: builder.arguments.logging(),
        version: builder.version(),
        feature_gates,
        notices: builder.notices,
        flagz,
        arguments: builder.arguments,
    };
    if builder.errors.is_empty() { Ok(config) } else { Err(builder.errors) }
}

/// Builds the parts of the configuration that `check-config` needs.
pub(crate) fn build_for_check(
    arguments: FlagArguments,
    providers: &[&str],
) -> Result<(KubeCloudSharedOptions, KubeClientConfig), Vec<String>> {
    let mut builder = OptionsBuilder { notices: Vec::new(), arguments, errors: Vec::new() };
    let parts = (builder.cloud(providers, FlagTexts::default()), builder.kube_api(NAME));
    if builder.errors.is_empty() { Ok(parts) } else { Err(builder.errors) }
}

/// Builds the configuration of the API server client for the subcommand "status".
pub(crate) fn build_for_status(arguments: FlagArguments) -> Result<KubeClientConfig, Vec<String>> {
    let mut builder = OptionsBuilder { notices: Vec::new(), arguments, errors: Vec::new() };
    let kube_api = builder.kube_api(NAME);
    if builder.errors.is_empty() { Ok(kube_api) } else { Err(builder.errors) }
}

/// Builds the configuration of cloud-node-manager, whose flags are `specs`.
pub(crate) fn build_for_node_manager(
    arguments: FlagArguments,
    specs: &[FlagSpec],
    providers: &[&str],
) -> Result<NodeManagerConfig, Vec<String>> {
    let flagz = arguments.effective(specs.iter());
    let mut builder = OptionsBuilder { notices: notices(&arguments, specs.iter()), arguments, errors: Vec::new() };
    let cloud = builder.cloud(providers, FlagTexts::default());
    let config = NodeManagerConfig {
        provider: cloud.provider,
        cloud_config: cloud.config.cloud_config,
        node_name: Some(builder.read(&node_flags::NODE_NAME).to_lowercase()).filter(|name| !name.is_empty()),
        use_instance_metadata: builder.read(&node_flags::USE_INSTANCE_METADATA),
        windows_service: builder.read(&node_flags::WINDOWS_SERVICE),
        settings: NodeManagerSettings {
            wait_routes: builder.read(&node_flags::WAIT_ROUTES),
            status_update_frequency: builder.positive(&controller_flags::NODE_STATUS_UPDATE_FREQUENCY),
            beta_labels: builder.read(&controller_flags::ENABLE_DEPRECATED_BETA_TOPOLOGY_LABELS),
            reconcile_labels: builder.read(&controller_flags::RECONCILE_NODE_LABELS),
        },
        kube_api: builder.kube_api(NODE_MANAGER),
        // Upstream serves no profiles here, and names the files in `--cert-dir` after the program.
        serving: SecureServingConfig {
            profiling: false,
            pair_name: NODE_MANAGER,
            ..builder.serving_if_any(&FeatureGates::default())
        },
        logging: builder.arguments.logging(),
        version: builder.version(),
        notices: builder.notices,
        flagz,
    };
    if builder.errors.is_empty() { Ok(config) } else { Err(builder.errors) }
}

/// Returns warnings about flags on the command line that have no effect or are deprecated.
fn notices<'a>(arguments: &FlagArguments, specs: impl Iterator<Item = &'a FlagSpec>) -> Vec<String> {
    specs
        .filter(|spec| arguments.is_given(spec))
        .flat_map(|spec| {
            let ignored = spec.ignored.map(|reason| format!("--{} has no effect: {reason}", spec.name));
            let deprecated = spec.deprecated.map(|advice| format!("--{} is deprecated: {advice}", spec.name));
            [ignored, deprecated]
        })
        .flatten()
        .collect()
}

fn path(text: String) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

impl OptionsBuilder {
    fn read<T: FlagValue>(&self, flag: &TypedFlag<T>) -> T {
        self.arguments.read(flag)
    }

    fn refuse<T>(&mut self, flag: &TypedFlag<T>, value: &str, accepted: &str) {
        self.errors.push(format!("invalid value {} for --{}: {accepted}", quoted(value), flag.spec.name));
    }

    /// Reads the interval of a loop, which must not be zero: the loop would spin. Upstream does not check this.
    fn positive(&mut self, flag: &TypedFlag<Duration>) -> Duration {
        let duration = self.read(flag);
        if duration.is_zero() {
            self.refuse(flag, "0s", "expected more than zero");
        }
        duration
    }

    fn zero_or_at_least(&mut self, flag: &TypedFlag<Duration>, least: Duration) -> Duration {
        let duration = self.read(flag);
        if !duration.is_zero() && duration < least {
            self.refuse(flag, &duration.print(), &format!("expected 0s, or at least {}", least.print()));
        }
        duration
    }

    fn number<T: TryFrom<i32> + Default>(&mut self, flag: &TypedFlag<i32>, from: i32, to: i32) -> T {
        let number = self.read(flag);
        match T::try_from(number) {
            Ok(value) if (from..=to).contains(&number) => value,
            _ => {
                let range = if to == i32::MAX { format!("of at least {from}") } else { format!("from {from} to {to}") };
                self.refuse(flag, &number.to_string(), &format!("expected a whole number {range}"));
                T::default()
            }
        }
    }

    fn feature_gates(&mut self) -> FeatureGates {
        let resolution = feature_gates::resolve(&self.read(&generic::FEATURE_GATES));
        self.notices.extend(resolution.unknown_names.iter().map(|name| {
            format!("feature gate {name} is unknown and has no effect: check its spelling, unless a Kubernetes newer than 1.37 has it")
        }));
        self.notices.extend(resolution.retired.iter().map(|gate| {
            format!("feature gate {} has no effect: Kubernetes has removed it after 1.{}", gate.name, gate.last_minor)
        }));
        self.notices.extend(resolution.without_effect.iter().map(|gate| format!("feature gate {gate} has no effect here")));
        resolution.gates
    }

    fn cloud(&mut self, providers: &[&str], provider_flags: FlagTexts) -> KubeCloudSharedOptions {
        let config = KubeCloudSharedOptions {
            provider: self.read(&cloud::CLOUD_PROVIDER),
            config: ProviderConfig {
                cloud_config: path(self.read(&cloud::CLOUD_CONFIG)),
                cloud_config_secret: self.config_secret(),
                reload: self.read(&provider_config::ENABLE_DYNAMIC_RELOADING),
                cluster_name: self.read(&cloud::CLUSTER_NAME),
                load_balancer_classes: self.load_balancer_classes(),
                networks: self.networks(),
                read_only: self.read(&generic::DRY_RUN),
                flags: provider_flags,
            },
            allow_untagged_cloud: self.read(&cloud::ALLOW_UNTAGGED_CLOUD),
            configure_cloud_routes: self.read(&cloud::CONFIGURE_CLOUD_ROUTES),
        };
        self.check_provider(&config.provider, providers);
        let cidrs = self.read(&cloud::CLUSTER_CIDR);
        if config.configure_cloud_routes && Self::share_ip_family(&cidrs) {
            self.refuse(&cloud::CLUSTER_CIDR, &cidrs.print(), "expected at most one CIDR per IP family");
        }
        config
    }

    fn check_provider(&mut self, provider: &str, providers: &[&str]) {
        let names = providers.join(", ");
        let example =
            "add the component of your cloud to your kustomization, for example `components: [../manifests/azure]`";
        let accepted = match provider {
            "" => return self.errors.push(format!("--cloud-provider cannot be empty: expected one of {names}")),
            CLOUD_NOT_SET => format!("the manifests name no cloud: expected one of {names}; {example}"),
            other if providers.contains(&other) => return,
            _ => format!("expected one of {names}"),
        };
        self.refuse(&cloud::CLOUD_PROVIDER, provider, &accepted);
    }

    fn config_secret(&self) -> Option<SecretRef> {
        let name = self.read(&provider_config::CLOUD_CONFIG_SECRET_NAME);
        let (namespace, key) =
            (self.read(&provider_config::CLOUD_CONFIG_SECRET_NAMESPACE), self.read(&provider_config::CLOUD_CONFIG_KEY));
        (!name.is_empty()).then_some(SecretRef { namespace, name, key })
    }

    /// Builds the configuration of the API server client for the program with this name.
    fn kube_api(&mut self, program: &str) -> KubeClientConfig {
        self.check_content_type();
        let (qps, burst) = self.rate_limit();
        let limit = [&generic::KUBE_API_QPS.spec, &generic::KUBE_API_BURST.spec];
        KubeClientConfig {
            kubeconfig: path(self.read(&generic::KUBECONFIG)),
            master: Some(self.read(&generic::MASTER)).filter(|master| !master.is_empty()),
            qps,
            burst,
            user_agent_base: user_agent(program, &self.version()),
            limit_unless_fair: !limit.iter().any(|flag| self.arguments.is_given(flag)),
        }
    }

    /// Checks the content type. Protobuf, which charts and manifests of the Go programs set, is accepted without effect.
    fn check_content_type(&mut self) {
        let (flag, accepted) = (&generic::KUBE_API_CONTENT_TYPE, [JSON, PROTOBUF].join(" or "));
        let value = self.read(flag);
        match value.as_str() {
            "" | JSON => {}
            PROTOBUF if self.arguments.is_given(&flag.spec) => {
                self.notices.push(format!("--{}={PROTOBUF} has no effect: requests are {JSON}", flag.spec.name));
            }
            PROTOBUF => {}
            _ => self.refuse(flag, &value, &format!("expected {accepted}")),
        }
    }

    /// Reads requests per second and burst. Zeros select `rest.DefaultQPS` and `rest.DefaultBurst` of client-go, which rejects a limit
    /// without a burst.
    fn rate_limit(&mut self) -> (f32, u32) {
        let qps = self.read(&generic::KUBE_API_QPS);
        let burst = self.number(&generic::KUBE_API_BURST, i32::from(qps > 0.0), i32::MAX);
        if qps != 0.0 {
            return (qps, burst);
        }
        (CLIENT_GO_QPS, if burst == 0 { CLIENT_GO_BURST } else { burst })
    }

    fn leader_election(&mut self) -> LeaderElectionOptions {
        let config = LeaderElectionOptions {
            enabled: self.read(&leader_election::LEADER_ELECT),
            lease_duration: self.read(&leader_election::LEASE_DURATION),
            renew_deadline: self.read(&leader_election::RENEW_DEADLINE),
            retry_period: self.read(&leader_election::RETRY_PERIOD),
            resource_name: self.read(&leader_election::RESOURCE_NAME),
            resource_namespace: self.read(&leader_election::RESOURCE_NAMESPACE),
        };
        if config.enabled {
            self.check_election(&config);
        }
        config
    }

    fn check_election(&mut self, config: &LeaderElectionOptions) {
        let lock = self.read(&leader_election::RESOURCE_LOCK);
        if lock != "leases" {
            self.refuse(&leader_election::RESOURCE_LOCK, &lock, "resourceLock value must be \"leases\"");
        }
        for (flag, value) in [
            (&leader_election::RESOURCE_NAME, &config.resource_name),
            (&leader_election::RESOURCE_NAMESPACE, &config.resource_namespace),
        ] {
            if value.is_empty() {
                self.errors.push(format!("--{} cannot be empty when --leader-elect is true", flag.spec.name));
            }
        }
        let print = |duration: Duration| duration.print();
        // A Lease has its duration in whole seconds, so a shorter one would have expired at once.
        if config.lease_duration < Duration::from_secs(1) {
            self.refuse(&leader_election::LEASE_DURATION, &print(config.lease_duration), "expected at least 1s");
        }
        if config.renew_deadline >= config.lease_duration {
            let accepted = format!("expected less than --leader-elect-lease-duration ({})", print(config.lease_duration));
            self.refuse(&leader_election::RENEW_DEADLINE, &print(config.renew_deadline), &accepted);
        }
        if config.retry_period.is_zero() {
            self.refuse(&leader_election::RETRY_PERIOD, "0s", "expected more than zero");
        } else if config.renew_deadline <= config.retry_period.mul_f64(JITTER_FACTOR) {
            let accepted = format!(
                "expected more than {JITTER_FACTOR} times --leader-elect-retry-period ({})",
                print(config.retry_period)
            );
            self.refuse(&leader_election::RENEW_DEADLINE, &print(config.renew_deadline), &accepted);
        }
    }

    fn controllers(&mut self) -> std::collections::BTreeSet<&'static str> {
        let mut selection = controllers::select(&self.read(&controller_flags::CONTROLLERS));
        let canonical_names: Vec<_> = controllers::TABLE.iter().map(|names| names.canonical).collect();
        for name in &selection.unknown_names {
            let (name, accepted) = (quoted(name), canonical_names.join(", "));
            self.errors.push(format!("{name} in --controllers is not in the list of known controllers: {accepted}"));
        }
        if !self.read(&controller_flags::ENABLE_NODE_CONTROLLER) {
            selection.enabled.remove(controllers::NODE.canonical);
        }
        if !selection.enabled.contains(controllers::NODE.canonical) {
            self.notice_flags_of_node_controller();
        }
        selection.enabled
    }

    /// Warns about flags that only the node controller reads if it does not run.
    fn notice_flags_of_node_controller(&mut self) {
        let (list, switch) = (controller_flags::CONTROLLERS.spec.name, controller_flags::ENABLE_NODE_CONTROLLER.spec.name);
        for flag in [&controller_flags::RECONCILE_NODE_LABELS, &controller_flags::ENABLE_DEPRECATED_BETA_TOPOLOGY_LABELS] {
            if self.read(flag) {
                let (flag, controller) = (flag.spec.name, controllers::NODE.canonical);
                self.notices.push(format!("--{flag} has no effect: --{list} or --{switch} disables {controller}"));
            }
        }
    }

    fn node_filter(&mut self) -> Option<String> {
        let text = self.read(&provider_config::NODE_FILTER_REQUIREMENTS);
        if let Err(problem) = label_selector::check(&text) {
            let accepted = format!("expected a label selector, as for `kubectl get nodes -l`: {problem}");
            self.refuse(&provider_config::NODE_FILTER_REQUIREMENTS, &text, &accepted);
        }
        (!text.trim().is_empty()).then_some(text)
    }

    fn node(&mut self) -> NodeControllerConfig {
        let workers = self.number(&controller_flags::CONCURRENT_NODE_SYNCS, 1, i32::MAX);
        NodeControllerConfig {
            workers: Some(workers),
            status_workers: Some(match self.number(&controller_flags::CONCURRENT_NODE_STATUS_UPDATES, 0, i32::MAX) {
                0 => workers,
                updates => updates,
            }),
            status_update_frequency: self.positive(&controller_flags::NODE_STATUS_UPDATE_FREQUENCY),
            beta_labels: match self.read(&controller_flags::ENABLE_DEPRECATED_BETA_TOPOLOGY_LABELS) {
                true => BetaLabels::Reconciled,
                false => BetaLabels::Initial,
            },
            reconcile_labels: self.read(&controller_flags::RECONCILE_NODE_LABELS),
            ..NodeControllerConfig::default()
        }
    }

    fn node_lifecycle(&mut self) -> NodeLifecycleControllerConfig {
        NodeLifecycleControllerConfig {
            monitor_period: self.positive(&controller_flags::NODE_MONITOR_PERIOD),
            concurrent_syncs: self.number(&controller_flags::CONCURRENT_NODE_LIFECYCLE_SYNCS, 1, i32::MAX),
            grace_period: self.read(&controller_flags::NODE_DELETION_GRACE_PERIOD),
            max_count: self.number(&controller_flags::NODE_DELETION_MAX_COUNT, 0, i32::MAX),
            max_percent: self.number(&controller_flags::NODE_DELETION_MAX_PERCENT, 0, 100),
            window: self.positive(&controller_flags::NODE_DELETION_WINDOW),
            delete_uninitialized_after: self
                .zero_or_at_least(&controller_flags::DELETE_UNINITIALIZED_NODES_AFTER, MIN_UNINITIALIZED_TIME),
        }
    }

    fn route(&mut self, gates: &FeatureGates) -> RouteControllerConfig {
        RouteControllerConfig {
            cluster_cidrs: self.read(&cloud::CLUSTER_CIDR),
            nodes_are_filtered: !self.read(&provider_config::NODE_FILTER_REQUIREMENTS).trim().is_empty(),
            node_masks: NodeMaskSizes::default(),
            reconciliation_period: self.positive(&controller_flags::ROUTE_RECONCILIATION_PERIOD),
            watch_based: gates.enabled(feature_gates::WATCH_BASED_ROUTES),
        }
    }

    fn version(&self) -> String {
        match self.read(&generic::VERSION) {
            VersionRequest::Override(version) => version,
            VersionRequest::No | VersionRequest::Short | VersionRequest::Raw => VERSION.to_owned(),
        }
    }
}
