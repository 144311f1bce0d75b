//! What a console's decoder does with any bytes, in any pieces.

use antiphon_api::LineBuffer;
use antiphon_api::console::{Answer, MAX_QUESTION_BYTES, Question};
use proptest::prelude::*;

fn questions() -> impl Strategy<Value = Question> {
    prop_oneof![
        Just(Question::Status {}),
        Just(Question::Members {}),
        any::<String>().prop_map(|node| Question::Why { node }),
        any::<bool>().prop_map(|watch| Question::Views { watch }),
        Just(Question::Recovery {}),
        any::<(String, String, bool, bool)>().prop_map(|(lineage, view, quorum, may_fork)| {
            Question::Recover {
                lineage,
                view,
                quorum,
                may_fork,
            }
        }),
    ]
}

/// All lines of these bytes when they come in pieces, and whether one was too long.
fn lines(bytes: &[u8], pieces: &[usize], longest: usize) -> (Vec<Vec<u8>>, bool) {
    let mut buffer = LineBuffer::new(longest);
    let (mut lines, mut rest) = (Vec::new(), bytes);
    let mut sizes = pieces.iter().copied().chain(std::iter::repeat(7));
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(7).clamp(1, rest.len());
        buffer.push(&rest[..size]);
        rest = &rest[size..];
        loop {
            match buffer.pop() {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => break,
                Err(_) => {
                    assert!(
                        buffer.pop().is_err(),
                        "nothing can be read after a line that is too long"
                    );
                    return (lines, true);
                }
            }
        }
        assert!(buffer.len() <= longest);
    }
    (lines, false)
}

proptest! {
    #[test]
    fn pieces_make_no_difference(
        bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..400),
        pieces in prop::collection::vec(1..50usize, 0..40),
        longest in 0..60usize,
    ) {
        let (cut, too_long) = lines(&bytes, &pieces, longest);
        let whole: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        let good: Vec<Vec<u8>> = whole[..whole.len() - 1]
            .iter()
            .take_while(|line| line.len() <= longest)
            .map(|line| line.to_vec())
            .collect();
        prop_assert_eq!(&cut, &good);
        prop_assert_eq!(too_long, whole.iter().any(|line| line.len() > longest));
    }

    #[test]
    fn any_line_is_a_question_or_a_problem_with_a_reason(line in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(problem) = Question::parse(&line) {
            prop_assert!(!problem.reason.is_empty() && !problem.code.is_empty());
        }
    }

    #[test]
    fn a_question_with_something_changed_is_never_taken_for_one_that_was_not_asked(
        question in questions(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let line = question.to_line();
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(Question::parse(line.as_bytes()), Ok(question));
        let mut changed = line.into_bytes();
        let at = at.index(changed.len());
        changed[at] = byte;
        // It may be another question; then that question is what it says.
        if let Ok(other) = Question::parse(&changed) {
            prop_assert_eq!(Question::parse(other.to_line().as_bytes()), Ok(other));
        }
    }

    #[test]
    fn any_bytes_are_an_answer_or_an_error(line in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = serde_json::from_slice::<Answer>(&line);
    }
}

#[test]
fn the_longest_question_is_taken_and_one_byte_more_is_not() {
    let fits = vec![b'x'; MAX_QUESTION_BYTES];
    let mut line = fits.clone();
    line.push(b'\n');
    assert_eq!(lines(&line, &[], MAX_QUESTION_BYTES), (vec![fits], false));
    line.insert(0, b'x');
    assert_eq!(lines(&line, &[], MAX_QUESTION_BYTES), (vec![], true));
}
