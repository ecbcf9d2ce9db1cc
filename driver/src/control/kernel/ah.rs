//! Address handles and multicast groups.

use uverbs_abi::Command;
use uverbs_abi::handle::{Ah, Pd, Qp};
use uverbs_abi::object::ah;
use uverbs_abi::write::WriteCall;
use uverbs_abi::write::ah::{AhAttr, CreateAh, DestroyAh};
use uverbs_abi::write::mcast::{AttachMcast, DetachMcast};
use zerocopy::FromBytes;

use super::{Errno, Tried, Uctx, driver_answer};

impl Uctx {
    /// Makes an address handle. On RoCE the kernel resolves the destination here, so the call may
    /// block and fail with `ETIMEDOUT` or `EHOSTUNREACH`.
    pub fn create_ah<O: FromBytes>(
        &self,
        pd: Pd,
        user_handle: u64,
        attr: &AhAttr,
    ) -> Result<(Ah, O), Errno> {
        if let Some(objects) = self.objects() {
            return objects
                .create_ah(pd, attr)
                .map(|(ah, answer)| (ah, driver_answer(&answer)));
        }
        let mut call = WriteCall::new(CreateAh {
            user_handle,
            pd_handle: pd,
            attr: *attr,
            ..CreateAh::default()
        });
        call.uhw_out::<O>();
        self.write(&mut call)?;
        Ok((call.response().ah_handle, call.uhw()))
    }

    /// Destroys an address handle.
    pub fn destroy_ah(&self, handle: Ah) -> Result<(), Errno> {
        if let Some(objects) = self.objects() {
            return objects.destroy_ah(handle);
        }
        let mut cmd = Command::new();
        cmd.destroy(ah::destroy::HANDLE, handle);
        match self.try_method(&mut cmd)? {
            Tried::Done => Ok(()),
            Tried::Unknown => self.simple(DestroyAh { ah_handle: handle }),
        }
    }

    /// Attaches a queue pair to a multicast group.
    pub fn attach_mcast(&self, qp: Qp, gid: [u8; 16], mlid: u16) -> Result<(), Errno> {
        if let Some(objects) = self.objects() {
            return objects.attach_mcast(qp, gid);
        }
        self.simple(AttachMcast {
            gid,
            qp_handle: qp,
            mlid,
            ..AttachMcast::default()
        })
    }

    /// Detaches a queue pair from a multicast group.
    pub fn detach_mcast(&self, qp: Qp, gid: [u8; 16], mlid: u16) -> Result<(), Errno> {
        if let Some(objects) = self.objects() {
            return objects.detach_mcast(qp, gid);
        }
        self.simple(DetachMcast {
            gid,
            qp_handle: qp,
            mlid,
            ..DetachMcast::default()
        })
    }
}
