//! Parts of a release: the bill of materials and the image that is written without a daemon, by the scripts behind `make sbom` and
//! `make oci`. A small file with the head of a static binary replaces the program. Also the report of `make timings`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of test functions")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use aws_lc_rs::digest;
use cloud_controller_manager::runtime::yaml;
use serde_json::{Value, json};
use tempfile::TempDir;

const AMD64: u8 = 62;
const ARM64: u8 = 183;
const BUILD_TIME: &str = "1700000000";
const PROGRAM: &str = "usr/local/bin/cloud-controller-manager";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn script(name: &str) -> Command {
    let mut command = Command::new(root().join(".ci").join(name));
    command.env("CCM_VERSION", "v1.2.3-rc.1").env("REVISION", "abc").env("SOURCE_DATE_EPOCH", BUILD_TIME);
    command
}

fn stdout_of(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the head of an ELF file for a machine, with one program header of this kind.
fn binary(machine: u8, kind: u8) -> Vec<u8> {
    let mut head = vec![0; 64 + 56];
    head[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (head[18], head[32], head[54], head[56], head[64]) = (machine, 64, 56, 1, kind);
    head
}

/// Folder in which images are written.
struct Workshop(TempDir);

impl Workshop {
    fn new() -> Self {
        let workshop = Self(tempfile::tempdir().unwrap());
        for (name, content) in [
            ("amd64", binary(AMD64, 1)),
            ("arm64", binary(ARM64, 1)),
            ("dynamic", binary(AMD64, 3)),
            ("riscv", binary(243, 1)),
            ("text", b"#!/bin/sh\n".to_vec()),
            ("authorities", b"-----BEGIN CERTIFICATE-----\n".to_vec()),
        ] {
            fs::write(workshop.path(name), content).unwrap();
        }
        workshop
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, binaries: &[&str]) -> Output {
        let mut command = script("oci-layout");
        command.env("CA_CERTIFICATES", self.path("authorities")).arg(self.path("oci"));
        command.args(binaries.iter().map(|name| self.path(name))).output().unwrap()
    }

    fn blob(&self, descriptor: &Value) -> Vec<u8> {
        let name = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let content = fs::read(self.path("oci/blobs/sha256").join(name)).unwrap();
        assert_eq!((sha256(&content), json!(content.len())), (name.to_owned(), descriptor["size"].clone()));
        content
    }

    fn json(&self, descriptor: &Value) -> Value {
        serde_json::from_slice(&self.blob(descriptor)).unwrap()
    }

    fn index(&self) -> Value {
        let layout: Value = serde_json::from_slice(&fs::read(self.path("oci/oci-layout")).unwrap()).unwrap();
        assert_eq!(layout, json!({"imageLayoutVersion": "1.0.0"}));
        serde_json::from_slice(&fs::read(self.path("oci/index.json")).unwrap()).unwrap()
    }

    /// Returns every file of the layout with its content.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let blobs = fs::read_dir(self.path("oci/blobs/sha256")).unwrap().map(|entry| entry.unwrap().path());
        blobs.chain([self.path("oci/index.json")]).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }
}

fn sha256(content: &[u8]) -> String {
    digest::digest(&digest::SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unpacked(layer: &[u8]) -> Vec<u8> {
    let mut tar = Vec::new();
    flate2::read::GzDecoder::new(layer).read_to_end(&mut tar).unwrap();
    tar
}

/// Runs `tar` with an archive on its standard input, and returns its output.
fn tar(arguments: &[&str], archive: &[u8]) -> Vec<u8> {
    let mut child = Command::new("tar").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), archive).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

/// Returns mode, owner, and name with the target of a link, for each entry of an archive.
fn entries(archive: &[u8]) -> Vec<(String, String, String)> {
    let listed = String::from_utf8(tar(&["--numeric-owner", "-tvf", "-"], archive)).unwrap();
    let entry = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        (words[0].to_owned(), words[1].to_owned(), words[5..].join(" "))
    };
    listed.lines().map(entry).collect()
}

#[test]
fn the_image_matches_the_dockerfile() {
    let workshop = Workshop::new();
    let printed = stdout_of(&workshop.write(&["amd64"]));
    let index = workshop.index();
    let [entry] = index["manifests"].as_array().unwrap().as_slice() else { panic!("{index}") };
    assert_eq!(printed.trim(), entry["digest"]);
    assert_eq!(entry["platform"], json!({"architecture": "amd64", "os": "linux"}));
    assert_eq!(entry["annotations"], json!({"org.opencontainers.image.ref.name": "v1.2.3-rc.1"}));
    let manifest = workshop.json(entry);
    assert_eq!((&manifest["schemaVersion"], &manifest["mediaType"]), (&json!(2), &entry["mediaType"]));

    let image = workshop.json(&manifest["config"]);
    assert_eq!((&image["architecture"], &image["os"]), (&json!("amd64"), &json!("linux")));
    assert_eq!(image["created"], "2023-11-14T22:13:20Z");
    let config = &image["config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Entrypoint"], json!([format!("/{PROGRAM}")]));
    assert_eq!(config["ExposedPorts"], json!({"10258/tcp": {}}));
    let environment: BTreeSet<_> =
        config["Env"].as_array().unwrap().iter().map(|variable| variable.as_str().unwrap()).collect();
    assert!(environment.contains("MALLOC_ARENA_MAX=1"), "{environment:?}");
    assert!(environment.contains("SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"), "{environment:?}");
    let labels = config["Labels"].as_object().unwrap();
    let label = |name: &str| labels.get(&format!("org.opencontainers.image.{name}")).and_then(Value::as_str);
    assert_eq!((label("title"), label("licenses")), (Some("cloud-controller-manager"), Some("Apache-2.0")));
    assert_eq!((label("version"), label("revision")), (Some("v1.2.3-rc.1"), Some("abc")));
    assert!(labels.values().all(|value| !value.as_str().unwrap().contains("${")), "{labels:?}");
}

