//! `AP.…`: what Redis has no word for.

use antiphon_api::blocks::{self, Serial, Span, To, Word};
use antiphon_api::commands::{self, Way};
use antiphon_api::{Command, Payload, command};
use bytes::Bytes;

use super::encode::Version;
use super::redis::{integer, span, text};
use super::shape::{Shape, entry};
use super::table::Verb;
use super::talk::{Input, Stop, Talk};
use crate::blocks::key_of;

const SYNTAX: &str = "ERR syntax error";

/// A token or a version, or what is asked by its number.
fn serial(word: &[u8]) -> Result<u64, Stop> {
    let text = std::str::from_utf8(word).ok();
    let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(number) => Ok(number),
        None => Stop::error("ERR a token, version or request is a whole number below 2^64"),
    }
}

/// A time in milliseconds.
fn millis(word: &[u8]) -> Result<Span, Stop> {
    match u64::try_from(integer(word)?) {
        Ok(ms) => span(ms),
        Err(_) => Stop::error("ERR timeout is negative"),
    }
}

/// Options of a command that each have a value, by their names.
fn options<const N: usize>(words: &[Bytes], names: [&[u8]; N]) -> Result<[Option<Bytes>; N], Stop> {
    let mut values = [const { None }; N];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let at = names.iter().position(|name| word.eq_ignore_ascii_case(name));
        match (at, words.next()) {
            (Some(at), Some(value)) if values[at].is_none() => values[at] = Some(value.clone()),
            _ => return Stop::error(SYNTAX),
        }
    }
    Ok(values)
}

/// Whether this one option is there.
fn flag(words: &[Bytes], name: &[u8]) -> Result<bool, Stop> {
    match words {
        [] => Ok(false),
        [word] if word.eq_ignore_ascii_case(name) => Ok(true),
        _ => Stop::error(SYNTAX),
    }
}

