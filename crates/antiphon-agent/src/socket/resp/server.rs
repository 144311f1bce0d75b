//! Redis' own commands about the connection and the server.

use bytes::Bytes;

use super::encode::Version;
use super::redis::{integer, map_of, text};
use super::table::{TABLE, find};
use super::talk::{Input, Stop, Talk};

/// The databases that there are.
const DATABASES: i64 = 16;
/// The Redis that has these commands: clients look at it to know what they may say.
const AS_REDIS: &str = "6.2.0";
/// The subcommands of `CLIENT`.
pub(super) const SUBCOMMANDS: &[&str] = &[
    "SETNAME", "GETNAME", "ID", "INFO", "SETINFO", "NO-EVICT", "NO-TOUCH",
];
/// The longest name of a client or its library.
const MAX_NAME_BYTES: usize = 1024;

impl Talk<'_> {
    pub(super) fn ping(&self, words: &[Bytes]) -> Result<(), Stop> {
        if words.len() > 1 {
            return Stop::error("ERR wrong number of arguments for 'ping' command");
        }
        if self.hears_only() {
            let word = words.first().map_or(&b""[..], |word| word);
            return self.ready(|to| to.bulks(&[b"pong", word]));
        }
        self.ready(|to| match words.first() {
            Some(word) => to.bulk(word),
            None => to.simple("PONG"),
        })
    }

    pub(super) async fn hello(&mut self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        input.patient(self.alone()).await?;
        let mut version = self.shared.said().version;
        let mut name = None;
        let mut words = words.iter();
        if let Some(wanted) = words.next() {
            version = match integer(wanted) {
                Ok(2) => Version::Two,
                Ok(3) => Version::Three,
                Ok(_) => return Stop::error("NOPROTO unsupported protocol version"),
                Err(_) => return Stop::error("ERR Protocol version is not an integer or out of range"),
            };
        }
        while let Some(word) = words.next() {
            match (word.to_ascii_uppercase().as_slice(), words.len()) {
                (b"AUTH", 2..) => {
                    let shown = &words.as_slice()[..2];
                    words.nth(1);
                    self.authenticate(input, shown).await?;
                }
                (b"SETNAME", 1..) => name = words.next(),
                _ => {
                    let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
                    return Stop::error(format!("ERR Syntax error in HELLO option '{word}'"));
                }
            }
        }
        if !self.gate.is_open() {
            return Stop::error(super::auth::NO_HELLO);
        }
        if version == Version::Two && self.shared.said().needs_pushes() {
            return Stop::error(
                "REFUSED RESP2 has no pushes: AP.LEAVE groups first; what is served ends with RESET",
            );
        }
        if let Some(name) = name {
            self.name = client_name(name)?;
        }
        self.shared.said().version = version;
        self.ready(|to| {
            to.map(7);
            for (key, value) in [("server", "antiphon"), ("version", AS_REDIS)] {
                to.bulk(key.as_bytes());
                to.bulk(value.as_bytes());
            }
            to.bulk(b"proto");
            to.number(if version == Version::Two { 2 } else { 3 });
            to.bulk(b"id");
            to.number(self.number as i64);
            for (key, value) in [("mode", "standalone"), ("role", "master")] {
                to.bulk(key.as_bytes());
                to.bulk(value.as_bytes());
            }
            to.bulk(b"modules");
            to.array(0);
        })
    }

    pub(super) fn select(&mut self, words: &[Bytes]) -> Result<(), Stop> {
        let database = integer(&words[0])?;
        if !(0..DATABASES).contains(&database) {
            return Stop::error("ERR DB index is out of range");
        }
        self.database = database as u8;
        self.map = map_of(self.database);
        self.ready(|to| to.simple("OK"))
    }

    pub(super) fn client(&mut self, words: &[Bytes]) -> Result<(), Stop> {
        let word = words[0].to_ascii_uppercase();
        match (word.as_slice(), &words[1..]) {
            (b"SETNAME", [name]) => {
                self.name = client_name(name)?;
                self.ready(|to| to.simple("OK"))
            }
            (b"GETNAME", []) => self.ready(|to| match self.name.is_empty() {
                true => to.nil(),
                false => to.bulk(self.name.as_bytes()),
            }),
            (b"ID", []) => self.ready(|to| to.number(self.number as i64)),
            (b"INFO", []) => {
                let said = self.shared.said();
                let (subscriptions, version) = (said.subscriptions(), said.version);
                drop(said);
                let version = if version == Version::Two { 2 } else { 3 };
                let [library, of] = &self.library;
                let info = format!(
                    "id={} name={} db={} sub={subscriptions} psub=0 multi=-1 user=default resp={version} lib-name={library} lib-ver={of}\n",
                    self.number, self.name, self.database
                );
                self.ready(|to| to.verbatim(&info))
            }
            (b"SETINFO", [what, value]) => {
                let at = match what.to_ascii_uppercase().as_slice() {
                    b"LIB-NAME" => 0,
                    b"LIB-VER" => 1,
                    _ => {
                        let what = String::from_utf8_lossy(&what[..what.len().min(128)]);
                        return Stop::error(format!("ERR Unrecognized option '{what}'"));
                    }
                };
                self.library[at] = client_name(value)?;
                self.ready(|to| to.simple("OK"))
            }
            (b"NO-EVICT" | b"NO-TOUCH", [word]) => match word.to_ascii_uppercase().as_slice() {
                b"ON" | b"OFF" => self.ready(|to| to.simple("OK")),
                _ => Stop::error("ERR syntax error"),
            },
            _ => subcommand(&words[0], "CLIENT", SUBCOMMANDS),
        }
    }

    pub(super) fn command(&self, words: &[Bytes]) -> Result<(), Stop> {
        let Some(word) = words.first() else {
            return self.ready(|to| {
                to.array(TABLE.len());
                for row in TABLE {
                    row.describe(to);
                }
            });
        };
        match word.to_ascii_uppercase().as_slice() {
            b"COUNT" if words.len() == 1 => self.ready(|to| to.number(TABLE.len() as i64)),
            b"LIST" if words.len() == 1 => {
                self.ready(|to| to.bulks(&TABLE.iter().map(|row| row.name).collect::<Vec<_>>()))
            }
            b"DOCS" => self.ready(|to| to.map(0)),
            b"INFO" if words.len() > 1 => self.ready(|to| {
                to.array(words.len() - 1);
                for name in &words[1..] {
                    match find(name) {
                        Some(row) => row.describe(to),
                        None => to.nil(),
                    }
                }
            }),
            b"INFO" => self.command(&[]),
            _ => subcommand(word, "COMMAND", &["COUNT", "DOCS", "INFO", "LIST"]),
        }
    }

    /// What `redis-benchmark` asks for: nothing is kept on disks.
    pub(super) fn config(&self, words: &[Bytes]) -> Result<(), Stop> {
        if !words[0].eq_ignore_ascii_case(b"GET") || words.len() < 2 {
            return subcommand(&words[0], "CONFIG", &["GET"]);
        }
        let settings = [("save", ""), ("appendonly", "no")]
            .into_iter()
            .filter(|(name, _)| {
                let mut wanted = words[1..].iter();
                wanted.any(|word| word == "*" || word.eq_ignore_ascii_case(name.as_bytes()))
            });
        let settings: Vec<_> = settings.collect();
        self.ready(|to| {
            to.map(settings.len());
            for (name, value) in settings {
                to.bulk(name.as_bytes());
                to.bulk(value.as_bytes());
            }
        })
    }

    pub(super) fn info(&self, words: &[Bytes]) -> Result<(), Stop> {
        let cluster = self.hub.cluster();
        let view = cluster.view();
        let others = view
            .as_ref()
            .map_or(0, |view| view.members.len().saturating_sub(1));
        let sections = [
            (
                "Server",
                format!(
                    "redis_version:{AS_REDIS}\r\nredis_mode:standalone\r\nantiphon_version:{}\r\nantiphon_cluster:{}\r\nantiphon_node:{}\r\nprocess_id:{}\r\n",
                    env!("CARGO_PKG_VERSION"),
                    cluster.observer().settings().cluster,
                    cluster.name(),
                    std::process::id(),
                ),
            ),
            (
                "Clients",
                format!(
                    "connected_clients:{}\r\nmaxclients:{}\r\n",
                    self.hub.sessions(),
                    self.hub.most()
                ),
            ),
            (
                "Replication",
                format!("role:master\r\nconnected_slaves:0\r\nantiphon_other_nodes:{others}\r\n"),
            ),
        ];
        let all = |word: &Bytes| {
            let word = word.to_ascii_lowercase();
            matches!(word.as_slice(), b"all" | b"default" | b"everything")
        };
        let wanted = |name: &str| {
            words.is_empty()
                || words
                    .iter()
                    .any(|word| all(word) || word.eq_ignore_ascii_case(name.as_bytes()))
        };
        let mut text = String::new();
        for (name, lines) in &sections {
            if wanted(name) {
                let between = if text.is_empty() { "" } else { "\r\n" };
                text += &format!("{between}# {name}\r\n{lines}");
            }
        }
        self.ready(|to| to.verbatim(&text))
    }
}

fn client_name(word: &[u8]) -> Result<String, Stop> {
    if word.len() > MAX_NAME_BYTES || !word.iter().all(u8::is_ascii_graphic) {
        return Stop::error("ERR Client names cannot contain spaces, newlines or special characters.");
    }
    text(word)
}

/// Refuses a subcommand, as Redis does: it has too many words or too few, or it is none of these, which are
/// listed where Redis sends to `HELP`.
fn subcommand(word: &[u8], of: &str, there: &[&str]) -> Result<(), Stop> {
    let known = there
        .iter()
        .find(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    match known {
        Some(name) => Stop::error(format!(
            "ERR wrong number of arguments for '{}|{}' command",
            of.to_ascii_lowercase(),
            name.to_ascii_lowercase()
        )),
        None => {
            let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
            Stop::error(format!(
                "ERR unknown subcommand '{word}'. {of} takes {}.",
                there.join(", ")
            ))
        }
    }
}
