//! Arbitrary bytes on a stream, in arbitrary portions: the same frames or the same error however they are
//! cut, and never more held than one frame.
#![no_main]

use antiphon_wire::frame::MAX_FRAME_BYTES;
use antiphon_wire::stream::{StreamDecoder, length_prefix};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&portion, stream)) = data.split_first() else { return };
    let at_once = cut(stream, stream.len().max(1));
    let in_portions = cut(stream, usize::from(portion).max(1));
    assert_eq!(at_once, in_portions);
    let (frames, _) = at_once;
    let whole: Vec<u8> = frames.iter().flat_map(|frame| [&length_prefix(frame.len())[..], frame].concat()).collect();
    assert!(stream.starts_with(&whole), "frames are what stood on the stream");
});

fn cut(stream: &[u8], portion: usize) -> (Vec<Vec<u8>>, bool) {
    let mut decoder = StreamDecoder::new();
    let mut frames = Vec::new();
    for part in stream.chunks(portion) {
        decoder.extend(part);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
        assert!(decoder.pending() < MAX_FRAME_BYTES + 4);
        assert!(decoder.missing() > 0);
    }
    (frames, false)
}
