//! The body of a request, read whole. [`halves`](crate::socket::halves) has what all that are not whole take
//! together.

use std::fmt::Display;
use std::pin::pin;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::problem::Problem;
use super::{BODY_WITHIN, MAX_BODY_BYTES};
use crate::socket::halves::{GivesWay, Half, Halves, UNDISTURBED};

/// The least that a body takes.
const LEAST_BYTES: usize = 1 << 10;

/// The body of a request, of which nothing was read.
pub(super) struct Unread {
    body: Incoming,
    halves: Halves,
}

impl Unread {
    pub(super) fn new(body: Incoming, halves: &Halves) -> Self {
        let halves = halves.clone();
        Self { body, halves }
    }

    /// The whole body.
    pub(super) async fn read(self) -> Result<Bytes, Problem> {
        read(&self.halves, self.body).await
    }
}

async fn read(halves: &Halves, body: impl Body<Data = Bytes, Error: Display>) -> Result<Bytes, Problem> {
    // Then nothing of it is read.
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    let half = halves.begin();
    let read = async {
        tokio::select! {
            whole = collect(&half, body) => whole,
            GivesWay = half.gives_way() => Err(gave_way()),
        }
    };
    timeout(BODY_WITHIN, read).await.unwrap_or_else(|_| {
        let reason = format!("the body was not whole within {} s", BODY_WITHIN.as_secs());
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", reason))
    })
}

/// The body as one piece: many short ones would take more than they have.
async fn collect(half: &Half, body: impl Body<Data = Bytes, Error: Display>) -> Result<Bytes, Problem> {
    let announced = body.size_hint().exact();
    let longest = announced.map_or(MAX_BODY_BYTES, |length| length as usize);
    let (mut body, mut whole) = (pin!(body), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::refused(format!("the body cannot be read: {error}")))?;
        // Trailers say nothing here.
        let Ok(data) = frame.into_data() else { continue };
        let length = whole.len() + data.len();
        if length > MAX_BODY_BYTES {
            return Err(too_large());
        }
        let before = whole.capacity();
        if length > before {
            let after = (2 * before).max(LEAST_BYTES).min(longest).max(length);
            half.take(after - before).await;
            whole.reserve_exact(after - whole.len());
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.into())
}

fn too_large() -> Problem {
    let reason = format!("a body has at most {MAX_BODY_BYTES} bytes: send it in parts");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", reason)
}

fn gave_way() -> Problem {
    Problem::unavailable(format!(
        "the body was not whole after {} s, and others needed its room: send it again, faster",
        UNDISTURBED.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A body that is being read, and where its bytes come from: it is whole when that is dropped.
    struct Sent(mpsc::UnboundedSender<usize>, JoinHandle<Result<Bytes, Problem>>);

    impl Sent {
        async fn begin(halves: &Halves, bytes: usize) -> Self {
            let (sender, pieces) = mpsc::unbounded_channel::<usize>();
            let frames = stream::unfold(pieces, async |mut pieces| {
                let frame = Frame::data(Bytes::from(vec![b'x'; pieces.recv().await?]));
                Some((Ok::<_, Infallible>(frame), pieces))
            });
            let halves = halves.clone();
            let read = tokio::spawn(async move { read(&halves, StreamBody::new(frames)).await });
            let sent = Self(sender, read);
            sent.more(bytes).await;
            sent
        }

        async fn more(&self, bytes: usize) {
            let _ = self.0.send(bytes);
            // Less than any time here.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        /// How many bytes it had, or the status.
        async fn end(self) -> Result<usize, u16> {
            drop(self.0);
            let read = self.1.await.unwrap();
            read.map(|whole| whole.len())
                .map_err(|problem| problem.status.as_u16())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_slow_gives_way_to_one_that_needs_the_room() {
        const MOST: usize = 300_000;
        let halves = Halves::of(MOST);
        let mut slow = Vec::new();
        for _ in 0..3 {
            slow.push(Sent::begin(&halves, 100_000).await);
        }
        // They have had their time, and nobody needs their room.
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(slow.iter().filter(|sent| sent.1.is_finished()).count(), 0);
        // Half of one is enough, so one gives way: the oldest.
        let honest = Sent::begin(&halves, 50_000).await;
        honest.more(20_000).await;
        assert_eq!(honest.end().await, Ok(70_000));
        let mut slow = slow.into_iter();
        assert_eq!(slow.next().unwrap().end().await, Err(503));
        for other in slow {
            other.more(1000).await;
            assert_eq!(other.end().await, Ok(101_000));
        }
        assert!(halves.is_empty(MOST));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_young_does_not_give_way_and_the_other_waits() {
        const MOST: usize = 300_000;
        let halves = Halves::of(MOST);
        let first = Sent::begin(&halves, 200_000).await;
        tokio::time::sleep(SECOND / 2).await;
        let second = Sent::begin(&halves, 100_000).await;
        let begun = Instant::now();
        let third = Sent::begin(&halves, 50_000).await;
        tokio::time::sleep(SECOND).await;
        assert!(!first.1.is_finished() && !second.1.is_finished());
        // The first is whole in its time: it made the room.
        assert_eq!(first.end().await, Ok(200_000));
        assert_eq!(third.end().await, Ok(50_000));
        assert!(begun.elapsed() < UNDISTURBED);
        assert_eq!(second.end().await, Ok(100_000));
        assert!(halves.is_empty(MOST));
    }

    #[tokio::test(start_paused = true)]
    async fn many_that_want_more_than_there_is_are_all_answered() {
        const MOST: usize = 2 << 20;
        let halves = Halves::of(MOST);
        let begun = Instant::now();
        let mut all = Vec::new();
        for _ in 0..20 {
            let sent = Sent::begin(&halves, 400_000).await;
            sent.more(400_000).await;
            all.push(sent);
        }
        let (mut whole, mut gave_way) = (0, 0);
        for sent in all {
            match sent.end().await {
                Ok(length) => whole += usize::from(length == 800_000),
                Err(status) => gave_way += usize::from(status == 503),
            }
        }
        assert_eq!(whole + gave_way, 20);
        assert!(whole > 0 && begun.elapsed() < BODY_WITHIN);
        assert!(halves.is_empty(MOST));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_body_takes_is_about_its_length_however_it_is_cut() {
        const MOST: usize = 1 << 20;
        let halves = Halves::of(MOST);
        let sent = Sent::begin(&halves, 1).await;
        for _ in 1..10_000 {
            let _ = sent.0.send(1);
        }
        sent.more(1).await;
        let taken = MOST - halves.room();
        assert!((10_000..=2 * 10_002).contains(&taken), "{taken}");
        assert_eq!(sent.end().await, Ok(10_001));
        // One that is silent ends in time, and one that is too long at once.
        let silent = Sent::begin(&halves, 1).await;
        tokio::time::sleep(BODY_WITHIN).await;
        assert!(halves.is_empty(MOST));
        assert_eq!(silent.end().await, Err(408));
        assert_eq!(
            Sent::begin(&halves, MAX_BODY_BYTES + 1).await.end().await,
            Err(413)
        );
        assert_eq!(
            Sent::begin(&halves, MAX_BODY_BYTES).await.end().await,
            Ok(MAX_BODY_BYTES)
        );
    }
}
