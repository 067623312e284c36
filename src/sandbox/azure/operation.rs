//! Long-running operations. Pure over the time that is passed in: an operation ends at the first read after its time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tokio::time::Instant;

/// State of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    InProgress,
    Succeeded,
    /// Failed, with a code and a message.
    Failed(String, String),
    /// Canceled because another operation replaced it, with a code and a message.
    Canceled(String, String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Last segment of the URL to poll.
    pub id: String,
    /// Key of the document that is written.
    pub document: String,
    /// Whether the document is deleted at the end.
    pub deletes: bool,
    /// Planned end; [`Outcome::InProgress`]: it never ends.
    pub planned: Outcome,
    /// Current state of the operation.
    pub outcome: Outcome,
    /// Time of its end.
    pub due: Instant,
}

impl Operation {
    /// Returns the body of `Azure-AsyncOperation`.
    pub fn body(&self) -> Value {
        let error = |code: &str, message: &str| json!({"code": code, "message": message, "details": []});
        match &self.outcome {
            Outcome::InProgress => json!({"status": "InProgress"}),
            Outcome::Succeeded => json!({"status": "Succeeded"}),
            Outcome::Failed(code, message) => json!({"status": "Failed", "error": error(code, message)}),
            Outcome::Canceled(code, message) => json!({"status": "Canceled", "error": error(code, message)}),
        }
    }
}

#[derive(Debug, Default)]
pub struct Operations {
    all: BTreeMap<String, Operation>,
    due: BTreeSet<(Instant, String)>,
    running: BTreeMap<String, String>,
    started: u64,
}

impl Operations {
    /// Starts an operation on a document. Returns its ID.
    pub fn start(&mut self, document: &str, deletes: bool, planned: Outcome, due: Instant) -> String {
        self.started += 1;
        let id = format!("00000000-0000-4000-9000-{:012x}", self.started);
        let operation =
            Operation { id: id.clone(), document: document.to_owned(), deletes, planned, outcome: Outcome::InProgress, due };
        if operation.planned != Outcome::InProgress {
            self.due.insert((due, id.clone()));
        }
        self.running.insert(document.to_owned(), id.clone());
        self.all.insert(id.clone(), operation);
        id
    }

    /// Returns the operation that runs on a document.
    pub fn running(&self, document: &str) -> Option<&Operation> {
        self.all.get(self.running.get(document)?)
    }

    /// Returns an operation by its id.
    pub fn get(&self, id: &str) -> Option<&Operation> {
        self.all.get(id)
    }

    /// Ends the operations that are due, and returns them in the order in which they end.
    pub fn take_due(&mut self, now: Instant) -> Vec<Operation> {
        let mut ended = Vec::new();
        while let Some((_, id)) = self.due.first().filter(|(due, _)| *due <= now).cloned() {
            self.due.pop_first();
            if let Some(operation) = self.all.get_mut(&id) {
                operation.outcome = operation.planned.clone();
                ended.push(operation.clone());
                self.running.remove(&operation.document);
            }
        }
        ended
    }

    /// Ends the operation that runs on a document because another one takes its place.
    pub fn supersede(&mut self, document: &str) {
        let Some(id) = self.running.remove(document) else { return };
        let Some(operation) = self.all.get_mut(&id) else { return };
        self.due.remove(&(operation.due, id));
        let message = "Operation was canceled because another operation on the same resource superseded it.";
        let code = "CanceledAndSupersededDueToAnotherOperation";
        operation.outcome = Outcome::Canceled(code.to_owned(), message.to_owned());
    }
}
