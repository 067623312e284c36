//! The secure port: TLS, delegated authentication and authorization, health, metrics, status pages.
