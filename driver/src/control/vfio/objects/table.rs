//! Handles.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sys::errno::Errno;

/// Objects of a kind by handle: the device's number, of 24 bits, for those that events name by it; a larger one
/// for others. Of these, one that became free is not the next to be given out, so that a stale one is noticed.
#[derive(Debug)]
pub(super) struct Table<T> {
    inner: Mutex<Inner<T>>,
}

/// The device has no number as large as this.
const NUMBERS: u32 = 1 << 24;
/// How many handles a table gives out before it begins again.
const HANDLES: u32 = 1 << 28;

#[derive(Debug)]
struct Inner<T> {
    objects: HashMap<u32, Arc<T>>,
    first: u32,
    last: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::starting_at(NUMBERS)
    }
}

impl<T> Table<T> {
    /// One whose handles are another table's at no time, if they begin as far apart as [`HANDLES`].
    pub(super) fn starting_at(first: u32) -> Self {
        Self {
            inner: Mutex::new(Inner {
                objects: HashMap::new(),
                first,
                last: first,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle for an object.
    pub(super) fn insert(&self, object: T) -> u32 {
        let mut inner = self.lock();
        loop {
            let Inner { first, last, .. } = *inner;
            let handle = first + (last - first + 1) % HANDLES;
            inner.last = handle;
            if let Entry::Vacant(free) = inner.objects.entry(handle) {
                free.insert(Arc::new(object));
                return handle;
            }
        }
    }

    /// The object; `EINVAL`, as the kernel says it, if there is none.
    pub(super) fn get(&self, handle: u32) -> Result<Arc<T>, Errno> {
        let object = self.lock().objects.get(&handle).cloned();
        object.ok_or(Errno(libc::EINVAL))
    }

    /// An object whose handle is the device's number of it.
    pub(super) fn insert_at(&self, number: u32, object: T) -> u32 {
        self.lock().objects.insert(number, Arc::new(object));
        number
    }

    /// Looks at an object, if there is one, without keeping it from being destroyed afterwards.
    pub(super) fn look<R>(&self, handle: u32, at: impl FnOnce(&T) -> R) -> Option<R> {
        self.lock().objects.get(&handle).map(|object| at(object))
    }

    /// Destroys an object: it is gone if `destroy` succeeds, which nobody can use it during. `EBUSY` while
    /// others refer to it.
    pub(super) fn remove<R>(
        &self,
        handle: u32,
        destroy: impl FnOnce(&T) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let taken = {
            let mut inner = self.lock();
            let object = inner.objects.remove(&handle).ok_or(Errno(libc::EINVAL))?;
            match Arc::try_unwrap(object) {
                Ok(object) => object,
                Err(object) => {
                    inner.objects.insert(handle, object);
                    return Err(Errno(libc::EBUSY));
                }
            }
        };
        // not under the lock: it may wait for the firmware
        match destroy(&taken) {
            Ok(result) => Ok(result),
            Err(errno) => {
                self.lock().objects.insert(handle, Arc::new(taken));
                Err(errno)
            }
        }
    }

    /// Puts another object in the place of one, after `destroy` has destroyed that. `EBUSY` while others
    /// refer to it.
    pub(super) fn replace(
        &self,
        handle: u32,
        with: T,
        destroy: impl FnOnce(&T) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.remove(handle, destroy)?;
        self.lock().objects.insert(handle, Arc::new(with));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_in_use_stays() {
        let table = Table::default();
        let handle = table.insert(7);
        let user = table.get(handle).unwrap();
        let busy = table.remove(handle, |_| Ok(()));
        assert_eq!(busy, Err(Errno(libc::EBUSY)));
        drop(user);
        assert_eq!(table.remove(handle, |object| Ok(*object)), Ok(7));
        assert_eq!(table.get(handle), Err(Errno(libc::EINVAL)));
    }

    #[test]
    fn an_object_that_cannot_be_destroyed_stays() {
        let table = Table::default();
        let handle = table.insert(7);
        let failed = table.remove(handle, |_| Err::<(), _>(Errno(libc::EIO)));
        assert_eq!(failed, Err(Errno(libc::EIO)));
        assert_eq!(table.get(handle).as_deref(), Ok(&7));
        assert_ne!(table.insert(8), handle);
    }
}