#[test]
fn layers_have_the_program_its_names_and_authorities() {
    let workshop = Workshop::new();
    stdout_of(&workshop.write(&["amd64"]));
    let manifest = workshop.json(&workshop.index()["manifests"][0]);
    let layers: Vec<_> =
        manifest["layers"].as_array().unwrap().iter().map(|layer| unpacked(&workshop.blob(layer))).collect();
    let diffs: Vec<_> = layers.iter().map(|tar| format!("sha256:{}", sha256(tar))).collect();
    let image = workshop.json(&manifest["config"]);
    assert_eq!(image["rootfs"], json!({"type": "layers", "diff_ids": diffs}));
    assert_eq!(image["history"].as_array().unwrap().len(), layers.len());

    let all: Vec<_> = layers.iter().flat_map(|layer| entries(layer)).collect();
    assert!(all.iter().all(|(_, owner, _)| owner == "0/0"), "{all:?}");
    let is_there =
        |mode: &str, name: &str| all.iter().any(|(found, _, path)| found == mode && path.trim_end_matches('/') == name);
    assert!(is_there("-rwxr-xr-x", PROGRAM) && is_there("drwxrwxrwt", "tmp"), "{all:?}");
    for link in ["cloud-node-manager", "health-probe-proxy", "acr-credential-provider"] {
        assert!(is_there("lrwxrwxrwx", &format!("usr/local/bin/{link} -> cloud-controller-manager")), "{link}: {all:?}");
    }
    let content = |layer: usize, path: &str| tar(&["-xOf", "-", path], &layers[layer]);
    assert_eq!(content(1, PROGRAM), binary(AMD64, 1));
    assert_eq!(content(0, "etc/ssl/certs/ca-certificates.crt"), fs::read(workshop.path("authorities")).unwrap());
    assert!(String::from_utf8(content(0, "etc/passwd")).unwrap().contains(":65532:65532:"));
}

