//! What goes into a block comes out of it, and what is no block is refused.

use super::*;
use crate::codec::{decode_all, encode_to_vec};

fn block(payloads: &[&[u8]]) -> Block {
    let mut builder = BlockBuilder::default();
    for payload in payloads {
        builder.push(payload);
    }
    builder.finish()
}

#[test]
fn what_goes_in_comes_out_whole_however_it_is_taken() {
    let long = vec![7; 60_000];
    for payloads in [
        vec![],
        vec![&b""[..]],
        vec![b"one", b"", b"three"],
        vec![&long[..]],
        vec![&long[..127], &long[..128], &long[..16_383], &long[..16_384]],
    ] {
        let whole = block(&payloads);
        assert_eq!(whole.iter().collect::<Vec<_>>(), payloads);
        let taken: Vec<Bytes> = whole.clone().into_iter().collect();
        assert_eq!(taken, payloads);
        for at in 0..=payloads.len() {
            let mut back = whole.clone();
            let front = back.split_front(at as u64);
            assert_eq!(front.iter().collect::<Vec<_>>(), payloads[..at]);
            assert_eq!(back.iter().collect::<Vec<_>>(), payloads[at..]);
            assert_eq!(front.count() + back.count(), payloads.len() as u64);
        }
        assert_eq!(decode_all::<Block>(encode_to_vec(&whole).into()), Ok(whole));
    }
}

#[test]
fn a_large_message_travels_in_pieces_that_are_slices_of_it() {
    for length in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
        let payload = Bytes::from(vec![7; length]);
        let large = Block::large(payload.clone());
        assert_eq!(large.iter().collect::<Vec<_>>(), [&payload[..]]);
        assert_eq!(large.clone().pop_front(), Some(payload.clone()));
        let pieces: Vec<Block> = large.clone().pieces().collect();
        assert_eq!(pieces.len() as u64, large.places());
        let (last, others) = pieces.split_last().expect("there is one at least");
        assert_eq!(last.form(), Form::LastPiece);
        assert!(
            others
                .iter()
                .all(|piece| piece.form() == Form::Piece && piece.count() == 1)
        );
        let together: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
        assert_eq!(together, payload);
        for piece in &pieces {
            let inside = payload.as_ptr_range().contains(&piece.bytes().as_ptr());
            assert_eq!(inside, length > 0);
            let decoded = decode_all::<Block>(encode_to_vec(piece).into());
            if length > 0 {
                assert_eq!(decoded.as_ref(), Ok(piece));
            } else {
                assert_eq!(decoded, Err(DecodeError::Invalid), "a piece has something");
            }
        }
        // A block that was not cut is not valid on the wire.
        assert!(decode_all::<Block>(encode_to_vec(&large).into()).is_err());
    }
    let whole = block(&[b"one", b"two"]);
    assert_eq!(whole.clone().pieces().collect::<Vec<_>>(), [whole]);
}

#[test]
fn a_block_that_names_an_object_is_one_message_and_says_nothing_else() {
    let record = ObjectRecord {
        object: 300,
        length: 1 << 28,
        digest: crate::object::Digest(7),
    };
    let block = Block::object(&record).with_level(Level::Safe);
    assert_eq!(block.record(), Some(record));
    assert!(!block.is_messages() && !block.is_nulls());
    let encoded = encode_to_vec(&block);
    assert_eq!(decode_all::<Block>(encoded.clone().into()).as_ref(), Ok(&block));
    let damaged = |at: usize, value: u8| {
        let mut bad = encoded.clone();
        bad[at] = value;
        decode_all::<Block>(bad.into())
    };
    // Two of them; a byte less; a number that swallows the length.
    for (at, value) in [(0, encoded[0] + 8), (1, encoded[1] - 1), (3, 0x82)] {
        assert!(damaged(at, value).is_err(), "byte {at} as {value}");
    }
    for length in [0, MAX_OBJECT_BYTES + 1] {
        let record = ObjectRecord { length, ..record };
        let bytes = encode_to_vec(&Block::object(&record));
        assert_eq!(
            decode_all::<Block>(bytes.into()),
            Err(DecodeError::Invalid),
            "{length}"
        );
    }
    for other in [Block::of(b"message"), Block::nulls(1)] {
        assert_eq!(other.record(), None);
    }
}

