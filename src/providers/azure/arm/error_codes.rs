//! The table of ARM's error codes: class, retry, reason and remedy of each. Pure.
//!
//! In: a code, with ARM's message. Out: its class for [`super::classify`], its row for events, conditions, `explain` and the page
//! `docs/reference/azure-errors.md`. Sources: Microsoft Learn, "Azure Load Balancer error codes"
//! (load-balancer-common-deployment-errors) and "Troubleshoot common Azure deployment errors" (azure-resource-manager/troubleshooting);
//! `pkg/consts` of cloud-provider-azure; the resource providers' public error lists and public issues for the others.

use crate::providers::azure::model::{ArmError, ArmErrorClass, spelling};

/// Next step after an error of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorRecovery {
    /// A person has to change something first: retried slowly.
    Mend,
    /// The cause may end without a change: retried with backoff.
    Retry,
}

/// Row of the table: codes with one meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArmErrorEntry {
    /// ARM's codes, as ARM spells them. With a class, a code decides the class of an error whatever the status (below 500 and
    /// not 401, 403, 404); the class of other codes follows from the status.
    pub codes: &'static [(&'static str, Option<ArmErrorClass>)],
    /// One CamelCase word for events and conditions.
    pub reason: &'static str,
    pub recovery: ErrorRecovery,
    /// Remedy in whole sentences.
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
        /// Every code that is explained. One code stands in one row.
        pub const CODES: &[ArmErrorEntry] = &[$(ArmErrorEntry {
            codes: &[$(($code, codes!(@class $($class)?))),+], reason: stringify!($reason),
            recovery: ErrorRecovery::$recovery, fix: $fix,
        }),*];
    };
    (@class) => { None };
    (@class $class:ident) => { Some(ArmErrorClass::$class) };
}

