//! Two managers with different classes, each with a cloud of its own.

use cloud_controller_manager::cloud_provider::load_balancer_class::LoadBalancerClasses;

use super::*;

const CLASS: &str = "example.com/azure";
const CLASS_FINALIZER: &str = "load-balancer-cleanup.example.com/azure";

/// The same cluster as another manager sees it.
fn second(world: &World) -> World {
    World { server: world.server.clone(), cloud: FakeCloud::new(FakeConfig::any_node()), clock: world.clock }
}

fn start(world: &World, class: Option<&str>, without_class: bool) -> Life {
    let classes = LoadBalancerClasses::new(class, without_class).unwrap();
    world.start_under(Leadership::unopposed(), ServiceControllerConfig { classes, ..ServiceControllerConfig::default() })
}

fn finalizers(world: &World, name: &str) -> Vec<String> {
    world.service(name).and_then(|service| service.metadata.finalizers).unwrap_or_default()
}

/// Its class can change only while it is no load balancer.
fn reclassify(world: &World, name: &str, class: Option<&str>) {
    let retype = |type_: &str, class: Option<&str>| {
        world.server.update_with("default", name, |service: &mut Service| {
            let spec = service.spec.as_mut().unwrap();
            (spec.type_, spec.load_balancer_class) = (Some(type_.to_owned()), class.map(str::to_owned));
        });
    };
    retype("ClusterIP", None);
    retype("LoadBalancer", class);
}

#[tokio::test(start_paused = true)]
async fn each_manager_has_its_services() {
    let world = World::new();
    let theirs = second(&world);
    let (mut life, mut other) = (start(&world, None, true), start(&theirs, Some(CLASS), false));
    world.create("plain");
    world.server.create(&load_balancer_service("default", "classed").load_balancer_class(CLASS));
    world.server.create(&load_balancer_service("default", "third").load_balancer_class("example.com/third"));
    pass(10).await;
    let served = |world: &World| world.cloud.load_balancers().into_values().map(|it| it.service).collect::<Vec<_>>();
    assert_eq!((served(&world), served(&theirs)), (vec!["default/plain".to_owned()], vec!["default/classed".to_owned()]));
    assert_eq!(finalizers(&world, "plain"), [FINALIZER]);
    assert_eq!(finalizers(&world, "classed"), [CLASS_FINALIZER]);
    assert_eq!((finalizers(&world, "third"), world.ips("third")), (Vec::new(), Vec::new()));
    assert_eq!([life.reasons(), other.reasons()], [["EnsuringLoadBalancer", "EnsuredLoadBalancer"]; 2]);
    for name in ["plain", "classed"] {
        world.server.delete::<Service>("default", name);
    }
    pass(10).await;
    assert!(world.service("plain").is_none() && world.service("classed").is_none());
    assert_eq!((served(&world), served(&theirs)), (Vec::new(), Vec::new()));
    assert_eq!([&world, &theirs].map(|world| world.cloud.call_count(CallName::EnsureLoadBalancerDeleted)), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn one_manager_may_serve_both() {
    let world = World::new();
    let _life = start(&world, Some(CLASS), true);
    world.create("web");
    pass(10).await;
    assert_eq!(finalizers(&world, "web"), [FINALIZER]);
    reclassify(&world, "web", Some(CLASS));
    pass(10).await;
    assert_eq!(finalizers(&world, "web"), [CLASS_FINALIZER]);
    assert_eq!((world.cloud.load_balancers().len(), world.ips("web").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn while_the_former_manager_is_away_nobody_works_on_a_service() {
    let world = World::new();
    let theirs = second(&world);
    let life = start(&world, None, true);
    world.create("web");
    pass(10).await;
    life.kill().await;
    let mut other = start(&theirs, Some(CLASS), false);
    reclassify(&world, "web", Some(CLASS));
    pass(600).await;
    assert_eq!((theirs.cloud.calls(), finalizers(&world, "web")), (Vec::new(), vec![FINALIZER.to_owned()]));
    assert_eq!(other.reasons(), ["WaitingForOtherManager"]);
    assert_eq!(other.controller.status().unsettled, []);
    let _life = start(&world, None, true);
    pass(10).await;
    assert!(world.cloud.load_balancers().is_empty());
    assert_eq!((theirs.cloud.load_balancers().len(), finalizers(&world, "web")), (1, vec![CLASS_FINALIZER.to_owned()]));
}

/// A manager that is away while a Service changes hands knows nothing of it afterwards, and its cloud has nothing either.
#[tokio::test(start_paused = true)]
async fn a_service_that_never_got_anything_changes_hands_while_its_manager_is_away() {
    for (from, to, its_finalizer) in [(None, Some(CLASS), CLASS_FINALIZER), (Some(CLASS), None, FINALIZER)] {
        let world = World::new();
        let theirs = second(&world);
        let former = || start(&world, from, from.is_none());
        world.cloud.fail_next(CallName::EnsureLoadBalancer, &CloudError::refused("no such subnet"), 1000);
        let service = load_balancer_service("default", "web");
        world.server.create(&from.map_or(service.clone(), |class| service.load_balancer_class(class)));
        let life = former();
        pass(10).await;
        life.kill().await;
        assert_eq!((world.cloud.load_balancers().len(), finalizers(&world, "web").len()), (0, 1), "{from:?}");
        let _other = start(&theirs, to, to.is_none());
        reclassify(&world, "web", to);
        pass(600).await;
        assert_eq!(theirs.cloud.calls(), [], "{from:?}");
        let _life = former();
        pass(10).await;
        let served = (theirs.cloud.load_balancers().len(), finalizers(&world, "web"));
        assert_eq!(served, (1, vec![its_finalizer.to_owned()]), "{from:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_goes_while_it_is_waited_for_is_left_alone() {
    let world = World::new();
    let theirs = second(&world);
    let _other = start(&theirs, Some(CLASS), false);
    world.server.create(&load_balancer_service("default", "web").load_balancer_class(CLASS).finalizer(FINALIZER));
    pass(10).await;
    world.server.delete::<Service>("default", "web");
    pass(10).await;
    assert_eq!(finalizers(&world, "web"), [FINALIZER], "it is not theirs to take off");
    world.server.update_with("default", "web", |service: &mut Service| service.metadata.finalizers = None);
    pass(10).await;
    assert!(world.service("web").is_none());
    assert_eq!(theirs.cloud.calls(), []);
}
