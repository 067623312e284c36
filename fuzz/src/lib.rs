//! The bodies of the fuzz targets: one per parser of external text.
//!
//! In: any bytes. Out: nothing, or a panic. They do not depend on libFuzzer: `fuzz_targets/` passes its inputs, `tests/fuzz.rs` its own.
//! The program's own clients call the parsers behind ARM and the credentials: a [`script::Script`] is the server, and waits take no
//! time.
#![allow(unreachable_pub, missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod script;

use std::{
    collections::BTreeMap,
    hint::black_box,
    sync::{Arc, OnceLock},
    time::Duration,
};

use cloud_controller_manager::{
    cli::flags::FlagTable,
    flags::duration,
    health_probe_proxy::proxy_header::{self, ProxyHeader},
    metrics::Metrics,
    providers::{
        azure::{
            acr::parsers::{ImageCredentialRequest, RegistryChallenge, RegistryMirror, exchange_url, registry_of},
            arm::{ArmClient, ArmClientDeps, ArmSettings, Budget, BudgetSettings, Precondition, TokenProvider},
            auth,
            config::{AzureConfig, ConfigTexts, EnvironmentOverrides, merge, offline_report},
            inventory::{Freshness, Inventory, InventorySettings},
            model::{MachineQuery, ResourceId, api, compute, network, provider_id as ids},
            planner::load_balancer::{
                annotations::{ALLOWED_IP_RANGES, ALLOWED_SERVICE_TAGS, ANNOTATIONS, PREFIX, SOURCE_RANGES},
                desired::{
                    ServiceRequest,
                    security_rules::{self, NodeAddresses, ServiceRules},
                },
                observed::ObservedNetwork,
                plan::network::plan_network,
                settings::LoadBalancerSettings,
                spec::{AccessControl, AdditionalIpPolicy, ServiceSpec, parse_leniently, parse_service, warnings},
            },
            transport::ArmTransport,
        },
        registry,
    },
    runtime::{
        admission::{AdmissionAnswer, parse_review, respond_to_review},
        clock::Clock,
        leader_election::{Leadership, lease as election},
    },
    serving::request_validation,
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Service, ServicePort, ServiceSpec as Fields},
};
use serde::{Serialize, de::DeserializeOwned};

use script::{Script, run};

/// Fuzz target.
pub struct Target {
    /// Name of the target and of its corpus.
    pub name: &'static str,
    /// Function that must not panic for any input.
    pub body: fn(&[u8]),
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[$(Target { name: stringify!($name), body: $name }),*];
    };
}

/// Calls a macro with the names of all targets.
macro_rules! all_targets {
    ($apply:ident) => {
        $apply![
            provider_id,
            resource_id,
            azure_json,
            arm_documents,
            arm_reads,
            arm_operations,
            inventory,
            tokens,
            go_values,
            lease,
            service_spec,
            annotation_values,
            network_plans,
            request_heads,
            proxy_header,
            image_credentials,
            admission_review,
        ];
    };
}

all_targets!(targets);

const GROUP: &str = "/subscriptions/s/resourceGroups/rg";

fn clock() -> Clock {
    Clock::manual("2026-01-01T00:00:00Z".parse().unwrap())
}

/// Parses `spec.providerID` of a Node. The provider id that is formatted from the machine names the same machine.
pub fn provider_id(data: &[u8]) {
    let ids::ParsedProviderId::Machine(id) = ids::parse(&String::from_utf8_lossy(data)) else { return };
    if let Ok(formatted) = ids::of_machine(&id) {
        let ids::ParsedProviderId::Machine(reparsed) = ids::parse(&formatted) else {
            panic!("{formatted} names no machine")
        };
        assert_eq!(reparsed.key(), id.key());
    }
}

/// Parses an id of an ARM document.
pub fn resource_id(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(id) = ResourceId::parse(&text) else { return };
    assert_eq!(id.as_str(), text);
    assert_eq!(ResourceId::parse(&id.key()).map(|lower| lower.key()), Ok(id.key()));
    black_box((id.subscription(), id.resource_group(), id.resource_type(), id.name(), id.name_of("x"), id.url_path()));
    if let Some(parent) = id.parent() {
        assert!(parent.as_str().len() < text.len());
    }
}

/// Parses `azure.json`. The text after the first NUL is the Secret.
pub fn azure_json(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (file, secret) = text.split_once('\0').map_or((&*text, None), |(file, secret)| (file, Some(secret)));
    let texts = ConfigTexts { file: Some(file.to_owned()), secret: secret.map(str::to_owned) };
    if let Ok(loaded) = merge(&texts, &EnvironmentOverrides::default(), true) {
        assert!(loaded.findings.is_empty(), "strict mode accepts nothing strange: {:?}", loaded.findings);
    }
    let report = offline_report(&texts, &EnvironmentOverrides::default(), false);
    black_box((report.findings, report.config.map(|config| config.effective())));
}

