//! Table of ARM's error codes: class, recovery, reason and remedy of each. Pure.
//!
//! In: a code, with ARM's message. Out: its class for [`super::classify`], and its row for events, conditions, `explain` and the page
//! `docs/reference/azure-errors.md`. Sources: Microsoft Learn, "Azure Load Balancer error codes"
//! (load-balancer-common-deployment-errors) and "Troubleshoot common Azure deployment errors" (azure-resource-manager/troubleshooting);
//! `pkg/consts` of cloud-provider-azure; the resource providers' public error lists and public issues for the others.

use crate::providers::azure::model::{ArmError, ArmErrorClass, spelling};

/// Next step after an error of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorRecovery {
    /// Retried slowly, because a user must change something first.
    Fix,
    /// Retried with backoff, because the cause may end without a change.
    Retry,
}

/// Row of the table: codes with one meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArmErrorEntry {
    /// Codes in ARM's spelling, with the class that they determine.
    ///
    /// The class applies to every status below 500 except 401, 403 and 404. Without a class, the status determines the class of the error.
    pub codes: &'static [(&'static str, Option<ArmErrorClass>)],
    /// Reason in events and conditions, in CamelCase.
    pub reason: &'static str,
    pub recovery: ErrorRecovery,
    /// Remedy in complete sentences.
    pub fix: &'static str,
}

impl ArmErrorEntry {
    /// Returns the codes without their classes.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.codes.iter().map(|(name, _)| *name)
    }
}

macro_rules! codes {
    ($($reason:ident $recovery:ident [$($code:literal $(= $class:ident)?),+] $fix:literal;)*) => {
        /// Table of the explained codes. Each code is in one row.
        pub const CODES: &[ArmErrorEntry] = &[$(ArmErrorEntry {
            codes: &[$(($code, codes!(@class $($class)?))),+], reason: stringify!($reason),
            recovery: ErrorRecovery::$recovery, fix: $fix,
        }),*];
    };
    (@class) => { None };
    (@class $class:ident) => { Some(ArmErrorClass::$class) };
}

