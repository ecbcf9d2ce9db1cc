//! Segments of 16 bytes as two words that are stored.
//!
//! A compiler stores a segment field by field, in up to five pieces. Then the copy to a BlueFlame register, which reads words
//! of 8 bytes, finds each word in several pending stores and waits for all of them to reach the cache. These conversions put
//! the words together in registers.

use super::atomic::{
    AtomicSegment, MaskedAtomic4Segment, MaskedFetchAdd4Segment, MaskedFetchAdd8Segment,
};
use super::ctrl::CtrlSegment;
use super::data::DataSegment;
use super::eth::EthPadSegment;
use super::klm::{KlmSegment, RepeatBlockSegment, RepeatEntrySegment};
use super::mmo::MmoSegment;
use super::psv::SetPsvSegment;
use super::raddr::RaddrSegment;
use super::srq::{RecvSignatureSegment, SrqNextSegment};
use super::xrc::XrcSegment;

/// Sixteen bytes as memory holds them: each word's bytes in order.
pub type Unit = [u64; 2];

/// Two big-endian numbers of 32 bits, one behind the other.
#[inline(always)]
const fn pair(first: u32, second: u32) -> u64 {
    ((first as u64) << 32 | second as u64).to_be()
}

impl CtrlSegment {
    /// The bytes as two words; the first is [`doorbell`](Self::doorbell).
    #[inline(always)]
    pub const fn unit(self) -> Unit {
        let [high, low] = self.dci_stream_channel_id;
        let flags = (self.signature as u32) << 24
            | (high as u32) << 16
            | (low as u32) << 8
            | self.fm_ce_se.0 as u32;
        [self.doorbell(), pair(flags, self.imm.get())]
    }
}

impl RaddrSegment {
    /// The bytes as two words.
    #[inline(always)]
    pub const fn unit(self) -> Unit {
        [
            self.raddr.get().to_be(),
            pair(self.rkey.get(), self.reserved.get()),
        ]
    }
}

impl DataSegment {
    /// The bytes as two words.
    #[inline(always)]
    pub const fn unit(self) -> Unit {
        [
            pair(self.byte_count.get(), self.lkey.get()),
            self.addr.get().to_be(),
        ]
    }
}

impl AtomicSegment {
    /// The bytes as two words.
    #[inline(always)]
    pub const fn unit(self) -> Unit {
        [self.swap_add.get().to_be(), self.compare.get().to_be()]
    }
}

impl KlmSegment {
    /// The bytes as two words.
    #[inline(always)]
    pub const fn unit(self) -> Unit {
        [
            pair(self.byte_count.get(), self.mkey.get()),
            self.address.get().to_be(),
        ]
    }
}

impl MmoSegment {
    /// The bytes as two words.
    #[inline(always)]
    pub const fn unit(self) -> Unit {
        [
            pair(self.mmo_control_31_0.get(), self.local_key.get()),
            self.local_address.get().to_be(),
        ]
    }
}

impl XrcSegment {
    /// The bytes as two words; the reserved ones are 0.
    #[inline(always)]
    pub const fn unit(self) -> Unit {
        [pair(self.xrc_srqn.get(), 0), 0]
    }
}

impl SrqNextSegment {
    /// The bytes as two words; the reserved ones are 0.
    #[inline(always)]
    pub const fn unit(self) -> Unit {
        [
            pair(
                self.next_wqe_index.get() as u32,
                (self.signature as u32) << 24,
            ),
            0,
        ]
    }
}

macro_rules! into_unit {
    ($($segment:ty)*) => {$(
        impl From<$segment> for Unit {
            #[inline(always)]
            fn from(segment: $segment) -> Unit {
                segment.unit()
            }
        }
    )*};
}

into_unit! {
    CtrlSegment RaddrSegment DataSegment AtomicSegment KlmSegment MmoSegment XrcSegment SrqNextSegment
}

/// Those that are not on a hot path.
macro_rules! transmute_into_unit {
    ($($segment:ty)*) => {$(
        impl From<$segment> for Unit {
            #[inline]
            fn from(segment: $segment) -> Unit {
                zerocopy::transmute!(segment)
            }
        }
    )*};
}

transmute_into_unit! {
    MaskedAtomic4Segment MaskedFetchAdd8Segment MaskedFetchAdd4Segment RepeatBlockSegment RepeatEntrySegment SetPsvSegment
    RecvSignatureSegment EthPadSegment
}
