//! Verbs calls as data: what the generator makes and every implementation carries out.

use std::io;
use std::ptr::{self, NonNull};

use serde::{Deserialize, Serialize};

use crate::direct::More;

/// Which of the two posting interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Api {
    /// `ibv_post_send` with a chain.
    Chain,
    /// `ibv_wr_start`, builders and setters, `ibv_wr_complete`.
    Builder,
}

/// Service type of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// XRC initiator.
    Xrc,
    /// Raw Ethernet.
    Raw,
    /// Dynamically connected initiator.
    Dci,
    /// Reliable connection with mlx5dv's operations.
    Direct,
}

impl Service {
    /// All that the generator drives.
    pub const ALL: [Self; 7] = [
        Self::Rc,
        Self::Uc,
        Self::Ud,
        Self::Xrc,
        Self::Raw,
        Self::Dci,
        Self::Direct,
    ];

    /// Whether `mlx5dv_create_qp` makes it; such have no `ibv_post_send` here. Our plug-in has none of them: programs that
    /// make them are linked with libmlx5.
    pub const fn is_direct(self) -> bool {
        matches!(self, Self::Dci | Self::Direct)
    }

    /// `enum ibv_qp_type`.
    pub const fn number(self) -> u32 {
        match self {
            Self::Rc | Self::Direct => 2,
            Self::Dci => 0xff,
            Self::Uc => 3,
            Self::Ud => 4,
            Self::Raw => 8,
            Self::Xrc => 9,
        }
    }

    /// Interfaces that it has.
    pub const fn interfaces(self) -> &'static [Api] {
        match self.is_direct() {
            true => &[Api::Builder],
            false => &[Api::Chain, Api::Builder],
        }
    }

    /// Operations that its interfaces offer on it.
    pub const fn opcodes(self) -> &'static [Opcode] {
        use Opcode::*;
        match self {
            Self::Rc | Self::Xrc => RELIABLE,
            Self::Uc => &[Send, SendImm, SendInv, Write, WriteImm, LocalInv, BindMw],
            Self::Ud => &[Send, SendImm],
            Self::Raw => &[Send, Tso],
            Self::Dci => RELIABLE_AND_DIRECT,
            Self::Direct => &[
                Send,
                Write,
                LocalInv,
                Key,
                KeyList,
                KeyPattern,
                Memcpy,
                Raw,
                MaskedSwap8,
                MaskedAdd8,
                MaskedSwap4,
                MaskedAdd4,
            ],
        }
    }
}

/// What a reliable service does by verbs, and then what mlx5dv adds to it on an initiator of dynamic connections.
const RELIABLE_AND_DIRECT: &[Opcode] = {
    use Opcode::*;
    &[
        Send,
        SendImm,
        SendInv,
        Write,
        WriteImm,
        Read,
        CompareSwap,
        FetchAdd,
        LocalInv,
        BindMw,
        Memcpy,
        Raw,
    ]
};
/// Without what mlx5dv adds.
const RELIABLE: &[Opcode] = RELIABLE_AND_DIRECT
    .split_at(RELIABLE_AND_DIRECT.len() - 2)
    .0;

/// Operation of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the verbs' names")]
pub enum Opcode {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
    LocalInv,
    BindMw,
    Tso,
    /// `mlx5dv_wr_mkey_configure` with setters.
    Key,
    /// `mlx5dv_wr_mr_list`.
    KeyList,
    /// `mlx5dv_wr_mr_interleaved`.
    KeyPattern,
    /// `mlx5dv_wr_memcpy`.
    Memcpy,
    /// `mlx5dv_wr_raw_wqe`.
    Raw,
    MaskedSwap8,
    MaskedAdd8,
    MaskedSwap4,
    MaskedAdd4,
}