/// Parses a document and writes it. The written document parses as the same value.
fn document<D: DeserializeOwned + Serialize + PartialEq>(data: &[u8]) {
    let Ok(typed) = serde_json::from_slice::<D>(data) else { return };
    let written = serde_json::to_value(&typed).unwrap();
    let reparsed: D = serde_json::from_value(written.clone()).unwrap();
    assert!(reparsed == typed, "{written}");
}

/// Parses a document of ARM, as each type.
pub fn arm_documents(data: &[u8]) {
    document::<compute::VirtualMachineScaleSet>(data);
    document::<compute::VirtualMachineScaleSetVm>(data);
    document::<network::ArmLoadBalancer>(data);
    document::<network::PublicIpAddress>(data);
    document::<network::NetworkSecurityGroup>(data);
    document::<network::RouteTable>(data);
    document::<network::NetworkInterface>(data);
}

struct AnyToken;

#[async_trait::async_trait]
impl TokenProvider for AnyToken {
    async fn bearer(&self) -> Result<String, auth::AuthError> {
        Ok("token".to_owned())
    }
    fn rejected(&self, _: &str) {}
}

fn arm(data: &[u8]) -> ArmClient {
    static METRICS: OnceLock<Arc<Metrics>> = OnceLock::new();
    let metrics = METRICS.get_or_init(|| Arc::new(Metrics::new().unwrap()));
    let mut settings = ArmSettings::new("https://management.azure.com", "fuzz").unwrap();
    // Few attempts and polls, because each reads the same bytes.
    settings.backoff.attempts = 2;
    settings.timeouts.read = Duration::from_secs(20);
    settings.timeouts.operation = Duration::from_secs(20);
    settings.polling.first = Duration::from_secs(4);
    let parts = ArmClientDeps {
        transport: Script::shared(data),
        tokens: Arc::new(AnyToken),
        gate: Arc::new(Budget::new(BudgetSettings::default(), Arc::clone(metrics), clock())),
        leadership: Leadership::unopposed(),
        metrics: Arc::clone(metrics),
        clock: clock(),
    };
    ArmClient::new(settings, parts)
}

/// Reads ARM: errors, quotas, waits and pages in its responses.
pub fn arm_reads(data: &[u8]) {
    let id = ResourceId::parse(GROUP).unwrap().resource(api::LOAD_BALANCERS.resource_type, &["lb"]);
    run(async {
        let read = arm(data).get::<network::ArmLoadBalancer>(&api::LOAD_BALANCERS, &id, &[]).await;
        black_box(read.map_err(|error| format!("{error} {error:?}")).err());
        let path = format!("{GROUP}/providers/Microsoft.Compute/virtualMachines");
        let list = arm(data).list::<compute::VirtualMachineScaleSetVm>(&api::VIRTUAL_MACHINES, &path, &[]).await;
        black_box(list.map_err(|error| format!("{error} {error:?}")).err());
    });
}

/// Writes to ARM: long-running operations in its responses to writes and to the polls that follow.
pub fn arm_operations(data: &[u8]) {
    let id = ResourceId::parse(GROUP).unwrap().resource(api::LOAD_BALANCERS.resource_type, &["lb"]);
    let lb = network::ArmLoadBalancer::default();
    run(async {
        let put = arm(data).put(&api::LOAD_BALANCERS, &id, Precondition::Version("W/\"1\""), &lb).await;
        black_box(put.map_err(|error| error.to_string()).err());
        let deleted = arm(data).delete(&api::LOAD_BALANCERS, &id, Precondition::Unconditional).await;
        black_box(deleted.map_err(|error| error.to_string()).err());
        let posted = arm(data).post::<network::ArmLoadBalancer>(&api::LOAD_BALANCERS, &id, "act", &lb).await;
        black_box(posted.map_err(|error| error.to_string()).err());
    });
}

