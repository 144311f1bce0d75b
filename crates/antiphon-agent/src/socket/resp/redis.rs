//! Redis' own commands about values.

use antiphon_api::blocks::{self, Code, Reply, Serial, Span, Value};
use antiphon_api::{Command, Payload};
use bytes::Bytes;

use super::decode::number;
use super::encode::Encoder;
use super::shape::{Shape, bytes, told};
use super::talk::{Input, Stop, Talk};
use crate::blocks::key_of;

/// The most bytes that `MGET` replies with.
const MAX_VALUES_BYTES: usize = 16 << 20;
/// How often a value is read again when others write it meanwhile.
const TRIES: usize = 64;
const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

/// The map that a database is.
pub(super) fn map_of(database: u8) -> String {
    format!("redis/{database}")
}

/// A number with a sign.
pub(super) fn integer(word: &[u8]) -> Result<i64, Stop> {
    number(word).map_or_else(|| Stop::error(NO_INTEGER), Ok)
}

/// A name or a key: a text.
pub(super) fn text(word: &[u8]) -> Result<String, Stop> {
    match std::str::from_utf8(word) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Stop::error("REFUSED keys and names are texts in UTF-8: encode it"),
    }
}

/// A time of this many units of so many milliseconds.
fn time(word: &[u8], unit_ms: u64, command: &str) -> Result<Span, Stop> {
    let count = integer(word)?;
    let ms = u64::try_from(count).ok().filter(|count| *count > 0);
    match ms.and_then(|count| count.checked_mul(unit_ms)) {
        Some(ms) => span(ms),
        None => Stop::error(format!("ERR invalid expire time in '{command}' command")),
    }
}

/// A time that is not too long.
pub(super) fn span(ms: u64) -> Result<Span, Stop> {
    const LONGEST_MS: u64 = 8760 * 3_600_000;
    match ms <= LONGEST_MS {
        true => Ok(Span(std::time::Duration::from_millis(ms))),
        false => Stop::error(format!(
            "REFUSED a time is at most {LONGEST_MS} ms, which is a year"
        )),
    }
}

/// What `SET` is to do beside writing.
#[derive(Debug, Default)]
struct SetOptions {
    ttl: Option<Span>,
    if_none: bool,
    if_some: bool,
    get: bool,
}

impl SetOptions {
    fn parse(words: &[Bytes]) -> Result<Self, Stop> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" if !options.if_some => options.if_none = true,
                b"XX" if !options.if_none => options.if_some = true,
                b"GET" => options.get = true,
                unit @ (b"EX" | b"PX") if options.ttl.is_none() => {
                    let unit_ms = if unit == b"EX" { 1000 } else { 1 };
                    match words.next() {
                        Some(count) => options.ttl = Some(time(count, unit_ms, "set")?),
                        None => return Stop::error(SYNTAX),
                    }
                }
                b"KEEPTTL" => {
                    return Stop::error(
                        "REFUSED KEEPTTL: a write has a time of its own here, give EX or PX again",
                    );
                }
                b"EXAT" | b"PXAT" => {
                    return Stop::error("REFUSED EXAT and PXAT: times are from the write on, give EX or PX");
                }
                _ => return Stop::error(SYNTAX),
            }
        }
        Ok(options)
    }
}

