//! Numbered objects.

use std::collections::BTreeMap;

/// Objects by number. Numbers are given out in turn, so that one just freed isn't met again soon.
#[derive(Debug)]
pub(crate) struct Table<T> {
    entries: BTreeMap<u32, T>,
    first: u32,
    last: u32,
    next: u32,
}

impl<T> Table<T> {
    /// A table of the numbers from `first` to `last`, both included.
    pub(crate) fn new(first: u32, last: u32) -> Table<T> {
        Table {
            entries: BTreeMap::new(),
            first,
            last,
            next: first,
        }
    }

    /// A number nobody has, which the next call of `insert` is for.
    pub(crate) fn free_number(&mut self) -> Option<u32> {
        if self.entries.len() as u64 > u64::from(self.last - self.first) {
            return None;
        }
        loop {
            let number = self.next;
            self.next = if number == self.last {
                self.first
            } else {
                number + 1
            };
            if !self.entries.contains_key(&number) {
                return Some(number);
            }
        }
    }

    pub(crate) fn insert(&mut self, number: u32, entry: T) {
        self.entries.insert(number, entry);
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.entries.remove(&number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().map(|(&number, entry)| (number, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_round_and_end() {
        let mut table = Table::new(4, 6);
        for expected in 4..=6 {
            let number = table.free_number().unwrap();
            assert_eq!(number, expected);
            table.insert(number, ());
        }
        assert_eq!(table.free_number(), None);
        table.remove(5);
        assert_eq!(table.free_number(), Some(5));
    }
}
