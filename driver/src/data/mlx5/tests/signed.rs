//! Configuring keys with signatures. Expected bytes stand in the test: fields of rdma-core's `providers/mlx5/wqe.h`
//! (`struct mlx5_bsf`, `struct mlx5_wqe_set_psv_seg`) and of mlx5dv.h. `cargo xtask drop-in` compares every rule with libmlx5.

use wqe_format::mlx5::{BlockSignature, BlockSize, CrcKind, SignatureDomain, SignatureRule};

use super::*;

const MEMORY: u32 = 0x0a_0b0c;
const WIRE: u32 = 0x0d_0e0f;

fn crc(kind: CrcKind, block: BlockSize) -> Option<SignatureDomain> {
    Some(SignatureDomain {
        block,
        signature: BlockSignature::Crc { kind, ones: true },
    })
}

fn rule(
    memory: Option<SignatureDomain>,
    wire: Option<SignatureDomain>,
    copy_mask: Option<u8>,
) -> SignatureRule {
    SignatureRule {
        memory,
        wire,
        check_mask: 0x5a,
        copy_mask,
    }
}

fn bed(max_wr: u32) -> Bed {
    let mut make = Make::new(QueueKind::Rc);
    make.limits.max_wr = max_wr;
    make.limits.max_inline = 124;
    make.bed()
}

/// Posts one change, with a layout of `lengths`.
fn post(
    bed: &mut Bed,
    key: &KeySignature,
    reset: bool,
    rule: Option<&SignatureRule>,
    lengths: &[u32],
) -> Result<u32, PostError> {
    let list: Vec<Sge> = lengths.iter().map(|&length| sge(length)).collect();
    let update = KeyUpdate {
        key: 0x0102_0300,
        entries: 64,
        access: None,
        layout: (!list.is_empty()).then_some(KeyLayout::List(&list)),
        signature: Some(SignatureUpdate { key, reset, rule }),
    };
    let flags = SendFlags::INLINE.with(SendFlags::SIGNALED);
    let mut draft = bed.queue.begin();
    let _ = bed.queue.configure_key(&mut draft, 9, flags, &update);
    let posted = bed.queue.commit(&mut draft);
    if posted.is_ok() {
        bed.complete();
    }
    posted
}

/// `mkey_mask`, and `flags_pd` of the key's context, of the work request at a block.
fn marks(bed: &Bed, block: usize) -> (u64, u32) {
    let wqe = bed.wqe(block, 80);
    (
        u64::from_be_bytes(wqe[24..32].try_into().unwrap()),
        u32::from_be_bytes(wqe[76..80].try_into().unwrap()),
    )
}

const KEY: u64 = 1 << 13 | 1 << 29;
const LENGTH: u64 = 1;
const FORMAT: u64 = 1 << 12;
const ERRORS: u64 = 1 << 9;

/// A rule for both sides: the format behind the layout, then both states, the last of which completes. The queue wraps in
/// the midst.
#[test]
fn three_requests() {
    let mut bed = bed(8);
    bed.queue.start_at(62, 62);
    let key = KeySignature::new(MEMORY, WIRE);
    let both = rule(
        crc(CrcKind::Crc32c, BlockSize::B520),
        crc(CrcKind::Crc64Xp10, BlockSize::B4048),
        None,
    );
    assert_eq!(post(&mut bed, &key, false, Some(&both), &[0x40]), Ok(3));
    let wqe = bed.wqe(62, 256);
    // 16 units, and no completion.
    assert_eq!(
        wqe[..12],
        [0, 0, 62, 0x25, 0xab, 0xcd, 0xef, 16, 0, 0, 0, 0]
    );
    // Four octowords of layout, four of format.
    assert_eq!(wqe[16..24], [0x80, 0, 0, 0, 0, 4, 0, 4]);
    assert_eq!(
        marks(&bed, 62),
        (KEY | LENGTH | FORMAT | ERRORS, 1 << 30 | 1 << 26)
    );
    let mut format = [0; 64];
    format[..4].copy_from_slice(&[0x80, 0x5a, 6, 2]);
    format[4..8].fill(0xff);
    format[8..12].copy_from_slice(&[0x52, 0x0d, 0x0e, 0x0f]);
    format[12..16].copy_from_slice(&[0x42, 0x0a, 0x0b, 0x0c]);
    assert_eq!(wqe[192..], format);
    // SET_PSV behind a small fence, the second with a completion.
    let mut state = [0; 32];
    state[..12].copy_from_slice(&[0, 0, 66, 0x20, 0xab, 0xcd, 0xef, 2, 0, 0, 0, 0x20]);
    state[16..20].copy_from_slice(&[0, 0x0a, 0x0b, 0x0c]);
    state[24..28].fill(0xff);
    assert_eq!(bed.wqe(2, 32), state);
    state[2] = 67;
    state[11] = 0x28;
    state[16..20].copy_from_slice(&[0, 0x0d, 0x0e, 0x0f]);
    state[24..].fill(0xff);
    assert_eq!(bed.wqe(3, 32), state);
    let record = |block| bed.record.send().unwrap().record(block);
    for block in [62, 66, 67] {
        assert_eq!(record(block).kind, WorkKind::Mkey);
        assert_eq!(record(block).wr_id, 9);
    }
}

