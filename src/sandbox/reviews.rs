//! Tokens and rights: TokenRequest, TokenReview and SubjectAccessReview. Pure, but for the rule that a test may set.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{http::Review, strategy};
use crate::runtime::store::ObjectKey;

/// Decides on the `spec` of a SubjectAccessReview.
pub type Authorizer = Box<dyn Fn(&Value) -> bool + Send + Sync>;

/// Owner of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

#[derive(Debug)]
struct RegisteredToken {
    user: User,
    audiences: Vec<String>,
    expires: Option<Timestamp>,
}

/// Users of the server. The default allows everything to every user with a valid token.
#[derive(Default)]
pub struct Users {
    tokens: BTreeMap<String, RegisteredToken>,
    authorizer: Option<Authorizer>,
}

impl Users {
    /// Registers the token of a user.
    pub fn add(&mut self, token: &str, user: User) {
        self.tokens.insert(token.to_owned(), RegisteredToken { user, audiences: Vec::new(), expires: None });
    }

    /// Sets the rule of SubjectAccessReviews.
    pub fn authorize(&mut self, authorizer: Authorizer) {
        self.authorizer = Some(authorizer);
    }

    /// Responds to a TokenRequest for the ServiceAccount `key`. `serial` makes the token unique.
    pub fn issue(&mut self, key: &ObjectKey, mut request: Value, now: Timestamp, serial: u64) -> Value {
        let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
        let expires = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        let token = format!("sandbox.{}.{}.{}", key.namespace, key.name, strategy::uid(serial));
        let groups =
            ["system:serviceaccounts", &format!("system:serviceaccounts:{}", key.namespace), "system:authenticated"];
        let user = User {
            name: format!("system:serviceaccount:{}:{}", key.namespace, key.name),
            groups: groups.map(str::to_owned).to_vec(),
        };
        let audiences = texts(&request["spec"]["audiences"]);
        self.tokens.insert(token.clone(), RegisteredToken { user, audiences, expires: Some(expires) });
        request["kind"] = json!("TokenRequest");
        request["apiVersion"] = json!("authentication.k8s.io/v1");
        request["spec"]["expirationSeconds"] = json!(seconds);
        request["status"] = json!({"token": token, "expirationTimestamp": strategy::timestamp(expires)});
        request
    }

    /// Responds to a review.
    pub fn review(&self, review: Review, mut request: Value, now: Timestamp) -> Value {
        request["status"] = match review {
            Review::Token => self.authenticate(&request["spec"], now),
            Review::SubjectAccess | Review::SelfSubjectAccess => self.access(&request["spec"]),
        };
        request
    }

    fn authenticate(&self, spec: &Value, now: Timestamp) -> Value {
        let registered = spec["token"].as_str().and_then(|token| self.tokens.get(token));
        let valid = registered.filter(|registered| registered.expires.is_none_or(|expires| now < expires));
        let audiences_wanted: BTreeSet<_> = texts(&spec["audiences"]).into_iter().collect();
        let audiences = |registered: &RegisteredToken| -> Vec<String> {
            if registered.audiences.is_empty() {
                return audiences_wanted.iter().cloned().collect();
            }
            registered.audiences.iter().filter(|audience| audiences_wanted.contains(*audience)).cloned().collect()
        };
        match valid.map(|registered| (registered, audiences(registered))) {
            Some((registered, audiences)) if audiences_wanted.is_empty() || !audiences.is_empty() => {
                let user = json!({"username": registered.user.name, "groups": registered.user.groups});
                json!({"authenticated": true, "user": user, "audiences": audiences})
            }
            _ => json!({"authenticated": false, "error": "token is not known or has expired"}),
        }
    }

    fn access(&self, spec: &Value) -> Value {
        match self.authorizer.as_ref().map(|authorizer| authorizer(spec)) {
            Some(false) => json!({"allowed": false, "reason": "denied by the sandbox"}),
            Some(true) | None => json!({"allowed": true}),
        }
    }
}

fn texts(list: &Value) -> Vec<String> {
    super::validation::items(list).iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}