/// Reads the lists and documents that the inventory summarizes.
pub fn inventory(data: &[u8]) {
    let config = AzureConfig {
        subscription_id: "s".to_owned(),
        resource_group: "rg".to_owned(),
        enable_vmss_flex_nodes: true,
        ..AzureConfig::default()
    };
    let id =
        ResourceId::parse(&format!("{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/0"));
    let query = |id| MachineQuery { node_name: "pool000000".to_owned(), id, resource_group: None };
    run(async {
        let inventory = Inventory::new(arm(data), InventorySettings::from_config(&config), clock());
        let _ = inventory.warm().await;
        black_box(inventory.lookup(&[query(None), query(id.clone().ok())], Freshness::Cached).await);
        black_box(inventory.check_existence(&query(id.ok()), Duration::ZERO).await);
        let _ = black_box((inventory.health(), inventory.status()));
    });
}

/// Reads the responses of Entra, IMDS and of a cloud's `/metadata/endpoints`.
pub fn tokens(data: &[u8]) {
    let secret = AzureConfig {
        tenant_id: "t".to_owned(),
        aad_client_id: "c".to_owned(),
        aad_client_secret: "s".to_owned(),
        ..AzureConfig::default()
    };
    let managed = AzureConfig { use_managed_identity_extension: true, ..AzureConfig::default() };
    let described = AzureConfig { resource_manager_endpoint: "https://arm.local".to_owned(), ..managed.clone() };
    run(async {
        for config in [secret, managed, described] {
            let wire: Arc<dyn ArmTransport> = Script::shared(data);
            let Ok(connection) = auth::connect(&config, &BTreeMap::new(), wire, clock()).await else { continue };
            let token = tokio::time::timeout(Duration::from_secs(120), connection.credentials.compute.token()).await;
            black_box(token.map(|token| token.map_err(|error| format!("{error} {error:?}")).err()).ok());
        }
    });
}

/// Parses values of flags. Go's durations parse as they are printed.
pub fn go_values(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    if let Ok(read) = duration::parse(&text) {
        assert_eq!(duration::parse(&duration::format(read)), Ok(read));
    }
    let table = FlagTable::new(registry().flags());
    // One flag of each kind of value.
    let kinds: BTreeMap<_, _> = table.all().map(|flag| (flag.placeholder, flag)).collect();
    let texts = [text];
    for flag in kinds.values() {
        if let Ok(printed) = flag.canonical(&texts) {
            black_box(printed);
        }
    }
}

/// Parses the Lease that other candidates write.
pub fn lease(data: &[u8]) {
    let Ok(found) = serde_json::from_slice::<Lease>(data) else { return };
    let candidate = election::ElectorConfig {
        namespace: "kube-system".to_owned(),
        name: "cloud-controller-manager".to_owned(),
        identity: "me".to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };
    run(async {
        let (now, wall) = (clock().now(), clock().wall());
        let observed = election::ObservedLease::of(None, found, now);
        black_box(election::decide(Some(&observed), now, wall, &candidate));
        black_box(election::taken_by(Some(&observed), &candidate));
        black_box(election::released(&observed.lease, wall));
    });
}

fn settings(policy: &str) -> LoadBalancerSettings {
    let config = AzureConfig {
        subscription_id: "s".to_owned(),
        resource_group: "rg".to_owned(),
        allowed_additional_public_ips: policy.to_owned(),
        allowed_public_ip_resource_groups: policy.to_owned(),
        ..AzureConfig::default()
    };
    LoadBalancerSettings::new(&config, "kubernetes")
}

/// Returns `true` if the Service admits traffic from the Internet.
fn is_open(spec: &ServiceSpec) -> bool {
    let AccessControl { tags, ranges, has_invalid_ranges, disabled, .. } = &spec.access;
    !spec.internal && tags.is_empty() && ranges.is_empty() && !has_invalid_ranges && !disabled
}

/// Parses a Service in every way. No text opens a Service that a restriction closes, messages have a maximum length, and ARM accepts the names.
fn read_service(service: &Service, settings: &LoadBalancerSettings) {
    let annotations = service.metadata.annotations.as_ref().unwrap();
    let fields = service.spec.as_ref().unwrap();
    let lists = [ALLOWED_IP_RANGES.key, SOURCE_RANGES.key, ALLOWED_SERVICE_TAGS.key];
    let is_restricted = lists.iter().any(|key| annotations.contains_key(*key))
        || fields.load_balancer_source_ranges.as_ref().is_some_and(|ranges| !ranges.is_empty());
    let check = |spec: &ServiceSpec| {
        assert!(!(is_restricted && is_open(spec)), "{annotations:?} {fields:?}");
        assert!(spec.public_ip.group.name().chars().count() <= 90);
        let names = [&spec.public_ip.name.v4, &spec.public_ip.name.v6, &spec.subnet, &spec.mode];
        assert!(names.into_iter().flatten().all(|name| name.len() <= 80 && name.is_ascii()), "{spec:?}");
    };
    let lenient = parse_leniently(service, settings);
    check(&lenient);
    match parse_service(service, settings) {
        Ok(strict) => assert!(strict == lenient),
        Err(refusals) => assert!(refusals.len() <= 20 && refusals.iter().all(|refusal| refusal.message.len() <= 1024)),
    }
    assert!(warnings(service, settings).iter().all(|warning| warning.message.len() + warning.field.len() <= 4096));
}

