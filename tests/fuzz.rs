//! The fuzz targets of `fuzz/` on a stable toolchain: a fixed number of executions each, always the same ones.
//!
//! No input may make a parser panic, or cost more than time in proportion to its length. The latter is not a
//! benchmark: the inputs are so long that quadratic time would be hours, and the limit is far above what a linear parser needs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use targets::{TARGETS, Target};

/// Executions of each target with short inputs, unless `FUZZ_EXECUTIONS` gives another number.
const EXECUTIONS: u32 = 1_000;
/// Seed of the random choices.
const SEED: [u8; 32] = [7; 32];
/// Length of long inputs, in bytes.
const LONG: usize = 1 << 20;
/// Timeout for one long input, in a debug build on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

fn folder(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(part)
}

/// Returns the realistic inputs of a target, sorted by file name.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder("corpus").join(target.name)).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

#[derive(Debug, Clone)]
enum Mutation {
    Flip(Index, u8),
    Cut(Index),
    Remove(Index, Index),
    Insert(Index, Vec<u8>),
    Repeat(Index, Index, usize),
    /// Replaces the rest with that of another input.
    Splice(Index, Vec<u8>, Index),
}

fn range(a: Index, b: Index, length: usize) -> std::ops::Range<usize> {
    let (a, b) = (a.index(length + 1), b.index(length + 1));
    a.min(b)..a.max(b)
}

fn mutated(mut input: Vec<u8>, mutations: Vec<Mutation>) -> Vec<u8> {
    for mutation in mutations {
        let length = input.len();
        match mutation {
            Mutation::Flip(at, bits) if length > 0 => input[at.index(length)] ^= bits,
            Mutation::Flip(..) => {}
            Mutation::Cut(at) => input.truncate(at.index(length + 1)),
            Mutation::Remove(a, b) => drop(input.drain(range(a, b, length))),
            Mutation::Insert(at, bytes) => {
                let at = at.index(length + 1);
                input.splice(at..at, bytes);
            }
            Mutation::Repeat(a, b, times) => {
                let range = range(a, b, length);
                let repeated = input[range.clone()].repeat(times.min(4096 / range.len().max(1)));
                input.splice(range.end..range.end, repeated);
            }
            Mutation::Splice(at, other, from) => {
                input.truncate(at.index(length + 1));
                input.extend_from_slice(&other[from.index(other.len() + 1)..]);
            }
        }
    }
    input
}

/// Pieces that mean something to one of the parsers.
const SHORT_WORDS: &[&str] = &[
    "null", "{}", "[]", "\"\"", "-1", "1e999", "\u{0}", "\u{feff}", "é", "\n===\n", "/", "://", ";", ",", "&a ", "*a", "? ",
    "- ", "|\n", "\\u0000", "\\ud800", "µs", "port_80_", "=", "::/0", "true",
];
const LONG_WORDS: &[&str] = &[
    "18446744073709551616",
    "9223372036854775807",
    "retry-after: 1\n",
    "azure-allowed-ip-ranges=",
    "azure-load-balancer-internal=",
    "port:80 TCP 30080 http\n",
    "10.0.0.0/8",
];

fn mutation(corpus: &[Vec<u8>]) -> impl Strategy<Value = Mutation> + use<> {
    let at = any::<Index>;
    let word = select([SHORT_WORDS, LONG_WORDS].concat()).prop_map(|word| word.as_bytes().to_vec());
    prop_oneof![
        (at(), 1..=255_u8).prop_map(|(at, bits)| Mutation::Flip(at, bits)),
        at().prop_map(Mutation::Cut),
        (at(), at()).prop_map(|(a, b)| Mutation::Remove(a, b)),
        (at(), prop_oneof![word, vec(any::<u8>(), 0..8)]).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (at(), at(), 1..64_usize).prop_map(|(a, b, times)| Mutation::Repeat(a, b, times)),
        (at(), select(corpus.to_vec()), at()).prop_map(|(at, other, from)| Mutation::Splice(at, other, from)),
    ]
}

