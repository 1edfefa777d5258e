//! Inputs generated from numbers: the same number and seeds always give the same input.

use base::Rng;

/// The longest random input has fewer than 2^12 bytes.
const LEN_BITS: u64 = 12;
/// Number of places in which a seed is changed, at most.
const CHANGES_MAX: u64 = 6;
/// The longest piece that is inserted, removed or repeated.
const PIECE_MAX: u64 = 32;

/// Input `number`: first the unchanged seeds, then seeds with changes, and sometimes random bytes.
///
/// Without seeds, all inputs are random bytes.
pub fn input(number: u64, seeds: &[Vec<u8>]) -> Vec<u8> {
    if let Some(seed) = usize::try_from(number).ok().and_then(|number| seeds.get(number)) {
        return seed.clone();
    }
    let mut rng = Rng::new(number);
    if seeds.is_empty() || rng.one_in(4) {
        return random(&mut rng);
    }
    let mut bytes = seeds[rng.below(seeds.len() as u64) as usize].clone();
    for _ in 0..=rng.below(CHANGES_MAX) {
        change(&mut bytes, &mut rng);
    }
    bytes
}

/// Short ones are as likely as long ones.
fn random(rng: &mut Rng) -> Vec<u8> {
    let least = 1 << rng.below(LEN_BITS);
    let len = least + rng.below(least);
    random_bytes(rng, len)
}

fn random_bytes(rng: &mut Rng, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    rng.fill(&mut bytes);
    bytes
}

/// Changes bytes as a fuzzer does: removes, inserts and repeats pieces, sets extreme values, and flips bits.
fn change(bytes: &mut Vec<u8>, rng: &mut Rng) {
    const EXTREMES: [u8; 5] = [0x00, 0x01, 0x7f, 0x80, 0xff];
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    let end = bytes.len().min(at + 1 + rng.below(PIECE_MAX) as usize);
    match rng.below(8) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => {
            let len = 1 + rng.below(PIECE_MAX);
            drop(bytes.splice(at..at, random_bytes(rng, len)));
        }
        3 => {
            let piece = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, piece));
        }
        4 | 5 => {
            let extreme = EXTREMES[rng.below(EXTREMES.len() as u64) as usize];
            bytes.iter_mut().skip(at).take(1 + rng.below(4) as usize).for_each(|byte| *byte = extreme);
        }
        _ => {
            let bit = 1 << rng.below(8);
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bit);
        }
    }
}

#[test]
fn a_number_is_an_input() {
    let seeds = [b"seed".to_vec()];
    let some = |seeds: &[Vec<u8>]| (0..100).map(|number| input(number, seeds)).collect::<Vec<_>>();
    assert_eq!(some(&seeds), some(&seeds));
    assert_eq!(some(&seeds)[0], seeds[0]);
    assert_ne!(some(&seeds), some(&[]));
    assert!(some(&[]).iter().any(|input| input.len() > 1000), "some are long");
}
