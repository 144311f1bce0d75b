//! The commands that there are: the one table that both `COMMAND` and the connection read.

use super::encode::Encoder;

/// A command.
#[derive(Debug)]
pub(super) struct Row {
    /// As Redis writes it: in lower case.
    pub(super) name: &'static str,
    /// How many words it has, itself included; less than 0: so many at least.
    pub(super) arity: i32,
    flags: &'static [&'static str],
    /// Where its keys stand: the first, the last (-1: to the end), and the step.
    keys: (i32, i32, i32),
    pub(super) verb: Verb,
}

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Set,
    Incr,
    Decr,
    IncrBy,
    DecrBy,
    Del,
    Exists,
    MGet,
    GetDel,
    SetNx,
    SetEx,
    PSetEx,
    Ping,
    Echo,
    Publish,
    Subscribe,
    Unsubscribe,
    Wait,
    Hello,
    Auth,
    Select,
    Client,
    Command,
    Config,
    Info,
    Quit,
    Reset,
    ApHello,
    ApMembers,
    ApWhy,
    ApJoin,
    ApSend,
    ApLeave,
    ApLock,
    ApUnlock,
    ApLead,
    ApResign,
    ApPut,
    ApGet,
    ApRemove,
    ApCall,
    ApCommand,
    ApCommands,
    ApServe,
    ApAnswer,
}

impl Verb {
    /// Whether a subscribed connection may say it in RESP2, where replies cannot be told from messages.
    pub(super) fn is_for_subscribers(self) -> bool {
        use Verb::{Ping, Quit, Reset, Subscribe, Unsubscribe};
        matches!(self, Ping | Subscribe | Unsubscribe | Quit | Reset)
    }
}

const READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom", "fast"];
const SAID: &[&str] = &["loading", "stale", "fast"];
const TOLD: &[&str] = &["pubsub", "loading", "stale"];
const WAITS: &[&str] = &["noscript", "blocking"];
const NONE: (i32, i32, i32) = (0, 0, 0);
const ONE: (i32, i32, i32) = (1, 1, 1);
const ALL: (i32, i32, i32) = (1, -1, 1);

const fn row(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    keys: (i32, i32, i32),
    verb: Verb,
) -> Row {
    Row {
        name,
        arity,
        flags,
        keys,
        verb,
    }
}

/// Each of them.
pub(super) const TABLE: &[Row] = &[
    row("get", 2, READ, ONE, Verb::Get),
    row("set", -3, WRITE, ONE, Verb::Set),
    row("incr", 2, WRITE, ONE, Verb::Incr),
    row("decr", 2, WRITE, ONE, Verb::Decr),
    row("incrby", 3, WRITE, ONE, Verb::IncrBy),
    row("decrby", 3, WRITE, ONE, Verb::DecrBy),
    row("del", -2, WRITE, ALL, Verb::Del),
    row("exists", -2, READ, ALL, Verb::Exists),
    row("mget", -2, READ, ALL, Verb::MGet),
    row("getdel", 2, WRITE, ONE, Verb::GetDel),
    row("setnx", 3, WRITE, ONE, Verb::SetNx),
    row("setex", 4, WRITE, ONE, Verb::SetEx),
    row("psetex", 4, WRITE, ONE, Verb::PSetEx),
    row("ping", -1, SAID, NONE, Verb::Ping),
    row("echo", 2, SAID, NONE, Verb::Echo),
    row("publish", 3, TOLD, NONE, Verb::Publish),
    row("subscribe", -2, TOLD, NONE, Verb::Subscribe),
    row("unsubscribe", -1, TOLD, NONE, Verb::Unsubscribe),
    row("wait", 3, WAITS, NONE, Verb::Wait),
    row("hello", -1, SAID, NONE, Verb::Hello),
    row("auth", -2, SAID, NONE, Verb::Auth),
    row("select", 2, SAID, NONE, Verb::Select),
    row("client", -2, SAID, NONE, Verb::Client),
    row("command", -1, SAID, NONE, Verb::Command),
    row("config", -2, SAID, NONE, Verb::Config),
    row("info", -1, SAID, NONE, Verb::Info),
    row("quit", -1, SAID, NONE, Verb::Quit),
    row("reset", 1, SAID, NONE, Verb::Reset),
    row("ap.hello", 2, SAID, NONE, Verb::ApHello),
    row("ap.members", 1, SAID, NONE, Verb::ApMembers),
    row("ap.why", 2, SAID, NONE, Verb::ApWhy),
    row("ap.join", 2, TOLD, NONE, Verb::ApJoin),
    row("ap.send", -3, TOLD, NONE, Verb::ApSend),
    row("ap.leave", 2, TOLD, NONE, Verb::ApLeave),
    row("ap.lock", -2, WAITS, NONE, Verb::ApLock),
    row("ap.unlock", 3, WAITS, NONE, Verb::ApUnlock),
    row("ap.lead", 2, WAITS, NONE, Verb::ApLead),
    row("ap.resign", 3, WAITS, NONE, Verb::ApResign),
    row("ap.put", -4, WRITE, (2, 2, 1), Verb::ApPut),
    row("ap.get", -3, READ, (2, 2, 1), Verb::ApGet),
    row("ap.remove", -3, WRITE, (2, 2, 1), Verb::ApRemove),
    row("ap.call", -5, WAITS, NONE, Verb::ApCall),
    row("ap.command", -4, WAITS, NONE, Verb::ApCommand),
    row("ap.commands", 1, SAID, NONE, Verb::ApCommands),
    row("ap.serve", 3, TOLD, NONE, Verb::ApServe),
    row("ap.answer", -3, TOLD, NONE, Verb::ApAnswer),
];