#[test]
fn a_level_stays_with_every_part_of_its_block_and_an_empty_block_has_none() {
    let mut builder = BlockBuilder::default();
    builder.set_level(Level::Safe);
    builder.push(b"one");
    assert!(builder.takes(Level::Safe) && !builder.takes(Level::Agreed));
    builder.push(b"two");
    let whole = builder.finish();
    assert!(builder.takes(Level::Agreed), "the next block begins anew");
    let mut back = whole.clone();
    let front = back.split_front(1);
    for part in [&whole, &front, &back] {
        assert_eq!(part.level(), Level::Safe);
        assert_eq!(decode_all::<Block>(encode_to_vec(part).into()).as_ref(), Ok(part));
    }
    drop(back.split_front(9));
    assert_eq!(back, Block::default());
    for nothing in [vec![8, 0], vec![24, 0]] {
        assert_eq!(decode_all::<Block>(nothing.into()), Err(DecodeError::Invalid));
    }
}

#[test]
fn a_count_or_length_that_does_not_fit_is_refused() {
    let good = encode_to_vec(&block(&[b"one", b"two"]));
    assert_eq!(good, [32, 8, 3, b'o', b'n', b'e', 3, b't', b'w', b'o']);
    for (at, value) in [
        (0, 16),
        (0, 48),
        (0, 1),
        (0, 2),
        (0, 35),
        (0, 36),
        (0, 37),
        (0, 43),
        (1, 7),
        (1, 9),
        (2, 4),
        (2, 2),
        (6, 4),
        (6, 2),
        (6, 0x80),
    ] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(decode_all::<Block>(bad.into()).is_err(), "byte {at} as {value}");
    }
    // Four thousand million messages in one byte.
    let mut absurd = Vec::new();
    put_varint(&mut absurd, u64::from(u32::MAX));
    absurd.extend([1, 0]);
    assert_eq!(decode_all::<Block>(absurd.into()), Err(DecodeError::Invalid));
}

#[test]
fn a_small_block_keeps_nothing_of_the_buffer_it_came_in_and_a_large_one_is_a_slice_of_it() {
    for (length, shares) in [(WORTH_KEEPING / 2, false), (WORTH_KEEPING, true)] {
        let encoded = Bytes::from(encode_to_vec(&block(&[&vec![1; length]])));
        let decoded = decode_all::<Block>(encoded.clone()).expect("it was just encoded");
        let inside = encoded.as_ptr_range().contains(&decoded.bytes().as_ptr());
        assert_eq!(inside, shares, "{length} bytes");
    }
}

#[test]
fn any_number_of_nulls_takes_no_bytes_and_has_no_message() {
    for count in [1, 256, u32::MAX] {
        let mut nulls = Block::nulls(count);
        assert!(nulls.is_nulls() && !nulls.is_empty());
        assert_eq!(decode_all(encode_to_vec(&nulls).into()).as_ref(), Ok(&nulls));
        assert_eq!(nulls.iter().count(), 0);
        assert_eq!(nulls.pop_front(), None);
        let mut front = nulls.split_front(u64::from(count / 2));
        assert_eq!(
            (front.count(), nulls.count()),
            (u64::from(count / 2), u64::from(count - count / 2))
        );
        assert_eq!(front.extend_nulls(&nulls), count > 1);
        assert!(!nulls.extend_nulls(&Block::nulls(u32::MAX)));
        assert!(!nulls.extend_nulls(&block(&[b"one"])));
        assert!(!block(&[b""]).extend_nulls(&nulls));
    }
}

#[test]
fn a_message_in_a_batch_costs_at_most_two_bytes_up_to_sixteen_kilobytes() {
    for length in [0, 1, 64, 1000, 16_383] {
        assert!(Block::cost(length) - length <= 2);
        assert_eq!(block(&[&vec![1; length]]).bytes().len(), Block::cost(length));
    }
}
