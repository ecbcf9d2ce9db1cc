//! The queue pair that a list of tags is changed by.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use uverbs_abi::types::QpState;

use super::{Kernel, QueuePair, Rc};
use crate::data::mlx5::{PostError, TagList, TagRequest};
use crate::sys::Errno;

impl QueuePair<Rc> {
    /// Connects a new queue pair with itself, for changes of a list of tags and nothing else. `EOPNOTSUPP` on other devices
    /// than mlx5.
    pub(in crate::verbs) fn connect_for_tags(&mut self) -> Result<(), Errno> {
        let shared = self.send.shared.clone();
        let (Kernel::Mlx5 { object, .. }, Some(queue)) = (&shared.kernel, self.send.mlx5()) else {
            return Err(Errno(libc::EOPNOTSUPP));
        };
        let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
        let object = object.as_mut().ok_or(Errno(libc::EINVAL))?;
        object.connect_for_tags(queue)?;
        shared.state.store(QpState::RTS.0, Ordering::Release);
        Ok(())
    }

    /// Posts one change of the list.
    pub(in crate::verbs) fn post_change<R: TagRequest>(
        &mut self,
        list: &TagList,
        change: R,
    ) -> Result<(), PostError> {
        let queue = self.send.mlx5().ok_or(PostError::WrongState)?;
        match list.post(queue, [change]) {
            Ok(_) => Ok(()),
            Err(refused) => Err(refused.error),
        }
    }
}
