//! Identity used to pull an image. Pure.
//!
//! In: the request, azure.json, flags. Out: an identity, or an error that names the missing setting. A mirror belongs to the cluster, so
//! its images are pulled as the machine, whatever the Pod's identity is.

use azure_core::credentials::Secret;

use super::request::ImageCredentialRequest;
use crate::{
    cloud_provider::config::IdentityBindingConfig,
    providers::azure::{
        auth::{EntraApplication, ManagedIdentityId},
        config::AzureConfig,
    },
};

const CLIENT_ANNOTATION: &str = "kubernetes.azure.com/acr-client-id";
const TENANT_ANNOTATION: &str = "kubernetes.azure.com/acr-tenant-id";
/// Maximum length of a client or tenant ID, in bytes. A tenant may be a domain.
const MAX_ID: usize = 255;

/// Identity that pulls an image.
#[derive(Debug)]
pub(super) enum ImagePullIdentity<'a> {
    /// Service principal of the cluster. The registry accepts its secret as a password; other identities need a token.
    ClientSecret { client_id: String, secret: Secret },
    /// Service account of the Pod, through the cluster's identity binding.
    Binding { binding: &'a IdentityBindingConfig, client_id: String, tenant: String },
    /// Service account of the Pod, which this application trusts.
    ServiceAccount(EntraApplication),
    /// Managed identity of the machine.
    Managed { identity: ManagedIdentityId, tenant: String },
}

/// Chooses the identity. `is_mirrored`: whether a mirror replaces the registry that the image names.
pub(super) fn choose<'a>(
    request: &ImageCredentialRequest,
    config: &AzureConfig,
    binding: Option<&'a IdentityBindingConfig>,
    is_mirrored: bool,
) -> Result<ImagePullIdentity<'a>, String> {
    let has_token = !request.service_account_token.secret().is_empty();
    match binding {
        Some(binding) if !is_mirrored && !has_token => Err(format!(
            "--ib-sni-name {} needs a service account token in the request: set tokenAttributes in the kubelet's \
             CredentialProviderConfig",
            binding.sni_name
        )),
        Some(binding) if !is_mirrored => bound(request, config, binding),
        _ if !is_mirrored && has_token => match application(request)? {
            Some(application) => Ok(ImagePullIdentity::ServiceAccount(application)),
            None => of_cluster(config),
        },
        _ => of_cluster(config),
    }
}

fn bound<'a>(
    request: &ImageCredentialRequest,
    config: &AzureConfig,
    binding: &'a IdentityBindingConfig,
) -> Result<ImagePullIdentity<'a>, String> {
    let client_id = annotation(request, CLIENT_ANNOTATION)?.unwrap_or(&binding.default_client_id).to_owned();
    let tenant = annotation(request, TENANT_ANNOTATION)?.unwrap_or(&binding.default_tenant_id);
    if client_id.is_empty() {
        return Err(format!(
            "the service account lacks the annotation {CLIENT_ANNOTATION}, and --ib-default-client-id is not set"
        ));
    }
    let tenant = if tenant.is_empty() { config.tenant_id.trim() } else { tenant }.to_owned();
    Ok(ImagePullIdentity::Binding { binding, client_id, tenant })
}

fn of_cluster<'a>(config: &AzureConfig) -> Result<ImagePullIdentity<'a>, String> {
    if config.use_managed_identity_extension {
        let identity = ManagedIdentityId::parse(&config.user_assigned_identity_id);
        return Ok(ImagePullIdentity::Managed { identity, tenant: config.tenant_id.trim().to_owned() });
    }
    if config.aad_client_id.is_empty() || config.aad_client_secret.is_empty() {
        return Err("azure.json has neither useManagedIdentityExtension nor aadClientId and aadClientSecret".to_owned());
    }
    Ok(ImagePullIdentity::ClientSecret {
        client_id: config.aad_client_id.clone(),
        secret: Secret::new(config.aad_client_secret.clone()),
    })
}

/// Returns the application that the service account names, if any. The kubelet sends a token for every Pod, so most accounts name none.
fn application(request: &ImageCredentialRequest) -> Result<Option<EntraApplication>, String> {
    let lacks = |missing: &str, present: &str| {
        Err(format!(
            "the service account lacks the annotation {missing}: add it, or remove {present} to pull as the machine"
        ))
    };
    match (annotation(request, CLIENT_ANNOTATION)?, annotation(request, TENANT_ANNOTATION)?) {
        (Some(client), Some(tenant)) => {
            Ok(Some(EntraApplication { client_id: client.to_owned(), tenant: tenant.to_owned() }))
        }
        (Some(_), None) => lacks(TENANT_ANNOTATION, CLIENT_ANNOTATION),
        (None, Some(_)) => lacks(CLIENT_ANNOTATION, TENANT_ANNOTATION),
        (None, None) => Ok(None),
    }
}

