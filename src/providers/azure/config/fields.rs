//! Table of the fields of `azure.json`: JSON name, type, default, effect. The struct, the decoder and the reference page
//! derive from it.
//!
//! Upstream: `pkg/provider/config/azure.go` and the `pkg/azclient` structures it inlines.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde_json::Value as Json;

use super::{
    choices::{BackendPoolType, CloudConfigType, DriftPolicy, HealthProbeMode, LoadBalancerSku, VmType},
    document::YamlNode,
    objects::{AuxiliaryTokenProvider, ClientRateLimit, MultipleStandardLoadBalancer},
    reader::FieldReader,
    values::{FieldValue, NotNegative, read_or_default},
};

/// Row of the table.
#[derive(Debug, Clone, Copy)]
pub struct ConfigField {
    /// Key in the file, in the spelling of the documentation; files may use any letter case.
    pub name: &'static str,
    /// Section of the reference page.
    pub group: &'static str,
    /// Shape of the value, for messages and the reference page.
    pub kind: fn() -> String,
    /// Default, as one would write it; empty when there is none. Empty strings and zeros in the file count as the default too.
    pub default: &'static str,
    /// Effect of the field.
    pub doc: &'static str,
    /// Whether the value is a secret, which no log, error or page may show.
    pub secret: bool,
}

impl ConfigField {
    /// Returns `true` if numbers are accepted as strings. Upstream reads the other groups through embedded structures, for
    /// which its decoder does not convert them.
    pub(super) fn takes_scalars_as_strings(&self) -> bool {
        !["Cloud and credentials", "Requests", "Caches"].contains(&self.group)
    }
}

macro_rules! is_secret {
    (secret) => {
        true
    };
    ($($other:ident)?) => {
        false
    };
}

macro_rules! zero_is_default {
    (zero_is_a_number) => {
        false
    };
    ($($other:ident)?) => {
        true
    };
}