impl Talk<'_> {
    pub(super) async fn ours(&self, input: &mut Input, verb: Verb, words: &[Bytes]) -> Result<(), Stop> {
        match verb {
            Verb::ApHello => {
                let name = Some(text(&words[0])?);
                let hello = |id| {
                    Command::Hello(command::Hello {
                        name,
                        id,
                        ..command::Hello::default()
                    })
                };
                self.begin(input, Shape::Welcome, None, hello).await
            }
            Verb::ApMembers => {
                let members = |id| Command::Members(command::Members { group: None, id });
                self.begin(input, Shape::Members, None, members).await
            }
            Verb::ApWhy => self.why(input, words).await,
            Verb::ApSend => {
                let group = text(&words[0])?;
                self.could_join(&group)?;
                let send = command::Send {
                    group: Some(group),
                    payload: Payload::from_bytes(&words[1]),
                    safe: flag(&words[2..], b"SAFE")?,
                    scope: None,
                    id: None,
                };
                let send = |id| Command::Send(command::Send { id, ..send });
                self.begin(input, Shape::Done, None, send).await
            }
            Verb::ApLock => {
                let within = match &words[1..] {
                    [] => None,
                    [ms] => Some(millis(ms)?),
                    _ => return Stop::error(SYNTAX),
                };
                let name = text(&words[0])?;
                let lock = |id| Command::Lock(blocks::Lock { name, within, id });
                self.alone_begin(input, Shape::Token, lock).await
            }
            Verb::ApLead => {
                let name = text(&words[0])?;
                let lead = |id| Command::Lead(blocks::Lead { name, id });
                self.alone_begin(input, Shape::Token, lead).await
            }
            Verb::ApUnlock => {
                let (name, token) = (text(&words[0])?, Serial(serial(&words[1])?));
                let unlock = |id| Command::Unlock(blocks::Unlock { name, token, id });
                self.begin(input, Shape::Done, None, unlock).await
            }
            Verb::ApResign => {
                let (name, token) = (text(&words[0])?, Serial(serial(&words[1])?));
                let resign = |id| {
                    Command::Resign(blocks::Resign {
                        name,
                        token,
                        to: None,
                        id,
                    })
                };
                self.begin(input, Shape::Done, None, resign).await
            }
            Verb::ApPut => self.ap_put(input, words).await,
            Verb::ApGet => self.ap_get(input, words).await,
            Verb::ApRemove => {
                let [version] = options(&words[2..], [b"VERSION"])?;
                let if_version = version.map(|version| serial(&version)).transpose()?.map(Serial);
                let (map, key) = (text(&words[0])?, text(&words[1])?);
                let written = key_of(&map, &words[1]);
                let remove = |id| {
                    Command::Remove(blocks::Remove {
                        map,
                        key,
                        if_version,
                        id,
                    })
                };
                self.begin(input, Shape::Entry, Some(written), remove).await
            }
            Verb::ApCall => self.ap_call(input, words).await,
            Verb::ApCommand => self.ap_command(input, words).await,
            Verb::ApCommands => {
                let status = |id| Command::Commands(commands::AskStatus { id });
                self.begin(input, Shape::Commands, None, status).await
            }
            Verb::ApServe => {
                self.need_pushes()?;
                let (group, verb) = (text(&words[0])?, text(&words[1])?);
                let serve = |id| Command::Serve(blocks::Serve { group, verb, id });
                self.begin(input, Shape::Serving, None, serve).await
            }
            Verb::ApAnswer => {
                let request = serial(&words[0])?;
                let payload = Payload::from_bytes(&words[1]);
                let (payload, error) = match flag(&words[2..], b"ERROR")? {
                    true => (None, Some(payload)),
                    false => (Some(payload), None),
                };
                let answer = |id| {
                    Command::Answer(blocks::Answer {
                        request,
                        payload,
                        error,
                        id,
                    })
                };
                self.begin(input, Shape::Done, None, answer).await
            }
            other => unreachable!("it is in the table with a command of its own: {other:?}"),
        }
    }

    /// In RESP2 a group cannot be joined, and what the session says of one that is not would be no advice.
    fn could_join(&self, group: &str) -> Result<(), Stop> {
        let said = self.shared.said();
        match said.version == Version::Two && !said.groups.contains_key(group) {
            true => Stop::error(format!(
                "NOTHELD this client has not joined {}: HELLO 3 first, then AP.JOIN",
                antiphon_api::shortened(group)
            )),
            false => Ok(()),
        }
    }

    /// One that may wait for other programs: nothing before it is under way, and nothing behind it begins.
    async fn alone_begin(
        &self,
        input: &mut Input,
        shape: Shape,
        command: impl FnOnce(Option<blocks::Id>) -> Command,
    ) -> Result<(), Stop> {
        input.patient(self.alone()).await?;
        self.begin(input, shape, None, command).await?;
        Ok(input.patient(self.alone()).await?)
    }

    async fn why(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        let node = text(&words[0])?;
        input.patient(self.alone()).await?;
        // The answer has no id.
        let id = {
            let mut said = self.shared.said();
            let version = said.version;
            let id = said.window.begin(Shape::Facts, version, 1, Vec::new());
            said.why = Some(id);
            id
        };
        let why = Command::Why(command::AskWhy { node });
        self.carry_out(input, id, why).await?;
        Ok(input.patient(self.alone()).await?)
    }

    async fn ap_put(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        let [version, ttl] = options(&words[3..], [b"VERSION", b"PX"])?;
        let if_version = version.map(|version| serial(&version)).transpose()?.map(Serial);
        let ttl = ttl.map(|ms| millis(&ms)).transpose()?;
        let put = Self::put(&text(&words[0])?, text(&words[1])?, &words[2], if_version, ttl);
        self.begin_put(input, Shape::Version, put).await
    }

    async fn ap_get(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        let map = text(&words[0])?;
        let found = match flag(&words[2..], b"LATEST")? {
            false => self.read(input, &map, &words[1]).await?,
            true => {
                input.patient(self.alone()).await?;
                self.read_at(input, &map, &words[1], true).await?
            }
        };
        self.ready(|to| match &found {
            Some((value, version)) => entry(value, version.0, to),
            None => to.nil_array(),
        })
    }

    async fn ap_call(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        // The time stands alone, before a name and its value.
        let (ms, rest) = words[4..].split_at(words.len() % 2);
        let within = ms.first().map(|ms| millis(ms)).transpose()?;
        let [request] = options(rest, [b"IN"])?;
        let request = request.map(|request| serial(&request)).transpose()?;
        let to = match words[2].to_ascii_uppercase().as_slice() {
            b"ALL" => To::Word(Word::All),
            b"ANY" => To::Word(Word::Any),
            _ => To::Names(vec![text(&words[2])?]),
        };
        let call = blocks::Call {
            group: text(&words[0])?,
            verb: text(&words[1])?,
            to,
            payload: Some(Payload::from_bytes(&words[3])),
            within,
            request,
            id: None,
        };
        let call = |id| Command::Call(blocks::Call { id, ..call });
        self.alone_begin(input, Shape::Answers, call).await
    }

    async fn ap_command(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        let to = match words[1].to_ascii_uppercase().as_slice() {
            b"ALL" => commands::To::Word(commands::Word::All),
            b"ONE" => commands::To::Word(commands::Word::One),
            b"ANY" => commands::To::Word(commands::Word::Any),
            _ => commands::To::Nodes(vec![text(&words[1])?]),
        };
        let Ok(args) = serde_json::from_slice(&words[2]) else {
            return Stop::error(
                "ERR the arguments are one JSON object of strings, whole numbers, true and false",
            );
        };
        let (reply, rest) = match words[3..].split_last() {
            Some((last, before)) if last.eq_ignore_ascii_case(b"NOREPLY") => (false, before),
            _ => (true, &words[3..]),
        };
        let [by, within] = options(rest, [b"BY", b"WITHIN"])?;
        let by = match by {
            None => Way::default(),
            Some(word) => match std::str::from_utf8(&word).ok().and_then(Way::of) {
                Some(way) => way,
                None => {
                    return Stop::error(
                        "ERR BY is library, http, https, http_kept, https_kept, websocket, resp or udp",
                    );
                }
            },
        };
        let ask = commands::Ask {
            verb: text(&words[0])?,
            args,
            to,
            by,
            reply,
            within: within.map(|ms| millis(&ms)).transpose()?,
            id: None,
        };
        let shape = if reply { Shape::Answers } else { Shape::Handed };
        let ask = |id| Command::Command(commands::Ask { id, ..ask });
        self.alone_begin(input, shape, ask).await
    }
}
