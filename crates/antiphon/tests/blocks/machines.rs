//! Machines of users: a copy that differs, a state that is read from a reader.

use std::io::{self, Read};
use std::sync::atomic::AtomicU64;

use antiphon::Profile;
use antiphon::memory::MemoryNetwork;
use antiphon::replicated::{FromReader, Standing};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Handle;

use super::*;

/// A sum, to which this member alone adds `skew` with each command: a mistake.
struct Sum {
    sum: u64,
    skew: Arc<AtomicU64>,
}

impl Machine for Sum {
    type Command = u64;
    type Reply = u64;
    type Event = ();
    type Snapshot = Bytes;

    fn apply(&mut self, _: At, _: Incarnation, by: u64, _: &mut Vec<()>) -> u64 {
        self.sum += by + self.skew.load(SeqCst);
        self.sum
    }

    fn snapshot(&self) -> Bytes {
        Bytes::copy_from_slice(&self.sum.to_le_bytes())
    }

    fn restore(&mut self, state: &[u8], complete: bool) -> Result<usize, RestoreError> {
        if !complete {
            return Ok(0);
        }
        let reason = format!("8 bytes were expected, {} came", state.len());
        let sum: [u8; 8] = state.try_into().map_err(|_| RestoreError { reason })?;
        self.sum = u64::from_le_bytes(sum);
        Ok(state.len())
    }

    fn digest(&self) -> Option<u64> {
        Some(self.sum)
    }

    fn definition(&self) -> String {
        "sum 1".to_owned()
    }
}

#[test]
fn a_member_whose_copy_differs_is_named_and_serves_no_more_and_the_others_go_on() -> Result<(), RunError> {
    World::new(22, ABC).run(async |world| {
        let nodes = cluster(&world, &ABC).await?;
        let skews = ABC.map(|_| Arc::new(AtomicU64::new(0)));
        let sum = |node: usize| {
            let skew = skews[node].clone();
            let make = move || Sum {
                sum: 0,
                skew: skew.clone(),
            };
            nodes[node].replicated("sum", make).digest_every(10).join()
        };
        let (a, b, c) = (sum(0).await?, sum(1).await?, sum(2).await?);
        let events = [a.events(), b.events(), c.events()];
        skews[2].store(1, SeqCst);
        for _ in 0..10 {
            a.write(1).await?;
        }
        for (name, mut events) in ABC.into_iter().zip(events) {
            loop {
                let event = events.next().await.ok_or("it has ended")?;
                if let ReplicaEvent::Diverged {
                    member,
                    here,
                    commands,
                } = event
                {
                    assert_eq!((&*member, here, commands), ("c", name == "c", 10));
                    break;
                }
            }
        }
        assert_eq!(c.standing(), Standing::Diverged);
        assert_eq!(c.write(1).await, Err(WriteError::Refused(Refusal::Diverged)));
        let diverged = Err(ReadError::Refused(Refusal::Diverged));
        assert_eq!(c.read(|it| it.sum), diverged);
        assert_eq!(c.read_latest(|it| it.sum).await, diverged);
        assert!(matches!(c.synced().await, Err(ReplicaError::Diverged)));
        assert_eq!(b.write_acked(1).await?, 11);
        assert_eq!(a.read(|it| it.sum)?, 11);
        let synced: Vec<String> = a.status().synced().map(|of| of.member.name.clone()).collect();
        assert_eq!(synced, ["a", "b"]);
        // It gets the state of the others when it joins again.
        skews[2].store(0, SeqCst);
        c.leave().await;
        let again = sum(2).await?;
        assert_eq!(again.write(1).await?, 12);
        Ok(())
    })
}

/// The bytes that members append. Its state is read from a pipe of Tokio's, as one behind a connection is.
struct Tape {
    bytes: Arc<Vec<u8>>,
    runtime: Handle,
}

/// An asynchronous reader as [`Read`]: what `SyncIoBridge` of `tokio-util` does.
struct Blocking {
    reader: DuplexStream,
    runtime: Handle,
}

impl Read for Blocking {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.runtime.block_on(self.reader.read(into))
    }
}

impl Machine for Tape {
    type Command = Vec<u8>;
    type Reply = usize;
    type Event = ();
    type Snapshot = FromReader;

    fn apply(&mut self, _: At, _: Incarnation, more: Vec<u8>, _: &mut Vec<()>) -> usize {
        Arc::make_mut(&mut self.bytes).extend(more);
        self.bytes.len()
    }

    fn snapshot(&self) -> FromReader {
        let (bytes, runtime) = (self.bytes.clone(), self.runtime.clone());
        FromReader::new(bytes.len() as u64, move || {
            let (mut writer, reader) = tokio::io::duplex(4_096);
            let bytes = bytes.clone();
            runtime.spawn(async move { writer.write_all(&bytes).await });
            Ok(Blocking {
                reader,
                runtime: runtime.clone(),
            })
        })
    }

    fn restore(&mut self, state: &[u8], _: bool) -> Result<usize, RestoreError> {
        Arc::make_mut(&mut self.bytes).extend_from_slice(state);
        Ok(state.len())
    }

    fn definition(&self) -> String {
        "tape 1".to_owned()
    }
}

/// In real time: there the state is read on a thread of its own, which may wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_joiner_gets_a_state_that_comes_from_an_asynchronous_reader()
-> Result<(), Box<dyn std::error::Error>> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let network = MemoryNetwork::new();
    let node = |name: &str| {
        let builder = Cluster::builder("test").name(name).profile(Profile::local());
        builder.bind("10.0.0.1:0").memory(&network)
    };
    let a = tokio::time::timeout(PATIENCE, node("a").found().join()).await??;
    let b = tokio::time::timeout(PATIENCE, node("b").seeds([a.addr()]).join()).await??;
    let runtime = Handle::current();
    let make = move || Tape {
        bytes: Arc::default(),
        runtime: runtime.clone(),
    };
    let first = a.replicated("tape", make.clone()).join().await?;
    for number in 0..30 {
        first.write(vec![number; 100_000]).await?;
    }
    let second = tokio::time::timeout(PATIENCE, b.replicated("tape", make).join()).await??;
    let bytes = |of: &Replicated<Tape>| of.read(|tape| tape.bytes.clone());
    let (of_first, of_second) = (bytes(&first)?, bytes(&second)?);
    assert!(of_first == of_second, "{} of 3,000,000 bytes", of_second.len());
    assert_eq!(second.write(vec![7]).await?, 3_000_001);
    Ok(())
}