codes! {
    PublicIPLimitReached Fix
        ["PublicIPCountLimitReached", "StaticPublicIPCountLimitReached", "IPv4StandardSkuPublicIpCountLimitReached"]
        "Request a higher limit of public IPs in this region and subscription, or delete public IPs that nothing uses; \
         `az network list-usages --location <region>` shows them.";
    PublicIPAddressInUse Retry ["PublicIPAddressInUse", "PublicIPReferencedByMultipleIPConfigs"]
        "Name another public IP in the annotation or `spec.loadBalancerIP`, or detach this one from the resource that the message names.";
    PublicIPAddressKept Retry ["PublicIPAddressCannotBeDeleted", "InUsePublicIpAddressCannotBeDeleted"]
        "Detach the public IP from the resource that the message names; it is not deleted before.";
    PublicIPImmutable Fix ["PublicIPAddressSkuCannotBeChanged", "PublicIPAddressVersionCannotBeChanged",
        "PublicIPAddressIpTagsCannotBeChanged", "PublicIPPrefixCannotBeChanged", "ResourceAvailabilityZonesCannotBeModified"]
        "A property that was fixed when the public IP was created cannot be changed: revert the change, or delete and recreate the \
         Service for another public IP.";
    SkuMismatch Fix ["DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed",
        "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowedInVMSS", "PublicIPAndLBSkuDoNotMatch"]
        "Load balancer and public IPs must have the same SKU: compare `loadBalancerSku` of the provider's configuration with the \
         SKU of the public IP that the Service names.";
    BasicSkuRetired Fix ["IPv4BasicSkuPublicIpCountLimitReached"]
        "Azure no longer creates public IPs of SKU Basic: set `loadBalancerSku: standard` in the provider's configuration.";
    DnsLabelInUse Retry ["DnsRecordInUse"]
        "Another public IP in this region has this DNS label: choose another in the annotation `azure-dns-label-name`.";
    DnsLabelInvalid Fix ["InvalidDomainNameLabel"]
        "Choose another DNS label in the annotation `azure-dns-label-name`: 3 to 63 lower-case letters, digits and hyphens, \
         beginning with a letter.";
    TagsInvalid Fix ["InvalidTagValueLength", "InvalidTagNameLength", "InvalidTagName", "InvalidTagNameCharacters", "InvalidTags"]
        "Azure accepts 50 tags on a resource, names of 512 characters and values of 256: shorten or remove tags of the resource, of \
         `tags` in the provider's configuration, or of the annotation `azure-pip-tags`.";
    SubnetIsFull Fix ["SubnetIsFull"]
        "Free addresses in the subnet, extend it, or name another in the annotation `azure-load-balancer-internal-subnet`.";
    AddressNotInSubnet Fix ["PrivateIPAddressNotInSubnet"]
        "Pin an address inside the subnet's prefix, or name the subnet that has it in the annotation \
         `azure-load-balancer-internal-subnet`.";
    AddressReserved Fix ["PrivateIPAddressInReservedRange"]
        "Azure reserves the first four addresses and the last one of every subnet: pin another.";
    AddressInUse Retry ["PrivateIPAddressIsAllocated", "PrivateIPAddressInUse"]
        "Another resource has the pinned address, which may be a pod or a node: pin one that is free.";
    SubnetDelegated Fix ["SubnetHasDelegations"]
        "The subnet is delegated to another service: name another in the annotation `azure-load-balancer-internal-subnet`.";
    DuplicatePort Retry ["RulesUseSameBackendPortProtocolAndPool", "RulesUseSameBackendPortProtocolAndIPConfig",
        "RulesUseSameBackendPortProtocolAndVmssIPConfig", "RulesOfSameLoadBalancerTypeUseSameBackendPortProtocolAndIPConfig",
        "RulesOfSameLoadBalancerTypeUseSameBackendPortProtocolAndVmssIPConfig", "RulesUseSameFrontendPortProtocolAndIPConfig"]
        "Two rules would use the same port: give one of the Services another port, or remove the rule that another program created.";
    LoadBalancerFull Fix ["LoadBalancerFrontendIPConfigurationCountLimitReached",
        "LoadBalancerFrontendIPConfigCountLimitReached", "LoadBalancingRuleCountLimitReached",
        "LoadBalancerRuleCountLimitReached"]
        "The load balancer has as many parts as Azure allows: use fewer ports or fewer Services of type `LoadBalancer`.";
    FrontendInUse Retry ["FrontendIPConfigurationInUse"]
        "Rules that another program created use this frontend: remove them.";
    LastFrontend Fix ["DeletingAllIpConfigsInLoadbalancerNotSupported"]
        "A load balancer must have at least one frontend until it is deleted: put another Service on it, or delete the load balancer.";
    BackendPoolInUse Retry ["InUseBackendAddressPoolCannotBeDeleted", "LoadBalancerInUseByVirtualMachineScaleSet"]
        "Machines are still in a backend pool; this program removes them when their scale sets allow it.";
    SecurityRuleConflict Fix ["SecurityRuleConflict"]
        "Two rules have the same priority and direction: give the one that is not managed by this program a priority outside of 500 \
         to 4096.";
    SecurityRuleInvalid Fix ["SecurityRuleParameterConflict", "SecurityRuleInvalidPriority", "SecurityRuleInvalidAddressPrefix",
        "SecurityRuleInvalidPortRange"]
        "Correct the source ranges or service tags of the Service.";
    SecurityGroupFull Fix ["SecurityRuleCountLimitReached", "SecurityRuleAddressesOrPortsPerSecurityGroupLimitReached"]
        "The network security group has as many rules or addresses as Azure allows: use fewer or wider source ranges, or remove rules.";
    ReferenceNotReady Retry ["ReferencedResourceNotProvisioned" = Busy]
        "A resource that this one refers to is not ready; if its state is `Failed`, it must be written again, which this program \
         does for public IPs.";
    ReferenceInvalid Fix ["InvalidResourceReference", "LinkedInvalidPropertyId"]
        "A resource that the message names does not exist, or is in another region or subscription: correct the annotation or the \
         provider's configuration that names it.";
    PrivateLinkPoolsUnsupported Fix ["PrivateLinkServiceIsNotSupportedForIPBasedLoadBalancer"]
        "Azure supports no private link service in front of backend pools that list addresses: set \
         `loadBalancerBackendPoolConfigurationType: nodeIPConfiguration` in the provider's configuration, or remove the annotation \
         `azure-pls-create`.";
    PrivateLinkSubnetPolicies Retry ["PrivateLinkServiceNetworkPoliciesCannotBeEnabledOnPrivateLinkServiceSubnet",
        "PrivateLinkServiceNetworkPoliciesEnabledOnSubnet"]
        "Another program has enabled the subnet's network policies for private link services: leave \
         `privateLinkServiceNetworkPolicies` of that subnet disabled, or name another in `azure-pls-ip-configuration-subnet`.";
    PrivateLinkInTheWay Retry ["CannotDeleteLoadBalancerWithPrivateLinkService",
        "LoadBalancerFrontendIpConfigurationInUseByPrivateLinkService"]
        "A private link service uses this frontend. If this program created it, give its identity the action \
         `Microsoft.Network/privateLinkServices/read` on the resource group; otherwise delete it.";
    PrivateLinkConnected Retry ["PrivateLinkServiceWithPrivateEndpointConnectionsCannotBeDeleted"]
        "A private endpoint connected a moment ago: this program deletes its connection and retries.";
    PrivateLinkImmutable Fix ["PrivateLinkServiceLoadBalancerCannotBeChanged"]
        "A private link service cannot be moved to another frontend: delete it, so that this program recreates it.";
    PrivateLinkAddresses Fix ["PrivateLinkServiceIpConfigurationCountInvalid",
        "PrivateLinkServiceMustHaveOnePrimaryIpConfiguration", "PrivateLinkServiceIPv6NotSupported"]
        "Correct the annotations `azure-pls-ip-configuration-…`; if Azure does not release addresses of an existing private link \
         service, delete and recreate the Service.";
    PrivateLinkNeedsStandard Fix ["PrivateLinkServiceRequiresStandardLoadBalancer"]
        "Set `loadBalancerSku: standard` in the provider's configuration.";
    TooManyPrivateLinks Fix ["PrivateLinkServicesPerLoadBalancerCountLimitReached"]
        "Azure allows this subscription fewer private link services of a load balancer than `maximumPrivateLinkServiceCount` of the \
         provider's configuration: let Services share a frontend, or put them on an internal and an external load balancer.";
    ZonesNotSupported Fix ["ZonesNotSupported", "AvailabilityZoneNotSupported", "InvalidAvailabilityZone"]
        "The region or the resource has no such zone: check `location` in the provider's configuration.";
    PolicyForbids Fix ["RequestDisallowedByPolicy", "RequestDisallowedByAzure"]
        "An Azure Policy forbids this: exempt the resource group, or set what the policy requires on the resources (`tags` in the provider's \
         configuration, annotation `azure-pip-tags`).";
    ScopeLocked Fix ["ScopeLocked"]
        "Remove the management lock that the message names.";
    NotAuthorized Retry ["AuthorizationFailed", "LinkedAuthorizationFailed", "LinkedAccessCheckFailed"]
        "Give the identity of this program a role with the action on the scope that the message names. New roles take some minutes \
         to work. Public IPs, subnets and network security groups of other resource groups also need `join/action`.";
    ResourceGroupBeingDeleted Fix ["ResourceGroupBeingDeleted" = ParentNotFound, "ResourceGroupDeletionBlocked"]
        "The resource group is being deleted, and nothing can be created in it.";
    ResourceGroupNotFound Retry ["ResourceGroupNotFound" = ParentNotFound]
        "Create the resource group, or correct its name in the annotation `azure-load-balancer-resource-group` or in the provider's \
         configuration.";
    ParentNotFound Retry ["ParentResourceNotFound" = ParentNotFound]
        "Correct the subscription or resource group in the provider's configuration or in the annotation, or create it.";
    SubscriptionProblem Fix ["SubscriptionNotRegistered", "MissingSubscriptionRegistration", "NoRegisteredProviderFound",
        "SubscriptionNotFound" = ParentNotFound, "InvalidSubscriptionId" = ParentNotFound, "ReadOnlyDisabledSubscription"]
        "Correct the subscription in the provider's configuration, enable it, or register the resource provider that the message \
         names (`az provider register`).";
    QuotaExceeded Fix ["ResourceQuotaExceeded", "QuotaExceeded"]
        "Raise the limit that the message names, or delete resources that count against it.";
    LocationMismatch Fix ["InvalidResourceLocation", "LocationNotAvailableForResourceType"]
        "Check `location` in the provider's configuration: all resources of a cluster are in one region.";
    Throttled Retry ["TooManyRequests" = Throttled, "SubscriptionRequestsThrottled" = Throttled,
        "ResourceRequestsThrottled" = Throttled, "ResourceCollectionRequestsThrottled" = Throttled]
        "A request quota of the subscription is exhausted; this program waits and continues automatically.";
    ResourceBusy Retry ["RetryableErrorDueToAnotherOperation" = Busy, "RetryableError" = Busy,
        "AnotherOperationInProgress" = Busy, "OperationInProgress" = Busy]
        "Another operation on the resource is in progress; this program retries automatically.";
    ConcurrentChange Retry ["PreconditionFailed" = Conflict, "CanceledAndSupersededDueToAnotherOperation" = Conflict,
        "OperationPreempted" = Conflict, "OperationPreemptedByAnotherOperation" = Conflict,
        "ConflictingConcurrentWriteNotAllowed" = Conflict, "Conflict" = Conflict]
        "Another writer changed the resource at the same time; this program reads it again and continues automatically.";
}

