//! Removes fields without a reader from JSON before it is decoded: half of a Node are images and `managedFields`.
//!
//! In: the body of a list, an object or a watch, in pieces as they arrive. Out: the body without `metadata.managedFields`
//! and the [`UnreadFields`] of each object, with long lists cut; the version of the list or event that was read last.
//! Anything else, broken JSON too, passes byte for byte: the decoder reports it.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;

use super::{
    annotation_digest::{AnnotationDigest, UNREAD_ANNOTATIONS},
    unread_fields::{AnnotationUse, MAX_SAMPLED_ANNOTATIONS, UnreadFields},
};

const MANAGED_FIELDS: &str = "managedFields";

/// Returns the response without the fields that have no reader.
///
/// Calls `note_version` with the version of each list, event and bookmark, or the last one of those that arrive together.
pub(super) fn without_unread<B>(
    response: http::Response<B>,
    unread: UnreadFields,
    mut note_version: impl FnMut(u64) + Send + 'static,
) -> http::Response<impl Body<Data = Bytes, Error = B::Error> + Send + 'static>
where
    B: Body<Data = Bytes> + Send + 'static,
{
    let mut filter = JsonFilter::new(unread);
    // Copied, so that no piece keeps room for what has gone from it.
    let mut filtered = move |piece: Bytes| {
        let output = Bytes::copy_from_slice(&filter.filter(&piece));
        if let Some(version) = filter.take_version() {
            note_version(version);
        }
        output
    };
    response.map(|body| body.map_frame(move |frame| frame.map_data(&mut filtered)))
}

/// A container on the way to a field that may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonLevel {
    /// A list, an event of a watch, or an object.
    Document,
    /// `items` of a list.
    Items,
    /// An object of a list or an event.
    Object,
    Metadata,
    Labels,
    Annotations,
    Spec,
    /// A list of `spec` that is cut.
    SpecList,
    Status,
    /// The list of the conditions, and one of them.
    Conditions,
    Condition,
}

impl JsonLevel {
    fn has_keys(self) -> bool {
        !matches!(self, JsonLevel::Items | JsonLevel::SpecList | JsonLevel::Conditions)
    }

    /// Returns `true` if members of this level may be removed.
    fn is_filtered(self) -> bool {
        self.has_keys() && !matches!(self, JsonLevel::Document | JsonLevel::Object)
    }

    /// Returns the level that `opening` begins as the value of `key` within `parent`.
    fn below(parent: Option<JsonLevel>, key: &[u8], opening: u8) -> Option<JsonLevel> {
        match (parent, key, opening) {
            (None, _, b'{') => Some(JsonLevel::Document),
            (Some(JsonLevel::Document), b"items", b'[') => Some(JsonLevel::Items),
            (Some(JsonLevel::Document), b"object", b'{') | (Some(JsonLevel::Items), _, b'{') => Some(JsonLevel::Object),
            (Some(JsonLevel::Document | JsonLevel::Object), b"metadata", b'{') => Some(JsonLevel::Metadata),
            (Some(JsonLevel::Document | JsonLevel::Object), b"spec", b'{') => Some(JsonLevel::Spec),
            (Some(JsonLevel::Document | JsonLevel::Object), b"status", b'{') => Some(JsonLevel::Status),
            (Some(JsonLevel::Metadata), b"labels", b'{') => Some(JsonLevel::Labels),
            (Some(JsonLevel::Metadata), b"annotations", b'{') => Some(JsonLevel::Annotations),
            (Some(JsonLevel::Status), b"conditions", b'[') => Some(JsonLevel::Conditions),
            (Some(JsonLevel::Conditions), _, b'{') => Some(JsonLevel::Condition),
            _ => None,
        }
    }
}

/// The state between two pieces.
#[derive(Default)]
pub(super) struct JsonFilter {
    unread: UnreadFields,
    levels: Vec<JsonLevel>,
    /// Containers that are open below the last level.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether the next string at the last level is a key, and whether it is being read.
    expects_key: bool,
    reads_key: bool,
    key: Vec<u8>,
    /// Whether the current member is removed.
    skips: bool,
    /// Whether the filtered level has a member already, so that the next one needs a comma.
    needs_comma: bool,
    /// Digest of the removed annotations of the current object, and the number of those retained as a sample.
    digest: AnnotationDigest,
    sampled: usize,
    /// Number of items of the current [`JsonLevel::SpecList`] that may still follow, and of commas in the current
    /// annotation.
    remaining: usize,
    commas: Option<usize>,
    /// Version of the current list or event as far as it has arrived, unless it was taken.
    version: Vec<u8>,
}

impl JsonFilter {
    /// Leaves out `unread` besides the managed fields.
    pub(super) fn new(unread: UnreadFields) -> Self {
        Self { unread, ..Self::default() }
    }

