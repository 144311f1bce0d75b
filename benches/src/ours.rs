//! Antiphon: the released program's own `antiphon bench`, with its nodes in the lab's namespaces.

use std::borrow::Borrow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use antiphon_lab::Build;
use serde_json::Value;

use crate::lab::Lab;
use crate::tools;
use crate::{Common, Failure};

/// The program.
pub(crate) struct Ours {
    program: PathBuf,
}

/// One measurement of throughput.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rate {
    /// Messages per second, the mean of all members.
    pub(crate) mean: f64,
    /// Messages per second at the most senior member, which sends.
    pub(crate) first: f64,
}

impl Ours {
    /// Builds it, unless `ANTIPHON_BIN` names one.
    pub(crate) fn build() -> Result<Self, Failure> {
        let target = tools::target()?;
        eprintln!("building antiphon");
        let program = antiphon_lab::program(Build::Released(&target))?;
        Ok(Self { program })
    }

    /// Where it is.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// `antiphon 0.1.0 at 1a2b3c4`.
    pub(crate) fn version(&self) -> String {
        let version = tools::run(&self.program.to_string_lossy(), &["--version"]).unwrap_or_default();
        format!(
            "{}{}",
            version.trim(),
            commit().map(|commit| format!(" at {commit}")).unwrap_or_default()
        )
    }

    /// Throughput at each of these sizes.
    pub(crate) fn multicast(
        &self,
        lab: &Lab,
        nodes: usize,
        sizes: &[u32],
        options: &[&str],
        common: &Common,
    ) -> Result<Vec<Rate>, Failure> {
        let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
        let mut args = vec!["multicast".to_owned(), "--size".to_owned(), sizes.join(",")];
        args.extend(options.iter().map(|option| (*option).to_owned()));
        let lines = self.bench(lab, nodes, args, common)?;
        let rates: Vec<Rate> = lines
            .iter()
            .filter(|line| line["event"] == "run")
            .map(|line| Rate {
                mean: line["msgs_per_s"].as_f64().unwrap_or(0.0),
                first: line["members"][0]["msgs_per_s"].as_f64().unwrap_or(0.0),
            })
            .collect();
        if rates.len() != sizes.len() || rates.iter().any(|rate| rate.mean <= 0.0) {
            return Err(format!("antiphon bench multicast gave no figures: {lines:?}"));
        }
        Ok(rates)
    }

    /// The results of `antiphon bench latency` or `idle`: one object per order (and way).
    pub(crate) fn results(
        &self,
        lab: &Lab,
        nodes: usize,
        args: &[&str],
        common: &Common,
    ) -> Result<Vec<Value>, Failure> {
        let lines = self.bench(
            lab,
            nodes,
            args.iter().map(|arg| (*arg).to_owned()).collect(),
            common,
        )?;
        let summary = lines.last().and_then(|line| line["results"].as_array());
        summary
            .cloned()
            .ok_or_else(|| format!("antiphon bench {} gave no summary", args.join(" ")))
    }

    fn bench(
        &self,
        lab: &Lab,
        nodes: usize,
        mut args: Vec<String>,
        common: &Common,
    ) -> Result<Vec<Value>, Failure> {
        args.insert(0, "bench".to_owned());
        args.extend([
            "--seconds".into(),
            common.seconds().to_string(),
            "--warmup".into(),
            common.warmup().to_string(),
        ]);
        args.extend(["--netns".into(), lab.places(nodes), "--json".into()]);
        self.printed(&args)
    }

    /// What the program prints as JSON lines when it is run to its end with these arguments.
    pub(crate) fn printed<S: AsRef<OsStr> + Borrow<str>>(&self, args: &[S]) -> Result<Vec<Value>, Failure> {
        let output = tools::ends_with_this(&self.program)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot run {}: {error}", self.program.display()))?;
        if !output.status.success() {
            return Err(format!(
                "antiphon {}: {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        Ok(printed
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect())
    }
}

/// The same of the library that this program was built with.
pub(crate) fn version() -> String {
    let commit = commit().map(|commit| format!(" at {commit}")).unwrap_or_default();
    format!("antiphon {}{commit}", env!("CARGO_PKG_VERSION"))
}

/// `1a2b3c4`, or `1a2b3c4-dirty`.
fn commit() -> Option<String> {
    let root = tools::root();
    let root = root.to_string_lossy();
    let commit = tools::run("git", &["-C", &root, "describe", "--always"]).ok()?;
    // What earlier benchmarks wrote is no change of the program.
    let changed = tools::run(
        "git",
        &["-C", &root, "status", "--porcelain", "crates", "benches"],
    );
    let is_clean = changed.is_ok_and(|files| files.trim().is_empty());
    Some(format!(
        "{}{}",
        commit.trim(),
        if is_clean { "" } else { "-dirty" }
    ))
}
