//! Complete lists, for commands that read the cluster once.
//!
//! In: an API. Out: all its objects, or an error.

use kube::{Api, Resource, api::ListParams};
use serde::de::DeserializeOwned;

use super::with_causes;

/// Number of objects of a page.
const PAGE: u32 = 500;

/// Lists all objects, page by page.
pub async fn list_all<K>(api: &Api<K>) -> Result<Vec<K>, String>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let (mut all, mut page) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let listed = api.list(&page).await.map_err(|error| with_causes(&error))?;
        all.extend(listed.items);
        match listed.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(all),
        }
    }
}
