//! Sends one read to ARM. In: what to read. Out: records, reduced to the fields that the inventory keeps. Makes no
//! decisions.

use std::collections::BTreeMap;

use super::{
    build,
    read::{ArmRead, ArmReadPayload, ListScope, uniform_set_of},
    records::{InterfaceRecord, PublicIpRecord, ScaleSetRecord, VmRecord},
};
use crate::providers::azure::{
    arm::ArmClient,
    model::{ArmErrorClass, ArmResult, Machine, MachineInterface, ResourceId, api},
};

const INSTANCE_VIEW: (&str, &str) = ("$expand", "instanceView");

/// Sends a read, and returns its result. `interfaces`: ids of the machine's interfaces, for [`ArmRead::InterfacesOf`].
pub(super) async fn send(
    arm: &ArmClient,
    read: &ArmRead,
    interfaces: &[ResourceId],
    instance_view: bool,
) -> ArmResult<ArmReadPayload> {
    match read {
        ArmRead::ScaleSets(group) => {
            let path = provider_path(group, api::SCALE_SETS.resource_type);
            let records = arm.list::<ScaleSetRecord>(&api::SCALE_SETS, &path, &[]).await?;
            Ok(ArmReadPayload::ScaleSets(records.into_iter().filter_map(build::scale_set).collect()))
        }
        ArmRead::ScaleSet(id) => arm.get::<ScaleSetRecord>(&api::SCALE_SETS, id, &[]).await.map(|_| ArmReadPayload::Exists),
        ArmRead::Machines(scope) => list_machines(arm, scope, instance_view).await.map(ArmReadPayload::Machines),
        ArmRead::Machine(id) => {
            let kind = if uniform_set_of(id).is_some() { &api::SCALE_SET_VMS } else { &api::VIRTUAL_MACHINES };
            let record = arm.get::<VmRecord>(kind, id, &[INSTANCE_VIEW]).await?;
            Ok(ArmReadPayload::Machines(build::machine(record).into_iter().collect()))
        }
        ArmRead::Interfaces(scope) => list_interfaces(arm, scope).await,
        ArmRead::InterfacesOf(id) => read_interfaces(arm, id, interfaces).await,
    }
}

fn provider_path(group: &ResourceId, resource_type: &str) -> String {
    format!("{group}/providers/{resource_type}")
}

/// Lists machines, reduced page by page.
async fn list_machines(arm: &ArmClient, scope: &ListScope, instance_view: bool) -> ArmResult<Vec<(Machine, bool)>> {
    let mut machines = Vec::new();
    let take = |page: Vec<VmRecord>| machines.extend(page.into_iter().filter_map(build::machine));
    match scope {
        ListScope::Uniform(set) => {
            let query: &[_] = if instance_view { &[INSTANCE_VIEW] } else { &[] };
            arm.list_with(&api::SCALE_SET_VMS, &format!("{set}/virtualMachines"), query, take).await?;
        }
        ListScope::Flex(set) => {
            let path = provider_path(&super::read::group_of(set), api::VIRTUAL_MACHINES.resource_type);
            let filter = format!("'virtualMachineScaleSet/id' eq '{set}'");
            arm.list_with(&api::VIRTUAL_MACHINES, &path, &[("$filter", &filter), INSTANCE_VIEW], take).await?;
        }
        ListScope::Group(group) => {
            let path = provider_path(group, api::VIRTUAL_MACHINES.resource_type);
            arm.list_with(&api::VIRTUAL_MACHINES, &path, &[], take).await?;
        }
    }
    Ok(machines)
}

async fn list_interfaces(arm: &ArmClient, scope: &ListScope) -> ArmResult<ArmReadPayload> {
    let (records, public_ips, public_kind) = match scope {
        ListScope::Uniform(set) | ListScope::Flex(set) => {
            let path = format!("{set}/networkInterfaces");
            let records = arm.list::<InterfaceRecord>(&api::SCALE_SET_INTERFACES, &path, &[]).await?;
            (records, format!("{set}/publicIPAddresses"), &api::SCALE_SET_PUBLIC_IPS)
        }
        ListScope::Group(group) => {
            let path = provider_path(group, api::INTERFACES.resource_type);
            let records = arm.list::<InterfaceRecord>(&api::INTERFACES, &path, &[]).await?;
            (records, provider_path(group, api::PUBLIC_IPS.resource_type), &api::PUBLIC_IPS)
        }
    };
    let mut addresses = build::PublicIpAddressById::new();
    if records.iter().any(|record| record.public_ips().next().is_some()) {
        addresses = build::public_addresses(arm.list::<PublicIpRecord>(public_kind, &public_ips, &[]).await?);
    }
    Ok(ArmReadPayload::Interfaces(by_id(records, &addresses)))
}

async fn read_interfaces(arm: &ArmClient, machine: &ResourceId, interfaces: &[ResourceId]) -> ArmResult<ArmReadPayload> {
    let uniform = uniform_set_of(machine).is_some();
    let mut records = Vec::new();
    if uniform {
        records = arm.list(&api::SCALE_SET_INTERFACES, &format!("{machine}/networkInterfaces"), &[]).await?;
    } else {
        for id in interfaces {
            records.push(arm.get::<InterfaceRecord>(&api::INTERFACES, id, &[]).await?);
        }
    }
    let kind = if uniform { &api::SCALE_SET_PUBLIC_IPS } else { &api::PUBLIC_IPS };
    let mut public_ips = Vec::new();
    for id in records.iter().flat_map(InterfaceRecord::public_ips).filter_map(|id| ResourceId::parse(id).ok()) {
        match arm.get::<PublicIpRecord>(kind, &id, &[]).await {
            Ok(record) => public_ips.push(record),
            // The public IP was deleted meanwhile, so it has no address.
            Err(error) if error.class == ArmErrorClass::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ArmReadPayload::Interfaces(by_id(records, &build::public_addresses(public_ips))))
}

fn by_id(records: Vec<InterfaceRecord>, addresses: &build::PublicIpAddressById) -> BTreeMap<ResourceId, MachineInterface> {
    let interfaces = records.into_iter().filter_map(|record| build::interface(record, addresses));
    interfaces.map(|interface| (interface.id.clone(), interface)).collect()
}