#[test]
fn platforms_share_one_entry_and_builds_are_reproducible() {
    let workshop = Workshop::new();
    let first = (stdout_of(&workshop.write(&["amd64", "arm64"])), workshop.files());
    assert_eq!((stdout_of(&workshop.write(&["amd64", "arm64"])), workshop.files()), first);
    let index = workshop.index();
    assert_eq!(index["manifests"].as_array().unwrap().len(), 1);
    let platforms = workshop.json(&index["manifests"][0]);
    let found = platforms["manifests"].as_array().unwrap().iter().map(|entry| {
        let config = workshop.json(&workshop.json(entry)["config"]);
        assert_eq!(config["architecture"], entry["platform"]["architecture"]);
        config["architecture"].as_str().unwrap().to_owned()
    });
    assert_eq!(found.collect::<Vec<_>>(), ["amd64", "arm64"]);
    // Files of an earlier image are removed.
    stdout_of(&workshop.write(&["arm64"]));
    assert_eq!(workshop.files().len(), 5);
}

#[test]
fn binaries_that_cannot_run_are_refused() {
    let workshop = Workshop::new();
    for (binaries, expected) in [
        (&["dynamic"][..], "is not static"),
        (&["riscv"], "for machine 243"),
        (&["text"], "no ELF file"),
        (&["missing"], "no such file"),
        (&["amd64", "amd64"], "same architecture"),
        (&[], "usage"),
    ] {
        let output = workshop.write(binaries);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains(expected), "{binaries:?}: {message}");
        assert!(!workshop.path("oci").exists() && !message.contains("Traceback"), "{message}");
    }
    fs::create_dir(workshop.path("oci")).unwrap();
    fs::write(workshop.path("oci/precious"), "").unwrap();
    let output = workshop.write(&["amd64"]);
    assert!(!output.status.success() && workshop.path("oci/precious").exists(), "an existing folder is kept");
}

fn materials() -> Value {
    serde_json::from_str(&stdout_of(&script("sbom").output().unwrap())).unwrap()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("{field}: {value}"))
}

/// Package URL and checksum of every crate in Cargo.lock.
fn locked_crates() -> BTreeSet<String> {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let packages = lock.split("[[package]]").skip(1).filter(|package| package.contains("\nchecksum = "));
    packages
        .map(|package| {
            let field = |name: &str| package.split(&format!("\n{name} = \"")).nth(1).unwrap().split('"').next().unwrap();
            format!("pkg:cargo/{}@{} {}", field("name"), field("version"), field("checksum"))
        })
        .collect()
}

