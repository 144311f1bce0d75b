//! Six ways to get a version stamped on a message at three servers.
//!
//! ```text
//!  0 none           client ─► all, all ─► client
//!  1 ask            client ─► first ─► client ─► all ─► client
//!  2 first, others  client ─► first ─► client ─► others ─► client
//!  3 relay          client ─► first ─► others ─► first ─► client
//!  4 relay, direct  client ─► first ─► others, all ─► client
//!  5 stamp apart    client ─► all, first ─► others (the version alone), all ─► client
//! ```
//! The most senior three members serve, the first of them gives versions; the others are clients. All that
//! is sent are direct messages of the group. Each client has so many messages under way at once.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use antiphon::{Cluster, Event, Group, Incarnation};

use super::load::{figures, histogram, record};
use super::words::{Pattern, Time};
use crate::Failure;
use crate::blocks::Figures;

/// Of a message: what it is, the pattern, its number, its version.
const HEAD: usize = 18;

/// The most senior members.
const SERVERS: usize = 3;
/// So many clients have numbers of their own.
const MAX_CLIENTS: u64 = 8;
/// For the last answers, and for a client that began later.
const DONE_WITHIN: Duration = Duration::from_secs(20);

/// What a message is.
const UPDATE: u8 = 1;
const ASK: u8 = 2;
const VERSION: u8 = 3;
const ACK: u8 = 4;
const RELAYED: u8 = 5;
const RELAY_ACK: u8 = 6;
const STAMP: u8 = 7;
/// A client is done.
const END: u8 = 8;

/// The group, and its members by seniority.
pub(super) struct Table {
    group: Group,
    members: Vec<Incarnation>,
}

/// Joins, and waits until all members are there.
pub(super) async fn open(cluster: &Cluster, members: usize) -> Result<Table, Failure> {
    let mut group = cluster
        .group("versions")
        .join()
        .await
        .map_err(|error| error.to_string())?;
    loop {
        match group.next().await {
            Some(Event::View(view)) if view.members.len() == members => {
                let members = view.members.iter().map(|member| member.incarnation).collect();
                return Ok(Table { group, members });
            }
            Some(_) => {}
            None => return Err("the node has stopped".to_owned()),
        }
    }
}

struct Words<'a> {
    what: u8,
    pattern: u8,
    number: u64,
    version: u64,
    payload: &'a [u8],
}

impl<'a> Words<'a> {
    fn read(message: &'a [u8]) -> Option<Self> {
        let (head, payload) = message.split_at_checked(HEAD)?;
        let number = |from: usize| Some(u64::from_be_bytes(head.get(from..from + 8)?.try_into().ok()?));
        Some(Self {
            what: head[0],
            pattern: head[1],
            number: number(2)?,
            version: number(10)?,
            payload,
        })
    }

    fn written(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEAD + self.payload.len());
        message.extend([self.what, self.pattern]);
        message.extend(self.number.to_be_bytes());
        message.extend(self.version.to_be_bytes());
        message.extend(self.payload);
        message
    }
}

async fn tell(group: &Group, to: Incarnation, words: &Words<'_>) -> Result<(), Failure> {
    let told = group.tell(to, words.written()).await;
    // What became of it is told by the answer.
    told.map(drop).map_err(|error| error.to_string())
}

/// Is the client until the time is over, or serves until the client is done.
pub(super) async fn run(
    table: &mut Table,
    cluster: &Cluster,
    pattern: Pattern,
    time: Time,
) -> Result<Figures, Failure> {
    let Table { group, members } = table;
    let (servers, clients) = match members.split_at_checked(SERVERS) {
        Some((servers, clients)) if (1..=MAX_CLIENTS as usize).contains(&clients.len()) => (servers, clients),
        _ => return Err("there are too few members, or too many".to_owned()),
    };
    let client = clients.iter().position(|client| *client == cluster.incarnation());
    if let Some(client) = client {
        return send(group, servers, client as u64, pattern, time).await;
    }
    let mut clients_that_send = pattern.clients;
    let until = Instant::now() + time.warmup() + time.measured() + DONE_WITHIN;
    let mut server = Server {
        me: cluster.incarnation(),
        servers,
        clients,
        version: 0,
        half: HashMap::new(),
    };
    while let Ok(event) = tokio::time::timeout_at(until.into(), group.next()).await {
        match event {
            Some(Event::Told(told)) => match Words::read(&told.payload) {
                Some(words) if words.what == END => {
                    clients_that_send -= 1;
                    if clients_that_send == 0 {
                        return Ok(Figures::new());
                    }
                }
                Some(words) => server.hear(group, &words).await?,
                None => {}
            },
            Some(_) => {}
            None => return Err("the node has stopped".to_owned()),
        }
    }
    Err("a client does not end".to_owned())
}

struct Server<'a> {
    me: Incarnation,
    servers: &'a [Incarnation],
    clients: &'a [Incarnation],
    version: u64,
    /// By number: acknowledgements that are here (3), or the half of a stamped message that is (5).
    half: HashMap<u64, usize>,
}

