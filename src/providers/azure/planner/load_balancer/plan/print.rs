//! A plan as text: one line for each document, each Service that is refused and each thing that is waited for, in the order in which they
//! are written.

use std::{collections::BTreeSet, fmt};

use super::{
    super::{desired::load_balancers::LoadBalancerWrite, spec::ServiceIdentity},
    Plan,
    network::NetworkPlan,
    owner::ChangeOwner,
    pools::PoolChangeKind,
};

/// How many owners a line names.
const NAMED: usize = 3;

impl fmt::Display for ChangeOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(key) => f.write_str(key),
            Self::Nodes => f.write_str("Nodes"),
        }
    }
}

/// ` (for default/web)`.
fn suffix(owners: &BTreeSet<ChangeOwner>) -> String {
    let named: Vec<String> = owners.iter().take(NAMED).map(ToString::to_string).collect();
    match owners.len().checked_sub(NAMED) {
        _ if named.is_empty() => String::new(),
        None | Some(0) => format!(" (for {})", named.join(", ")),
        Some(more) => format!(" (for {} and {more} more)", named.join(", ")),
    }
}

fn services<'a>(identities: impl IntoIterator<Item = &'a ServiceIdentity>) -> String {
    suffix(&identities.into_iter().map(|who| ChangeOwner::Service(who.key.clone())).collect())
}

impl fmt::Display for NetworkPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Plan { network: self.clone(), ..Plan::default() })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print_written(f)?;
        self.print_pools(f)?;
        self.print_rules(f)?;
        for release in &self.network.public_ips.releases {
            writeln!(f, "delete {}: {}{}", release.id, release.reasons.join("; "), services(&release.services))?;
        }
        for kept in &self.network.public_ips.retained {
            writeln!(f, "keep {}: {}{}", kept.id, kept.reasons.join("; "), services(&kept.services))?;
        }
        for (identity, refusal) in self.refused() {
            writeln!(f, "refuse {}: {refusal}", identity.key)?;
        }
        self.waiting.iter().try_for_each(|waiting| writeln!(f, "later: {waiting}"))
    }
}

impl Plan {
    fn print_written(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in &self.network.public_ips.writes {
            writeln!(f, "put {}: {}{}", change.id, change.reasons.join("; "), services(&change.services))?;
        }
        for change in &self.network.load_balancers.changes {
            let verb = if matches!(change.write, LoadBalancerWrite::Delete) { "delete" } else { "put" };
            let owners = self.owners.get(&change.id.key()).map(suffix).unwrap_or_default();
            writeln!(f, "{verb} {}: {}{owners}", change.id, change.reasons.join("; "))?;
        }
        Ok(())
    }

    fn print_pools(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in &self.pools.changes {
            let what = if matches!(change.kind, PoolChangeKind::Model) { "model of " } else { "" };
            writeln!(f, "put {what}{}: {} (for {})", change.id, change.reasons.join("; "), change.owner)?;
        }
        Ok(())
    }

    fn print_rules(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(rules) = self.rules.as_ref().filter(|rules| rules.document.is_some()) else { return Ok(()) };
        let owners = if rules.causes.is_empty() { suffix(&[ChangeOwner::Nodes].into()) } else { services(&rules.causes) };
        rules.reasons.iter().try_for_each(|reason| writeln!(f, "put security group: {reason}{owners}"))
    }
}
