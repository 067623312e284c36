//! Compute's policies: one table, read by the type and the class of a request.
//!
//! Upstream: "Compute throttling limits" of Azure's documentation. Lists of instances are not in it; they have the dearest class of
//! reads.

use super::{ThrottledRequest, bucket::BucketSize};
use crate::sandbox::azure::options::Class;

/// Policy of compute: its name, the bucket of each resource and that of the subscription.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ComputePolicy {
    pub(super) name: &'static str,
    pub(super) resource: Option<BucketSize>,
    pub(super) subscription: BucketSize,
}

/// Requests at once and per minute.
type Rate = (f64, f64);

fn policy(name: &'static str, resource: Option<Rate>, (burst, tokens): Rate) -> ComputePolicy {
    let resource = resource.map(|(burst, tokens)| BucketSize::per_minute(burst, tokens));
    ComputePolicy { name, resource, subscription: BucketSize::per_minute(burst, tokens) }
}

const READS_OF_ONE: Option<Rate> = Some((36.0, 12.0));
const WRITES_OF_ONE: Option<Rate> = Some((12.0, 4.0));

/// Returns the policy that a request for compute counts against.
pub(super) fn policy_of(request: &ThrottledRequest<'_>) -> Option<ComputePolicy> {
    let kind = request.kind.strip_prefix("microsoft.compute/").unwrap_or_default();
    Some(match (kind, request.class, request.list) {
        (_, Class::Poll, _) => policy("GetOperation", None, (15_000.0, 5_000.0)),
        ("virtualmachines", Class::Read, false) => policy("LowCostGetVM", READS_OF_ONE, (24_000.0, 8_000.0)),
        ("virtualmachines", Class::Read, true) => policy("HighCostGetVM", None, (900.0, 300.0)),
        ("virtualmachines", Class::Write, _) => policy("UpdateVM", WRITES_OF_ONE, (1_500.0, 500.0)),
        ("virtualmachines", Class::Delete, _) => policy("DeleteVM", WRITES_OF_ONE, (1_500.0, 500.0)),
        ("virtualmachinescalesets", Class::Read, false) => policy("LowCostGetVMSS", READS_OF_ONE, (2_400.0, 800.0)),
        ("virtualmachinescalesets", Class::Read, true) => policy("HighCostGetVMSS", None, (1_080.0, 360.0)),
        ("virtualmachinescalesets", Class::Write, _) => policy("UpdateVMSS", WRITES_OF_ONE, (1_500.0, 500.0)),
        ("virtualmachinescalesets", Class::Delete, _) => policy("DeleteVMSS", WRITES_OF_ONE, (525.0, 175.0)),
        ("virtualmachinescalesets/virtualmachines", Class::Read, false) => {
            policy("GetVMSSVM", READS_OF_ONE, (6_000.0, 2_000.0))
        }
        ("virtualmachinescalesets/virtualmachines", Class::Read, true) => policy("ListVMSSVM", None, (1_080.0, 360.0)),
        ("virtualmachinescalesets/virtualmachines", Class::Write, _) => {
            policy("UpdateVMSSVM", WRITES_OF_ONE, (1_500.0, 500.0))
        }
        ("virtualmachinescalesets/virtualmachines", Class::Delete, _) => {
            policy("DeleteVMSSVM", WRITES_OF_ONE, (1_500.0, 500.0))
        }
        _ => return None,
    })
}
