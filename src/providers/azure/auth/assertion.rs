//! Signed assertion that proves possession of the key of a service principal's certificate. Pure except for the salt.
//!
//! In: the signer, the client ID, the token endpoint, the time. Out: a JWT. Format: Entra "certificate credentials". The chain is always
//! sent (`x5c`), so that subject-name-and-issuer authentication works.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use azure_core::base64::{encode, encode_url_safe};
use serde_json::{Value as Json, json};

use super::certificate::{CertificateSigner, SignatureAlgorithm};

/// Lifetime of an assertion, in seconds.
const LIFETIME: i64 = 600;
/// Seconds by which our clock may be ahead of the clock of the identity service.
const SKEW: i64 = 60;

/// Claims of an assertion.
#[derive(Debug, Clone, Copy)]
pub(super) struct AssertionClaims<'a> {
    pub(super) client_id: &'a str,
    pub(super) audience: &'a str,
    /// Current Unix time in seconds.
    pub(super) now: i64,
    pub(super) id: &'a str,
}

pub(super) fn assertion(
    signer: &CertificateSigner,
    signature: SignatureAlgorithm,
    claims: AssertionClaims<'_>,
) -> Result<String, String> {
    let body = json!({
        "aud": claims.audience, "iss": claims.client_id, "sub": claims.client_id, "jti": claims.id,
        "iat": claims.now, "nbf": claims.now - SKEW, "exp": claims.now + LIFETIME,
    });
    let message = format!("{}.{}", part(&header(signer, signature)), part(&body));
    let signed = signer.sign(signature, message.as_bytes())?;
    Ok(format!("{message}.{}", unpadded(&signed)))
}

fn header(signer: &CertificateSigner, signature: SignatureAlgorithm) -> Json {
    let chain: Vec<String> = signer.chain().iter().map(encode).collect();
    match signature {
        SignatureAlgorithm::Ps256 => {
            json!({"typ": "JWT", "alg": "PS256", "x5t#S256": unpadded(&signer.thumbprint(&SHA256)), "x5c": chain})
        }
        SignatureAlgorithm::Rs256 => {
            json!({"typ": "JWT", "alg": "RS256", "x5t": unpadded(&signer.thumbprint(&SHA1_FOR_LEGACY_USE_ONLY)), "x5c": chain})
        }
    }
}

fn part(value: &Json) -> String {
    unpadded(value.to_string().as_bytes())
}

fn unpadded(bytes: &[u8]) -> String {
    encode_url_safe(bytes).trim_end_matches('=').to_owned()
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256};

    use super::*;
    use crate::providers::azure::auth::tests::certificates::{TestCertificate, make, verified};

    #[test]
    fn both_algorithms_verify_with_the_included_certificate() {
        let TestCertificate { pem, leaf, .. } = make("");
        let signer = CertificateSigner::read(pem.as_bytes(), "").unwrap();
        let claims =
            AssertionClaims { client_id: "client", audience: "https://login/token", now: 1_800_000_000, id: "unique" };
        for (signature, algorithm, thumbprint) in [
            (SignatureAlgorithm::Ps256, &RSA_PSS_2048_8192_SHA256, "x5t#S256"),
            (SignatureAlgorithm::Rs256, &RSA_PKCS1_2048_8192_SHA256, "x5t"),
        ] {
            let jwt = assertion(&signer, signature, claims).unwrap();
            let (header, body, certificate) = verified(&jwt, algorithm);
            assert_eq!(certificate, leaf);
            assert!(header[thumbprint].as_str().is_some_and(|text| !text.contains(['=', '+', '/'])), "{header}");
            assert_eq!(body["aud"], "https://login/token");
            assert_eq!((&body["iss"], &body["sub"], &body["jti"]), (&json!("client"), &json!("client"), &json!("unique")));
            assert_eq!((&body["nbf"], &body["exp"]), (&json!(1_799_999_940), &json!(1_800_000_600)));
        }
    }
}
