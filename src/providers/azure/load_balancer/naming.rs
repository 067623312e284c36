//! Every name that load balancing gives to something in Azure. Upstream: `pkg/provider/azure_standard.go` and `azure_utils.go`.