macro_rules! fields {
    ($($group:literal { $($field:ident: $type:ty = $name:literal $default:literal $doc:literal $([$mark:ident])?;)* })*) => {
        /// Effective configuration: decoded, with defaults. Built by [`super::decode()`]. Its `Debug` shows no secret.
        #[derive(Clone, PartialEq)]
        pub struct AzureConfig {
            $($(#[doc = $doc] pub $field: $type,)*)*
        }

        /// All fields, in the order of the reference page.
        pub const FIELDS: &[ConfigField] = &[$($(ConfigField {
            name: $name, group: $group, kind: <$type as FieldValue>::kind, default: $default, doc: $doc,
            secret: is_secret!($($mark)?),
        }),*),*];

        impl Default for AzureConfig {
            fn default() -> Self {
                Self { $($($field: <$type as FieldValue>::default_from($default),)*)* }
            }
        }

        impl AzureConfig {
            /// Sets the field whose canonical JSON name is `name`; leaves it unchanged after a finding.
            pub(super) fn set(&mut self, name: &str, node: &YamlNode, reader: &mut FieldReader<'_>) {
                match name {
                    $($($name => {
                        let value = read_or_default(node, reader, $default, zero_is_default!($($mark)?));
                        if let Some(value) = value {
                            self.$field = value;
                        }
                    })*)*
                    _ => {}
                }
            }

            /// Returns every field by its name, for pages and reports: a secret is `(set)` or empty.
            pub fn effective(&self) -> Json {
                let shown = [$($(($name, is_secret!($($mark)?), self.$field.to_json())),*),*];
                let mask = |is_secret, value: Json| match value.as_str() {
                    Some("") => value,
                    _ if is_secret => "(set)".into(),
                    _ => value,
                };
                Json::Object(shown.into_iter().map(|(name, is_secret, value)| (name.to_owned(), mask(is_secret, value))).collect())
            }
        }

        #[cfg(test)]
        impl AzureConfig {
            /// Sets every secret field to `text`.
            pub(super) fn plant_secrets(&mut self, text: &str) {
                $($(if is_secret!($($mark)?) {
                    let mut findings = Vec::new();
                    let node = YamlNode { line: 1, value: super::document::YamlValue::Text(text.to_owned()) };
                    self.set($name, &node, &mut FieldReader::new(&mut findings));
                })*)*
            }
        }
    };
}

impl AzureConfig {
    /// Returns the fields that name one resource group each, by name.
    pub fn resource_groups(&self) -> [(&'static str, &str); 6] {
        [
            ("resourceGroup", &self.resource_group),
            ("vnetResourceGroup", &self.vnet_resource_group),
            ("securityGroupResourceGroup", &self.security_group_resource_group),
            ("routeTableResourceGroup", &self.route_table_resource_group),
            ("loadBalancerResourceGroup", &self.load_balancer_resource_group),
            ("privateLinkServiceResourceGroup", &self.private_link_service_resource_group),
        ]
    }

    /// Returns `true` if the cloud is an Azure Stack and is to be treated as one.
    pub fn is_azure_stack(&self) -> bool {
        !self.disable_azure_stack_cloud && self.cloud.trim().eq_ignore_ascii_case("AzureStackCloud")
    }
}

impl fmt::Debug for AzureConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AzureConfig {}", self.effective())
    }
}

fields! {
    "Cloud and credentials" {
        cloud: String = "cloud" "AzurePublicCloud" "Cloud: AzurePublicCloud (or AzureCloud), AzureChinaCloud, AzureUSGovernmentCloud (or AzureUSGovernment), AzureStackCloud.";
        tenant_id: String = "tenantId" "" "Tenant of the cluster's identity.";
        subscription_id: String = "subscriptionId" "" "Subscription of the machines.";
        aad_client_id: String = "aadClientId" "" "Client id of a service principal or of a workload identity.";
        aad_client_secret: String = "aadClientSecret" "" "Secret of the service principal." [secret];
        aad_client_cert_path: String = "aadClientCertPath" "" "Certificate of the service principal: a PEM or PFX file.";
        aad_client_cert_password: String = "aadClientCertPassword" "" "Password of the PFX file." [secret];
        use_managed_identity_extension: bool = "useManagedIdentityExtension" "false" "Use the managed identity of the machine.";
        user_assigned_identity_id: String = "userAssignedIdentityID" "" "Managed identity: its client id, or its resource id if it contains /subscriptions/; empty: the system-assigned one.";
        aad_federated_token_file: String = "aadFederatedTokenFile" "" "Projected service account token for workload identity.";
        use_federated_workload_identity_extension: bool = "useFederatedWorkloadIdentityExtension" "false" "Use workload identity.";
        aad_msi_data_plane_identity_path: String = "aadMSIDataPlaneIdentityPath" "" "File with the credentials of a data-plane user-assigned identity.";
        auxiliary_token_provider: Option<AuxiliaryTokenProvider> = "auxiliaryTokenProvider" "" "Key Vault secret that holds the token for the tenant of the network resources.";
        network_resource_tenant_id: String = "networkResourceTenantID" "" "Tenant of the network resources when it is not tenantId.";
        network_resource_subscription_id: String = "networkResourceSubscriptionID" "" "Subscription of the network resources when it is not subscriptionId.";
        resource_manager_endpoint: String = "resourceManagerEndpoint" "" "URL whose /metadata/endpoints describes the cloud.";
        disable_azure_stack_cloud: bool = "disableAzureStackCloud" "false" "Treat AzureStackCloud as an ordinary cloud.";
        identity_system: String = "identitySystem" "" "adfs: tokens come from AD FS, as with tenantId adfs. Any other word has no effect. Upstream ignores the field.";
        user_agent: String = "userAgent" "" "User-Agent of ARM requests; empty: `kubernetes-cloudprovider/VERSION`.";
    }
    "Requests" {
        cloud_provider_backoff: bool = "cloudProviderBackoff" "false" "Use the backoff fields below as upper bounds.";
        cloud_provider_backoff_retries: i32 = "cloudProviderBackoffRetries" "6" "Attempts of one ARM read.";
        cloud_provider_backoff_exponent: f64 = "cloudProviderBackoffExponent" "1.5" "Growth of the delay between attempts.";
        cloud_provider_backoff_duration: i32 = "cloudProviderBackoffDuration" "5" "Seconds before the second attempt.";
        cloud_provider_backoff_jitter: f64 = "cloudProviderBackoffJitter" "1.0" "Random share added to the delay.";
        enable_minimum_retry_after: bool = "enableMinimumRetryAfter" "false" "Ignore Retry-After values below the delay between attempts.";
        cloud_provider_rate_limit: bool = "cloudProviderRateLimit" "false" "Use the rate limits below as upper bounds.";
        cloud_provider_rate_limit_qps: f64 = "cloudProviderRateLimitQPS" "0" "Reads per second; 0: no separate limit.";
        cloud_provider_rate_limit_bucket: i32 = "cloudProviderRateLimitBucket" "0" "Reads that may be sent at once.";
        cloud_provider_rate_limit_qps_write: f64 = "cloudProviderRateLimitQPSWrite" "0" "Writes per second.";
        cloud_provider_rate_limit_bucket_write: i32 = "cloudProviderRateLimitBucketWrite" "0" "Writes that may be sent at once.";
        rate_limit_entries: BTreeMap<String, ClientRateLimit> = "entries" "" "Rate limits by client, such as loadBalancerRateLimit. The same keys are accepted at the top level.";
        request_share_percent: i32 = "requestSharePercent" "50" "Share of the request quotas that all clients of the subscription share (network, compute) which this process may use, 1 to 100. Only in this program." [zero_is_a_number];
    }
    "Caches" {
        disable_api_call_cache: bool = "disableAPICallCache" "false" "Read from ARM each time.";
        non_vmss_uniform_nodes_cache_ttl: Duration = "nonVmssUniformNodesCacheTTLInSeconds" "900" "Age at which the list of machines outside uniform scale sets is read again.";
        vmss_cache_ttl: Duration = "vmssCacheTTLInSeconds" "600" "Age at which the list of scale sets is read again.";
        vmss_virtual_machines_cache_ttl: Duration = "vmssVirtualMachinesCacheTTLInSeconds" "600" "Age at which cached instances of uniform scale sets are read again.";
        vmss_flex_cache_ttl: Duration = "vmssFlexCacheTTLInSeconds" "600" "Age at which cached flexible scale sets are read again.";
        vmss_flex_vm_cache_ttl: Duration = "vmssFlexVMCacheTTLInSeconds" "600" "Age at which cached machines of flexible scale sets are read again.";
        vm_cache_ttl: Duration = "vmCacheTTLInSeconds" "60" "Age at which cached single machines are read again.";
        availability_sets_cache_ttl: Duration = "availabilitySetsCacheTTLInSeconds" "600" "Age at which cached availability sets are read again.";
        load_balancer_cache_ttl: Duration = "loadBalancerCacheTTLInSeconds" "120" "Age at which cached load balancers are read again.";
        nsg_cache_ttl: Duration = "nsgCacheTTLInSeconds" "120" "Age at which cached security groups are read again.";
        route_table_cache_ttl: Duration = "routeTableCacheTTLInSeconds" "120" "Age at which cached route tables are read again.";
        public_ip_cache_ttl: Duration = "publicIPCacheTTLInSeconds" "120" "Age at which cached public IPs are read again.";
        pls_cache_ttl: Duration = "plsCacheTTLInSeconds" "120" "Age at which cached private link services are read again.";
        list_vmss_virtual_machines_without_instance_view: bool = "listVmssVirtualMachinesWithoutInstanceView" "false" "List instances without their power state.";
    }
    "Cluster" {
        cloud_config_type: CloudConfigType = "cloudConfigType" "merge" "Sources of the configuration.";
        resource_group: String = "resourceGroup" "" "Resource group of the cluster; lower-cased.";
        location: String = "location" "" "Region.";
        extended_location_name: String = "extendedLocationName" "" "Edge zone of new load balancers and public IPs.";
        extended_location_type: String = "extendedLocationType" "" "Type of that edge zone; both are needed.";
        vm_type: VmType = "vmType" "vmss" "Kind of the machines; any other word counts as standard.";
        fault_domain_label: bool = "faultDomainLabel" "false" "Give Nodes a label topology.kubernetes.azure.com/fault-domain, and machines without an availability zone no label topology.kubernetes.io/zone. false: their fault domain is the value of that label. Only in this program.";
        disable_availability_set_nodes: bool = "disableAvailabilitySetNodes" "false" "With vmType vmss: no machine outside uniform scale sets is a node, except with enableVmssFlexNodes.";
        enable_vmss_flex_nodes: bool = "enableVmssFlexNodes" "false" "With vmType vmss: machines of flexible scale sets are nodes too.";
        primary_availability_set_name: String = "primaryAvailabilitySetName" "" "Availability set of load balancer backends.";
        primary_scale_set_name: String = "primaryScaleSetName" "" "Scale set of load balancer backends.";
        use_instance_metadata: bool = "useInstanceMetadata" "false" "Accepted; machines are read from ARM. Upstream: prefer the instance metadata service for the machine this process runs on.";
        node_instance_not_found_grace_period: Duration = "nodeInstanceNotFoundGracePeriodInSeconds" "0" "Nodes younger than this are kept even if their machine is not found; 0: off.";
        disable_cloud_provider: bool = "disableCloudProvider" "false" "With --enable-dynamic-reloading: stop the controllers.";
        tags: String = "tags" "" "Tags of managed shared resources: k=v,k=v.";
        tags_map: BTreeMap<String, String> = "tagsMap" "" "Tags as a map; takes precedence over tags.";
        system_tags: String = "systemTags" "" "Comma list of key prefixes that are kept; when set, other unlisted tags are removed.";
    }
    "Network" {
        vnet_name: String = "vnetName" "" "Virtual network.";
        vnet_resource_group: String = "vnetResourceGroup" "" "Resource group of the virtual network; empty: resourceGroup.";
        subnet_name: String = "subnetName" "" "Subnet of internal load balancers.";
        security_group_name: String = "securityGroupName" "" "Security group of the nodes.";
        security_group_resource_group: String = "securityGroupResourceGroup" "" "Resource group of the security group; empty: resourceGroup.";
        route_table_name: String = "routeTableName" "" "Route table of the pod networks.";
        route_table_resource_group: String = "routeTableResourceGroup" "" "Resource group of the route table; empty: resourceGroup.";
        route_update_waiting: Duration = "routeUpdateWaitingInSeconds" "30" "Accepted without effect; this program waits for ARM's response.";
        route_update_interval: Duration = "routeUpdateIntervalInSeconds" "30" "Accepted without effect; route changes are batched while a write is in flight.";
        private_link_service_resource_group: String = "privateLinkServiceResourceGroup" "" "Resource group of private link services, unless the annotation `azure-pls-resource-group` names another; empty: `resourceGroup`.";
    }
    "Load balancers" {
        load_balancer_sku: LoadBalancerSku = "loadBalancerSku" "standard" "SKU of load balancers and public IPs; any other word counts as basic, and service is treated so until it is built.";
        load_balancer_name: String = "loadBalancerName" "" "Name of the load balancer; empty: the cluster's name.";
        load_balancer_resource_group: String = "loadBalancerResourceGroup" "" "Resource group of the load balancer; empty: resourceGroup.";
        pre_configured_backend_pool_load_balancer_types: String = "preConfiguredBackendPoolLoadBalancerTypes" "" "Load balancers whose shared backend pools are not managed: internal, external, all or empty. Pools of single Services are always managed, and such a load balancer keeps its last frontend.";
        exclude_master_from_standard_lb: Option<bool> = "excludeMasterFromStandardLB" "" "Keep control-plane nodes out of pools; default true with the standard SKU.";
        disable_outbound_snat: Option<bool> = "disableOutboundSNAT" "" "disableOutboundSnat of rules; default false; true only with the standard SKU.";
        maximum_load_balancer_rule_count: i32 = "maximumLoadBalancerRuleCount" "250" "Rules of one basic load balancer.";
        maximum_network_interface_rule_count: i32 = "maximumNetworkInterfaceRuleCount" "0" "Most load balancing rules at one network interface, over all standard load balancers that its Node is behind: a Service that needs more is refused. 0: a Service that crosses Azure's documented 300 gets an event, and Services are refused only after Azure has refused a request because of the limit. Only in this program.";
        maximum_private_link_service_count: i32 = "maximumPrivateLinkServiceCount" "8" "Most private link services of one load balancer, 1 to 800. Azure allows 8, unless your subscription has a feature for more. Only in this program." [zero_is_a_number];
        maximum_service_rule_count: Option<i32> = "maximumServiceRuleCount" "" "Most ports of one Service, counted for each IP family, with or without a load balancing rule. 0: no limit. Not set: no limit, with multiTenant 100. Only in this program.";
        maximum_service_source_range_count: Option<i32> = "maximumServiceSourceRangeCount" "" "Most source ranges of one Service, after merging. 0: no limit. Not set: no limit, with multiTenant 500. Only in this program.";
        maximum_service_security_rule_count: Option<i32> = "maximumServiceSecurityRuleCount" "" "Most security rules that one Service needs: one for each IP family, protocol, and service tag or list of ranges, and those that deny. 0: no limit. Not set: no limit, with multiTenant 100. Only in this program.";
        maximum_namespace_factor: Option<i32> = "maximumNamespaceFactor" "" "All Services of a namespace together may have this many times what maximumServiceRuleCount, maximumServiceSourceRangeCount and maximumServiceSecurityRuleCount allow one Service. 0: no limit. Not set: no limit, with multiTenant 4. Only in this program.";
        multi_tenant: bool = "multiTenant" "false" "Namespaces belong to people who do not trust each other. Sets maximumServiceRuleCount 100, maximumServiceSourceRangeCount 500, maximumServiceSecurityRuleCount 100, maximumNamespaceFactor 4, enforcePublicIPNamespaces true and allowedAdditionalPublicIPs none, each unless the field itself is set. false: whatever Azure accepts is served. Only in this program.";
        load_balancer_backend_pool_configuration_type: BackendPoolType = "loadBalancerBackendPoolConfigurationType" "nodeIPConfiguration" "Member type of backend pools; podIP is not built yet.";
        put_vmss_vm_batch_size: i32 = "putVMSSVMBatchSize" "0" "Above 1: instances written at once of a scale set with the tag aks-managed-coordination; 10 of any other.";
        enable_migrate_to_ip_based_backend_pool_api: bool = "enableMigrateToIPBasedBackendPoolAPI" "false" "Migrate pools with ARM's migration operation.";
        enable_ip_tag_mutation_for_existing_public_ip: bool = "enableIPTagMutationForExistingPublicIP" "false" "Change IP tags of a public IP in place.";
        allowed_additional_public_ips: String = "allowedAdditionalPublicIPs" "" "Addresses that Services may claim with azure-additional-public-ips: any, none, or CIDR ranges between commas. Not set: any, with multiTenant none. Only in this program.";
        allowed_public_ip_resource_groups: String = "allowedPublicIPResourceGroups" "" "Comma list of resource groups, in addition to resourceGroup and loadBalancerResourceGroup, that Services may name with azure-load-balancer-resource-group, and in which prefixes of azure-pip-prefix-id are; empty: all. Only in this program.";
        enforce_public_ip_namespaces: Option<bool> = "enforcePublicIPNamespaces" "" "A Service may pick a public IP, by name or address, only if the public IP has a tag k8s-azure-allowed-namespaces with the Service's namespace or *, or was created for a Service of the same namespace, and a private address of a Service of another namespace only if that Service has an annotation azure-load-balancer-sharing-namespaces with the Service's namespace or *; prefixes are then in the cluster's resource groups or allowedPublicIPResourceGroups. Not set: false, with multiTenant true. Only in this program.";
        multiple_standard_load_balancer_configurations: Vec<MultipleStandardLoadBalancer> = "multipleStandardLoadBalancerConfigurations" "" "Several standard load balancers: which Services and Nodes belong to each. One has the name of the cluster.";
        move_services_on_label_change: bool = "moveServicesOnLabelChange" "false" "With several standard load balancers: a Service moves as soon as its labels or those of its Namespace select another entry. false: labels and selectors are evaluated when the Service's annotations or spec change, and at a start. Only in this program.";
        load_balancer_backend_pool_update_interval: NotNegative = "loadBalancerBackendPoolUpdateIntervalInSeconds" "30" "With several standard load balancers: seconds for which changes of endpoints are collected before the pools of Services with externalTrafficPolicy Local follow, each with one write.";
        load_balancer_backend_pool_update_max_retries: i32 = "loadBalancerBackendPoolUpdateMaxRetries" "3" "Accepted without effect; a pool is written until ARM shows its members.";
        cluster_service_load_balancer_health_probe_mode: HealthProbeMode = "clusterServiceLoadBalancerHealthProbeMode" "servicenodeport" "Probes of Services with externalTrafficPolicy Cluster.";
        cluster_service_shared_load_balancer_health_probe_port: i32 = "clusterServiceSharedLoadBalancerHealthProbePort" "10256" "Port of the shared probe.";
        cluster_service_shared_load_balancer_health_probe_path: String = "clusterServiceSharedLoadBalancerHealthProbePath" "/healthz" "Path of the shared probe.";
        drift_policy: DriftPolicy = "driftPolicy" "repair" "Handling of external changes to a Service's load balancer, public IPs, security rules and private link service, which a comparison finds (--min-resync-period): repair reverts them, report only reports them.";
        service_gateway_enabled: bool = "serviceGatewayEnabled" "false" "Service gateway; together with podIP and SKU service. Checked, but not built yet: while it is set, no load balancer is touched.";
    }
}
