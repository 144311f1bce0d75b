//! Whatever a program says to its node is cut into lines of bounded length, and each is a command, with the
//! bytes that stand behind it, or an error with a reason, which repeats no more than a part of a long line.
#![no_main]

use antiphon_api::{Command, Event, LineBuffer};
use libfuzzer_sys::fuzz_target;

const MAX_BYTES: usize = 64 << 10;

fuzz_target!(|data: &[u8]| {
    let mut lines = LineBuffer::new(MAX_BYTES);
    let mut behind: Option<(Command, usize)> = None;
    // The first byte says in pieces of what size the rest comes.
    let piece = data.first().map_or(1, |first| usize::from(*first) + 1);
    for bytes in data.get(1..).unwrap_or_default().chunks(piece) {
        lines.push(bytes);
        loop {
            if let Some((command, length)) = &mut behind {
                let Some(bytes) = lines.take(*length) else { break };
                assert!(command.is_unread());
                command.fill(bytes);
                assert!(!command.is_unread());
                behind = None;
            }
            match lines.pop() {
                Ok(Some(line)) => behind = said(&String::from_utf8_lossy(&line)),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(lines.len() <= MAX_BYTES);
    }
});

/// The command, and how many bytes stand behind it, if they do and are few enough.
fn said(line: &str) -> Option<(Command, usize)> {
    match Command::parse(line) {
        Ok(mut command) => {
            assert_eq!(Command::parse(&command.to_json()), Ok(command.clone()));
            let behind = usize::try_from(command.bytes_behind()?).ok()?;
            (behind <= MAX_BYTES).then_some((command, behind))
        }
        Err(error) => {
            let Event::Error { reason, .. } = &*error else {
                panic!("it is answered by {error}");
            };
            assert!(!reason.is_empty());
            assert!(error.to_json().len() < 64 << 10, "the error is longer than what it is about");
            None
        }
    }
}
