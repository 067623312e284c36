//! DNS labels that ARM has refused, because other public IPs of the region have them.
//!
//! In: refusals, and requests. Out: the requests without such a label, so that neither a write nor a plan has it again. A refusal counts until
//! the Service requests another label or another public IP, is compared with Azure or is deleted, and not in another process.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::drift::EnsureOrigin;
use crate::providers::azure::planner::load_balancer::{
    desired::{
        ServiceRequest,
        public_ips::{PublicIpChange, PublicIpRelease},
    },
    spec::{ServiceIdentity, ServiceSpec},
};

struct RefusedLabel {
    spec: Arc<ServiceSpec>,
    /// Notice to the Service about the public IP that lacks the label.
    notice: PublicIpRelease,
}

impl RefusedLabel {
    /// Returns `true` if `spec` requests the label for the same public IP.
    fn concerns(&self, spec: &ServiceSpec) -> bool {
        let (refused, requested) = (&self.spec.public_ip, &spec.public_ip);
        (self.spec.internal, &self.spec.pinned) == (spec.internal, &spec.pinned)
            && (&refused.group, &refused.name) == (&requested.group, &requested.name)
            && refused.dns_label == requested.dns_label
    }
}

#[derive(Default)]
pub(super) struct RefusedLabels {
    refused: Mutex<BTreeMap<ServiceIdentity, RefusedLabel>>,
}

impl RefusedLabels {
    /// Forgets a refusal that does not count for this call.
    pub(super) fn begin(&self, spec: &ServiceSpec, origin: EnsureOrigin) {
        let mut refused = self.refused.lock();
        let counts = |label: &RefusedLabel| origin != EnsureOrigin::Comparison && label.concerns(spec);
        if refused.get(&spec.identity).is_some_and(|label| !counts(label)) {
            refused.remove(&spec.identity);
        }
    }

    /// Records that ARM refused the label of this public IP. A request for another one waits for the Service that requested it.
    pub(super) fn record(&self, request: &ServiceRequest, change: &PublicIpChange) {
        let ServiceRequest::Ensure(spec) = request else { return };
        let sent = change.document.properties.as_ref().and_then(|properties| properties.dns_settings.as_ref());
        let sent = sent.and_then(|settings| settings.domain_name_label.as_deref());
        let Some(label) = spec.public_ip.dns_label.as_deref().filter(|label| sent == Some(*label)) else { return };
        let reason = format!(
            "it does not get the DNS label `{label}`: another public IP in this region has it; choose another in the annotation \
             azure-dns-label-name"
        );
        let notice = PublicIpRelease {
            id: change.id.clone(),
            etag: change.etag.clone(),
            reasons: vec![reason],
            services: vec![spec.identity.clone()],
            is_notice: true,
        };
        self.refused.lock().insert(spec.identity.clone(), RefusedLabel { spec: Arc::clone(spec), notice });
    }

    /// Returns the request without a refused label, and the notice about that.
    pub(super) fn without_label<'r>(
        &self,
        request: &'r ServiceRequest,
    ) -> (Cow<'r, ServiceRequest>, Option<PublicIpRelease>) {
        let refused = self.refused.lock();
        let label = match request {
            ServiceRequest::Ensure(spec) => refused.get(&spec.identity).filter(|label| label.concerns(spec)),
            ServiceRequest::Delete(..) => None,
        };
        match label {
            Some(label) => (Cow::Owned(request.without_dns_label()), Some(label.notice.clone())),
            None => (Cow::Borrowed(request), None),
        }
    }

    pub(super) fn forget(&self, identity: &ServiceIdentity) {
        self.refused.lock().remove(identity);
    }
}