impl Server<'_> {
    async fn hear(&mut self, group: &Group, words: &Words<'_>) -> Result<(), Failure> {
        let number = words.number;
        let Some(client) = self.clients.get((number % MAX_CLIENTS) as usize).copied() else {
            return Ok(());
        };
        let answer = |what, version| Words {
            what,
            version,
            payload: &[],
            ..*words
        };
        let is_first = self.servers.first() == Some(&self.me);
        let others = self.servers.iter().filter(|other| **other != self.me);
        if is_first && matches!((words.what, words.pattern), (ASK, 1) | (UPDATE, 2..)) && words.version == 0 {
            self.version += 1;
        }
        match (words.what, words.pattern) {
            (ASK, _) => tell(group, client, &answer(VERSION, self.version)).await,
            (UPDATE, 2) if words.version == 0 => tell(group, client, &answer(VERSION, self.version)).await,
            (UPDATE, 3 | 4) => {
                for other in others {
                    let relayed = Words {
                        what: RELAYED,
                        version: self.version,
                        ..*words
                    };
                    tell(group, *other, &relayed).await?;
                }
                match words.pattern {
                    4 => tell(group, client, &answer(ACK, self.version)).await,
                    _ => Ok(()),
                }
            }
            (RELAYED, 3) => tell(group, self.servers[0], &answer(RELAY_ACK, words.version)).await,
            (RELAY_ACK, _) => {
                let acks = self.half.entry(number).or_default();
                *acks += 1;
                if *acks + 1 < self.servers.len() {
                    return Ok(());
                }
                self.half.remove(&number);
                tell(group, client, &answer(ACK, words.version)).await
            }
            (UPDATE, 5) if is_first => {
                for other in others {
                    tell(group, *other, &answer(STAMP, self.version)).await?;
                }
                tell(group, client, &answer(ACK, self.version)).await
            }
            (UPDATE | STAMP, 5) => {
                if self.half.remove(&number).is_none() {
                    self.half.insert(number, 1);
                    return Ok(());
                }
                tell(group, client, &answer(ACK, words.version)).await
            }
            (UPDATE | RELAYED, _) => tell(group, client, &answer(ACK, words.version)).await,
            _ => Ok(()),
        }
    }
}

/// The client's messages under way: since when, and how many answers are to come.
async fn send(
    group: &mut Group,
    servers: &[Incarnation],
    client: u64,
    pattern: Pattern,
    time: Time,
) -> Result<Figures, Failure> {
    let payload = vec![b'x'; pattern.bytes];
    let (began, from) = (Instant::now(), Instant::now() + time.warmup());
    let until = from + time.measured();
    let mut latencies = histogram()?;
    let mut under_way: HashMap<u64, (Instant, usize)> = HashMap::new();
    let mut next = 0;
    let start = |what, number, payload| Words {
        what,
        pattern: pattern.number,
        number,
        version: 0,
        payload,
    };
    let needed = match pattern.number {
        2 => servers.len() - 1,
        3 => 1,
        _ => servers.len(),
    };
    while Instant::now() < until {
        while under_way.len() < pattern.in_flight {
            next += 1;
            // Numbers of different runs differ: answers may be late.
            let number = (next + ((began.elapsed().as_micros() as u64) << 24)) * MAX_CLIENTS + client;
            under_way.insert(number, (Instant::now(), needed));
            match pattern.number {
                0 | 5 => {
                    for server in servers {
                        tell(group, *server, &start(UPDATE, number, &payload)).await?;
                    }
                }
                1 => tell(group, servers[0], &start(ASK, number, &[])).await?,
                _ => tell(group, servers[0], &start(UPDATE, number, &payload)).await?,
            }
        }
        let event = tokio::time::timeout_at((until + DONE_WITHIN).into(), group.next()).await;
        let told = match event {
            Ok(Some(Event::Told(told))) => told,
            Ok(Some(_)) => continue,
            Ok(None) => return Err("the node has stopped".to_owned()),
            Err(_) => return Err(format!("pattern {}: an answer does not come", pattern.number)),
        };
        // A late answer to what was said in another way would be taken for one to this.
        let words = Words::read(&told.payload).filter(|words| words.pattern == pattern.number);
        let Some(words) = words else {
            continue;
        };
        match words.what {
            VERSION => {
                let asked = if pattern.number == 1 {
                    servers
                } else {
                    &servers[1..]
                };
                for server in asked {
                    let update = Words {
                        version: words.version,
                        ..start(UPDATE, words.number, &payload)
                    };
                    tell(group, *server, &update).await?;
                }
            }
            ACK => {
                let Some((since, missing)) = under_way.get_mut(&words.number) else {
                    continue;
                };
                *missing -= 1;
                if *missing == 0 {
                    let since = *since;
                    under_way.remove(&words.number);
                    if since >= from {
                        record(&mut latencies, since.elapsed());
                    }
                }
            }
            _ => {}
        }
    }
    for server in servers {
        tell(group, *server, &start(END, next + 1, &[])).await?;
    }
    Ok(figures(&latencies, time.measured()))
}
