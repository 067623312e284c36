use super::*;
use std::time::Duration;

const PATH: &str = "/subscriptions/s/resourceGroups/g";

fn response(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

fn error(method: &Method, status: u16, body: impl Into<Bytes>) -> ArmError {
    error_of(RequestLine { method, path: PATH }, &response(status, &[], body), Timestamp::UNIX_EPOCH)
}

const BUSY: &str = r#"{"error":{"code":"RetryableError","message":"A retryable error occured.","details":[{"code":"RetryableErrorDueToAnotherOperation","message":"Operation AllocateTenantNetworkResourcesOperation (f9827d3e) is updating resource a43d33d7. The call can be retried in 14 seconds."}]}}"#;

#[test]
fn errors_of_arm_are_classed_by_status_and_code() {
    use ArmErrorClass::*;
    let own = "The Resource 'Microsoft.Compute/virtualMachines/n' under resource group 'g' was not found.";
    let cores = "Operation could not be completed as it results in exceeding approved Total Regional Cores quota.";
    for (status, code, message, class) in [
        (404, "ResourceNotFound", own, NotFound),
        (404, "NotFound", "Resource /subscriptions/s/… not found.", NotFound),
        (404, "InstanceNotFound", "The entity was not found.", NotFound),
        (404, "ParentResourceNotFound", "Parent resource 'ss' not found.", ParentNotFound),
        (404, "ResourceGroupNotFound", "Resource group 'g' could not be found.", ParentNotFound),
        (404, "SubscriptionNotFound", "The subscription 's' could not be found.", ParentNotFound),
        (404, "InvalidResourceType", "The resource type could not be found in the namespace", ParentNotFound),
        (400, "InvalidSubscriptionId", "The provided subscription identifier 'x' is malformed.", ParentNotFound),
        (409, "ResourceGroupBeingDeleted", "The resource group 'g' is in deprovisioning state.", ParentNotFound),
        (401, "ExpiredAuthenticationToken", "The access token expiry UTC time …", Unauthorized),
        (403, "AuthorizationFailed", "The client 'a' does not have authorization to perform action 'x/read'.", Forbidden),
        (403, "LinkedAuthorizationFailed", "It does not have permission on the linked scope(s)", Forbidden),
        (403, "RequestDisallowedByPolicy", "Resource 'x' was disallowed by policy.", Invalid),
        (429, "SubscriptionRequestsThrottled", "Number of requests for subscription 's' exceeded the limit.", Throttled),
        (409, "AnotherOperationInProgress", "Another operation on this or dependent resource is in progress.", Busy),
        (409, "Conflict", "The request failed due to conflict with a concurrent request.", Conflict),
        (409, "OperationPreempted", "Operation execution has been preempted by a more recent operation.", Conflict),
        (400, "PublicIPCountLimitReached", "Cannot create more than 1000 public IP addresses.", QuotaExceeded),
        (409, "OperationNotAllowed", cores, QuotaExceeded),
        (409, "OperationNotAllowed", "The machine is marked for deletion.", Invalid),
        (400, "InvalidResourceReference", "Resource … referenced by resource … was not found.", Invalid),
        (409, "ScopeLocked", "The scope '…' cannot perform write operation.", Invalid),
        (500, "InternalServerError", "An error occurred.", Transient),
        // These codes of ARM mean a missing resource only with status 404.
        (400, "NotFound", own, Invalid),
        (403, "ResourceNotFound", own, Forbidden),
        (500, "ResourceNotFound", own, Transient),
    ] {
        let body = serde_json::json!({"error": {"code": code, "message": message, "details": []}}).to_string();
        let error = error(&Method::GET, status, body);
        assert_eq!((error.class, error.code.as_str(), error.status), (class, code, Some(status)), "{message}");
        assert!(!error.message.is_empty(), "{code}");
    }
}

#[test]
fn the_innermost_known_code_is_reported() {
    let another = "RetryableErrorDueToAnotherOperation";
    for (status, outer, inner, class, code) in [
        (429, "OperationNotAllowed", "TooManyRequests", ArmErrorClass::Throttled, "TooManyRequests"),
        (429, "RetryableError", "ReferencedResourceNotProvisioned", ArmErrorClass::Busy, "ReferencedResourceNotProvisioned"),
        (429, "RetryableError", another, ArmErrorClass::Busy, another),
        (412, "PreconditionFailed", "PreconditionFailedEtagMismatch", ArmErrorClass::Conflict, "PreconditionFailed"),
    ] {
        let details = serde_json::json!([{"code": inner, "message": "m", "target": "HighCostGetVMScaleSet3Min"}]);
        let inner_error = serde_json::json!({"internalErrorCode": "TooManyRequestsReceived"});
        let body =
            serde_json::json!({"error": {"code": outer, "message": "m", "details": details, "innererror": inner_error}});
        let error = error(&Method::GET, status, body.to_string());
        assert_eq!((error.class, error.code.as_str()), (class, code), "{inner}");
    }
}

#[test]
fn responses_without_an_error_document_are_classed_by_status() {
    for (status, body, class) in [
        (401, "", ArmErrorClass::Unauthorized),
        (403, "<html>blocked</html>", ArmErrorClass::Forbidden),
        (429, "", ArmErrorClass::Throttled),
        (412, "", ArmErrorClass::Conflict),
        (503, "", ArmErrorClass::Transient),
        (408, "", ArmErrorClass::Transient),
        (404, "<html>404 Not Found</html>", ArmErrorClass::MalformedAnswer),
        (404, "", ArmErrorClass::MalformedAnswer),
        (404, r#"{"code":"NotFound","message":"page not found"}"#, ArmErrorClass::MalformedAnswer),
        (400, "Bad Request", ArmErrorClass::MalformedAnswer),
        (302, "", ArmErrorClass::MalformedAnswer),
    ] {
        let error = error(&Method::GET, status, body);
        assert_eq!((error.class, error.code.as_str(), error.status), (class, "", Some(status)), "{status} {body}");
        assert!(!error.message.is_empty(), "{status} {body}");
    }
}

#[test]
fn a_gateway_timeout_leaves_the_outcome_of_a_write_unknown() {
    assert_eq!(error(&Method::PUT, 504, "").class, ArmErrorClass::OutcomeUnknown);
    assert_eq!(error(&Method::PUT, 503, "").class, ArmErrorClass::Transient);
    assert_eq!(error(&Method::GET, 504, "").class, ArmErrorClass::Transient);
    let arms = r#"{"error":{"code":"GatewayTimeout","message":"m"}}"#;
    assert_eq!(error(&Method::PUT, 504, arms).class, ArmErrorClass::Transient, "ARM itself responded");
}

#[test]
fn a_missing_registration_has_advice_for_the_operator() {
    let body = r#"{"error":{"code":"MissingSubscriptionRegistration","message":"The subscription is not registered to use namespace 'Microsoft.Network'. See https://aka.ms/rps-not-found for how to register subscriptions."}}"#;
    let error = error(&Method::PUT, 409, body);
    assert_eq!(error.class, ArmErrorClass::Invalid);
    let advice = "Run `az provider register --namespace Microsoft.Network` once for this subscription.";
    assert!(error.message.ends_with(advice), "{error}");
}

#[test]
fn ids_and_waits_come_from_the_headers() {
    let request = RequestLine { method: &Method::GET, path: PATH };
    let both = response(429, &[("x-ms-request-id", "r"), ("x-ms-correlation-request-id", "c"), ("retry-after", "17")], BUSY);
    let error = error_of(request, &both, Timestamp::UNIX_EPOCH);
    assert_eq!((error.correlation_id.as_deref(), error.retry_after), (Some("c"), Some(Duration::from_secs(17))));
    let neither = error_of(request, &response(429, &[("x-ms-request-id", "r")], BUSY), Timestamp::UNIX_EPOCH);
    assert_eq!((neither.correlation_id.as_deref(), neither.retry_after), (Some("r"), Some(Duration::from_secs(14))));
}

#[test]
fn the_body_of_a_proxy_is_not_repeated() {
    let error = error(&Method::GET, 400, "your request was: Authorization: Bearer hunter2");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn failed_operations_are_classed_by_their_code() {
    let request = RequestLine { method: &Method::PUT, path: PATH };
    let of = |state, code: &str, details: &str| {
        let body = format!(r#"{{"error":{{"code":"{code}","message":"m","details":[{details}]}}}}"#);
        failed_operation(request, state, ErrorBody::parse(body.as_bytes()).as_ref()).class
    };
    let superseded = r#"{"code":"CanceledAndSupersededDueToAnotherOperation","message":"Operation A was canceled and superseded by operation B."}"#;
    assert_eq!(of("Failed", "Canceled", superseded), ArmErrorClass::Conflict);
    assert_eq!(of("Canceled", "Canceled", ""), ArmErrorClass::Conflict);
    assert_eq!(of("Failed", "NetworkingInternalOperationError", ""), ArmErrorClass::Transient);
    assert_eq!(of("Failed", "PublicIPCountLimitReached", ""), ArmErrorClass::QuotaExceeded);
    assert_eq!(of("Failed", "RetryableError", ""), ArmErrorClass::Busy);
    assert_eq!(of("Failed", "SubnetIsFull", ""), ArmErrorClass::Invalid);
    let bare = failed_operation(request, "Failed", None);
    assert_eq!((bare.class, bare.message.as_str()), (ArmErrorClass::Transient, "the operation ended as Failed"));
}

#[test]
fn a_missing_parent_says_nothing_about_the_resource() {
    let class = |path: &str, quoted: &str| {
        let message = format!("The Resource '{quoted}' under resource group 'g' was not found.");
        let body = serde_json::json!({"error": {"code": "ResourceNotFound", "message": message}}).to_string();
        let path = format!("/subscriptions/s/resourceGroups/g/providers/{path}");
        error_of(RequestLine { method: &Method::GET, path: &path }, &response(404, &[], body), Timestamp::UNIX_EPOCH).class
    };
    let subnet = "Microsoft.Network/virtualNetworks/vnet/subnets/apps";
    for (quoted, expected) in [
        ("Microsoft.Network/virtualNetworks/vnet", ArmErrorClass::ParentNotFound),
        ("microsoft.network/VIRTUALNETWORKS/VNET", ArmErrorClass::ParentNotFound),
        (subnet, ArmErrorClass::NotFound),
        ("Microsoft.Network/virtualNetworks/vn", ArmErrorClass::NotFound),
        ("", ArmErrorClass::NotFound),
    ] {
        assert_eq!(class(subnet, quoted), expected, "{quoted}");
    }
}