codes! {
    PublicIPLimitReached Mend
        ["PublicIPCountLimitReached", "StaticPublicIPCountLimitReached", "IPv4StandardSkuPublicIpCountLimitReached"]
        "Ask for a higher limit of public IPs in this region and subscription, or delete public IPs that nothing uses; \
         `az network list-usages --location <region>` shows them.";
    PublicIPAddressInUse Retry ["PublicIPAddressInUse", "PublicIPReferencedByMultipleIPConfigs"]
        "Name another public IP in the annotation or `spec.loadBalancerIP`, or detach this one from what the message names.";
    PublicIPAddressKept Retry ["PublicIPAddressCannotBeDeleted", "InUsePublicIpAddressCannotBeDeleted"]
        "Detach the public IP from what the message names; until then it stays.";
    PublicIPImmutable Mend ["PublicIPAddressSkuCannotBeChanged", "PublicIPAddressVersionCannotBeChanged",
        "PublicIPAddressIpTagsCannotBeChanged", "PublicIPPrefixCannotBeChanged", "ResourceAvailabilityZonesCannotBeModified"]
        "A property that was fixed when the public IP was made cannot be changed: take the change back, or delete the Service and \
         create it again for another public IP.";
    SkuMismatch Mend ["DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed",
        "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowedInVMSS", "PublicIPAndLBSkuDoNotMatch"]
        "Load balancer and public IPs must have the same SKU: compare `loadBalancerSku` of the provider's configuration with the \
         SKU of the public IP that the Service names.";
    BasicSkuRetired Mend ["IPv4BasicSkuPublicIpCountLimitReached"]
        "Azure makes no more public IPs of SKU Basic: set `loadBalancerSku: standard` in the provider's configuration.";
    DnsLabelInUse Retry ["DnsRecordInUse"]
        "Another public IP in this region has this DNS label: choose another in the annotation `azure-dns-label-name`.";
    DnsLabelInvalid Mend ["InvalidDomainNameLabel"]
        "Choose another DNS label in the annotation `azure-dns-label-name`: 3 to 63 lower-case letters, digits and hyphens, \
         beginning with a letter.";
    TagsInvalid Mend ["InvalidTagValueLength", "InvalidTagNameLength", "InvalidTagName", "InvalidTagNameCharacters", "InvalidTags"]
        "Azure accepts 50 tags on a resource, names of 512 characters and values of 256: shorten or remove tags of the resource, of \
         `tags` in the provider's configuration, or of the annotation `azure-pip-tags`.";
    SubnetIsFull Mend ["SubnetIsFull"]
        "Free addresses in the subnet, extend it, or name another in the annotation `azure-load-balancer-internal-subnet`.";
    AddressNotInSubnet Mend ["PrivateIPAddressNotInSubnet"]
        "Pin an address inside the subnet's prefix, or name the subnet that has it in the annotation \
         `azure-load-balancer-internal-subnet`.";
    AddressReserved Mend ["PrivateIPAddressInReservedRange"]
        "Azure keeps the first four addresses and the last one of every subnet: pin another.";
    AddressInUse Retry ["PrivateIPAddressIsAllocated", "PrivateIPAddressInUse"]
        "Another resource has the pinned address, which may be a pod or a node: pin one that is free.";
    SubnetDelegated Mend ["SubnetHasDelegations"]
        "The subnet is set aside for another service: name another in the annotation `azure-load-balancer-internal-subnet`.";
    DuplicatePort Retry ["RulesUseSameBackendPortProtocolAndPool", "RulesUseSameBackendPortProtocolAndIPConfig",
        "RulesUseSameBackendPortProtocolAndVmssIPConfig", "RulesOfSameLoadBalancerTypeUseSameBackendPortProtocolAndIPConfig",
        "RulesOfSameLoadBalancerTypeUseSameBackendPortProtocolAndVmssIPConfig", "RulesUseSameFrontendPortProtocolAndIPConfig"]
        "Two rules would use the same port: give one of the Services another port, or remove the rule that something else made.";
    LoadBalancerFull Mend ["LoadBalancerFrontendIPConfigurationCountLimitReached",
        "LoadBalancerFrontendIPConfigCountLimitReached", "LoadBalancingRuleCountLimitReached",
        "LoadBalancerRuleCountLimitReached"]
        "The load balancer has as many parts as Azure allows: use fewer ports or fewer Services of type `LoadBalancer`.";
    FrontendInUse Retry ["FrontendIPConfigurationInUse"]
        "Rules that something else made use this front end: remove them.";
    LastFrontend Mend ["DeletingAllIpConfigsInLoadbalancerNotSupported"]
        "A load balancer keeps at least one frontend until it is deleted: put another Service on it, or delete the load balancer.";
    BackendPoolInUse Retry ["InUseBackendAddressPoolCannotBeDeleted", "LoadBalancerInUseByVirtualMachineScaleSet"]
        "Machines are still in a back-end pool; this program takes them out when their scale sets let it.";
    SecurityRuleConflict Mend ["SecurityRuleConflict"]
        "Two rules have the same priority and direction: give the one that is not managed by this program a priority outside of 500 \
         to 4096.";
    SecurityRuleInvalid Mend ["SecurityRuleParameterConflict", "SecurityRuleInvalidPriority", "SecurityRuleInvalidAddressPrefix",
        "SecurityRuleInvalidPortRange"]
        "Correct the source ranges or service tags of the Service.";
    SecurityGroupFull Mend ["SecurityRuleCountLimitReached", "SecurityRuleAddressesOrPortsPerSecurityGroupLimitReached"]
        "The security group has as many rules or addresses as Azure allows: use fewer or wider source ranges, or remove rules.";
    ReferenceNotReady Retry ["ReferencedResourceNotProvisioned" = Busy]
        "A resource that this one refers to is not ready; if its state is `Failed`, it has to be written again, which this program \
         does for public IPs.";
    ReferenceInvalid Mend ["InvalidResourceReference", "LinkedInvalidPropertyId"]
        "A resource that the message names does not exist, or is in another region or subscription: correct the annotation or the \
         provider's configuration that names it.";
    PrivateLinkPoolsUnsupported Mend ["PrivateLinkServiceIsNotSupportedForIPBasedLoadBalancer"]
        "Azure puts no private link service in front of back-end pools that list addresses: set \
         `loadBalancerBackendPoolConfigurationType: nodeIPConfiguration` in the provider's configuration, or take the annotation \
         `azure-pls-create` back.";
    PrivateLinkSubnetPolicies Retry ["PrivateLinkServiceNetworkPoliciesCannotBeEnabledOnPrivateLinkServiceSubnet",
        "PrivateLinkServiceNetworkPoliciesEnabledOnSubnet"]
        "Something else has enabled the subnet's network policies for private link services: leave \
         `privateLinkServiceNetworkPolicies` of that subnet disabled, or name another in `azure-pls-ip-configuration-subnet`.";
    PrivateLinkInTheWay Retry ["CannotDeleteLoadBalancerWithPrivateLinkService",
        "LoadBalancerFrontendIpConfigurationInUseByPrivateLinkService"]
        "A private link service leads to this front end. If this program made it, give its identity the action \
         `Microsoft.Network/privateLinkServices/read` on the resource group; otherwise delete it.";
    PrivateLinkConnected Retry ["PrivateLinkServiceWithPrivateEndpointConnectionsCannotBeDeleted"]
        "A private endpoint connected a moment ago: this program deletes its connection and tries again.";
    PrivateLinkImmutable Mend ["PrivateLinkServiceLoadBalancerCannotBeChanged"]
        "A private link service cannot be moved to another front end: delete it, so that this program makes it anew.";
    PrivateLinkAddresses Mend ["PrivateLinkServiceIpConfigurationCountInvalid",
        "PrivateLinkServiceMustHaveOnePrimaryIpConfiguration", "PrivateLinkServiceIPv6NotSupported"]
        "Correct the annotations `azure-pls-ip-configuration-…`; addresses of an existing private link service that Azure does not \
         give up need the Service to be deleted and created again.";
    PrivateLinkNeedsStandard Mend ["PrivateLinkServiceRequiresStandardLoadBalancer"]
        "Set `loadBalancerSku: standard` in the provider's configuration.";
    TooManyPrivateLinks Mend ["PrivateLinkServicesPerLoadBalancerCountLimitReached"]
        "Azure allows this subscription fewer private link services of a load balancer than `maximumPrivateLinkServiceCount` of the \
         provider's configuration: let Services share a frontend, or put them on an internal and an external load balancer.";
    ZonesNotSupported Mend ["ZonesNotSupported", "AvailabilityZoneNotSupported", "InvalidAvailabilityZone"]
        "The region or the resource has no such zone: check `location` in the provider's configuration.";
    PolicyForbids Mend ["RequestDisallowedByPolicy", "RequestDisallowedByAzure"]
        "An Azure Policy forbids this: exempt the resource group, or give resources what the policy demands (`tags` in the provider's \
         configuration, annotation `azure-pip-tags`).";
    ScopeLocked Mend ["ScopeLocked"]
        "Remove the management lock that the message names.";
    NotAuthorized Retry ["AuthorizationFailed", "LinkedAuthorizationFailed", "LinkedAccessCheckFailed"]
        "Give the identity of this program a role with the action on the scope that the message names. New roles take some minutes \
         to work. Public IPs, subnets and security groups of other resource groups need `join/action` besides.";
    ResourceGroupBeingDeleted Mend ["ResourceGroupBeingDeleted" = ParentNotFound, "ResourceGroupDeletionBlocked"]
        "The resource group is being deleted, and nothing can be made in it any more.";
    ResourceGroupNotFound Retry ["ResourceGroupNotFound" = ParentNotFound]
        "Create the resource group, or correct its name in the annotation `azure-load-balancer-resource-group` or in the provider's \
         configuration.";
    ParentNotFound Retry ["ParentResourceNotFound" = ParentNotFound]
        "Correct the subscription or resource group in the provider's configuration or in the annotation, or create it.";
    SubscriptionProblem Mend ["SubscriptionNotRegistered", "MissingSubscriptionRegistration", "NoRegisteredProviderFound",
        "SubscriptionNotFound" = ParentNotFound, "InvalidSubscriptionId" = ParentNotFound, "ReadOnlyDisabledSubscription"]
        "Correct the subscription in the provider's configuration, enable it, or register the resource provider that the message \
         names (`az provider register`).";
    QuotaExceeded Mend ["ResourceQuotaExceeded", "QuotaExceeded"]
        "Raise the limit that the message names, or free what counts against it.";
    LocationMismatch Mend ["InvalidResourceLocation", "LocationNotAvailableForResourceType"]
        "Check `location` in the provider's configuration: all resources of a cluster are in one region.";
    Throttled Retry ["TooManyRequests" = Throttled, "SubscriptionRequestsThrottled" = Throttled,
        "ResourceRequestsThrottled" = Throttled, "ResourceCollectionRequestsThrottled" = Throttled]
        "A request quota of the subscription is used up; this program waits and goes on by itself.";
    ResourceBusy Retry ["RetryableErrorDueToAnotherOperation" = Busy, "RetryableError" = Busy,
        "AnotherOperationInProgress" = Busy, "OperationInProgress" = Busy]
        "Another operation is at work on the resource; this program tries again by itself.";
    ConcurrentChange Retry ["PreconditionFailed" = Conflict, "CanceledAndSupersededDueToAnotherOperation" = Conflict,
        "OperationPreempted" = Conflict, "OperationPreemptedByAnotherOperation" = Conflict,
        "ConflictingConcurrentWriteNotAllowed" = Conflict, "Conflict" = Conflict]
        "Somebody else changed the resource at the same time; this program reads it again and goes on by itself.";
}

