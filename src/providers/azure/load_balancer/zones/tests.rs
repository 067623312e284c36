//! Tests of the interpretation of responses, and of the times of requests.

use serde_json::json;

use super::*;

fn provider(mappings: &serde_json::Value) -> ResourceProviderDocument {
    let kinds = json!([{"resourceType": "disks"}, {"resourceType": "VirtualMachines", "zoneMappings": mappings}]);
    serde_json::from_value(json!({"resourceTypes": kinds})).unwrap()
}

#[test]
fn the_regions_zones_are_found_whatever_its_spelling() {
    let all = provider(&json!([
        {"location": "East US", "zones": ["3", "1", "2"]},
        {"location": "West Europe", "zones": ["1"]},
        {"location": "North US", "zones": null},
    ]));
    assert_eq!(zones_of(&all, "eastus").unwrap(), ["3", "1", "2"], "in ARM's order");
    assert_eq!(zones_of(&all, "West Europe").unwrap(), ["1"]);
    assert_eq!(zones_of(&all, "northus").unwrap(), Vec::<String>::new());
    assert_eq!(zones_of(&all, "westus").unwrap(), Vec::<String>::new());
    assert_eq!(zones_of(&provider(&json!(null)), "eastus").unwrap(), Vec::<String>::new());
    assert_eq!(zones_of(&ResourceProviderDocument::default(), "eastus"), None, "such an answer says nothing");
}

#[cfg(feature = "sandbox")]
mod simulator {
    use super::*;
    use crate::{
        providers::azure::{config::AzureConfig, samples::arm_client},
        sandbox::azure::{Azure, AzureOptions},
    };

    struct Setup {
        azure: Azure,
        zones: RegionZones,
    }

    impl Setup {
        fn new(azure_stack: bool, extended_location: Option<&str>) -> Self {
            let options = AzureOptions::immediate();
            let config = AzureConfig {
                subscription_id: options.subscriptions[0].clone(),
                location: options.location.clone(),
                ..AzureConfig::default()
            };
            let azure = Azure::new(options);
            let mut settings = LoadBalancerSettings::new(&config, "kubernetes");
            settings.extended_location = extended_location.map(str::to_owned);
            let zones = RegionZones::new(arm_client(&azure, Clock::System), &settings, azure_stack, Clock::System);
            Self { azure, zones }
        }

        async fn ask(&self) -> ArmResult<Vec<String>> {
            self.zones.zones(Urgency::Change).await
        }

        fn requests(&self) -> usize {
            let count = self.azure.count(|_| true);
            self.azure.clear_requests();
            count
        }
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_read_once_for_half_an_hour() {
        let setup = Setup::new(false, None);
        let (first, second) = tokio::join!(setup.ask(), setup.ask());
        assert_eq!((first.unwrap(), second.unwrap().len()), (vec!["1".to_owned(), "2".to_owned(), "3".to_owned()], 3));
        assert_eq!(setup.requests(), 1);
        tokio::time::sleep(ZONES_TTL + Duration::from_secs(1)).await;
        setup.azure.with_options(|options| options.zones.truncate(1));
        assert_eq!(setup.ask().await.unwrap(), ["1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_keeps_what_is_known() {
        let setup = Setup::new(false, None);
        setup.azure.deny("*", "");
        let error = setup.ask().await.unwrap_err();
        assert!(error.class == ArmErrorClass::Forbidden && error.message.contains("zones of the region"), "{error}");
        setup.azure.allow_all();
        assert_eq!(setup.ask().await.unwrap().len(), 3);
        setup.azure.deny("*", "");
        tokio::time::sleep(ZONES_TTL + Duration::from_secs(1)).await;
        setup.requests();
        assert_eq!(setup.ask().await.unwrap().len(), 3);
        assert_eq!(setup.ask().await.unwrap().len(), 3);
        assert_eq!(setup.requests(), 1, "not asked again at once");
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_can_be_none_nobody_is_asked() {
        for setup in [Setup::new(true, None), Setup::new(false, Some("microsoftlosangeles1"))] {
            assert_eq!((setup.ask().await.unwrap().len(), setup.requests()), (0, 0));
        }
    }
}