/// What a key's rule so far means for changes that say nothing of it.
#[test]
fn rules_last() {
    let mut bed = bed(8);
    let key = KeySignature::new(MEMORY, WIRE);
    let mut at = 0;
    let mut after = |bed: &mut Bed, reset, rule: Option<&SignatureRule>| {
        let posted = post(bed, &key, reset, rule, &[]);
        let marks = marks(bed, at);
        at = bed.queue.posted_blocks() as usize % 64;
        (posted, marks)
    };
    let wire = rule(None, crc(CrcKind::Crc32, BlockSize::B512), Some(3));
    // Bytes are passed on between two sides only.
    let (posted, _) = after(&mut bed, false, Some(&wire));
    assert_eq!(posted, Err(PostError::KeySignature));
    // Never had one, and the refused rule is none: the format is off. The count of errors is told once.
    let off = (KEY | FORMAT | ERRORS, 1 << 26);
    assert_eq!(after(&mut bed, false, None), (Ok(1), off));
    assert_eq!(after(&mut bed, false, None), (Ok(1), (KEY | FORMAT, 0)));
    let memory = rule(crc(CrcKind::Crc32, BlockSize::B512), None, None);
    let on = (KEY | FORMAT, 1 << 30);
    assert_eq!(after(&mut bed, false, Some(&memory)), (Ok(2), on));
    assert_eq!(after(&mut bed, false, None), (Ok(1), (KEY, 0)));
    // After an error the state is set again, and the count is another one.
    let keys = SignatureKeys::default();
    let key_again = Arc::new(KeySignature::new(1, 2));
    keys.insert(3, key_again.clone());
    let found = wqe_format::mlx5::SignatureErrorCqe {
        mkey: U32::new(0x344),
        ..Default::default()
    };
    key_again.state().rule = Some(memory);
    assert!(keys.keep(found) && keys.keep(found));
    assert_eq!(post(&mut bed, &key_again, false, None, &[]), Ok(2));
    assert_eq!(post(&mut bed, &key_again, false, None, &[]), Ok(1));
    at = bed.queue.posted_blocks() as usize % 64;
    let mut after = |bed: &mut Bed, reset| {
        let posted = post(bed, &key, reset, None, &[]);
        let marks = marks(bed, at);
        at = bed.queue.posted_blocks() as usize % 64;
        (posted, marks)
    };
    assert_eq!(after(&mut bed, true), (Ok(1), (KEY | FORMAT, 0)));
    assert_eq!(after(&mut bed, false), (Ok(1), (KEY | FORMAT, 0)));
}

/// What is refused leaves the key as it was, and nothing in the queue.
#[test]
fn refused() {
    let memory = rule(crc(CrcKind::Crc32, BlockSize::B512), None, None);
    for (max_wr, lengths, error) in [
        (8, &[1; 5][..], PostError::InlineTooLong),
        (8, &[0x7fff_ffff; 3][..], PostError::KeySignature),
        (1, &[1; 1][..], PostError::QueueFull),
    ] {
        let mut bed = bed(max_wr);
        let key = KeySignature::new(MEMORY, WIRE);
        assert_eq!(
            post(&mut bed, &key, false, Some(&memory), lengths),
            Err(error)
        );
        assert_eq!(bed.queue.posted_blocks(), 0);
        assert!(key.state().rule.is_none() && key.state().to_tell);
    }
    // The length of an earlier change counts too.
    let mut bed = bed(8);
    let key = KeySignature::new(MEMORY, WIRE);
    assert_eq!(post(&mut bed, &key, false, None, &[0x7fff_ffff; 3]), Ok(1));
    assert_eq!(
        post(&mut bed, &key, false, Some(&memory), &[]),
        Err(PostError::KeySignature)
    );
    assert_eq!(post(&mut bed, &key, false, Some(&memory), &[4]), Ok(2));
}
