//! JSON lines: each line of the program is a command, each line for it an event.

use std::ops::ControlFlow;

use antiphon::clients::Departure;
use antiphon_api::{Event, LineBuffer, MAX_LINE_BYTES};
use tokio::io::{AsyncReadExt as _, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::{Connection, PART_WITHIN, write_all};
use crate::hub::{Events, Session};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes written at once, if there are so many.
const WRITE_BYTES: usize = 64 << 10;

/// Serves it until one of both ends.
pub(super) async fn serve(stream: impl Connection, first: &[u8], session: Session, mut events: Events) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let ended = tokio::select! {
        // A session that holds up its own reading is still written to.
        ended = read(&mut reader, first, &session) => ended,
        slow = write(&mut writer, &mut events) => slow,
    };
    session.ends_for(ended);
    drop(session);
    // Others know. A program that has said all may still read: replies to what it asked last are for it.
    let rest = async {
        while let Some(event) = events.next().await {
            let _ = write_all(&mut writer, (event.to_json() + "\n").as_bytes()).await;
        }
        super::part(&mut reader, &mut writer).await;
    };
    let _ = timeout(PART_WITHIN, rest).await;
}

async fn read(reader: &mut ReadHalf<impl Connection>, first: &[u8], session: &Session) -> Departure {
    let mut lines = LineBuffer::new(MAX_LINE_BYTES);
    lines.push(first);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        loop {
            let line = match lines.pop() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(_) => {
                    let reason = format!("a line has at most {MAX_LINE_BYTES} bytes: the connection ends");
                    let request = serde_json::Value::Null;
                    session.tell(Event::Error { reason, request }).await;
                    return Departure::lost("it sent a line that is too long");
                }
            };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if let ControlFlow::Break(departure) = super::obey(session, &line).await {
                return departure;
            }
        }
        match reader.read(&mut buffer).await {
            Ok(0) | Err(_) => return Departure::lost("its connection ended"),
            Ok(length) => lines.push(&buffer[..length]),
        }
    }
}

async fn write(writer: &mut WriteHalf<impl Connection>, events: &mut Events) -> Departure {
    let mut text = Vec::new();
    while let Some(event) = events.next().await {
        text.clear();
        let mut next = Some(event);
        while let Some(event) = next {
            text.extend_from_slice(event.to_json().as_bytes());
            text.push(b'\n');
            next = (text.len() < WRITE_BYTES).then(|| events.try_next()).flatten();
        }
        if let Err(departure) = write_all(writer, &text).await {
            return departure;
        }
    }
    // It ends with the session, which outlives this.
    std::future::pending().await
}
