//! Memory that is nowhere: it can stand in any list of one's own, takes whatever is written and is read as zeros
//! (`ibv_alloc_null_mr`).

use super::{Need, Suite};
use crate::check::{Check, Stop, equal};
use crate::fixture::{Env, Pair, Setup, Side};
use crate::verbs::types::*;

const NEEDS: [Need; 2] = [Need::NullMemory, Need::Loopback];
/// Bytes on both sides of a gap, and in it.
const EDGE: u32 = 100;
const GAP: u32 = 57;

pub(super) fn cases(suite: &mut Suite) {
    for transport in Transport::ALL {
        suite.case(format!("null/{transport}/send"), &NEEDS, move |env| {
            sends(env, transport)
        });
        suite.case(format!("null/{transport}/receive"), &NEEDS, move |env| {
            receives(env, transport)
        });
    }
    suite.case("null/rc/write", &NEEDS, writes);
    suite.case("null/rc/read", &NEEDS, reads);
    let long = [Need::NullMemory, Need::Loopback, Need::Message(1 << 20)];
    suite.case("null/rc/long_message", &long, |env| {
        let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
        let (a, b) = (&pair.a, &pair.b);
        b.post_recv(&[RecvWr::new(1, [nowhere(b, 1 << 20)?])])?;
        a.post(SendWr::new(2, Op::Send, [nowhere(a, 1 << 20)?]))?;
        a.sent_one(2, &[Status::SUCCESS])?;
        let got = b.received_one(1, &[Status::SUCCESS])?;
        equal("byte_len", got.byte_len, 1 << 20)
    });
}

/// So many bytes that are nowhere. Where they begin does not matter.
fn nowhere(side: &Side<'_>, len: u32) -> Check<Sge> {
    let key = side.v.extras().and_then(|extras| extras.null_key());
    let lkey = key.ok_or_else(|| Stop::Fail("the key of nowhere is gone".to_owned()))?;
    Ok(Sge {
        addr: 0x1234_5678_9abc,
        len,
        lkey,
    })
}

/// Memory, a gap, and the memory right behind the first.
fn with_gap(side: &Side<'_>, at: u32) -> Check<[Sge; 3]> {
    Ok([
        side.sge(at.into(), EDGE),
        nowhere(side, GAP)?,
        side.sge((at + EDGE).into(), EDGE),
    ])
}

/// What a list with a gap sends: its memory, zeros for the gap.
fn expect_with_zeros(side: &Side<'_>, at: u64, sent: &[u8]) -> Check {
    let (head, tail) = sent.split_at(EDGE as usize);
    side.expect_at(at, &[head, &[0; GAP as usize], tail].concat())
}

/// Fills the start of both ends' memory, each otherwise; what is in the first's.
fn fill(pair: &Pair<'_>) -> Check<Vec<u8>> {
    pair.a.fill(0, 1024, 3)?;
    pair.b.fill(0, 1024, 4)?;
    Ok(pair.a.v.read(pair.a.buf, 0, u64::from(2 * EDGE))?)
}

fn sends(env: &Env, transport: Transport) -> Check {
    let pair = Pair::connected(env, &Setup::new(transport))?;
    let (a, b) = (&pair.a, &pair.b);
    let sent = fill(&pair)?;
    let at = b.grh();
    b.post_recv(&[RecvWr::new(1, [b.sge(0, 1024)])])?;
    a.post(SendWr::new(2, Op::Send, with_gap(a, 0)?))?;
    a.sent_one(2, &[Status::SUCCESS])?;
    let got = b.received_one(1, &[Status::SUCCESS])?;
    equal("byte_len", got.byte_len, at as u32 + 2 * EDGE + GAP)?;
    expect_with_zeros(b, at, &sent)
}

/// What comes for the gap is gone, and what is around it is where it belongs.
fn receives(env: &Env, transport: Transport) -> Check {
    let pair = Pair::connected(env, &Setup::new(transport))?;
    let (a, b) = (&pair.a, &pair.b);
    let at = b.grh() as u32;
    a.fill(0, 1024, 3)?;
    b.fill(0, 1024, 4)?;
    let sent = a.v.read(a.buf, 0, (2 * EDGE + GAP).into())?;
    let untouched = b.v.read(b.buf, u64::from(at + 2 * EDGE), 512)?;
    let mut list = vec![b.sge(512 - u64::from(at), at)];
    list.retain(|piece| piece.len != 0);
    list.extend(with_gap(b, at)?);
    b.post_recv(&[RecvWr::new(1, list)])?;
    a.post(SendWr::new(2, Op::Send, [a.sge(0, 2 * EDGE + GAP)]))?;
    a.sent_one(2, &[Status::SUCCESS])?;
    let got = b.received_one(1, &[Status::SUCCESS])?;
    equal("byte_len", got.byte_len, at + 2 * EDGE + GAP)?;
    let (head, tail) = sent.split_at(EDGE as usize);
    let around = [head, &tail[GAP as usize..]].concat();
    b.expect_at(at.into(), &around)?;
    let behind = &untouched[..(512 - at - at - 2 * EDGE) as usize];
    b.expect_at((at + 2 * EDGE).into(), behind)
}

fn writes(env: &Env) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    let sent = fill(&pair)?;
    let behind = b.v.read(b.buf, u64::from(2 * EDGE + GAP), 64)?;
    a.post(SendWr::new(2, Op::Write(b.remote(0)), with_gap(a, 0)?))?;
    a.sent_one(2, &[Status::SUCCESS])?;
    expect_with_zeros(b, 0, &sent)?;
    b.expect_at((2 * EDGE + GAP).into(), &behind)
}

fn reads(env: &Env) -> Check {
    let pair = Pair::connected(env, &Setup::new(Transport::Rc))?;
    let (a, b) = (&pair.a, &pair.b);
    fill(&pair)?;
    let remote = b.v.read(b.buf, 0, (2 * EDGE + GAP).into())?;
    let behind = a.v.read(a.buf, u64::from(2 * EDGE), 64)?;
    a.post(SendWr::new(2, Op::Read(b.remote(0)), with_gap(a, 0)?))?;
    a.sent_one(2, &[Status::SUCCESS])?;
    let (head, tail) = remote.split_at(EDGE as usize);
    a.expect_at(0, &[head, &tail[GAP as usize..]].concat())?;
    a.expect_at((2 * EDGE).into(), &behind)
}
