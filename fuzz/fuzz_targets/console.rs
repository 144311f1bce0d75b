//! Whatever comes to a node's console is cut into lines of bounded length, and each is a question or a
//! problem with a reason.
#![no_main]

use antiphon_api::LineBuffer;
use antiphon_api::console::{MAX_QUESTION_BYTES, Question};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut lines = LineBuffer::new(MAX_QUESTION_BYTES);
    // The first byte says in pieces of what size the rest comes.
    let piece = data.first().map_or(1, |first| usize::from(*first) + 1);
    for bytes in data.get(1..).unwrap_or_default().chunks(piece) {
        lines.push(bytes);
        loop {
            match lines.pop() {
                Ok(Some(line)) => match Question::parse(&line) {
                    Ok(question) => {
                        let again = Question::parse(question.to_line().as_bytes());
                        assert_eq!(again, Ok(question));
                    }
                    Err(problem) => assert!(!problem.reason.is_empty()),
                },
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(lines.len() <= MAX_QUESTION_BYTES);
    }
});