/// Endings of codes of reached limits: `PublicIPCountLimitReached`, `QuotaExceeded` …
const LIMITS: &[&str] = &["limitreached", "quotaexceeded", "limitexceeded"];

/// Endings of codes of operations that failed inside Azure.
const INTERNAL: &[&str] =
    &["internalservererror", "internalexecutionerror", "internaloperationerror", "internalerror", "allocationfailed"];

fn ends_with_any(code: &str, endings: &[&str]) -> bool {
    let code = code.to_ascii_lowercase();
    endings.iter().any(|ending| code.ends_with(ending))
}

/// Returns `true` if an operation with this code failed inside Azure.
pub(super) fn is_internal(code: &str) -> bool {
    ends_with_any(code, INTERNAL)
}

/// Returns the class that the table gives `code`.
fn listed_class(code: &str) -> Option<ArmErrorClass> {
    let mut listed = CODES.iter().flat_map(|row| row.codes);
    listed.find(|(name, _)| spelling::same_word(name, code)).and_then(|(_, class)| *class)
}

/// Returns the class that `code` determines, if any. `message` is ARM's.
pub(super) fn class_of_code(code: &str, message: &str) -> Option<ArmErrorClass> {
    let quota = || spelling::same_word(code, "OperationNotAllowed") && message.to_ascii_lowercase().contains("quota");
    listed_class(code).or_else(|| (ends_with_any(code, LIMITS) || quota()).then_some(ArmErrorClass::QuotaExceeded))
}