#[test]
fn bill_of_materials_has_checksums_and_licenses() {
    let document = materials();
    assert_eq!((text(&document, "bomFormat"), text(&document, "specVersion")), ("CycloneDX", "1.5"));
    let program = &document["metadata"]["component"];
    assert_eq!((text(program, "name"), text(program, "version")), ("cloud-controller-manager", "1.2.3-rc.1"));
    assert_eq!(document["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    let components = document["components"].as_array().unwrap();
    let crates: BTreeSet<String> = components
        .iter()
        .map(|component| format!("{} {}", text(component, "purl"), text(&component["hashes"][0], "content")))
        .collect();
    let unlocked: Vec<_> = crates.difference(&locked_crates()).cloned().collect();
    assert!(crates.len() > 100 && unlocked.is_empty(), "{unlocked:?}");
    for component in components {
        let license = text(&component["licenses"][0], "expression");
        assert!(!license.is_empty() && !license.contains('/'), "{component}");
    }
}

#[test]
fn notices_name_every_crate_of_the_program() {
    let notices = stdout_of(&script("sbom").arg("--notices").output().unwrap());
    let document = materials();
    let is_named =
        |component: &Value| notices.contains(&format!("\n  {} {} (", text(component, "name"), text(component, "version")));
    for component in document["components"].as_array().unwrap() {
        assert_eq!(is_named(component), component["scope"] == "required", "{component}");
    }
    assert!(notices.contains("Apache License"), "texts are included");
}

#[test]
fn bill_of_materials_has_what_ships_on_this_platform() {
    let found = materials();
    let scope = |name: &str| {
        let component = found["components"].as_array().unwrap().iter().find(|component| component["name"] == name);
        text(component.unwrap_or_else(|| panic!("no {name}")), "scope")
    };
    for (name, expected) in [
        ("tokio", "required"),
        ("rustls", "required"),
        ("serde_core", "required"),
        ("proptest", "excluded"),
        ("cel", "excluded"),
    ] {
        assert_eq!(scope(name), expected, "{name}");
    }
    for (name, is_there) in [("rustix", true), ("windows-sys", false), ("wasm-bindgen", false)] {
        assert_eq!(
            found["components"].as_array().unwrap().iter().any(|component| component["name"] == name),
            is_there,
            "{name}"
        );
    }
    let components = found["components"].as_array().unwrap().iter().chain([&found["metadata"]["component"]]);
    let references: BTreeSet<&str> = components.map(|component| text(component, "bom-ref")).collect();
    let edges = found["dependencies"].as_array().unwrap();
    assert_eq!(edges.iter().map(|edge| text(edge, "ref")).collect::<BTreeSet<_>>(), references);
    let ends = edges.iter().flat_map(|edge| edge["dependsOn"].as_array().unwrap()).map(|target| target.as_str().unwrap());
    assert!(ends.into_iter().all(|target| references.contains(target)));
    assert_eq!(found, materials(), "the same commit gives the same document");
}

/// Returns the commands of all steps of a workflow.
fn commands(workflow: &Value) -> Vec<String> {
    let jobs = workflow["jobs"].as_object().unwrap().values();
    let steps = jobs.filter_map(|job| job["steps"].as_array()).flatten();
    let scripts = steps.filter_map(|step| step["run"].as_str());
    scripts.flat_map(str::lines).map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Commands that prepare a hosted machine or talk to the forge; everything else is a target of make, or `.ci/run`.
const FORGE_COMMANDS: [&str; 5] = ["apt-get", "sudo apt-get", "echo", "gh release create", ".ci/run"];

#[test]
fn workflows_run_targets_of_make() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let mut targets = BTreeSet::new();
    for name in ["ci", "advisories", "release"] {
        let source = fs::read_to_string(root().join(".github/workflows").join(name).with_extension("yml")).unwrap();
        let workflow: Value = yaml::parse(&source).unwrap();
        for command in commands(&workflow) {
            match command.strip_prefix("make ") {
                Some(target) => {
                    assert!(makefile.contains(&format!("\n{target}:")), "{name}: no target {target}");
                    targets.insert(target.to_owned());
                }
                None => assert!(FORGE_COMMANDS.iter().any(|prefix| command.starts_with(prefix)), "{name}: {command}"),
            }
        }
    }
    assert_eq!(
        targets,
        BTreeSet::from(["advisories", "publish", "release-check", "release-dry-run", "reproducible"].map(str::to_owned))
    );
}

#[test]
fn timings_list_the_slowest_tests_and_each_binary() {
    let cache = tempfile::tempdir().unwrap();
    let log = "     Running unittests src/lib.rs (target/debug/deps/one-1)\n\
               test quick ... ok <0.001s>\n\
               test a test that logs ... noise\ntest slow ... FAILED <12.500s>\n\
               test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 12.51s\n\
               \x20    Running tests/other.rs (target/debug/deps/other-2)\n\
               test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
    fs::write(cache.path().join("test.log"), log).unwrap();
    let printed = stdout_of(&script("timings").env("CCM_CACHE", cache.path()).output().unwrap());
    let rows: Vec<Vec<&str>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected: [&[&str]; 6] = [
        &["The", "20", "slowest", "tests"],
        &["12.5", "s", "src/lib.rs", "slow"],
        &["0.0", "s", "src/lib.rs", "quick"],
        &["Binaries:", "seconds,", "tests"],
        &["12.5", "s", "2", "src/lib.rs"],
        &["0.0", "s", "0", "tests/other.rs"],
    ];
    assert_eq!(rows, expected);

    let missing = script("timings").env("CCM_CACHE", cache.path().join("none")).output().unwrap();
    assert!(!missing.status.success() && String::from_utf8_lossy(&missing.stderr).contains("run make test"));
}
