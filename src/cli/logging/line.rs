//! Format of log lines: one line per event.

use std::fmt::{self, Debug};

use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::{JsonFields, Writer},
    },
    registry::LookupSpan,
};

use crate::runtime::clock::Clock;

/// Field with the text of an event.
const MESSAGE: &str = "message";

/// Formatter of the fields of spans, as `key="value"` pairs like klog's.
pub(super) struct KlogFields;

impl<'writer> FormatFields<'writer> for KlogFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut visitor = FieldVisitor::default();
        fields.record(&mut visitor);
        writer.write_str(&visitor.klog().1)
    }
}

/// Fields of an event or a span, in their order.
#[derive(Default)]
struct FieldVisitor(Vec<(&'static str, Value)>);

impl FieldVisitor {
    fn push(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.push((field.name(), value.into()));
    }

    /// Returns the message, and the other fields as klog writes them.
    fn klog(self) -> (String, String) {
        let (mut message, mut pairs) = (String::new(), String::new());
        for (name, value) in self.0 {
            match value {
                Value::String(text) if name == MESSAGE => message = text,
                Value::String(text) => pairs += &format!(" {name}={text:?}"),
                Value::Number(number) if number.is_f64() => {
                    pairs += &format!(" {name}={}", number.as_f64().unwrap_or_default());
                }
                value => pairs += &format!(" {name}={value}"),
            }
        }
        (message, pairs)
    }
}

impl Visit for FieldVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.push(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, value);
    }
}

/// Formatter of text lines: `I1121 02:39:20.656523       1 file.rs:7] "message" key="value"`.
pub(super) struct KlogLine {
    pub(super) clock: Clock,
}

impl<S> FormatEvent<S, KlogFields> for KlogLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, KlogFields>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let time = self.clock.wall().strftime("%m%d %H:%M:%S%.6f");
        let mut visitor = FieldVisitor::default();
        event.record(&mut visitor);
        let (message, pairs) = visitor.klog();
        let letter = severity(*metadata.level());
        write!(line, "{letter}{time} {:>7} {}] {message:?}", std::process::id(), caller(event))?;
        for span in ctx.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<FormattedFields<KlogFields>>() {
                line.write_str(&fields.fields)?;
            }
        }
        writeln!(line, "{pairs}")
    }
}

fn severity(level: Level) -> char {
    match level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    }
}

/// Returns the name of the source file and the line of an event.
fn caller(event: &Event<'_>) -> String {
    let file = event.metadata().file().and_then(|file| file.rsplit('/').next()).unwrap_or("???");
    format!("{file}:{}", event.metadata().line().unwrap_or(1))
}

/// Formatter of JSON lines: `{"ts":…,"level":"info","caller":"file.rs:7","msg":"message","v":0,"key":"value"}`.
pub(super) struct JsonLine {
    pub(super) clock: Clock,
}

impl<S> FormatEvent<S, JsonFields> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, JsonFields>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut members = Map::new();
        for span in ctx.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<FormattedFields<JsonFields>>() {
                members.extend(serde_json::from_str::<Map<_, _>>(&fields.fields).unwrap_or_default());
            }
        }
        let mut visitor = FieldVisitor::default();
        event.record(&mut visitor);
        let key = |name: &'static str| if name == MESSAGE { "msg" } else { name };
        members.extend(visitor.0.into_iter().map(|(name, value)| (key(name).to_owned(), value)));
        let level = *event.metadata().level();
        members.insert("ts".to_owned(), self.clock.wall().as_duration().as_secs_f64().into());
        members.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
        members.insert("caller".to_owned(), caller(event).into());
        if let Some(verbosity) = verbosity(level) {
            members.insert("v".to_owned(), verbosity.into());
        }
        writeln!(line, "{}", Value::Object(members))
    }
}

/// Returns the verbosity in the sense of klog; `None` for errors, which have none.
fn verbosity(level: Level) -> Option<u8> {
    match level {
        Level::ERROR => None,
        Level::DEBUG => Some(4),
        Level::TRACE => Some(6),
        _ => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use parking_lot::Mutex;

    use tracing::{debug, error, info, info_span, warn};
    use tracing_subscriber::{fmt::layer, layer::SubscriberExt};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink {
        fn lines(&self) -> Vec<String> {
            String::from_utf8(self.0.lock().clone()).unwrap().lines().map(str::to_owned).collect()
        }
    }

    fn clock() -> Clock {
        Clock::System
    }

    fn events() {
        let span = info_span!("reconcile", key = "default/web", attempt = 2);
        let _inside = span.enter();
        info!(node = "n1", count = 3, ready = true, "hello \"you\"");
        warn!(error = %"boom", "line\nbreak");
        error!("bad");
        debug!("detail");
    }

    #[test]
    fn text_lines_have_the_format_of_klog() {
        let sink = Sink::default();
        let writer = sink.clone();
        let layer =
            layer().with_writer(move || writer.clone()).fmt_fields(KlogFields).event_format(KlogLine { clock: clock() });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), events);
        let lines = sink.lines();
        let after_header = |line: &String| line.split_once("] ").unwrap().1.to_owned();
        assert_eq!(
            lines.iter().map(after_header).collect::<Vec<_>>(),
            [
                r#""hello \"you\"" key="default/web" attempt=2 node="n1" count=3 ready=true"#,
                r#""line\nbreak" key="default/web" attempt=2 error="boom""#,
                r#""bad" key="default/web" attempt=2"#,
                r#""detail" key="default/web" attempt=2"#,
            ]
        );
        assert_eq!(lines.iter().map(|line| &line[..1]).collect::<String>(), "IWEI");
        let header: Vec<_> = lines[0].split("] ").next().unwrap().split_whitespace().collect();
        assert_eq!(header[0].len(), 5, "letter, month and day: {header:?}");
        assert_eq!(header[1].len(), "02:39:20.656523".len(), "{header:?}");
        assert_eq!(header[2], std::process::id().to_string());
        assert!(header[3].starts_with("line.rs:"), "{header:?}");
    }

    #[test]
    fn json_lines_have_the_keys_of_component_base() {
        let sink = Sink::default();
        let writer = sink.clone();
        let layer = layer()
            .with_writer(move || writer.clone())
            .fmt_fields(JsonFields::new())
            .event_format(JsonLine { clock: clock() });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), events);
        let lines: Vec<Value> = sink.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["msg"], "hello \"you\"");
        assert_eq!(lines[0]["key"], "default/web");
        assert_eq!(lines[0]["count"], 3);
        assert_eq!(lines[0]["ready"], true);
        assert_eq!(lines[0]["level"], "info");
        assert_eq!(lines[0]["v"], 0);
        assert!(lines[0]["ts"].as_f64().unwrap() > 1e9);
        assert!(lines[0]["caller"].as_str().unwrap().starts_with("line.rs:"));
        assert_eq!(lines[1]["error"], "boom");
        assert_eq!(lines[2].get("v"), None);
        assert_eq!(lines[3]["v"], 4);
    }
}