/// Returns `true` if the code names another write of the resource, so that a 429 with it is not about a quota.
pub(super) fn names_another_write(code: &str) -> bool {
    matches!(listed_class(code), Some(ArmErrorClass::Busy | ArmErrorClass::Conflict))
}

impl ArmError {
    /// Returns `true` if the code or message of the error contains a code with this class in the table.
    pub fn mentions_class(&self, class: ArmErrorClass) -> bool {
        CODES.iter().flat_map(|row| row.codes).any(|(name, listed)| *listed == Some(class) && self.mentions(name))
    }

    /// Returns the row of the error's code, or else of the first code that is a word of its message.
    ///
    /// `Conflict` is ignored as a code, because Azure wraps unrelated codes in it.
    pub fn entry(&self) -> Option<&'static ArmErrorEntry> {
        let row = |word: &str| CODES.iter().find(|row| row.names().any(|code| spelling::same_word(code, word)));
        Some(&*self.code)
            .filter(|code| *code != "Conflict")
            .and_then(row)
            .or_else(|| long_words(&self.message).find_map(row))
    }
}

/// Returns the words of a text that may be codes: long ones with an inner capital letter. Codes that are plain words are not
/// recognized in prose.
fn long_words(text: &str) -> impl Iterator<Item = &str> {
    const MIN_LENGTH: usize = 11;
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| {
        word.len() >= MIN_LENGTH && word.get(1..).is_some_and(|rest| rest.contains(|c: char| c.is_ascii_uppercase()))
    })
}