impl Talk<'_> {
    pub(super) fn put(
        map: &str,
        key: String,
        value: &[u8],
        if_version: Option<Serial>,
        ttl: Option<Span>,
    ) -> blocks::Put {
        blocks::Put {
            map: map.to_owned(),
            key,
            value: Payload::from_bytes(value),
            if_version,
            ttl,
            id: None,
        }
    }

    /// Begins a put; its reply has this shape.
    pub(super) async fn begin_put(
        &self,
        input: &mut Input,
        shape: Shape,
        put: blocks::Put,
    ) -> Result<(), Stop> {
        let key = key_of(&put.map, put.key.as_bytes());
        let command = |id| Command::Put(blocks::Put { id, ..put });
        self.begin(input, shape, Some(key), command).await
    }

    /// What a key has, with all that this connection has written to it.
    pub(super) async fn read(
        &self,
        input: &mut Input,
        map: &str,
        key: &[u8],
    ) -> Result<Option<(Bytes, Serial)>, Stop> {
        if std::str::from_utf8(key).is_err() {
            text(key)?;
        }
        if self.shared.said().window.is_writing() {
            let written = key_of(map, key);
            input
                .patient(self.until(|said| !said.window.writes(written)))
                .await?;
        }
        if let Some(copy) = self.session.copy(map)
            && let Ok(found) = copy.get(key)
        {
            input.read_here = true;
            return Ok(found);
        }
        // Not joined yet, or not now.
        self.read_at(input, map, key, false).await
    }

    /// What a key has, by the map's worker.
    pub(super) async fn read_at(
        &self,
        input: &mut Input,
        map: &str,
        key: &[u8],
        latest: bool,
    ) -> Result<Option<(Bytes, Serial)>, Stop> {
        let (map, key) = (map.to_owned(), text(key)?);
        let get = |id| Command::Get(blocks::Get { map, key, latest, id });
        let reply = done(self.ask(input, get).await?)?;
        Ok(match (reply.value, reply.version) {
            (Some(Value::Bytes(payload)), Some(version)) => Some((bytes(payload), version)),
            _ => None,
        })
    }

    pub(super) async fn get(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        let found = self.read(input, &self.map, &words[0]).await?;
        self.ready(|to| value(found.as_ref(), to))
    }

    pub(super) async fn mget(&self, input: &mut Input, keys: &[Bytes]) -> Result<(), Stop> {
        let (mut values, mut length) = (Vec::with_capacity(keys.len()), 0);
        for key in keys {
            let found = self.read(input, &self.map, key).await?;
            length += found.as_ref().map_or(0, |(value, _)| value.len());
            if length > MAX_VALUES_BYTES {
                return Stop::error(format!(
                    "REFUSED the values have more than {MAX_VALUES_BYTES} bytes together: ask for fewer keys"
                ));
            }
            values.push(found);
        }
        self.ready(|to| {
            to.array(values.len());
            for found in &values {
                value(found.as_ref(), to);
            }
        })
    }

    pub(super) async fn exists(&self, input: &mut Input, keys: &[Bytes]) -> Result<(), Stop> {
        let mut count = 0;
        for key in keys {
            count += i64::from(self.read(input, &self.map, key).await?.is_some());
        }
        self.ready(|to| to.number(count))
    }

    pub(super) async fn set(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        let options = SetOptions::parse(&words[2..])?;
        let (key, value) = (text(&words[0])?, &words[1]);
        if options.if_some || options.get {
            return self.set_seen(input, key, value, &options).await;
        }
        let (shape, if_version) = match options.if_none {
            true => (Shape::DoneIfNone, Some(Serial(0))),
            false => (Shape::Done, None),
        };
        let put = Self::put(&self.map, key, value, if_version, options.ttl);
        self.begin_put(input, shape, put).await
    }

    /// Writes depending on the old value: reads it, and writes if it is still there.
    async fn set_seen(
        &self,
        input: &mut Input,
        key: String,
        new: &[u8],
        options: &SetOptions,
    ) -> Result<(), Stop> {
        input.patient(self.alone()).await?;
        for _ in 0..TRIES {
            let old = self.read_at(input, &self.map, key.as_bytes(), true).await?;
            let wanted = match old {
                Some(_) => !options.if_none,
                None => !options.if_some,
            };
            if wanted {
                let version = old.as_ref().map_or(Serial(0), |(_, version)| *version);
                let put = Self::put(&self.map, key.clone(), new, Some(version), options.ttl);
                let reply = self
                    .ask(input, |id| Command::Put(blocks::Put { id, ..put }))
                    .await?;
                if reply
                    .error
                    .as_ref()
                    .is_some_and(|error| error.code == Code::Conflict)
                {
                    continue;
                }
                done(reply)?;
            }
            return self.ready(|to| match (options.get, wanted) {
                (true, _) => value(old.as_ref(), to),
                (false, true) => to.simple("OK"),
                (false, false) => to.nil(),
            });
        }
        Stop::error("CONFLICT others write this key all the time: try again")
    }

    pub(super) async fn setnx(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        let put = Self::put(&self.map, text(&words[0])?, &words[1], Some(Serial(0)), None);
        self.begin_put(input, Shape::OneIfNone, put).await
    }

    pub(super) async fn setex(
        &self,
        input: &mut Input,
        words: &[Bytes],
        unit_ms: u64,
        command: &str,
    ) -> Result<(), Stop> {
        let ttl = time(&words[1], unit_ms, command)?;
        let put = Self::put(&self.map, text(&words[0])?, &words[2], None, Some(ttl));
        self.begin_put(input, Shape::Done, put).await
    }

    pub(super) async fn getdel(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        let written = key_of(&self.map, &words[0]);
        let (map, key) = (self.map.clone(), text(&words[0])?);
        let remove = |id| {
            Command::Remove(blocks::Remove {
                map,
                key,
                if_version: None,
                id,
            })
        };
        self.begin(input, Shape::Value, Some(written), remove).await
    }

    pub(super) async fn del(&self, input: &mut Input, keys: &[Bytes]) -> Result<(), Stop> {
        let texts = keys.iter().map(|key| text(key)).collect::<Result<Vec<_>, _>>()?;
        let writes = keys.iter().map(|key| key_of(&self.map, key)).collect();
        let first = {
            let mut said = self.shared.said();
            let version = said.version;
            said.window.begin(Shape::HadOne, version, keys.len(), writes)
        };
        for (id, key) in (first..).zip(texts) {
            let remove = Command::Remove(blocks::Remove {
                map: self.map.clone(),
                key,
                if_version: None,
                id: Some(blocks::Id::Number(id)),
            });
            self.carry_out(input, id, remove).await?;
        }
        Ok(())
    }

    pub(super) async fn add(&self, input: &mut Input, counter: &[u8], by: i64) -> Result<(), Stop> {
        let counter = text(counter)?;
        let add = |id| Command::Add(blocks::Add { counter, by, id });
        self.begin(input, Shape::Number, None, add).await
    }

    /// Waits for the replies to all writes before it: a write that is replied to is held by all members.
    pub(super) async fn wait(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        integer(&words[0])?;
        if integer(&words[1])? < 0 {
            return Stop::error("ERR timeout is negative");
        }
        input.patient(self.alone()).await?;
        let members = self.session.copy(&self.map).map_or(1, |copy| copy.members());
        self.ready(|to| to.number(members.saturating_sub(1) as i64))
    }
}

fn value(found: Option<&(Bytes, Serial)>, to: &mut Encoder<'_>) {
    match found {
        Some((value, _)) => to.bulk(value),
        None => to.nil(),
    }
}

/// A reply that is no error.
pub(super) fn done(reply: Reply) -> Result<Reply, Stop> {
    match &reply.error {
        Some(failure) => Stop::error(told(failure)),
        None => Ok(reply),
    }
}