fn service_with(annotations: BTreeMap<String, String>, fields: Fields) -> Service {
    let mut service = Service { spec: Some(fields), ..Service::default() };
    service.metadata.uid = Some("6f3c1a52-8d7e-4b90-9a41-2c5d7e8f9a01".to_owned());
    service.metadata.annotations = Some(annotations);
    service
}

/// Parses a Service, given as a line for each annotation (`key=value`), port (`port:number protocol node-port name`) and value of another field.
pub fn service_spec(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (mut annotations, mut fields, mut policy) = (BTreeMap::new(), Fields::default(), "");
    for line in text.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        match field {
            "port" => fields.ports.get_or_insert_default().push(port(value)),
            "range" => fields.load_balancer_source_ranges.get_or_insert_default().push(value.to_owned()),
            "family" => fields.ip_families.get_or_insert_default().push(value.to_owned()),
            "address" => fields.load_balancer_ip = Some(value.to_owned()),
            "local" => {
                fields.external_traffic_policy = Some("Local".to_owned());
                fields.health_check_node_port = value.parse().ok();
            }
            "policy" => policy = value,
            _ => {
                let (key, value) = line.split_once('=').unwrap_or((line, ""));
                annotations.insert(format!("{PREFIX}{key}"), value.to_owned());
            }
        }
    }
    read_service(&service_with(annotations, fields), &settings(policy));
}

fn port(text: &str) -> ServicePort {
    let mut words = text.split(' ');
    let mut next = || words.next().map(str::to_owned);
    ServicePort {
        port: next().and_then(|word| word.parse().ok()).unwrap_or_default(),
        protocol: next(),
        node_port: next().and_then(|word| word.parse().ok()),
        name: next(),
        ..ServicePort::default()
    }
}

/// Parses the text as the value of each annotation in turn, and as the policy of the configuration.
pub fn annotation_values(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let ports =
        [80, 443].map(|number| ServicePort { port: number, node_port: Some(30_000 + number), ..ServicePort::default() });
    let open = settings("");
    for row in ANNOTATIONS {
        let annotations = BTreeMap::from([(row.key.replace("{p}", "80"), text.clone().into_owned())]);
        let fields = Fields { ports: Some(ports.to_vec()), ..Fields::default() };
        read_service(&service_with(annotations, fields), &open);
    }
    let is_readable = AdditionalIpPolicy::parse(&text).is_ok();
    assert!(is_readable || settings(&text).additional_public_ips == AdditionalIpPolicy::Within(Vec::new()));
}

/// Network documents, as other tools and other clusters may have written them.
#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Documents {
    load_balancers: Vec<network::ArmLoadBalancer>,
    public_ips: Vec<network::PublicIpAddress>,
    security_group: network::NetworkSecurityGroup,
}

fn planned_service(name: &str, annotations: &[(&str, &str)]) -> Service {
    let pairs = annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()));
    let ports =
        vec![ServicePort { name: Some("http".to_owned()), port: 80, node_port: Some(30_080), ..ServicePort::default() }];
    let fields = Fields { ports: Some(ports), ip_families: Some(vec!["IPv4".to_owned()]), ..Fields::default() };
    let mut service = service_with(pairs.collect(), fields);
    service.metadata.name = Some(name.to_owned());
    service.metadata.namespace = Some("default".to_owned());
    service.metadata.uid = Some(format!("6f3c1a52-8d7e-4b90-9a41-2c5d7e8f9a0{}", name.len()));
    service
}

