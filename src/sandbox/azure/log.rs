//! The requests that arrived, for tests to count.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::options::Class;

/// Maximum number of records; older ones are dropped.
const MAX_RECORDS: usize = 500_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    pub method: String,
    /// Requested host, lower-case; empty if unknown.
    pub host: String,
    pub path: String,
    pub query: String,
    /// Class of its quota.
    pub class: Class,
    /// Type of the resource or of the members of the list, lower-case; empty if there is none.
    pub resource_type: String,
    /// Whether it requested a list.
    pub list: bool,
    /// Length of its body.
    pub sent: usize,
    /// Status of the response; 0 while there is none, or if it was lost.
    pub status: u16,
    /// Length of the response's body.
    pub bytes: usize,
    pub at: Instant,
    /// `User-Agent`.
    pub user_agent: String,
}

/// The records, oldest first.
#[derive(Debug, Default)]
pub struct Log {
    records: VecDeque<RequestRecord>,
    first: u64,
}

impl Log {
    /// Adds a request. Returns its number.
    pub fn add(&mut self, record: RequestRecord) -> u64 {
        self.records.push_back(record);
        if self.records.len() > MAX_RECORDS {
            self.records.pop_front();
            self.first += 1;
        }
        self.first + self.records.len() as u64 - 1
    }

    /// Records the response to a request.
    pub fn record_response(&mut self, number: u64, status: u16, bytes: usize) {
        let index = number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        if let Some(record) = index.and_then(|index| self.records.get_mut(index)) {
            record.status = status;
            record.bytes = bytes;
        }
    }

    pub fn records(&self) -> impl Iterator<Item = &RequestRecord> {
        self.records.iter()
    }

    /// Removes all records so far.
    pub fn clear(&mut self) {
        self.first += self.records.len() as u64;
        self.records.clear();
    }
}
