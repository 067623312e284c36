//! Content, access and methods of the pages.

use std::sync::atomic::Ordering;

use cloud_controller_manager::serving::{HealthEndpointSet, SecureServingConfig};
use http::{
    Method, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING},
};

use crate::serving::{
    api_server::reader,
    port::{client, config, eventually, fetch, start},
};

#[tokio::test]
async fn failing_checks_are_seen_by_probes_and_explained_to_users() {
    let served = start(config(), Some(&reader("ann"))).await;
    eventually("the lookup", || async { served.get("/readyz").await.0 == 200 }).await;
    served.health.add("leaderElection", HealthEndpointSet::ALL, || Ok(()));
    served.health.add("service-lb-controller", HealthEndpointSet::ALL, || Err("no sync for 10 min".to_owned()));
    let (code, body) = served.get("/healthz").await;
    let withheld = "[+]leaderElection ok\n[-]service-lb-controller failed: reason withheld\nhealthz check failed\n";
    assert_eq!((code, body.as_str()), (500, withheld));
    assert!(served.get_as("token-of-ann", "/healthz").await.1.contains("failed: no sync for 10 min"));
    assert_eq!(served.get("/healthz?exclude=service-lb-controller").await, (200, "ok".to_owned()));
    assert_eq!(served.get_as("token-of-ann", "/livez/leaderElection").await, (200, "ok".to_owned()));
    assert_eq!(served.get_as("token-of-ann", "/livez/service-lb-controller").await.0, 500);
    assert_eq!(served.get_as("token-of-ann", "/livez/nonsense").await.0, 404);
    let (_, slis) = served.get_as("token-of-ann", "/metrics/slis").await;
    assert!(slis.contains("kubernetes_healthcheck{name=\"service-lb-controller\",type=\"healthz\"} 0"), "{slis}");
    assert!(!slis.contains("workqueue"));
}

#[tokio::test]
async fn metrics_are_compressed_for_clients_that_accept_it() {
    let served = start(config(), Some(&reader("ann"))).await;
    for service in 0..500 {
        served.metrics.workqueue_adds_total.with_label_values(&[&format!("namespace-{service}/service")]).inc();
    }
    let whole = served.get_as("token-of-ann", "/metrics").await.1;
    let plain = reqwest::ClientBuilder::new().danger_accept_invalid_certs(true).no_gzip().build().unwrap();
    for (accepted, encoding, most) in [("gzip", Some("gzip"), whole.len() / 8), ("identity", None, whole.len() + 100)] {
        let request = plain.get(served.url("/metrics")).bearer_auth("token-of-ann").header(ACCEPT_ENCODING, accepted);
        let response = request.send().await.unwrap();
        let sent = response.headers().get(CONTENT_ENCODING).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(sent.as_deref(), encoding);
        assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        let bytes = response.bytes().await.unwrap().len();
        assert!(bytes <= most, "{bytes} bytes for {accepted}, {} of text", whole.len());
    }
    assert!(whole.contains("workqueue_adds_total{name=\"namespace-499/service\"} 1"));
}

#[tokio::test]
async fn pages_that_are_switched_off_do_not_exist() {
    let off = SecureServingConfig { profiling: false, flagz: false, statusz: false, ..config() };
    let served = start(off, Some(&reader("ann"))).await;
    for path in ["/", "/flagz", "/statusz", "/debug/flags/v", "/debug/pprof/"] {
        assert_eq!(served.get_as("token-of-ann", path).await.0, 404, "{path}");
    }
    assert_eq!(served.get_as("token-of-ann", "/metrics").await.0, 200);
}

#[tokio::test]
async fn pages_and_methods() {
    let served = start(config(), Some(&reader("ann"))).await;
    let rows = [
        ("/configz", 200, "{\"cloudcontrollermanager.config.k8s.io\":{\"kind\":\"CloudControllerManagerConfiguration\"}}"),
        ("/flagz", 200, "cloud-controller-manager flags\n\ncontrollers=*\n"),
        ("/planz?service=default/web", 200, "put a load balancer\nput a rule\n"),
        ("/planz?service=default%2Fweb", 200, "put a load balancer\nput a rule\n"),
        ("/planz?service=default/none", 404, "there is no Service default/none\n"),
        ("/planz", 200, "all None None\n"),
        ("/planz?kind=routes", 200, "all Some(Routes) None\n"),
        ("/planz?kind=nodes", 200, "all Some(Nodes) None\n"),
        ("/planz?kind=services&after=default/web", 200, "all Some(Services) Some(\"default/web\")\n"),
        ("/planz?kind=pods", 400, "say which kind: /planz?kind=nodes, routes or services\n"),
        ("/planz?after=web", 400, "say which Service: /planz?service=NAMESPACE/NAME\n"),
        ("/planz?service=", 400, "say which Service: /planz?service=NAMESPACE/NAME\n"),
        ("/planz?service=web", 400, "say which Service: /planz?service=NAMESPACE/NAME\n"),
        ("/planz?service=a/b/c", 400, "say which Service: /planz?service=NAMESPACE/NAME\n"),
        ("/nonsense", 404, "404 page not found\n"),
        ("/debug/flags/v", 406, "unsupported HTTP method; PUT a number to set the log verbosity\n"),
    ];
    for (path, code, body) in rows {
        assert_eq!(served.get_as("token-of-ann", path).await, (code, body.to_owned()), "{path}");
    }
    for (path, line) in [
        ("/statusz", "cloud-controller-manager status\n\ncloudProvider:\n"),
        ("/statusz?format=json", "\"version\":\"v0.1.0\""),
    ] {
        assert!(served.get_as("token-of-ann", path).await.1.contains(line), "{path}");
    }
    assert!(served.get_as("token-of-ann", "/metrics/v2").await.1.contains("workqueue_depth"));
    for path in ["/debug/pprof/", "/debug/pprof/heap"] {
        assert_eq!(served.get_as("token-of-ann", path).await.0, 501, "{path}");
    }
    for path in ["/metrics", "/healthz", "/configz", "/statusz", "/flagz", "/planz?service=default/web"] {
        let request = client().post(served.url(path)).bearer_auth("token-of-ann");
        assert_eq!(request.send().await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
    let response = client().get(served.url("/metrics")).bearer_auth("token-of-ann").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
}

#[tokio::test]
async fn the_verbosity_is_set_by_put() {
    let served = start(config(), Some(&reader("ann"))).await;
    let put = |body: &'static str| {
        let request = client().request(Method::PUT, served.url("/debug/flags/v"));
        fetch(request.bearer_auth("token-of-ann").body(body))
    };
    assert_eq!(put("5").await, (200, "successfully set log verbosity to 5\n".to_owned()));
    for bad in ["", "high", "256", "-1"] {
        assert_eq!(put(bad).await.0, 400, "{bad}");
    }
    assert_eq!(served.verbosity.load(Ordering::SeqCst), 5);
}