/// Plans with load balancers, public IPs and a security group of other writers. A second plan on the planned rules is empty.
pub fn network_plans(data: &[u8]) {
    let Ok(found) = serde_json::from_slice::<Documents>(data) else { return };
    let settings = settings("");
    let read = |name, annotations: &[_]| parse_service(&planned_service(name, annotations), &settings).ok().map(Arc::new);
    let open = read("web", &[]);
    let internal = read("inner", &[("azure-load-balancer-internal", "true")]);
    let ranges = read("guarded", &[("azure-allowed-ip-ranges", "10.0.0.0/8")]);
    let (Some(open), Some(internal), Some(ranges)) = (open, internal, ranges) else { return };
    let observed = ObservedNetwork {
        load_balancers: found.load_balancers,
        public_ips: found.public_ips,
        security_group: Some(found.security_group.clone()),
        ..ObservedNetwork::default()
    };
    let leaving = ServiceRequest::Delete(ranges.identity.clone(), Some(Arc::clone(&ranges)));
    let requests = [ServiceRequest::Ensure(Arc::clone(&open)), ServiceRequest::Ensure(internal), leaving];
    black_box(plan_network(&observed, &requests, &[], &settings).to_string());

    let address = "20.0.0.1".parse().unwrap();
    let Ok(opened) = ServiceRules::wanted(&open, &[address], &[]) else { return };
    let rules = [opened, ServiceRules::removed(ranges.identity.clone(), Some(&ranges), &[address])];
    let group = |group| security_rules::plan_security_rules(group, &rules, &[], &NodeAddresses::default(), &settings);
    let outcome = group(&found.security_group);
    if let Some(document) = outcome.document.filter(|_| outcome.services.values().all(Result::is_ok)) {
        let state = document.properties.as_ref().and_then(|properties| properties.provisioning_state.as_deref());
        let second = group(&document);
        assert!(second.document.is_none() || state.is_some(), "{:?}", second.reasons);
    }
}

/// Checks method and target of a request to the secure port: `METHOD target`. Accepted ones are short and ASCII, messages about others are short.
pub fn request_heads(data: &[u8]) {
    let Some(space) = data.iter().position(|byte| *byte == b' ') else { return };
    let (method, target) = (http::Method::from_bytes(&data[..space]), http::Uri::try_from(&data[space + 1..]));
    let (Ok(method), Ok(target)) = (method, target) else { return };
    match request_validation::check(&method, &target) {
        Ok(()) => assert!(method.as_str().len() <= 7 && target.path().len() <= 256 && target.path().is_ascii()),
        Err(malformed) => assert!(malformed.code.is_client_error() && malformed.message.len() <= 200),
    }
}

/// Parses the beginning of a connection from a load balancer. The result is final whatever follows, and needs a limited number of bytes.
pub fn proxy_header(data: &[u8]) {
    let found = proxy_header::parse(data);
    match found {
        ProxyHeader::Incomplete => assert!(data.len() < proxy_header::LONGEST),
        ProxyHeader::Present { length, .. } => {
            assert!((1..=proxy_header::LONGEST).contains(&length) && length <= data.len());
            assert_eq!(proxy_header::parse(&data[..length]), found);
            assert_eq!(proxy_header::parse(&data[..length - 1]), ProxyHeader::Incomplete);
        }
        ProxyHeader::Absent | ProxyHeader::Malformed(_) => {}
    }
    if found != ProxyHeader::Incomplete {
        assert_eq!(proxy_header::parse(&[data, b"GET / HTTP/1.1\r\n\r\n"].concat()), found);
    }
}

/// Parses the inputs of the credential provider from kubelets, command lines and registries: an image, mirrors and a challenge, a line each, or a
/// request. Tokens are sent only to the image's own registry, which is recognized by its host.
pub fn image_credentials(data: &[u8]) {
    let _ = ImageCredentialRequest::parse(data);
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let [image, mirrors, challenge] = [(); 3].map(|()| lines.next().unwrap_or_default());
    let mirrors: Vec<RegistryMirror> = mirrors.split(',').filter_map(RegistryMirror::parse).collect();
    let server = match registry_of(image, &mirrors, "azurecr.io") {
        Some(registry) => registry.server,
        None => return,
    };
    let host = server.to_ascii_lowercase();
    assert!(["io", "cn", "de", "us"].iter().any(|end| host.ends_with(&format!(".azurecr.{end}"))), "{server}");
    assert!(server.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte)), "{server}");
    if let Ok(challenge) = RegistryChallenge::parse(&[challenge])
        && let Ok(url) = exchange_url(&challenge.realm, &server)
    {
        assert_eq!(url, format!("https://{}/oauth2/exchange", server.to_ascii_lowercase()));
    }
}

/// Parses a review that an unauthenticated caller sent to a webhook. The response has its uid, and no control characters.
pub fn admission_review(data: &[u8]) {
    let Ok(request) = parse_review(data) else { return };
    let verdict = AdmissionAnswer::refused(request.name.clone()).with_warnings([request.namespace.clone()]);
    let review = respond_to_review(&request.uid, &verdict);
    assert_eq!(review["response"]["uid"].as_str(), Some(request.uid.as_str()));
    assert!(!review["response"]["status"]["message"].as_str().unwrap().contains(char::is_control));
}