    /// Returns the last version of a list, an event or a bookmark that has arrived since the last call.
    pub(super) fn take_version(&mut self) -> Option<u64> {
        if self.in_string && self.reads_version() {
            return None;
        }
        let version = std::mem::take(&mut self.version);
        std::str::from_utf8(&version).ok()?.parse().ok()
    }

    /// Returns `true` at the value of `metadata.resourceVersion`, but for the objects of a list, which are older than the
    /// list.
    fn reads_version(&self) -> bool {
        let is_latest = || {
            matches!(
                self.levels.as_slice(),
                [JsonLevel::Document, JsonLevel::Metadata] | [JsonLevel::Document, JsonLevel::Object, JsonLevel::Metadata]
            )
        };
        self.depth == 0 && !self.reads_key && self.key == b"resourceVersion" && is_latest()
    }

    /// Returns the filtered form of the next `piece`.
    pub(super) fn filter(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut output = Vec::with_capacity(piece.len());
        let mut rest = piece;
        while !rest.is_empty() {
            let read = match (self.in_string, self.skips && self.depth > 0) {
                (true, _) => self.string(rest, &mut output),
                (false, true) => self.skip_structure(rest),
                (false, false) => self.structure(rest, &mut output),
            };
            rest = rest.get(read..).unwrap_or_default();
        }
        output
    }

    fn level(&self) -> Option<JsonLevel> {
        self.levels.last().copied()
    }

    fn is_filtered(&self) -> bool {
        self.depth == 0 && self.level().is_some_and(JsonLevel::is_filtered)
    }

