//! Client assertions: JSON web tokens that an application signs with the key of its certificate (`private_key_jwt`).

use azure_core::base64;
use jiff::Timestamp;
use rustls::pki_types::alg_id;
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Endpoint, Refusal};

/// Largest difference between clocks, in seconds.
const SKEW: i64 = 300;

/// A token that was parsed, not checked.
pub(super) struct Assertion {
    header: Value,
    claims: Value,
    signed: String,
    signature: Vec<u8>,
}

impl Assertion {
    /// Parses a token: three parts of base64, two of them JSON.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let json = |part: &str| serde_json::from_slice(&base64::decode_url_safe(part).ok()?).ok();
        let signature = base64::decode_url_safe(signature).ok()?;
        Some(Self { header: json(header)?, claims: json(claims)?, signed: signed.to_owned(), signature })
    }

    /// Returns a claim that is text.
    pub(super) fn claim(&self, name: &str) -> Option<&str> {
        self.claims[name].as_str()
    }

    /// Checks that issuer and subject are the application, the audience is this endpoint, the time is valid, and the key is
    /// named.
    pub(super) fn check(&self, client_id: &str, endpoint: Endpoint<'_>, now: Timestamp) -> Result<(), Refusal> {
        if self.claim("iss") != Some(client_id) || self.claim("sub") != Some(client_id) {
            return Err(Refusal::assertion_issuer());
        }
        let path =
            if endpoint.adfs { "/adfs/oauth2/token".to_owned() } else { format!("/{}/oauth2/v2.0/token", endpoint.tenant) };
        let audience = self.claim("aud").unwrap_or_default();
        if !audience.starts_with("https://") || !audience.ends_with(&path) {
            return Err(Refusal::assertion_audience());
        }
        let (from, until) = (self.claims["nbf"].as_i64().unwrap_or(0), self.claims["exp"].as_i64().unwrap_or(0));
        if now.as_second() + SKEW < from || now.as_second() - SKEW > until {
            return Err(Refusal::assertion_time());
        }
        let names_key = ["x5t", "x5t#S256"].iter().any(|field| self.header[*field].is_string());
        if names_key && self.claim("jti").is_some() { Ok(()) } else { Err(Refusal::malformed_assertion()) }
    }

    /// Returns `true` if the key of this certificate (DER) made the signature, with RS256 or PS256.
    pub(super) fn is_signed_by(&self, certificate: &[u8]) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        let expected_algorithm = match self.header["alg"].as_str() {
            Some("RS256") => alg_id::RSA_PKCS1_SHA256,
            Some("PS256") => alg_id::RSA_PSS_SHA256,
            _ => return false,
        };
        let key = &certificate.public_key().subject_public_key.data;
        let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
        let mut suitable = algorithms.all.iter().filter(|algorithm| {
            algorithm.signature_alg_id() == expected_algorithm && algorithm.public_key_alg_id() == alg_id::RSA_ENCRYPTION
        });
        suitable.any(|algorithm| algorithm.verify_signature(key, self.signed.as_bytes(), &self.signature).is_ok())
    }
}