impl Opcode {
    /// `enum ibv_wr_opcode`; mlx5dv's are in no list.
    pub const fn number(self) -> u32 {
        match self {
            direct if direct.is_direct() => u32::MAX,
            Self::Write => 0,
            Self::WriteImm => 1,
            Self::Send => 2,
            Self::SendImm => 3,
            Self::Read => 4,
            Self::CompareSwap => 5,
            Self::FetchAdd => 6,
            Self::LocalInv => 7,
            Self::BindMw => 8,
            Self::SendInv => 9,
            Self::Tso => 10,
            _ => u32::MAX,
        }
    }

    /// The device's opcode (mlx5dv.h `MLX5_OPCODE_*`).
    pub const fn device(self) -> u8 {
        match self {
            Self::SendInv => 0x01,
            Self::Write => 0x08,
            Self::WriteImm => 0x09,
            Self::Send => 0x0a,
            Self::SendImm => 0x0b,
            Self::Tso => 0x0e,
            Self::Read => 0x10,
            Self::CompareSwap => 0x11,
            Self::FetchAdd => 0x12,
            Self::LocalInv | Self::BindMw | Self::Key | Self::KeyList | Self::KeyPattern => 0x25,
            Self::Memcpy => 0x2f,
            Self::MaskedSwap8 | Self::MaskedSwap4 => 0x14,
            Self::MaskedAdd8 | Self::MaskedAdd4 => 0x15,
            // Its own says it.
            Self::Raw => 0,
        }
    }

    /// `IBV_QP_EX_WITH_…` that offers it.
    pub const fn builder_flag(self) -> u64 {
        match self {
            Self::Write => 1,
            Self::WriteImm => 1 << 1,
            Self::Send => 1 << 2,
            Self::SendImm => 1 << 3,
            Self::Read => 1 << 4,
            Self::CompareSwap => 1 << 5,
            Self::FetchAdd => 1 << 6,
            Self::LocalInv => 1 << 7,
            Self::BindMw => 1 << 8,
            Self::SendInv => 1 << 9,
            Self::Tso => 1 << 10,
            _ => 0,
        }
    }

    /// Whether data is part of it.
    pub const fn has_data(self) -> bool {
        !matches!(self, Self::LocalInv | Self::BindMw) && (!self.is_direct() || self.is_masked())
    }

    /// Whether it is one of mlx5dv's.
    pub const fn is_direct(self) -> bool {
        matches!(
            self,
            Self::Key | Self::KeyList | Self::KeyPattern | Self::Memcpy | Self::Raw
        ) || self.is_masked()
    }

    /// Whether it is an atomic under masks, which verbs does not have.
    pub const fn is_masked(self) -> bool {
        matches!(
            self,
            Self::MaskedSwap8 | Self::MaskedAdd8 | Self::MaskedSwap4 | Self::MaskedAdd4
        )
    }

    /// Whether the next work request has a small fence.
    pub const fn changes_keys(self) -> bool {
        matches!(
            self,
            Self::LocalInv | Self::BindMw | Self::Key | Self::KeyList | Self::KeyPattern
        )
    }

    /// Whether its data can be inline.
    pub const fn can_inline(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImm | Self::SendInv | Self::Write | Self::WriteImm
        )
    }

    /// Whether it is an atomic operation.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd) || self.is_masked()
    }
}

/// `enum ibv_send_flags`.
pub mod flags {
    /// Wait for reads and atomics before.
    pub const FENCE: u8 = 1;
    /// A completion is wanted.
    pub const SIGNALED: u8 = 2;
    /// The receiver's event is wanted.
    pub const SOLICITED: u8 = 4;
    /// Data is in the work request.
    pub const INLINE: u8 = 8;
    /// Checksums by the device.
    pub const IP_CSUM: u8 = 16;
}

/// A piece of memory: its place in the arena (or any address, for data that is not copied), length and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Address.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Local key.
    pub lkey: u32,
}

