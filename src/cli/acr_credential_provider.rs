//! `acr-credential-provider`: credentials for the kubelet, which pulls images from Azure Container Registry.
//!
//! In: the arguments after the name of the program or the subcommand. Out: an [`ImageCredentialOptions`]. The flags are rows of a table
//! in [`flags`](super::flags). The logging flags are those of the manager.

use clap::{Arg, ArgMatches, Command};

use super::{
    arguments::{self, FlagArguments},
    command::{CliCommand as Parsed, ImageCredentialOptions},
    flags::{
        TypedFlag,
        acr_credential_provider::{
            IB_APISERVER_IP, IB_CA_FILE, IB_DEFAULT_CLIENT_ID, IB_DEFAULT_TENANT_ID, IB_SNI_NAME, REGISTRY_MIRROR, SECTIONS,
        },
        generic,
    },
    usage_errors::{UsageError, UsageErrors},
    value::VersionRequest,
    version::{VERSION, VERSION_WORD},
};
use crate::cloud_provider::config::{IdentityBindingConfig, ImageCredentialConfig};
use crate::flags::quoted;

/// Name of the subcommand, and of the program that runs only this subcommand.
pub const NAME: &str = "acr-credential-provider";
/// Id of the positional argument.
const CONFIG_FILE: &str = "config-file";

pub(super) fn command() -> Command {
    let about = "Provide the kubelet, on stdin and stdout, with credentials for images in Azure Container Registry";
    let file = Arg::new(CONFIG_FILE).value_name("azure.json").help("File with the configuration of the provider.");
    arguments::add_flags(arguments::subcommand(NAME, about).arg(file), SECTIONS)
}

/// Reads the arguments of the subcommand.
pub(super) fn parse(matches: &ArgMatches, mut mistakes: UsageErrors) -> Result<Parsed, UsageError> {
    let arguments = FlagArguments::new(matches, SECTIONS.iter().flat_map(|section| section.flags.iter()));
    mistakes.add_invalid_values(&arguments);
    let file = matches.get_one::<String>(CONFIG_FILE).map(String::as_str).unwrap_or_default();
    if file == VERSION_WORD || arguments.read(&generic::VERSION) != VersionRequest::No {
        return mistakes.finish(Ok(Parsed::Print(format!("{NAME} {VERSION}\n"))));
    }
    let mut errors = Vec::new();
    if file.is_empty() {
        errors.push("the path of azure.json is missing: give it as the only argument".to_owned());
    }
    let config = ImageCredentialConfig {
        cloud_config: file.into(),
        registry_mirrors: arguments.read(&REGISTRY_MIRROR),
        identity_binding: identity_binding(&arguments, &mut errors),
    };
    let options = ImageCredentialOptions { config, logging: arguments.logging() };
    mistakes.finish(if errors.is_empty() { Ok(Parsed::ProvideImageCredentials(Box::new(options))) } else { Err(errors) })
}

fn identity_binding(arguments: &FlagArguments, errors: &mut Vec<String>) -> Option<IdentityBindingConfig> {
    let read = |flag: &TypedFlag<String>| arguments.read(flag).trim().to_owned();
    let binding = IdentityBindingConfig {
        sni_name: read(&IB_SNI_NAME),
        api_server: read(&IB_APISERVER_IP),
        default_client_id: read(&IB_DEFAULT_CLIENT_ID),
        default_tenant_id: read(&IB_DEFAULT_TENANT_ID),
        ca_file: read(&IB_CA_FILE).into(),
    };
    if binding.sni_name.is_empty() {
        let dependent = [&IB_APISERVER_IP, &IB_DEFAULT_CLIENT_ID, &IB_DEFAULT_TENANT_ID].into_iter();
        let dependent = dependent.filter(|flag| !read(flag).is_empty());
        errors.extend(dependent.map(|flag| format!("--{}: needs --ib-sni-name", flag.spec.name)));
        return None;
    }
    if binding.sni_name.contains('/') {
        let name = quoted(&binding.sni_name);
        errors.push(format!("--ib-sni-name: expected the name of a host without https://, not {name}"));
    }
    if binding.api_server.is_empty() {
        errors.push("--ib-sni-name: needs --ib-apiserver-ip".to_owned());
    }
    Some(binding)
}
