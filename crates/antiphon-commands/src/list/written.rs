//! The file of a list as it is written, and the checks that make a list of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use antiphon_api::blocks::Span;
use rustix::process::geteuid;
use serde::Deserialize;

use super::{
    AllWord, Argument, CLOCK_SKEW, Deliver, Hook, Kind, List, ListError, MAX_ARGS, MAX_CLOCK_SKEW,
    MAX_NAME_BYTES, MAX_REPLY_BYTES, MAX_TEXT_BYTES, MAX_VERBS, MAX_WITHIN, NO_OPTION, NodeVerb, Nodes,
    REPLY_BYTES, RUNNING, Value, Verb, WITHIN, Word, may_be_trusted,
};

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    version: u64,
    #[serde(default)]
    key_files: Vec<PathBuf>,
    clock_skew: Option<String>,
    #[serde(default)]
    verb: Vec<WrittenVerb>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenVerb {
    name: String,
    #[serde(default)]
    about: String,
    from: WrittenNodes,
    to: WrittenNodes,
    deliver: WrittenDeliver,
    within: Option<String>,
    #[serde(default)]
    primary: bool,
    max_running: Option<u16>,
    max_reply_bytes: Option<u32>,
    #[serde(default)]
    args: BTreeMap<String, WrittenArgument>,
}

