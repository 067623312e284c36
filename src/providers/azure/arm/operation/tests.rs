use serde_json::json;

use super::*;

const RESOURCE: &str = "https://arm.example/r?api-version=1";
const STATUS: &str = "https://arm.example/operations/1";
const RESULT: &str = "https://arm.example/results/1";

const NO_RESULT: OperationStep = OperationStep::Done(OperationResult::Nothing);
const IN_RESPONSE: OperationStep = OperationStep::Done(OperationResult::InResponse);

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn response(status: u16, headers: &[(&str, &str)], body: &Value) -> Response<Bytes> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) }).unwrap()
}

fn begin(
    method: &Method,
    status: u16,
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<(LongRunningOperation, OperationStep), OperationFailure> {
    LongRunningOperation::begin(method, url(RESOURCE), PollingPace::default(), &response(status, headers, body), None)
}

/// Returns an operation of a PUT with a status document.
fn begun_put() -> LongRunningOperation {
    let (operation, first) = begin(&Method::PUT, 201, &[("azure-asyncoperation", STATUS)], &Value::Null).unwrap();
    assert_eq!(first, poll(STATUS, 200));
    operation
}

/// Returns the response with a status document.
fn status(text: &str) -> Response<Bytes> {
    response(200, &[], &json!({"status": text}))
}

fn resource(state: &str) -> Response<Bytes> {
    response(200, &[], &provisioning(state))
}

fn provisioning(state: &str) -> Value {
    json!({"name": "r", "properties": {"provisioningState": state}})
}

fn poll(at: &str, milliseconds: u64) -> OperationStep {
    OperationStep::Poll { url: url(at), after: Duration::from_millis(milliseconds) }
}

fn done_at(at: &str) -> OperationStep {
    OperationStep::Done(OperationResult::AtUrl(url(at)))
}

fn error(class: ArmErrorClass) -> ArmError {
    RequestLine { method: &Method::GET, path: "/r" }.error(class, "m")
}

#[test]
fn the_first_response_selects_the_next_step() {
    let (status, location) = (("azure-asyncoperation", STATUS), ("location", RESULT));
    let (put, patch, delete, post) = (&Method::PUT, &Method::PATCH, &Method::DELETE, &Method::POST);
    let none = Value::Null;
    for (method, code, headers, body, expected) in [
        (put, 200, vec![], provisioning("Succeeded"), IN_RESPONSE),
        (put, 200, vec![], json!({"name": "r"}), IN_RESPONSE),
        (put, 201, vec![], provisioning("Updating"), poll(RESOURCE, 200)),
        (put, 201, vec![status, location], provisioning("Updating"), poll(STATUS, 200)),
        (put, 200, vec![status], provisioning("Succeeded"), poll(STATUS, 200)),
        (put, 202, vec![location], none.clone(), poll(RESULT, 200)),
        (put, 202, vec![], none.clone(), poll(RESOURCE, 200)),
        (put, 204, vec![], none.clone(), done_at(RESOURCE)),
        (put, 200, vec![], none.clone(), done_at(RESOURCE)),
        (patch, 202, vec![status], none.clone(), poll(STATUS, 200)),
        (delete, 200, vec![], none.clone(), NO_RESULT),
        (delete, 204, vec![], none.clone(), NO_RESULT),
        (delete, 202, vec![location], none.clone(), poll(RESULT, 200)),
        (delete, 202, vec![], none.clone(), poll(RESOURCE, 200)),
        (post, 200, vec![], json!({"x": 1}), IN_RESPONSE),
        (post, 200, vec![], none.clone(), NO_RESULT),
        (post, 202, vec![], none.clone(), NO_RESULT),
        (post, 202, vec![location], none, poll(RESULT, 200)),
    ] {
        let (_, step) = begin(method, code, &headers, &body).unwrap();
        assert_eq!(step, expected, "{method} {code} {headers:?}");
    }
    let failed = begin(put, 200, &[], &provisioning("Failed")).unwrap_err();
    assert_eq!(failed, OperationFailure::Ended("Failed".into(), None));
}

#[test]
fn urls_at_other_hosts_are_not_polled() {
    for headers in [[("azure-asyncoperation", "https://evil.example/1")], [("location", "https://evil.example/1")]] {
        let (_, step) = begin(&Method::PUT, 202, &headers, &Value::Null).unwrap();
        assert_eq!(step, poll(RESOURCE, 200));
    }
    let (mut operation, _) = begin(&Method::PUT, 202, &[("location", RESULT)], &Value::Null).unwrap();
    let moved = response(202, &[("location", "https://evil.example/1")], &Value::Null);
    assert_eq!(operation.advance(Ok(&moved), None).unwrap(), poll(RESULT, 300));
}

#[test]
fn a_status_document_is_polled_ever_more_slowly() {
    let mut operation = begun_put();
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let Ok(OperationStep::Poll { after, .. }) = operation.advance(Ok(&status("InProgress")), None) else {
            panic!("still running")
        };
        pauses.push(after.as_millis());
    }
    assert_eq!(pauses[..4], [300, 450, 675, 1012]);
    assert_eq!(pauses[11], 10_000);
    assert_eq!(operation.advance(Ok(&status("Succeeded")), None).unwrap(), done_at(RESOURCE));
}

#[test]
fn requested_delays_are_clamped() {
    let polling = PollingPace { min_retry_after: Duration::from_secs(5), ..PollingPace::default() };
    let initial = response(202, &[("location", RESULT)], &Value::Null);
    let first_poll = |seconds| {
        let retry_after = Some(Duration::from_secs(seconds));
        LongRunningOperation::begin(&Method::PUT, url(RESOURCE), polling, &initial, retry_after).unwrap().1
    };
    assert_eq!([1, 10, 3600].map(first_poll), [5_000, 10_000, 60_000].map(|wait| poll(RESULT, wait)));
}