/// Endings of codes of reached limits: `PublicIPCountLimitReached`, `QuotaExceeded` …
const LIMITS: &[&str] = &["limitreached", "quotaexceeded", "limitexceeded"];

/// Endings of codes of a failed operation that are the cloud's own trouble.
const INTERNAL: &[&str] =
    &["internalservererror", "internalexecutionerror", "internaloperationerror", "internalerror", "allocationfailed"];

fn ends_with_any(code: &str, endings: &[&str]) -> bool {
    let code = code.to_ascii_lowercase();
    endings.iter().any(|ending| code.ends_with(ending))
}

/// Returns `true` if an operation with this code failed for a reason of the cloud's own.
pub(super) fn is_internal(code: &str) -> bool {
    ends_with_any(code, INTERNAL)
}

/// Returns the class that the table gives `code`.
fn listed_class(code: &str) -> Option<ArmErrorClass> {
    let mut listed = CODES.iter().flat_map(|row| row.codes);
    listed.find(|(name, _)| spelling::same_word(name, code)).and_then(|(_, class)| *class)
}

/// Returns the class that `code` decides, if it decides one. `message` is ARM's.
pub(super) fn class_of_code(code: &str, message: &str) -> Option<ArmErrorClass> {
    let quota = || spelling::same_word(code, "OperationNotAllowed") && message.to_ascii_lowercase().contains("quota");
    listed_class(code).or_else(|| (ends_with_any(code, LIMITS) || quota()).then_some(ArmErrorClass::QuotaExceeded))
}

