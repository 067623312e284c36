use super::*;
use proptest::prelude::*;
use std::time::Duration;

const PATH: &str = "/subscriptions/s/resourceGroups/g";

fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

fn error(method: &Method, status: u16, body: impl Into<Bytes>) -> ArmError {
    error_of(RequestLine { method, path: PATH }, &answer(status, &[], body), Timestamp::UNIX_EPOCH)
}

/// Answers as ARM sends them: status, body, class, telling code.
const ANSWERS: &[(u16, &str, ArmErrorClass, &str)] = &[
    (
        404,
        r#"{"error":{"code":"ResourceNotFound","message":"The Resource 'Microsoft.Compute/virtualMachines/n' under resource group 'g' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix"}}"#,
        ArmErrorClass::NotFound,
        "ResourceNotFound",
    ),
    (
        404,
        r#"{"error":{"code":"NotFound","message":"Resource /subscriptions/s/… not found.","details":[]}}"#,
        ArmErrorClass::NotFound,
        "NotFound",
    ),
    (
        404,
        r#"{"error":{"code":"InstanceNotFound","message":"The entity was not found."}}"#,
        ArmErrorClass::NotFound,
        "InstanceNotFound",
    ),
    (
        404,
        r#"{"error":{"code":"ParentResourceNotFound","message":"Can not perform requested operation on nested resource. Parent resource 'ss' not found."}}"#,
        ArmErrorClass::ParentNotFound,
        "ParentResourceNotFound",
    ),
    (
        404,
        r#"{"error":{"code":"ResourceGroupNotFound","message":"Resource group 'g' could not be found."}}"#,
        ArmErrorClass::ParentNotFound,
        "ResourceGroupNotFound",
    ),
    (
        404,
        r#"{"error":{"code":"SubscriptionNotFound","message":"The subscription 's' could not be found."}}"#,
        ArmErrorClass::ParentNotFound,
        "SubscriptionNotFound",
    ),
    (
        404,
        r#"{"error":{"code":"InvalidResourceType","message":"The resource type could not be found in the namespace"}}"#,
        ArmErrorClass::ParentNotFound,
        "InvalidResourceType",
    ),
    (
        400,
        r#"{"error":{"code":"InvalidSubscriptionId","message":"The provided subscription identifier 'x' is malformed or invalid."}}"#,
        ArmErrorClass::ParentNotFound,
        "InvalidSubscriptionId",
    ),
    (
        409,
        r#"{"error":{"code":"ResourceGroupBeingDeleted","message":"The resource group 'g' is in deprovisioning state and cannot perform this operation."}}"#,
        ArmErrorClass::ParentNotFound,
        "ResourceGroupBeingDeleted",
    ),
    (
        401,
        r#"{"error":{"code":"ExpiredAuthenticationToken","message":"The access token expiry UTC time …"}}"#,
        ArmErrorClass::Unauthorized,
        "ExpiredAuthenticationToken",
    ),
    (401, "", ArmErrorClass::Unauthorized, ""),
    (
        403,
        r#"{"error":{"code":"AuthorizationFailed","message":"The client 'a' with object id 'b' does not have authorization to perform action 'x/read' over scope '/s'."}}"#,
        ArmErrorClass::Forbidden,
        "AuthorizationFailed",
    ),
    (
        403,
        r#"{"error":{"code":"LinkedAuthorizationFailed","message":"The client has permission … on scope …; however, it does not have permission to perform action 'Microsoft.Network/virtualNetworks/subnets/join/action' on the linked scope(s)"}}"#,
        ArmErrorClass::Forbidden,
        "LinkedAuthorizationFailed",
    ),
    (
        403,
        r#"{"error":{"code":"RequestDisallowedByPolicy","message":"Resource 'x' was disallowed by policy."}}"#,
        ArmErrorClass::Invalid,
        "RequestDisallowedByPolicy",
    ),
    (403, "<html>blocked</html>", ArmErrorClass::Forbidden, ""),
    (
        429,
        r#"{"error":{"code":"SubscriptionRequestsThrottled","message":"Number of requests for subscription 's' and operation 'GET/…' exceeded the backend storage limit."}}"#,
        ArmErrorClass::Throttled,
        "SubscriptionRequestsThrottled",
    ),
    (
        429,
        r#"{"error":{"code":"OperationNotAllowed","message":"The server rejected the request because too many requests have been received for this subscription.","details":[{"code":"TooManyRequests","target":"HighCostGetVMScaleSet3Min","message":"{\"operationGroup\":\"HighCostGetVMScaleSet3Min\"}"}],"innererror":{"internalErrorCode":"TooManyRequestsReceived"}}}"#,
        ArmErrorClass::Throttled,
        "TooManyRequests",
    ),
    (429, "", ArmErrorClass::Throttled, ""),
    (
        429,
        r#"{"error":{"code":"RetryableError","message":"A retryable error occured.","details":[{"code":"RetryableErrorDueToAnotherOperation","message":"Operation AllocateTenantNetworkResourcesOperation (f9827d3e) is updating resource a43d33d7. The call can be retried in 14 seconds."}]}}"#,
        ArmErrorClass::Busy,
        "RetryableErrorDueToAnotherOperation",
    ),
    (
        429,
        r#"{"error":{"code":"RetryableError","message":"A retryable error occured.","details":[{"code":"ReferencedResourceNotProvisioned","message":"Cannot proceed with operation because resource … is not in Succeeded state."}]}}"#,
        ArmErrorClass::Busy,
        "ReferencedResourceNotProvisioned",
    ),
    (
        409,
        r#"{"error":{"code":"AnotherOperationInProgress","message":"Another operation on this or dependent resource is in progress.","details":[]}}"#,
        ArmErrorClass::Busy,
        "AnotherOperationInProgress",
    ),
    (
        409,
        r#"{"error":{"code":"Conflict","message":"The request failed due to conflict with a concurrent request."}}"#,
        ArmErrorClass::Conflict,
        "Conflict",
    ),
    (
        409,
        r#"{"error":{"code":"OperationPreempted","message":"Operation execution has been preempted by a more recent operation."}}"#,
        ArmErrorClass::Conflict,
        "OperationPreempted",
    ),
    (
        412,
        r#"{"error":{"code":"PreconditionFailed","message":"Precondition failed.","details":[{"code":"PreconditionFailedEtagMismatch","message":"Etag provided in if-match header …"}]}}"#,
        ArmErrorClass::Conflict,
        "PreconditionFailed",
    ),
    (412, "", ArmErrorClass::Conflict, ""),
    (
        400,
        r#"{"error":{"code":"PublicIPCountLimitReached","message":"Cannot create more than 1000 public IP addresses for this subscription in this region.","details":[]}}"#,
        ArmErrorClass::QuotaExceeded,
        "PublicIPCountLimitReached",
    ),
    (
        409,
        r#"{"error":{"code":"OperationNotAllowed","message":"Operation could not be completed as it results in exceeding approved Total Regional Cores quota."}}"#,
        ArmErrorClass::QuotaExceeded,
        "OperationNotAllowed",
    ),
    (
        409,
        r#"{"error":{"code":"OperationNotAllowed","message":"The machine is marked for deletion."}}"#,
        ArmErrorClass::Invalid,
        "OperationNotAllowed",
    ),
    (
        400,
        r#"{"error":{"code":"InvalidResourceReference","message":"Resource … referenced by resource … was not found.","details":[]}}"#,
        ArmErrorClass::Invalid,
        "InvalidResourceReference",
    ),
    (
        409,
        r#"{"error":{"code":"ScopeLocked","message":"The scope '…' cannot perform write operation because following scope(s) are locked"}}"#,
        ArmErrorClass::Invalid,
        "ScopeLocked",
    ),
    (
        500,
        r#"{"error":{"code":"InternalServerError","message":"An error occurred."}}"#,
        ArmErrorClass::Transient,
        "InternalServerError",
    ),
    (503, "", ArmErrorClass::Transient, ""),
    (408, "", ArmErrorClass::Transient, ""),
    (404, "<html>404 Not Found</html>", ArmErrorClass::MalformedAnswer, ""),
    (404, "", ArmErrorClass::MalformedAnswer, ""),
    (404, r#"{"code":"NotFound","message":"page not found"}"#, ArmErrorClass::MalformedAnswer, ""),
    (400, "Bad Request", ArmErrorClass::MalformedAnswer, ""),
    (302, "", ArmErrorClass::MalformedAnswer, ""),
];

#[test]
fn answers_are_classed_by_status_and_code() {
    for (status, body, class, code) in ANSWERS {
        let error = error(&Method::GET, *status, *body);
        assert_eq!((error.class, error.code.as_str(), error.status), (*class, *code, Some(*status)), "{body}");
        assert!(!error.message.is_empty(), "{body}");
    }
}

#[test]
fn a_gateway_that_heard_nothing_leaves_a_write_unknown() {
    assert_eq!(error(&Method::PUT, 504, "").class, ArmErrorClass::OutcomeUnknown);
    assert_eq!(error(&Method::PUT, 503, "").class, ArmErrorClass::Transient);
    assert_eq!(error(&Method::GET, 504, "").class, ArmErrorClass::Transient);
    let arms = r#"{"error":{"code":"GatewayTimeout","message":"m"}}"#;
    assert_eq!(error(&Method::PUT, 504, arms).class, ArmErrorClass::Transient, "ARM itself answered");
}

#[test]
fn the_operator_learns_what_to_do() {
    let body = r#"{"error":{"code":"MissingSubscriptionRegistration","message":"The subscription is not registered to use namespace 'Microsoft.Network'. See https://aka.ms/rps-not-found for how to register subscriptions."}}"#;
    let error = error(&Method::PUT, 409, body);
    assert_eq!(error.class, ArmErrorClass::Invalid);
    assert!(
        error.message.ends_with("Run `az provider register --namespace Microsoft.Network` once for this subscription."),
        "{error}"
    );
}

#[test]
fn ids_and_waits_come_from_the_headers() {
    let asked = RequestLine { method: &Method::GET, path: PATH };
    let busy = ANSWERS[18].1;
    let both = answer(429, &[("x-ms-request-id", "r"), ("x-ms-correlation-request-id", "c"), ("retry-after", "17")], busy);
    let error = error_of(asked, &both, Timestamp::UNIX_EPOCH);
    assert_eq!((error.correlation_id.as_deref(), error.retry_after), (Some("c"), Some(Duration::from_secs(17))));
    let neither = error_of(asked, &answer(429, &[("x-ms-request-id", "r")], busy), Timestamp::UNIX_EPOCH);
    assert_eq!((neither.correlation_id.as_deref(), neither.retry_after), (Some("r"), Some(Duration::from_secs(14))));
}

#[test]
fn the_body_of_a_stranger_is_not_repeated() {
    let error = error(&Method::GET, 400, "your request was: Authorization: Bearer hunter2");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn failed_operations_are_classed_by_their_code() {
    let asked = RequestLine { method: &Method::PUT, path: PATH };
    let of = |state, code: &str, details: &str| {
        let body = format!(r#"{{"error":{{"code":"{code}","message":"m","details":[{details}]}}}}"#);
        failed_operation(asked, state, ErrorBody::parse(body.as_bytes()).as_ref()).class
    };
    let superseded = r#"{"code":"CanceledAndSupersededDueToAnotherOperation","message":"Operation A was canceled and superseded by operation B."}"#;
    assert_eq!(of("Failed", "Canceled", superseded), ArmErrorClass::Conflict);
    assert_eq!(of("Canceled", "Canceled", ""), ArmErrorClass::Conflict);
    assert_eq!(of("Failed", "NetworkingInternalOperationError", ""), ArmErrorClass::Transient);
    assert_eq!(of("Failed", "PublicIPCountLimitReached", ""), ArmErrorClass::QuotaExceeded);
    assert_eq!(of("Failed", "RetryableError", ""), ArmErrorClass::Busy);
    assert_eq!(of("Failed", "SubnetIsFull", ""), ArmErrorClass::Invalid);
    let bare = failed_operation(asked, "Failed", None);
    assert_eq!((bare.class, bare.message.as_str()), (ArmErrorClass::Transient, "the operation ended as Failed"));
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    const CODES: &[&str] = &["NotFound", "ResourceNotFound", "RetryableError", "code", "error", "x"];
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<i32>().prop_map(Into::into),
        proptest::sample::select(CODES).prop_map(Into::into)
    ];
    let names = proptest::sample::select(&["error", "code", "message", "details", "innererror", "Error"][..]);
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

fn gone(body: &[u8]) -> bool {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let code = value.pointer("/error/code").and_then(serde_json::Value::as_str).unwrap_or_default();
    ["ResourceNotFound", "NotFound", "InstanceNotFound"].contains(&code)
}

proptest! {
    #[test]
    fn only_arms_own_404_is_not_found(status in 300_u16..600, body in prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        json().prop_map(|value| value.to_string().into_bytes()),
    ], put: bool) {
        let expected = status == 404 && gone(&body);
        let error = error(if put { &Method::PUT } else { &Method::GET }, status, body);
        prop_assert_eq!(error.class == ArmErrorClass::NotFound, expected);
        prop_assert!(error.message.len() < 3000);
    }
}

#[test]
fn a_missing_parent_says_nothing_about_the_resource() {
    let class = |path: &str, quoted: &str| {
        let message = format!("The Resource '{quoted}' under resource group 'g' was not found.");
        let body = serde_json::json!({"error": {"code": "ResourceNotFound", "message": message}}).to_string();
        let path = format!("/subscriptions/s/resourceGroups/g/providers/{path}");
        error_of(RequestLine { method: &Method::GET, path: &path }, &answer(404, &[], body), Timestamp::UNIX_EPOCH).class
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
