//! The golden corpus: bytes that Debian's libmlx5 wrote, and ours for the same calls. Needs no libmlx5.
#![cfg(target_arch = "x86_64")]

use std::path::PathBuf;

use oracle::golden::Golden;

fn corpus() -> Vec<(PathBuf, Golden)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&directory)
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path())
        .filter(|file| {
            file.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .collect();
    files.sort_unstable();
    assert_eq!(files.len(), 7, "one file for each service");
    files
        .into_iter()
        .map(|file| {
            let golden = Golden::read(&file).expect("a recorded run");
            (file, golden)
        })
        .collect()
}

/// One test, as the memory that inline data comes from is at a fixed address.
#[test]
fn bytes_are_libmlx5s_and_a_flipped_bit_shows() {
    let mut wqes = 0;
    let mut flips = 0;
    for (file, golden) in corpus() {
        let file = file.display();
        let mut ours = golden.replay().expect("memory");
        let found = golden.compare(&ours);
        assert_eq!(found.count(), 0, "{file}: {:#?}", found.examples);
        assert_eq!(found.wqes, golden.wqes(), "{file}");
        wqes += found.wqes;
        // Whatever bit an encoder had wrong in a byte that it writes, it would show. (Bytes that both passes have alike
        // are written; those that libmlx5 leaves alone do not count.)
        let (mut seen, mut unseen) = (0_u64, 0_u64);
        for at in (0..ours.one.bytes.len()).step_by(97) {
            if ours.one.bytes[at] != ours.other.bytes[at] {
                continue;
            }
            let bit = 1 << (at / 97 % 8);
            ours.one.bytes[at] ^= bit;
            ours.other.bytes[at] ^= bit;
            match golden.compare(&ours).count() {
                0 => unseen += 1,
                _ => seen += 1,
            }
            ours.one.bytes[at] ^= bit;
            ours.other.bytes[at] ^= bit;
        }
        // Each encoder by itself.
        let places = golden.places(&ours);
        for kind in golden.kinds() {
            assert!(places.contains_key(&kind), "{file}: no {kind}");
        }
        for (kind, places) in places {
            for at in places {
                let bit = 1 << (at % 7);
                ours.one.bytes[at] ^= bit;
                ours.other.bytes[at] ^= bit;
                assert_ne!(golden.compare(&ours).count(), 0, "{file}: {kind} at {at}");
                ours.one.bytes[at] ^= bit;
                ours.other.bytes[at] ^= bit;
                flips += 1;
            }
        }
        // Unseen are padding and fields that libmlx5 leaves as they were.
        assert!(seen > 4 * unseen, "{file}: {seen} seen, {unseen} not");
        flips += seen;
    }
    println!("{wqes} WQEs are libmlx5's; {flips} flipped bits were seen");
}