/// Returns the value of an annotation, which must be valid because it is used in URLs and messages.
fn annotation<'a>(request: &'a ImageCredentialRequest, name: &str) -> Result<Option<&'a str>, String> {
    let found = request.annotations.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
    let is_valid =
        |id: &str| id.len() <= MAX_ID && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    match found {
        Some(id) if !is_valid(id) => Err(format!(
            "the annotation {name} of the service account is not a valid id; expected letters, digits, `-`, `.` and `_`"
        )),
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = CLIENT_ANNOTATION;
    const TENANT: &str = TENANT_ANNOTATION;

    fn request(token: &str, annotations: &[(&str, &str)]) -> ImageCredentialRequest {
        ImageCredentialRequest {
            image: "a.azurecr.io/b".to_owned(),
            service_account_token: Secret::new(token.to_owned()),
            annotations: annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        }
    }

    fn config(managed: bool, client: &str, secret: &str) -> AzureConfig {
        AzureConfig {
            use_managed_identity_extension: managed,
            user_assigned_identity_id: "uid".to_owned(),
            tenant_id: " t ".to_owned(),
            aad_client_id: client.to_owned(),
            aad_client_secret: secret.to_owned(),
            ..AzureConfig::default()
        }
    }

    fn binding(client: &str, tenant: &str) -> IdentityBindingConfig {
        IdentityBindingConfig {
            sni_name: "sni".to_owned(),
            api_server: "10.0.0.1".to_owned(),
            default_client_id: client.to_owned(),
            default_tenant_id: tenant.to_owned(),
            ca_file: "/ca".into(),
        }
    }

    fn chosen_identity(
        request: &ImageCredentialRequest,
        config: &AzureConfig,
        binding: Option<&IdentityBindingConfig>,
        is_mirrored: bool,
    ) -> String {
        match choose(request, config, binding, is_mirrored) {
            Ok(ImagePullIdentity::Binding { client_id, tenant, .. }) => format!("binding {client_id} {tenant}"),
            Ok(ImagePullIdentity::ServiceAccount(application)) => {
                format!("account {} {}", application.client_id, application.tenant)
            }
            Ok(ImagePullIdentity::Managed { identity, tenant }) => format!("{identity:?} {tenant}"),
            Ok(ImagePullIdentity::ClientSecret { client_id, secret }) => format!("secret {client_id} {}", secret.secret()),
            Err(error) => error,
        }
    }

    #[test]
    fn the_pods_identity_has_precedence_except_for_mirrors() {
        let (managed, principal) = (config(true, "", ""), config(false, "sp", "pw"));
        let (named, default) = ([(CLIENT, "c"), (TENANT, "u")], binding("dc", "dt"));
        for (token, annotations, config, bound, mirrored, expected) in [
            ("", &[][..], &managed, None, false, "Client(\"uid\") t"),
            ("", &named, &managed, None, false, "Client(\"uid\") t"),
            ("x", &named, &managed, None, false, "account c u"),
            ("x", &named, &principal, None, false, "account c u"),
            ("x", &[], &managed, None, false, "Client(\"uid\") t"),
            ("x", &[(CLIENT, ""), (TENANT, " ")], &managed, None, false, "Client(\"uid\") t"),
            ("x", &[], &principal, None, false, "secret sp pw"),
            ("x", &named, &managed, None, true, "Client(\"uid\") t"),
            ("x", &named, &managed, Some(&default), false, "binding c u"),
            ("x", &[], &managed, Some(&default), false, "binding dc dt"),
            ("x", &[(CLIENT, "c")], &managed, Some(&binding("", "")), false, "binding c t"),
            ("x", &[(CLIENT, " ")], &managed, Some(&default), false, "binding dc dt"),
            ("x", &[], &managed, Some(&default), true, "Client(\"uid\") t"),
            ("", &[], &managed, Some(&default), true, "Client(\"uid\") t"),
            ("", &named, &managed, None, true, "Client(\"uid\") t"),
            ("", &[], &principal, None, false, "secret sp pw"),
            ("x", &named, &principal, Some(&default), true, "secret sp pw"),
        ] {
            let chosen = chosen_identity(&request(token, annotations), config, bound, mirrored);
            assert_eq!(chosen, expected, "{token} {annotations:?} {mirrored}");
        }
    }

    #[test]
    fn a_missing_setting_is_named() {
        let (managed, bound) = (config(true, "", ""), binding("", ""));
        let long = "a".repeat(MAX_ID + 1);
        for (token, annotations, config, bound, message) in [
            ("x", &[(CLIENT, "c")][..], &managed, None, TENANT),
            ("x", &[(TENANT, "t")], &managed, None, CLIENT),
            ("x", &[(TENANT, "t"), (CLIENT, "")], &managed, None, "lacks the annotation kubernetes.azure.com/acr-client-id"),
            ("x", &[(TENANT, ""), (CLIENT, "c")], &managed, None, "lacks the annotation kubernetes.azure.com/acr-tenant-id"),
            ("x", &[(TENANT, "t")], &config(false, "", ""), None, CLIENT),
            ("x", &[(TENANT, "t")], &managed, Some(&bound), "--ib-default-client-id"),
            ("x", &[(TENANT, "../t"), (CLIENT, "c")], &managed, None, "not a valid id"),
            ("x", &[(TENANT, &long), (CLIENT, "c")], &managed, None, "not a valid id"),
            ("", &[(CLIENT, "c")], &managed, Some(&bound), "tokenAttributes"),
            ("x", &[], &managed, Some(&bound), "--ib-default-client-id"),
            ("x", &[(CLIENT, "a b")], &managed, Some(&bound), "not a valid id"),
            ("", &[], &config(false, "", "pw"), None, "neither"),
            ("", &[], &config(false, "sp", ""), None, "neither"),
        ] {
            let error = choose(&request(token, annotations), config, bound, false).unwrap_err();
            assert!(error.contains(message), "{annotations:?}: {error}");
        }
    }
}
