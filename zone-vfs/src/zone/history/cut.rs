//! Where the content of a version is cut into pieces: by what it holds, not by where it lies.
//!
//! The algorithm is `FastCDC` (Xia et al., USENIX ATC 2016) with normalised chunking of level 2 over a
//! gear hash. A change moves the cuts around it and no others, so that a file that is written anew
//! with a small change shares all pieces but a few with the version before.

use crate::tree::MAX_PIECE;

/// No piece but the last is smaller. Bytes.
pub(super) const MIN_PIECE: usize = 16 << 10;
/// Pieces are about as large as this. Bytes.
const AVERAGE: usize = 64 << 10;

/// Two bits more than the average has, before the average is reached, and two fewer after it. The bits
/// are spread, so that each depends on many of the bytes before.
const HARD: u64 = spread(18);
const EASY: u64 = spread(14);

/// One random number for each byte: the first 256 outputs of `SplitMix64` from this seed.
const SEED: u64 = 0x646f_726d_6f75_7365;
static GEAR: [u64; 256] = gear();

const fn gear() -> [u64; 256] {
    let mut table = [0; 256];
    let mut state = SEED;
    let mut index = 0;
    while index < table.len() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[index] = z ^ (z >> 31);
        index += 1;
    }
    table
}

/// `bits` of the 48 topmost bits, evenly spread.
const fn spread(bits: u32) -> u64 {
    let mut mask = 0;
    let mut bit = 0;
    while bit < bits {
        mask |= 1 << (63 - bit * 48 / bits);
        bit += 1;
    }
    mask
}

/// How much of `bytes` the next piece takes: all of it where no cut is found. To be asked with at least
/// [`MAX_PIECE`] bytes unless the content ends before.
pub(super) fn cut(bytes: &[u8]) -> usize {
    let end = bytes.len().min(MAX_PIECE);
    let turn = end.min(AVERAGE);
    let mut hash: u64 = 0;
    for (at, byte) in bytes[..end].iter().enumerate().skip(MIN_PIECE.min(end)) {
        hash = (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
        if hash & (if at < turn { HARD } else { EASY }) == 0 {
            return at + 1;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a small generator, the same on every machine.
    fn bytes(len: usize, seed: u64) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
        let mut rest = bytes;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(cut(rest));
            pieces.push(piece);
            rest = more;
        }
        pieces
    }

    #[test]
    fn pieces_have_the_sizes_that_they_should() {
        let content = bytes(16 << 20, 7);
        let pieces = pieces(&content);
        assert_eq!(pieces.concat(), content);
        let (_, but_last) = pieces.split_last().unwrap();
        assert!(but_last.iter().all(|piece| (MIN_PIECE..=MAX_PIECE).contains(&piece.len())));
        let average = content.len() / pieces.len();
        assert!((48 << 10..96 << 10).contains(&average), "{average}");
        assert_eq!(cut(&vec![0; 1 << 20]), MAX_PIECE, "nothing to cut at");
        assert_eq!(cut(b"short"), 5);
    }

    #[test]
    fn a_change_moves_the_cuts_around_it_and_no_others() {
        let before = bytes(8 << 20, 9);
        let mut after = before.clone();
        after.splice(3_000_000..3_000_010, *b"something a little longer");
        let known: std::collections::HashSet<_> = pieces(&before).into_iter().collect();
        let fresh: usize = pieces(&after).iter().filter(|p| !known.contains(*p)).map(|p| p.len()).sum();
        assert!(fresh <= 3 * MAX_PIECE, "{fresh}");
    }

    /// Cuts are part of the format: other ones would store everything once more.
    #[test]
    fn cuts_are_where_they_were() {
        let lens: Vec<_> = pieces(&bytes(400_000, 3)).iter().map(|piece| piece.len()).collect();
        assert_eq!(lens, PINNED);
    }

    const PINNED: &[usize] = &[72_523, 69_420, 88_620, 92_736, 76_701];
}