/// What a memory window is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Type 2 rather than 1.
    pub is_type_2: bool,
    /// The window's present key.
    pub window_rkey: u32,
    /// Key of the region.
    pub mr_lkey: u32,
    /// Start.
    pub address: u64,
    /// Bytes; 0 unbinds.
    pub len: u64,
    /// `ibv_access_flags`.
    pub access: u32,
}

/// A send work request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wr {
    /// The caller's number.
    pub id: u64,
    /// Operation.
    pub opcode: Opcode,
    /// [`flags`] without [`flags::INLINE`].
    pub flags: u8,
    /// Whether the pieces are copied into the work request.
    pub is_inline: bool,
    /// Data.
    pub pieces: Vec<Piece>,
    /// Builder: setters for lists even for one piece.
    pub uses_list: bool,
    /// Builder, datagrams and XRC: the address is set before the data.
    pub address_first: bool,
    /// Remote address.
    pub remote: u64,
    /// Remote key; for LOCAL_INV and SEND with invalidate the key; for BIND_MW the new key.
    pub rkey: u32,
    /// Immediate data, in network order as the caller has it.
    pub imm: u32,
    /// Operand of compare-and-swap, or what fetch-and-add adds.
    pub compare_add: u64,
    /// New value of compare-and-swap.
    pub swap: u64,
    /// Which of the address handles.
    pub handle: usize,
    /// Datagram: queue pair addressed.
    pub remote_qpn: u32,
    /// Datagram: its key.
    pub remote_qkey: u32,
    /// XRC: shared receive queue addressed.
    pub srqn: u32,
    /// BIND_MW.
    pub bind: Bind,
    /// TSO: headers.
    pub header: Piece,
    /// TSO: maximum segment size.
    pub mss: u16,
    /// What verbs has no word for.
    #[serde(default, skip_serializing_if = "More::is_none")]
    pub more: More,
}

impl Wr {
    /// The device's opcode.
    pub fn device(&self) -> u8 {
        match self.opcode {
            Opcode::Raw => self.more.raw[3],
            opcode => opcode.device(),
        }
    }
}

/// One posting call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Post {
    /// By which interface.
    pub api: Api,
    /// Its work requests, at least one.
    pub wrs: Vec<Wr>,
    /// Builder: `ibv_wr_abort` instead of `ibv_wr_complete`.
    pub aborts: bool,
}

/// How a posting call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// 0 or an errno.
    pub errno: i32,
    /// Chain: index of the work request that was refused.
    pub refused: Option<usize>,
}

impl Outcome {
    /// Everything was posted.
    pub const DONE: Self = Self {
        errno: 0,
        refused: None,
    };
}

/// Memory that inline data comes from: bytes that differ from each other and from both poisons as far as bytes can. It is at
/// the same address in every process, so that recorded work requests stay good.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<u8>,
}

impl Arena {
    /// Bytes of it.
    pub const LEN: usize = 1 << 14;
    /// Where it is: far from what the loader and the allocators of x86-64 Linux use.
    const ADDRESS: usize = 0x2a00_0000_0000;

    /// Maps it and fills it from a seed.
    ///
    /// # Errors
    ///
    /// Something else is there; one at a time.
    pub fn new(seed: u64) -> io::Result<Self> {
        // SAFETY: a new mapping, over nothing that is mapped.
        let start = unsafe {
            libc::mmap(
                ptr::with_exposed_provenance_mut(Self::ADDRESS),
                Self::LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut state = seed | 1;
        for offset in 0..Self::LEN {
            // Marsaglia's xorshift: any sequence does that has no period a WQE could hide in.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // SAFETY: inside the mapping.
            let byte = unsafe { start.add(offset) };
            // SAFETY: as above.
            unsafe { byte.write((state >> 24) as u8) };
        }
        start.as_ptr().expose_provenance();
        Ok(Self { start })
    }

    /// Address of the byte at `offset`.
    pub fn address(&self, offset: usize) -> u64 {
        (self.start.as_ptr().addr() + offset) as u64
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, to which no pointer is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), Self::LEN) };
    }
}
