//! Flags about the content and format of the log.

use std::time::Duration;

use super::declare_flags;
use crate::cli::logging::{LogFormat, ModuleLevel};

const UNBUFFERED: &str = "every line is written to stderr at once";

declare_flags! {
    V: i32 = "v" "0" "Verbosity of the log: 0 to 3 for information, 4 and 5 for debugging, 6 and more for everything." [short('v')];
    VMODULE: Vec<ModuleLevel> = "vmodule" "" "Verbosity for source files by pattern, such as route*=4.";
    LOGGING_FORMAT: LogFormat = "logging-format" "text" "Format of the log." [aliases(&["log-format"])];
    LOG_FLUSH_FREQUENCY: Duration = "log-flush-frequency" "5s" "Maximum time between flushes of the log."
        [ignored(UNBUFFERED)];
    TEXT_SPLIT_STREAM: bool = "log-text-split-stream" "false" "Write information to stdout."
        [ignored(UNBUFFERED)] [hidden()];
    TEXT_INFO_BUFFER_SIZE: String = "log-text-info-buffer-size" "0" "Size of the buffer for information."
        [ignored(UNBUFFERED)] [hidden()];
    JSON_SPLIT_STREAM: bool = "log-json-split-stream" "false" "Write information to stdout."
        [ignored(UNBUFFERED)] [hidden()];
    JSON_INFO_BUFFER_SIZE: String = "log-json-info-buffer-size" "0" "Size of the buffer for information."
        [ignored(UNBUFFERED)] [hidden()];
}
