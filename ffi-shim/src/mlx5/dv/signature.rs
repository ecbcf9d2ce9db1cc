//! Signatures of a key: the firmware's states of their computation, and what programs say of them.

use std::sync::Arc;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::mlx5::KeySignature;
use oxverbs::ffi_core::refusal::reason;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::Opcode;
use oxverbs::ffi_core::wqe_format::mlx5::firmware::psv::{CreatePsvIn, CreatePsvOut};
use oxverbs::ffi_core::wqe_format::mlx5::{
    BlockSignature, BlockSize, CrcKind, Escape, Guard, SignatureDomain, SignatureRule,
};

use super::devx;
use crate::abi::objects::ibv_context;
use crate::abi::protection::{
    mlx5dv_sig_block_attr, mlx5dv_sig_block_domain, mlx5dv_sig_crc, mlx5dv_sig_t10dif,
};

/// A state of the firmware's (protection and signature value).
#[derive(Debug)]
struct Psv {
    object: *mut devx::Object,
    index: u32,
}

impl Psv {
    /// # Safety
    ///
    /// An open context.
    unsafe fn new(context: *mut ibv_context, pdn: u32) -> Result<Self, Errno> {
        let mut input = CreatePsvIn::zeroed();
        input
            .set_opcode(Opcode::CREATE_PSV.0)
            .set_pd(pdn)
            .set_num_psv(1);
        let mut output = CreatePsvOut::zeroed();
        // SAFETY: the caller's promise.
        let object = unsafe { devx::create(context, input.as_bytes(), output.as_bytes_mut()) }
            .map_err(|errno| reason(errno, output.as_bytes()))?;
        Ok(Self {
            object,
            index: output.psv0_index(),
        })
    }
}

/// The signatures of a key, with the firmware's states for memory and for the wire.
#[derive(Debug)]
pub(super) struct Signature {
    pub(super) key: Arc<KeySignature>,
    /// Those that are left: one goes after the other.
    psvs: Vec<Psv>,
}

impl Signature {
    /// # Safety
    ///
    /// An open context.
    pub(super) unsafe fn new(context: *mut ibv_context, pdn: u32) -> Result<Self, Errno> {
        // SAFETY: the caller's promise.
        let memory = unsafe { Psv::new(context, pdn) }?;
        // SAFETY: as above.
        let wire = match unsafe { Psv::new(context, pdn) } {
            Ok(wire) => wire,
            Err(errno) => {
                // SAFETY: nobody knows of it; one that stays is gone with the context.
                let _ = unsafe { devx::destroy(memory.object) };
                return Err(errno);
            }
        };
        Ok(Self {
            key: Arc::new(KeySignature::new(memory.index, wire.index)),
            psvs: vec![wire, memory],
        })
    }

    /// Destroys the states, that of memory first. What fails stays, and can be tried again.
    ///
    /// # Safety
    ///
    /// The key is not used any more.
    pub(super) unsafe fn destroy(&mut self) -> Result<(), Errno> {
        while let Some(last) = self.psvs.last() {
            // SAFETY: made by `new`, and used no more.
            unsafe { devx::destroy(last.object) }?;
            self.psvs.pop();
        }
        Ok(())
    }
}

/// `MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK`.
const COPY_MASK: u32 = 1;

/// What a program says, if all of it is in `mlx5dv.h`.
///
/// # Safety
///
/// Attributes as `mlx5dv_wr_set_mkey_sig_block` takes them.
pub(crate) unsafe fn rule(attr: *const mlx5dv_sig_block_attr) -> Option<SignatureRule> {
    // SAFETY: null, or the caller's attributes.
    let attr = unsafe { attr.as_ref() }?;
    if attr.mem.is_null() && attr.wire.is_null()
        || attr.flags & !COPY_MASK != 0
        || attr.comp_mask != 0
    {
        return None;
    }
    let domain = |of: *const mlx5dv_sig_block_domain| {
        // SAFETY: null, or the caller's attributes.
        match unsafe { of.as_ref() } {
            // SAFETY: as above.
            Some(of) => unsafe { domain(of) }.map(Some),
            None => Some(None),
        }
    };
    Some(SignatureRule {
        memory: domain(attr.mem)?,
        wire: domain(attr.wire)?,
        check_mask: attr.check_mask,
        copy_mask: (attr.flags & COPY_MASK != 0).then_some(attr.copy_mask),
    })
}

/// # Safety
///
/// The union has a pointer of the kind that the type says.
unsafe fn domain(of: &mlx5dv_sig_block_domain) -> Option<SignatureDomain> {
    let block = match of.block_size {
        0 => BlockSize::B512,
        1 => BlockSize::B520,
        2 => BlockSize::B4048,
        3 => BlockSize::B4096,
        4 => BlockSize::B4160,
        _ => return None,
    };
    if of.comp_mask != 0 {
        return None;
    }
    let signature = match of.sig_type {
        0 => {
            // SAFETY: by the type.
            t10dif(unsafe { of.sig.cast::<mlx5dv_sig_t10dif>().as_ref() }?)?
        }
        1 => {
            // SAFETY: by the type.
            crc(unsafe { of.sig.cast::<mlx5dv_sig_crc>().as_ref() }?)?
        }
        _ => return None,
    };
    Some(SignatureDomain { block, signature })
}

/// Whether a seed is all ones; none that is neither that nor zero.
fn ones<T: PartialEq + From<u8>>(seed: T, all: T) -> Option<bool> {
    if seed == T::from(0) {
        Some(false)
    } else {
        (seed == all).then_some(true)
    }
}

/// `enum mlx5dv_sig_t10dif_flags`.
mod flag {
    pub(super) const REF_REMAP: u16 = 1;
    pub(super) const APP_ESCAPE: u16 = 1 << 1;
    pub(super) const APP_REF_ESCAPE: u16 = 1 << 2;
}

fn t10dif(of: &mlx5dv_sig_t10dif) -> Option<BlockSignature> {
    let guard = match of.bg_type {
        0 => Guard::Crc,
        1 => Guard::Checksum,
        _ => return None,
    };
    if of.flags & !(flag::REF_REMAP | flag::APP_ESCAPE | flag::APP_REF_ESCAPE) != 0 {
        return None;
    }
    Some(BlockSignature::T10Dif {
        guard,
        ones: ones(of.bg, u16::MAX)?,
        app_tag: of.app_tag,
        ref_tag: of.ref_tag,
        counts: of.flags & flag::REF_REMAP != 0,
        escape: if of.flags & flag::APP_REF_ESCAPE != 0 {
            Escape::BothTags
        } else if of.flags & flag::APP_ESCAPE != 0 {
            Escape::AppTag
        } else {
            Escape::Never
        },
    })
}

fn crc(of: &mlx5dv_sig_crc) -> Option<BlockSignature> {
    let (kind, all) = match of.r#type {
        0 => (CrcKind::Crc32, u32::MAX.into()),
        1 => (CrcKind::Crc32c, u32::MAX.into()),
        2 => (CrcKind::Crc64Xp10, u64::MAX),
        _ => return None,
    };
    Some(BlockSignature::Crc {
        kind,
        ones: ones(of.seed, all)?,
    })
}