fn inputs(corpus: &[Vec<u8>]) -> impl Strategy<Value = Vec<u8>> + use<> {
    let near = (select(corpus.to_vec()), vec(mutation(corpus), 0..6)).prop_map(|(input, all)| mutated(input, all));
    prop_oneof![4 => near, 1 => vec(any::<u8>(), 0..256)]
}

fn executions() -> u32 {
    std::env::var("FUZZ_EXECUTIONS").map_or(EXECUTIONS, |number| number.parse().expect("FUZZ_EXECUTIONS is a whole number"))
}

/// Runs short inputs, and panics with the smallest failing one. All random choices follow from [`SEED`].
fn survives_short_inputs(target: &Target) {
    let corpus = corpus(target);
    corpus.iter().for_each(|input| (target.body)(input));
    let config = Config { cases: executions(), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &SEED));
    let outcome = runner.run(&inputs(&corpus), |input| {
        (target.body)(&input);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("target {}, seed {SEED:?}: {error}", target.name);
    }
}

/// Openings, separators and fillers of the notations that are parsed.
const HOSTILE: [&str; 20] = [
    "[", "{\"a\":", "{", "\"", "\\", "/", "a", "1", " ", "\n", "- ", "? ", "a: ", "a: b\n", "&a [*a,", "#", "é", "1h",
    "x=y,", "\"a\":1,",
];

/// Returns the status lines and headers with which scripts of responses in the corpus begin, each once, and an empty one.
fn heads(corpus: &[Vec<u8>]) -> BTreeSet<&[u8]> {
    let head = |input: &'_ Vec<u8>| input.windows(2).position(|window| window == b"\n\n").map_or(0, |at| at + 2);
    corpus.iter().map(|input| &input[..head(input)]).chain([&b""[..]]).collect()
}

/// Returns the long inputs of a target: hostile pieces alone and within a realistic input, and repeated realistic inputs.
fn long_inputs(corpus: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let filled = |piece: &[u8]| piece.repeat(LONG / piece.len());
    let headed = |head: &[u8]| HOSTILE.map(|piece| [head, &filled(piece.as_bytes())].concat());
    let mut inputs: Vec<_> = heads(corpus).into_iter().flat_map(headed).collect();
    for (number, input) in corpus.iter().filter(|input| !input.is_empty()).enumerate() {
        inputs.push(filled(input));
        let (start, end) = input.split_at(input.len() * 3 / 4);
        let piece = HOSTILE[number % HOSTILE.len()].as_bytes();
        inputs.push([start, &filled(piece), end].concat());
        let line = start.rsplit(|byte| [b'\n', b',', b'/'].contains(byte)).next().unwrap_or(start);
        inputs.push([start, &filled(if line.is_empty() { b"," } else { line }), end].concat());
    }
    inputs
}

/// Runs each long input on its own thread, so that an input that does not end is reported.
fn survives_long_inputs(target: &'static Target) {
    for (number, input) in long_inputs(&corpus(target)).into_iter().enumerate() {
        let (finished_tx, finished_rx) = mpsc::channel();
        thread::spawn(move || {
            (target.body)(&input);
            let _ = finished_tx.send(());
        });
        let outcome = finished_rx.recv_timeout(LIMIT);
        assert!(outcome.is_ok(), "target {}, long input {number}: {outcome:?}, after {LIMIT:?} at most", target.name);
    }
}

macro_rules! fuzzed {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                let target = TARGETS.iter().find(|target| target.name == stringify!($name)).unwrap();
                survives_short_inputs(target);
                survives_long_inputs(target);
            }
        )*
    };
}

all_targets!(fuzzed);

#[test]
fn every_target_is_listed_for_cargo_fuzz() {
    let manifest = fs::read_to_string(folder("Cargo.toml")).unwrap();
    for name in TARGETS.iter().map(|target| target.name) {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        assert!(
            fs::read_to_string(folder("fuzz_targets").join(format!("{name}.rs"))).unwrap().contains(&format!("::{name}("))
        );
    }
}