/// The command of this name, in whatever case.
pub(super) fn find(name: &[u8]) -> Option<&'static Row> {
    TABLE
        .iter()
        .find(|row| row.name.as_bytes().eq_ignore_ascii_case(name))
}

impl Row {
    /// Whether it has so many words, itself included.
    pub(super) fn takes(&self, words: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        words == least || (self.arity < 0 && words > least)
    }

    /// As `COMMAND INFO` has it.
    pub(super) fn describe(&self, to: &mut Encoder<'_>) {
        to.array(7);
        to.bulk(self.name.as_bytes());
        to.number(self.arity.into());
        to.array(self.flags.len());
        for flag in self.flags {
            to.simple(flag);
        }
        let (first, last, step) = self.keys;
        for place in [first, last, step] {
            to.number(place.into());
        }
        // Of no category of access: there are no users.
        to.array(0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_document_lists_each_command_and_no_other() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/resp.md");
        let document = std::fs::read_to_string(path).unwrap();
        let (_, tables) = document.split_once("## Commands of Redis").unwrap();
        let (tables, _) = tables.split_once("| push |").unwrap();
        let mut listed = BTreeSet::new();
        for row in tables.lines().filter_map(|line| line.strip_prefix("| ")) {
            let (cell, _) = row.split_once(" | ").unwrap();
            for commands in cell.split("; ") {
                // Behind `with` stand the words of a command.
                let commands = commands.split(" with ").next().unwrap();
                for command in commands.split('`').skip(1).step_by(2) {
                    listed.insert(command.split(' ').next().unwrap().to_ascii_lowercase());
                }
            }
        }
        let there: BTreeSet<String> = TABLE.iter().map(|row| row.name.to_owned()).collect();
        assert_eq!(listed, there);
    }

    #[test]
    fn each_command_is_found_once_by_its_name_in_any_case() {
        for row in TABLE {
            assert_eq!(row.name, row.name.to_ascii_lowercase());
            let found = find(row.name.to_ascii_uppercase().as_bytes()).unwrap();
            assert_eq!(found.verb, row.verb);
            let least = row.arity.unsigned_abs() as usize;
            assert!(row.takes(least) && !row.takes(least - 1));
            assert_eq!(row.takes(least + 1), row.arity < 0);
        }
        assert!(find(b"mset").is_none() && find(b"").is_none());
    }
}