    /// Reads on within a container that is removed, to the next string or to its end. Returns the number of bytes.
    fn skip_structure(&mut self, rest: &[u8]) -> usize {
        for (read, byte) in rest.iter().enumerate() {
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth -= 1,
                _ => {}
            }
            if self.in_string || self.depth == 0 {
                return read + 1;
            }
        }
        rest.len()
    }

    /// Returns how many bytes of a string follow without an end or an escape.
    fn plain_text(&mut self, rest: &[u8]) -> usize {
        let escaped = usize::from(std::mem::take(&mut self.escaped));
        memchr::memchr2(b'"', b'\\', rest.get(escaped..).unwrap_or_default()).map_or(rest.len(), |text| text + escaped)
    }

    /// Reads on within a string, at most to its end. Answers how many bytes that were.
    fn string(&mut self, rest: &[u8], output: &mut Vec<u8>) -> usize {
        let (text, stop) = rest.split_at(self.plain_text(rest));
        self.inside_string(text, output);
        match stop.first() {
            None => return text.len(),
            Some(b'\\') => {
                self.escaped = true;
                self.inside_string(b"\\", output);
            }
            Some(_) => self.end_string(output),
        }
        text.len() + 1
    }

    fn inside_string(&mut self, text: &[u8], output: &mut Vec<u8>) {
        if self.reads_key {
            self.key.extend_from_slice(text);
        } else if self.digests() {
            self.digest.json(text);
        } else if self.reads_version() {
            self.version.extend_from_slice(text);
        }
        // The key of a member that may go waits for the decision.
        if !(self.skips || self.reads_key && self.is_filtered()) {
            output.extend_from_slice(self.cut_list(text));
        }
    }

    /// Returns the part of an annotation's text that is kept: with one item more than accepted, a list is too long anyway.
    fn cut_list<'text>(&mut self, text: &'text [u8]) -> &'text [u8] {
        let Some(commas) = &mut self.commas else { return text };
        let mut end = 0;
        while *commas > 0 {
            let rest = text.get(end..).unwrap_or_default();
            let Some(comma) = memchr::memchr(b',', rest) else { return text };
            *commas -= 1;
            end += comma + 1;
        }
        text.get(..end).unwrap_or_default()
    }

    fn end_string(&mut self, output: &mut Vec<u8>) {
        self.in_string = false;
        if !std::mem::take(&mut self.reads_key) || !self.is_filtered() {
            return self.keep(b'"', output);
        }
        self.skips = self.is_unread();
        if self.digests() {
            self.digest.begin(&self.key);
        }
        if !self.skips {
            if std::mem::replace(&mut self.needs_comma, true) {
                output.push(b',');
            }
            output.push(b'"');
            output.extend_from_slice(&self.key);
            output.push(b'"');
        }
    }

    /// Returns `true` if the current member is an annotation that only the digest covers.
    fn digests(&self) -> bool {
        self.skips
            && self.depth == 0
            && self.level() == Some(JsonLevel::Annotations)
            && self.unread.annotation_uses.is_some()
    }

    fn drops_annotation(&mut self, key_use: AnnotationUse) -> bool {
        match key_use {
            AnnotationUse::Read { .. } => false,
            AnnotationUse::ReadList { most, .. } => {
                self.commas = Some(most);
                false
            }
            AnnotationUse::Unread => true,
            AnnotationUse::Sampled => {
                self.sampled += 1;
                self.sampled > MAX_SAMPLED_ANNOTATIONS
            }
        }
    }

    fn is_unread(&mut self) -> bool {
        // A key that is spelled with escapes is for the decoder.
        let Some(key) = std::str::from_utf8(&self.key).ok().filter(|key| !key.contains('\\')) else { return false };
        let unread = &self.unread;
        if let (Some(JsonLevel::Annotations), Some(use_of)) = (self.level(), &unread.annotation_uses) {
            let key_use = if key == UNREAD_ANNOTATIONS { AnnotationUse::Unread } else { use_of(key) };
            return self.drops_annotation(key_use);
        }
        match self.level() {
            Some(JsonLevel::Metadata) => key == MANAGED_FIELDS || unread.metadata.contains(&key),
            Some(JsonLevel::Spec) => unread.spec.contains(&key),
            Some(JsonLevel::Status) => unread.status.contains(&key),
            Some(JsonLevel::Condition) => unread.condition.contains(&key),
            Some(JsonLevel::Labels) => unread.labels.as_ref().is_some_and(|reads| !reads(key)),
            Some(JsonLevel::Annotations) => unread.annotations.as_ref().is_some_and(|reads| !reads(key)),
            _ => false,
        }
    }

    fn keep(&self, byte: u8, output: &mut Vec<u8>) {
        if !self.skips {
            output.push(byte);
        }
    }

    /// Reads the bytes between strings up to and including the first one that changes the state.
    fn structure(&mut self, rest: &[u8], output: &mut Vec<u8>) -> usize {
        let plain = |byte: &u8| !matches!(byte, b'"' | b'{' | b'[' | b'}' | b']' | b',' | b':');
        let text = rest.iter().position(|byte| !plain(byte)).unwrap_or(rest.len());
        let (text, stop) = rest.split_at(text);
        if !self.skips {
            output.extend_from_slice(text);
        }
        let Some(stop) = stop.first().copied() else { return text.len() };
        match stop {
            b'"' => self.begin_string(output),
            b'{' | b'[' => self.open(stop, output),
            b'}' | b']' => self.close(stop, output),
            b',' => self.comma(output),
            _ => self.keep(stop, output),
        }
        text.len() + 1
    }

    fn begin_string(&mut self, output: &mut Vec<u8>) {
        self.in_string = true;
        if self.depth == 0 && std::mem::take(&mut self.expects_key) {
            self.reads_key = true;
            self.key.clear();
        } else if self.reads_version() {
            self.version.clear();
        }
        if !(self.reads_key && self.is_filtered()) {
            self.keep(b'"', output);
        }
    }

    fn open(&mut self, opening: u8, output: &mut Vec<u8>) {
        self.keep(opening, output);
        let level = (self.depth == 0 && !self.skips).then(|| self.level_below(opening)).flatten();
        match level {
            Some(level) => {
                self.levels.push(level);
                self.expects_key = level.has_keys();
                self.needs_comma = false;
                self.key.clear();
                (self.digest, self.sampled) = (AnnotationDigest::default(), 0);
            }
            None => self.depth += 1,
        }
    }

    /// Returns the level that `opening` begins, and notes how long its list may be.
    fn level_below(&mut self, opening: u8) -> Option<JsonLevel> {
        if self.level() != Some(JsonLevel::Spec) || opening != b'[' {
            return JsonLevel::below(self.level(), &self.key, opening);
        }
        let (_, most) = self.unread.spec_lists.iter().find(|(name, _)| name.as_bytes() == self.key)?;
        self.remaining = most.saturating_sub(1);
        Some(JsonLevel::SpecList)
    }

    fn close(&mut self, closing: u8, output: &mut Vec<u8>) {
        if self.depth > 0 {
            self.depth -= 1;
        } else {
            self.end_member();
            if self.level() == Some(JsonLevel::Annotations) {
                self.write_digest(output);
            }
            self.expects_key = false;
            self.levels.pop();
            // What has closed is a member of the level around it.
            self.needs_comma = true;
        }
        self.keep(closing, output);
    }

    fn end_member(&mut self) {
        if self.digests() {
            self.digest.end();
        }
        self.skips = false;
        self.commas = None;
    }

    /// Writes the digest as the last annotation.
    fn write_digest(&mut self, output: &mut Vec<u8>) {
        let Some(digest) = std::mem::take(&mut self.digest).text() else { return };
        let comma = if self.needs_comma { "," } else { "" };
        output.extend_from_slice(format!("{comma}\"{UNREAD_ANNOTATIONS}\":\"{digest}\"").as_bytes());
    }

    fn comma(&mut self, output: &mut Vec<u8>) {
        if self.depth == 0 {
            self.expects_key = self.level().is_some_and(JsonLevel::has_keys);
            self.end_member();
            if self.level() == Some(JsonLevel::SpecList) {
                self.skips = self.remaining == 0;
                self.remaining = self.remaining.saturating_sub(1);
            }
        }
        if !self.is_filtered() {
            self.keep(b',', output);
        }
    }
}

#[cfg(test)]
mod tests;
