//! Every operation of a reliable connection once, with its data looked at on both ends.

use crate::ends::{Pair, Result, reap};

/// Bytes that move: more than one packet.
const LEN: usize = 10_000;

/// Data that no other check leaves behind.
fn pattern(seed: u8) -> Vec<u8> {
    (0..LEN)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

fn expect(what: &str, is: bool) -> Result<()> {
    match is {
        true => Ok(()),
        false => Err(format!("{what}: the data is not what was sent").into()),
    }
}

impl Pair {
    /// A SEND with immediate data into a posted receive.
    pub(crate) fn send(&mut self) -> Result<()> {
        let data = pattern(1);
        self.near.memory.copy_in(0, &data);
        let to = [self.far.memory.sge(0..LEN)];
        // SAFETY: the memory outlives the request, which is waited for below.
        unsafe { self.far.qp.recv_half().post_sges(7, &to) }?;
        let from = [self.near.memory.sge(0..LEN)];
        let mut batch = self.near.qp.send_batch();
        batch.send_imm(1, 0x0a11_0ca7).signaled().sges(&from);
        // SAFETY: as above.
        unsafe { batch.post() }?;
        let received = reap(&mut self.far.recv_cq, 1)?;
        reap(&mut self.near.send_cq, 1)?;
        let says = received.wr_id() == 7
            && received.byte_len() as usize == LEN
            && received.immediate() == Some(0x0a11_0ca7);
        expect("SEND", says && self.far.memory.to_vec(0..LEN) == data)
    }

    /// A WRITE into the other end's memory.
    pub(crate) fn write(&mut self) -> Result<()> {
        let data = pattern(2);
        self.near.memory.copy_in(0, &data);
        let from = [self.near.memory.sge(0..LEN)];
        let mut batch = self.near.qp.send_batch();
        batch
            .write(2, self.far.memory.remote(LEN))
            .signaled()
            .sges(&from);
        // SAFETY: the memory outlives the request, which is waited for.
        unsafe { batch.post() }?;
        reap(&mut self.near.send_cq, 1)?;
        let there = self.far.memory.to_vec(LEN..2 * LEN);
        expect("WRITE", there == data)
    }

    /// A READ of the other end's memory.
    pub(crate) fn read(&mut self) -> Result<()> {
        let data = pattern(3);
        self.far.memory.copy_in(2 * LEN, &data);
        let to = [self.near.memory.sge(0..LEN)];
        let mut batch = self.near.qp.send_batch();
        batch
            .read(3, self.far.memory.remote(2 * LEN))
            .signaled()
            .sges(&to);
        // SAFETY: the memory outlives the request, which is waited for.
        unsafe { batch.post() }?;
        reap(&mut self.near.send_cq, 1)?;
        expect("READ", self.near.memory.to_vec(0..LEN) == data)
    }

    /// A compare and swap, and a fetch and add, on the other end's memory.
    pub(crate) fn atomics(&mut self) -> Result<()> {
        const AT: usize = 64 * 1024;
        self.far.memory.copy_in(AT, &40u64.to_ne_bytes());
        let to = [self.near.memory.sge(0..8)];
        for (add, finds, leaves) in [(false, 40, 41), (true, 41, 43)] {
            let at = self.far.memory.remote(AT);
            let mut batch = self.near.qp.send_batch();
            let request = match add {
                false => batch.compare_swap(4, at, 40, 41),
                true => batch.fetch_add(5, at, 2),
            };
            request.signaled().sges(&to);
            // SAFETY: the memory outlives the request, which is waited for.
            unsafe { batch.post() }?;
            reap(&mut self.near.send_cq, 1)?;
            let found = self.near.memory.to_vec(0..8) == u64::to_ne_bytes(finds);
            let left = self.far.memory.to_vec(AT..AT + 8) == u64::to_ne_bytes(leaves);
            expect("atomic", found && left)?;
        }
        Ok(())
    }
}