/// Returns `true` if the code speaks of a resource that another write holds, so that a 429 with it says nothing about a
/// quota.
pub(super) fn names_another_write(code: &str) -> bool {
    matches!(listed_class(code), Some(ArmErrorClass::Busy | ArmErrorClass::Conflict))
}

impl ArmError {
    /// Returns `true` if a code with this class in the table occurs anywhere in the error.
    pub fn mentions_class(&self, class: ArmErrorClass) -> bool {
        CODES.iter().flat_map(|row| row.codes).any(|(name, listed)| *listed == Some(class) && self.mentions(name))
    }

    /// Returns the row of its code, else of the first code that its message mentions as a word of its own.
    ///
    /// `Conflict` says nothing: Azure wraps all sorts of codes in it.
    pub fn entry(&self) -> Option<&'static ArmErrorEntry> {
        let row = |word: &str| CODES.iter().find(|row| row.names().any(|code| spelling::same_word(code, word)));
        Some(&*self.code)
            .filter(|code| *code != "Conflict")
            .and_then(row)
            .or_else(|| long_words(&self.message).find_map(row))
    }
}

/// Returns the words of a text that may be a code: long ones of letters. Codes that are a plain word are not looked for in prose.
fn long_words(text: &str) -> impl Iterator<Item = &str> {
    const SHORTEST: usize = 11;
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| {
        word.len() >= SHORTEST && word.get(1..).is_some_and(|rest| rest.contains(|c: char| c.is_ascii_uppercase()))
    })
}