#[derive(Deserialize)]
#[serde(untagged)]
#[serde(expecting = "expected \"all\" or a list of nodes' names")]
enum WrittenNodes {
    All(AllWord),
    Named(BTreeSet<String>),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WrittenDeliver {
    Session,
    Hook(String),
    Program(Vec<Word>),
    Node(NodeVerb),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenArgument {
    r#type: Type,
    max_bytes: Option<u32>,
    min: Option<i64>,
    max: Option<i64>,
    of: Option<Vec<String>>,
    default: Option<Value>,
    #[serde(default)]
    optional: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Type {
    Text,
    Integer,
    Boolean,
    Choice,
}

impl File {
    pub(super) fn check(self) -> Result<List, ListError> {
        if self.verb.len() > MAX_VERBS {
            return Err(ListError(format!("a list has at most {MAX_VERBS} verbs")));
        }
        let mut verbs = BTreeMap::new();
        for written in self.verb {
            let name = written.name.clone();
            let verb = written
                .check()
                .map_err(|reason| ListError(format!("verb {name:?}: {reason}")))?;
            if verbs.insert(name.clone(), Arc::new(verb)).is_some() {
                return Err(ListError(format!("verb {name:?}: it is there twice")));
            }
        }
        let clock_skew = match self.clock_skew {
            Some(text) => span("clock-skew", &text, MAX_CLOCK_SKEW).map_err(ListError)?,
            None => CLOCK_SKEW,
        };
        Ok(List {
            version: self.version,
            key_files: self.key_files,
            clock_skew,
            verbs,
        })
    }
}

impl WrittenVerb {
    fn check(self) -> Result<Verb, String> {
        name("a verb's name", &self.name)?;
        if self.args.len() > MAX_ARGS {
            return Err(format!("a verb has at most {MAX_ARGS} arguments"));
        }
        let mut args = BTreeMap::new();
        for (of, written) in self.args {
            name("an argument's name", &of)?;
            let argument = written
                .check()
                .map_err(|reason| format!("argument {of}: {reason}"))?;
            args.insert(of, argument);
        }
        let deliver = self.deliver.check(&args)?;
        let within = match self.within {
            Some(text) => span("within", &text, MAX_WITHIN)?,
            None => WITHIN,
        };
        let to = self.to.check()?;
        if deliver == Deliver::Node(NodeVerb::Leave) && matches!(to, Nodes::All(_)) {
            return Err("it makes nodes leave: name in `to` which may be asked for that".to_owned());
        }
        let max_reply_bytes = self.max_reply_bytes.unwrap_or(REPLY_BYTES);
        if max_reply_bytes > MAX_REPLY_BYTES {
            return Err(format!("max-reply-bytes is at most {MAX_REPLY_BYTES}"));
        }
        let max_running = self.max_running.unwrap_or(RUNNING);
        if max_running == 0 {
            return Err("max-running is at least 1: leave the verb out to forbid it".to_owned());
        }
        let verb = Verb {
            name: self.name,
            about: self.about,
            from: self.from.check()?,
            to,
            args,
            deliver,
            within,
            primary: self.primary,
            max_running,
            max_reply_bytes,
        };
        for (of, argument) in &verb.args {
            let default = argument.default.as_ref();
            if default.is_some_and(|default| verb.gives_option(of, default)) {
                return Err(format!("argument {of}: its default: expected {NO_OPTION}"));
            }
        }
        Ok(verb)
    }
}

impl WrittenNodes {
    fn check(self) -> Result<Nodes, String> {
        match self {
            WrittenNodes::All(all) => Ok(Nodes::All(all)),
            WrittenNodes::Named(names) if names.is_empty() => {
                Err("a list of nodes has at least one name".to_owned())
            }
            WrittenNodes::Named(names) => Ok(Nodes::Named(names)),
        }
    }
}

impl WrittenDeliver {
    fn check(self, args: &BTreeMap<String, Argument>) -> Result<Deliver, String> {
        Ok(match self {
            WrittenDeliver::Session => Deliver::Session,
            WrittenDeliver::Node(verb) => Deliver::Node(verb),
            WrittenDeliver::Hook(url) => Deliver::Hook(hook(&url)?),
            WrittenDeliver::Program(words) => {
                let program = match words.first() {
                    Some(Word::Literal(program)) if Path::new(program).is_absolute() => program,
                    _ => return Err("a program's first word is its absolute path".to_owned()),
                };
                is_fit(Path::new(program)).map_err(|reason| format!("{program} {reason}"))?;
                for word in &words {
                    match word {
                        Word::Literal(text) if text.contains('\0') => {
                            return Err("a program's words have no zero bytes".to_owned());
                        }
                        Word::Arg { arg } if !args.contains_key(arg) => {
                            return Err(format!(
                                "the program takes {arg}, which is no argument of the verb"
                            ));
                        }
                        Word::Arg { arg } if args[arg].optional && args[arg].default.is_none() => {
                            return Err(format!(
                                "the program takes {arg}, which a command may be without: give it a default"
                            ));
                        }
                        _ => {}
                    }
                }
                Deliver::Program(words)
            }
        })
    }
}

impl WrittenArgument {
    fn check(self) -> Result<Argument, String> {
        let given = [
            ("max-bytes", self.max_bytes.is_some(), self.r#type == Type::Text),
            ("min", self.min.is_some(), self.r#type == Type::Integer),
            ("max", self.max.is_some(), self.r#type == Type::Integer),
            ("of", self.of.is_some(), self.r#type == Type::Choice),
        ];
        for (bound, given, fits) in given {
            if given && !fits {
                return Err(format!("{bound} is not for this type"));
            }
            if fits && !given {
                return Err(format!("{bound} is missing: an argument has its bounds"));
            }
        }
        let kind = match self.r#type {
            Type::Boolean => Kind::Boolean,
            Type::Text => Kind::Text {
                max_bytes: self.max_bytes.unwrap_or_default(),
            },
            Type::Integer => Kind::Integer {
                min: self.min.unwrap_or_default(),
                max: self.max.unwrap_or_default(),
            },
            Type::Choice => Kind::Choice {
                of: self.of.unwrap_or_default(),
            },
        };
        match &kind {
            Kind::Text { max_bytes } if *max_bytes > MAX_TEXT_BYTES => {
                return Err(format!("max-bytes is at most {MAX_TEXT_BYTES}"));
            }
            Kind::Integer { min, max } if min > max => return Err("min is above max".to_owned()),
            Kind::Choice { of } if of.is_empty() => return Err("of has no choice".to_owned()),
            _ => {}
        }
        if let Some(default) = &self.default {
            let refused = |expected| format!("its default: expected {expected}");
            kind.check(default).map_err(refused)?;
        }
        Ok(Argument {
            kind,
            default: self.default,
            optional: self.optional,
        })
    }
}

fn name(what: &str, name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(fits) {
        true => Ok(()),
        false => Err(format!(
            "{what} has 1 to {MAX_NAME_BYTES} letters, digits, dots, underscores and hyphens"
        )),
    }
}

fn span(key: &str, text: &str, most: Duration) -> Result<Duration, String> {
    let most = Span(most);
    match text.parse::<Span>() {
        Ok(time) if !time.0.is_zero() && time.0 <= most.0 => Ok(time.0),
        _ => Err(format!(
            "{key} = {text:?}: expected a time with its unit, such as 250ms, 5s or 2m, of at most {most}"
        )),
    }
}

fn hook(url: &str) -> Result<Hook, String> {
    let refused = || {
        format!(
            "hook {url:?}: expected http:// and a loopback address with its port, such as http://127.0.0.1:8080/flush"
        )
    };
    let rest = url.strip_prefix("http://").ok_or_else(refused)?;
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let addr: SocketAddr = host.parse().map_err(|_| refused())?;
    let fits = path.bytes().all(|byte| byte.is_ascii_graphic()) && !path.contains('#');
    match addr.ip().is_loopback() && fits && path.parse::<hyper::Uri>().is_ok() {
        true => Ok(Hook {
            addr,
            path: path.to_owned(),
        }),
        false => Err(refused()),
    }
}

/// What runs whatever it is given as a text.
const SHELLS: [&str; 14] = [
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "busybox", "env", "xargs", "sudo",
    "su",
];

/// Whether a program may be in a list.
fn is_fit(program: &Path) -> Result<(), &'static str> {
    let name = program
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if SHELLS.contains(&name) {
        return Err("runs whatever it is given: name the program itself");
    }
    let executable = rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok();
    let file = program.metadata().ok();
    let Some(file) = file.filter(|file| file.is_file() && executable) else {
        return Err("is no file that this user may execute");
    };
    if file.mode() & 0o6000 != 0 {
        return Err("becomes another user when it runs (setuid), and could not be ended");
    }
    may_be_trusted(file.uid(), file.mode(), geteuid().as_raw())
}
