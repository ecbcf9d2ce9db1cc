//! Paths to remote ports, and address handles.

use std::sync::Arc;

use uverbs_abi::handle;
use uverbs_abi::udata::rxe::CreateAhResp;
use uverbs_abi::write::ah::{AhAttr, GlobalRoute};
use uverbs_abi::write::qp::QpDest;
use wqe_format::mlx5::DatagramSegment;
use wqe_format::rxe::{AddressVector, Datagram};

use super::advice;
use super::context::{Context, Family};
use super::gid::Gid;
use super::id::ObjectId;
use super::pd::{PdInner, ProtectionDomain};
use crate::control::mlx5::domain::AhObject;
use crate::error::{Error, Result};
use crate::sys::Errno;

/// A path to a remote port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Local port, from 1.
    pub port: u8,
    /// Remote GID; always on RoCE, on InfiniBand where routers are crossed.
    pub gid: Option<Gid>,
    /// Which of the local port's GIDs is the source.
    pub sgid_index: u8,
    /// Routers that may be crossed.
    pub hop_limit: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Remote LID, on InfiniBand.
    pub lid: u16,
    /// Service level.
    pub service_level: u8,
    /// Low bits of the source LID.
    pub src_path_bits: u8,
    /// Limit of the rate.
    pub static_rate: u8,
}

impl Address {
    /// A path by GID, as on RoCE, from the local port's GID `sgid_index`.
    pub fn global(port: u8, sgid_index: u8, gid: Gid) -> Self {
        Self {
            port,
            gid: Some(gid),
            sgid_index,
            hop_limit: 64,
            ..Self::default()
        }
    }

    /// A path by LID, within an InfiniBand subnet.
    pub fn local(port: u8, lid: u16) -> Self {
        Self {
            port,
            lid,
            ..Self::default()
        }
    }

    pub(super) fn to_qp_dest(self) -> QpDest {
        QpDest {
            dgid: self.gid.unwrap_or_default().0,
            flow_label: self.flow_label,
            dlid: self.lid,
            sgid_index: self.sgid_index,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            sl: self.service_level,
            src_path_bits: self.src_path_bits,
            static_rate: self.static_rate,
            is_global: self.gid.is_some().into(),
            port_num: self.port,
            ..QpDest::default()
        }
    }

    fn to_ah_attr(self) -> AhAttr {
        AhAttr {
            grh: GlobalRoute {
                dgid: self.gid.unwrap_or_default().0,
                flow_label: self.flow_label,
                sgid_index: self.sgid_index,
                hop_limit: self.hop_limit,
                traffic_class: self.traffic_class,
                ..GlobalRoute::default()
            },
            dlid: self.lid,
            sl: self.service_level,
            src_path_bits: self.src_path_bits,
            static_rate: self.static_rate,
            is_global: self.gid.is_some().into(),
            port_num: self.port,
            ..AhAttr::default()
        }
    }

    /// What to say when a path does not resolve.
    pub(super) fn describe(&self) -> String {
        match self.gid {
            Some(gid) => format!("GID {gid}"),
            None => format!("LID {}", self.lid),
        }
    }
}

/// Where datagrams go: a path that the kernel resolved.
#[derive(Debug)]
pub struct AddressHandle {
    pd: Arc<PdInner>,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Rxe {
        handle: handle::Ah,
        ah_num: u32,
        av: AddressVector,
    },
    Mlx5(AhObject),
}

impl AddressHandle {
    pub(super) fn new(pd: &ProtectionDomain, address: &Address) -> Result<Self> {
        let pd = Arc::clone(&pd.inner);
        let action = || format!("make an address handle for {}", address.describe());
        let attr = address.to_ah_attr();
        let user_handle = ObjectId::next().0;
        if let Family::Mlx5(context) = &pd.context.family {
            let resolve = || Err(Errno(libc::EOPNOTSUPP));
            let object = context
                .create_ah(pd.handle, user_handle, &attr, resolve)
                .map_err(|errno| advice::resolve(action(), errno))?;
            let data = Data::Mlx5(object);
            return Ok(Self { pd, data });
        }
        let (handle, response) = pd
            .context
            .uctx()
            .create_ah::<CreateAhResp>(pd.handle, user_handle, &attr)
            .map_err(|errno| advice::resolve(action(), errno))?;
        // From here on, an early return destroys the kernel's handle.
        let mut ah = Self {
            pd,
            data: Data::Rxe {
                handle,
                ah_num: response.ah_num,
                av: AddressVector::default(),
            },
        };
        if let Data::Rxe { ah_num: 0, av, .. } = &mut ah.data {
            // Kernels before 5.16 keep no handles and route by what the work request says; rxe takes
            // the next hop from the routing table, not from the address vector's dmac.
            let context = Context {
                inner: Arc::clone(&ah.pd.context),
            };
            let sgid = context
                .query_gid(address.port, address.sgid_index.into())?
                .ok_or_else(|| advice::resolve(action(), Errno(libc::ENODATA)))?;
            let dgid = address
                .gid
                .ok_or_else(|| Error::refused(action(), "RoCE addresses are GIDs"))?;
            *av = AddressVector {
                flow_label: address.flow_label,
                hop_limit: address.hop_limit,
                traffic_class: address.traffic_class,
                ..AddressVector::new(
                    address.port,
                    &sgid.gid.0,
                    address.sgid_index,
                    &dgid.0,
                    [0; 6],
                )
            };
        }
        Ok(ah)
    }

    /// Queue pair `qpn` there, which has the key `qkey`.
    #[inline]
    pub fn queue_pair(&self, qpn: u32, qkey: u32) -> Destination<'_> {
        let to = match &self.data {
            Data::Rxe { ah_num, av, .. } => To::Rxe(Datagram {
                remote_qpn: qpn,
                remote_qkey: qkey,
                ah_num: *ah_num,
                av: *av,
            }),
            Data::Mlx5(object) => To::Mlx5 {
                av: *object.av(),
                qpn,
                qkey,
            },
        };
        Destination { to, _handle: self }
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // mlx5's object does it itself.
        if let Data::Rxe { handle, .. } = self.data
            && self.pd.context.is_ours()
        {
            // A destructor has nobody to tell.
            let _ = self.pd.context.uctx().destroy_ah(handle);
        }
    }
}

/// A remote queue pair that datagrams can be sent to.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'ah> {
    pub(super) to: To,
    _handle: &'ah AddressHandle,
}

/// The same in the words of a device family.
#[derive(Clone, Copy, Debug)]
pub(super) enum To {
    Rxe(Datagram),
    Mlx5 {
        av: DatagramSegment,
        qpn: u32,
        qkey: u32,
    },
    /// No datagram: the peer's shared receive queue.
    Xrc(u32),
}
