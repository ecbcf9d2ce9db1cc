//! What libmlx5 knows of a send ring's blocks, which it cancels by (`wqe_head` of its `struct mlx5_wq`).
//!
//! The next work request is where the next block with the next number is. Batches that are aborted or refused leave such
//! numbers too, and nobody removes them: one of them in the midst of a later work request leads libmlx5 astray.

/// The numbers of the work requests that begin at a ring's blocks.
#[derive(Debug)]
pub struct Heads {
    of: Vec<Option<u32>>,
    /// Work requests posted.
    head: u32,
}

impl Heads {
    /// Of a ring of so many blocks, in which nothing was posted. (libmlx5 does not clear its array.)
    pub fn new(ring: u32) -> Self {
        Self {
            of: vec![None; ring as usize],
            head: 0,
        }
    }

    /// Where in the ring a block is.
    pub fn place(&self, block: u32) -> usize {
        block as usize % self.of.len()
    }

    /// A batch's work requests begin at these blocks.
    pub fn write(&mut self, firsts: impl IntoIterator<Item = u32>) {
        for (number, first) in firsts.into_iter().enumerate() {
            let place = self.place(first);
            self.of[place] = Some(self.head + number as u32);
        }
    }

    /// One is refused there, before or after its number is written.
    pub fn refuse(&mut self, first: u32) {
        let place = self.place(first);
        self.of[place] = None;
    }

    /// So many of what was written are posted.
    pub fn post(&mut self, count: u32) {
        self.head += count;
    }

    /// Places where libmlx5 looks for work requests, from a block on. `None`: what it does is not known, as it goes by a
    /// number that nobody wrote, or by one behind its array (it does where a work request of one block ends the ring).
    pub fn walk(&self, from: u32) -> Option<Vec<usize>> {
        let ring = self.of.len();
        let mut at = self.place(from);
        let mut found = Vec::new();
        loop {
            found.push(at);
            let next = self.of[at]? + 1;
            if next == self.head {
                return Some(found);
            }
            at += 1;
            let mut steps = 0;
            while *self.of.get(at)? != Some(next) {
                self.of[at]?;
                at = (at + 1) % ring;
                steps += 1;
                assert!(steps < ring, "{next} of {} is nowhere", self.head);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Heads;

    #[test]
    fn follows_numbers_that_an_aborted_batch_left() {
        let mut heads = Heads::new(8);
        heads.write(0..8);
        heads.post(8);
        assert_eq!(heads.walk(6), Some(vec![6, 7]));
        // Aborted.
        heads.write(8..11);
        // One of three blocks, two of one.
        heads.write([8, 11, 12]);
        heads.post(3);
        assert_eq!(heads.walk(8), Some(vec![0, 1, 2]));
        assert_eq!(heads.walk(11), Some(vec![3, 4]));
    }

    #[test]
    fn what_is_not_known() {
        let mut heads = Heads::new(4);
        heads.write([0, 2]);
        heads.post(2);
        // Block 1 was never written.
        assert_eq!(heads.walk(0), None);
        assert_eq!(heads.walk(2), Some(vec![2]));
        heads.write([3, 4]);
        heads.post(2);
        // Behind the array.
        assert_eq!(heads.walk(3), None);
        heads.refuse(5);
        heads.write([5]);
        heads.post(1);
        assert_eq!(heads.walk(4), Some(vec![0, 1]));
        heads.refuse(4);
        assert_eq!(heads.walk(4), None);
    }
}
