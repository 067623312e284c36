//! In-memory Kubernetes API server, object builders and the demo.