#[test]
fn polls_between_lists_use_the_last_requested_delay() {
    let initial = response(201, &[("azure-asyncoperation", STATUS)], &Value::Null);
    let seven = Some(Duration::from_secs(7));
    let begun = LongRunningOperation::begin(&Method::PUT, url(RESOURCE), PollingPace::default(), &initial, seven);
    let (mut operation, first) = begun.unwrap();
    assert_eq!([first, operation.keep_waiting(), operation.keep_waiting()], [7_000; 3].map(|wait| poll(STATUS, wait)));
    let throttled = ArmError { retry_after: Some(Duration::from_secs(30)), ..error(ArmErrorClass::Throttled) };
    assert_eq!(operation.advance(Err(throttled), None).unwrap(), poll(STATUS, 30_000));
    assert_eq!(operation.keep_waiting(), poll(STATUS, 7_000), "that delay was for one poll");
    let running = status("InProgress");
    assert_eq!(operation.advance(Ok(&running), Some(Duration::from_secs(3))).unwrap(), poll(STATUS, 3_000));
    assert_eq!(operation.keep_waiting(), poll(STATUS, 3_000));
    assert_eq!(operation.advance(Ok(&running), None).unwrap(), poll(STATUS, 200));
    assert_eq!(operation.keep_waiting(), poll(STATUS, 300), "at its own pace again");
}

#[test]
fn location_ends_with_a_final_status() {
    let running = response(202, &[], &Value::Null);
    let begun = |method: &Method| begin(method, 202, &[("location", RESULT)], &Value::Null).unwrap().0;
    let mut put = begun(&Method::PUT);
    assert_eq!(put.advance(Ok(&running), None).unwrap(), poll(RESULT, 300));
    assert_eq!(put.advance(Ok(&resource("Updating")), None).unwrap(), poll(RESULT, 450));
    assert_eq!(put.advance(Ok(&resource("Succeeded")), None).unwrap(), done_at(RESOURCE));
    let ended = |method, last: &Response<Bytes>| begun(method).advance(Ok(last), None).unwrap();
    assert_eq!(ended(&Method::DELETE, &response(204, &[], &Value::Null)), NO_RESULT);
    assert_eq!(ended(&Method::POST, &response(200, &[], &json!({"a": 1}))), IN_RESPONSE);
    let refused = begun(&Method::PUT).advance(Err(error(ArmErrorClass::Invalid)), None).unwrap_err();
    assert_eq!(refused.error(RequestLine { method: &Method::PUT, path: "/r" }).request, "PUT /r");
}

#[test]
fn a_lost_operation_is_followed_in_the_resource() {
    for class in [ArmErrorClass::NotFound, ArmErrorClass::ParentNotFound, ArmErrorClass::Forbidden] {
        let mut put = begun_put();
        assert_eq!(put.advance(Err(error(class)), None).unwrap(), poll(RESOURCE, 0));
        assert!(matches!(put.advance(Ok(&resource("Updating")), None), Ok(OperationStep::Poll { .. })));
        let succeeded = put.advance(Ok(&resource("Succeeded")), None).unwrap();
        assert_eq!(succeeded, IN_RESPONSE);
        let missing = put.advance(Err(error(ArmErrorClass::NotFound)), None).unwrap_err();
        assert_eq!(missing, OperationFailure::Lost, "deleted meanwhile");
    }
}

#[test]
fn a_deletion_ends_when_the_resource_is_gone() {
    let begun = || begin(&Method::DELETE, 202, &[], &Value::Null).unwrap().0;
    let mut delete = begun();
    assert_eq!(delete.advance(Ok(&resource("Deleting")), None).unwrap(), poll(RESOURCE, 300));
    assert_eq!(delete.advance(Err(error(ArmErrorClass::NotFound)), None).unwrap(), NO_RESULT);
    assert_eq!(begun().advance(Err(error(ArmErrorClass::ParentNotFound)), None).unwrap_err(), OperationFailure::Lost);
    let mut failing = begun();
    let existing = resource("Succeeded");
    assert!(failing.advance(Ok(&existing), None).is_ok() && failing.advance(Ok(&existing), None).is_ok());
    assert_eq!(failing.advance(Ok(&existing), None).unwrap_err(), OperationFailure::Lost, "it was not deleted");
}

#[test]
fn unusable_responses_end_the_polls_and_errors_do_not() {
    let mut put = begun_put();
    let mut polls_status = |polled: Result<&Response<Bytes>, ArmErrorClass>| {
        let step = put.advance(polled.map_err(error), None);
        matches!(step, Ok(OperationStep::Poll { url, .. }) if url.as_str() == STATUS)
    };
    assert!((0..50).all(|_| polls_status(Err(ArmErrorClass::Transient))));
    let html = response(200, &[], &json!("<html>"));
    assert!(polls_status(Ok(&html)) && polls_status(Ok(&html)));
    assert!(polls_status(Ok(&status("InProgress"))), "only consecutive unusable responses count");
    assert!(polls_status(Ok(&html)) && polls_status(Err(ArmErrorClass::MalformedAnswer)));
    assert_eq!(put.advance(Ok(&html), None).unwrap(), poll(RESOURCE, 0));
    let (mut post, _) = begin(&Method::POST, 202, &[("location", RESULT)], &Value::Null).unwrap();
    assert_eq!(post.advance(Err(error(ArmErrorClass::NotFound)), None).unwrap_err(), OperationFailure::Lost);
}
