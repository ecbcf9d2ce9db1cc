//! What a device says of itself, by family.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::types::{GidEntry, PortAttrEx};
use uverbs_abi::write::device::{ExQueryDeviceResp, QueryDeviceResp};

use crate::config::{Family, Link};
use crate::mlx5;
use crate::request::Uhw;
use crate::rxe;
use crate::state::State;

/// Numbers by which the core checks what a program asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) driver_id: u32,
    pub(crate) comp_vectors: u32,
    /// `enum ib_mtu` of the port.
    pub(crate) mtu: u8,
    /// Outstanding reads and atomics of a queue pair.
    pub(crate) max_rd_atomic: u8,
}

impl State {
    pub(crate) fn facts(&self) -> Facts {
        match self.config.family {
            Family::Rxe => rxe::device::FACTS,
            Family::Mlx5 => mlx5::device::FACTS,
        }
    }

    /// Makes the context of an open file; what the driver answers.
    pub(crate) fn get_context(&mut self, fd: RawFd, uhw: &Uhw<'_>) -> Result<Vec<u8>, Errno> {
        if self.context(fd)?.is_made {
            return Err(Errno(libc::EINVAL));
        }
        let answer = match self.config.family {
            Family::Rxe => Vec::new(),
            Family::Mlx5 => mlx5::ucontext::alloc(self, fd, uhw)?,
        };
        self.context(fd)?.is_made = true;
        Ok(answer)
    }

    /// Whether a path can be taken: port 1, and where the link needs it (or the program says so) a GID.
    pub(crate) fn is_path(&self, port: u8, is_global: bool, sgid_index: u8, gids: usize) -> bool {
        let is_infiniband =
            self.config.family == Family::Mlx5 && self.config.mlx5.link == Link::InfiniBand;
        let gid_fits = usize::from(sgid_index) < gids;
        port == 1 && if is_global { gid_fits } else { is_infiniband }
    }

    pub(crate) fn query_device(&mut self, fd: RawFd) -> Result<QueryDeviceResp, Errno> {
        let index = self.context(fd)?.device;
        Ok(match self.config.family {
            Family::Rxe => rxe::device::query_device(index),
            Family::Mlx5 => mlx5::device::query_device(index),
        })
    }

    pub(crate) fn query_device_ex(&mut self, fd: RawFd) -> Result<ExQueryDeviceResp, Errno> {
        let index = self.context(fd)?.device;
        Ok(match self.config.family {
            Family::Rxe => rxe::device::query_device_ex(index),
            Family::Mlx5 => mlx5::device::query_device_ex(index),
        })
    }

    /// Port 1.
    pub(crate) fn query_port(&mut self, fd: RawFd) -> Result<PortAttrEx, Errno> {
        let index = self.context(fd)?.device;
        Ok(match self.config.family {
            Family::Rxe => rxe::device::query_port(),
            Family::Mlx5 => mlx5::device::query_port(index, self.config.mlx5.link),
        })
    }

    pub(crate) fn gid_entry(&self, gids: &[[u8; 16]], index: u32) -> Option<GidEntry> {
        match self.config.family {
            Family::Rxe => rxe::device::gid_entry(gids, index),
            Family::Mlx5 => mlx5::device::gid_entry(gids, index, self.config.mlx5.link),
        }
    }
}
