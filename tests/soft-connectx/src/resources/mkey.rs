//! Memory keys, as commands (and UMR work requests) set them.

use wqe_format::mlx5::firmware::mkey::Mkc;

use crate::memory::signature::Format;

/// How a key translates (`mkc.access_mode_1_0` and `access_mode_4_2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessMode {
    /// Addresses of the bus, untranslated.
    Pa,
    /// Pages.
    Mtt,
    /// Pieces of other keys.
    Klms,
    /// Pieces of other keys, all of one size.
    Ksm,
    /// Memory on the device.
    Memic,
    /// What the number means is unknown here.
    Other(u8),
}

impl AccessMode {
    pub(crate) fn from_bits(bits: u8) -> AccessMode {
        match bits {
            0 => AccessMode::Pa,
            1 => AccessMode::Mtt,
            2 => AccessMode::Klms,
            3 => AccessMode::Ksm,
            5 => AccessMode::Memic,
            other => AccessMode::Other(other),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Mkey {
    pub(crate) uid: u16,
    /// `mkc` as it was given, and as UMR changed it: the truth, of which the fields below
    /// are read by [`Mkey::load`].
    pub(crate) context: [u8; 64],
    /// Lowest byte of the key.
    pub(crate) variant: u8,
    /// Nobody uses it yet.
    pub(crate) free: bool,
    pub(crate) umr_enabled: bool,
    pub(crate) mode: AccessMode,
    pub(crate) local_read: bool,
    pub(crate) local_write: bool,
    pub(crate) remote_read: bool,
    pub(crate) remote_write: bool,
    pub(crate) atomic: bool,
    /// The only queue pair that may use it; `0xff_ffff` is all.
    pub(crate) qpn: u32,
    pub(crate) pd: u32,
    /// The whole address space from 0 (`length64`).
    pub(crate) whole: bool,
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// Invalidating it remotely is allowed (`en_rinval`).
    pub(crate) remote_invalidate: bool,
    /// Log of a page's (MTT) or piece's (KSM) size.
    pub(crate) log_entity: u8,
    /// The translation as the device would keep it: octowords of 16 bytes, of `mtt`s (8 bytes)
    /// or `klm`s (16 bytes), big-endian.
    pub(crate) translation: Vec<u8>,
    /// The lowest bits of a page in the translation say whether it is there.
    pub(crate) may_miss_pages: bool,
    /// Memory windows (type 2) bound to it.
    pub(crate) windows: u32,
    /// How its data have signatures, if `bsf_en` says that they do.
    pub(crate) format: Option<Format>,
    has_format: bool,
    /// Whether an odd number of mistakes was found in signatures, and whether the owner waits for one that makes it so.
    odd_mistakes: bool,
    waits_for_odd: bool,
}

impl Mkey {
    /// The key that a context describes (`mkc` in `mlx5_ifc.h`).
    pub(crate) fn new(uid: u16, context: [u8; 64], translation: Vec<u8>) -> Mkey {
        let mut key = Mkey {
            uid,
            context,
            variant: 0,
            free: false,
            umr_enabled: false,
            mode: AccessMode::Pa,
            local_read: false,
            local_write: false,
            remote_read: false,
            remote_write: false,
            atomic: false,
            qpn: 0,
            pd: 0,
            whole: false,
            start: 0,
            len: 0,
            remote_invalidate: false,
            log_entity: 0,
            translation,
            may_miss_pages: false,
            windows: 0,
            format: None,
            has_format: false,
            odd_mistakes: false,
            waits_for_odd: false,
        };
        key.load();
        key
    }

    /// Reads the fields from the context again.
    pub(crate) fn load(&mut self) {
        let Ok(c) = Mkc::new(&self.context[..]) else {
            return;
        };
        self.free = c.free();
        self.umr_enabled = c.umr_en();
        self.atomic = c.a();
        self.remote_write = c.rw();
        self.remote_read = c.rr();
        self.local_write = c.lw();
        self.local_read = c.lr();
        self.mode = AccessMode::from_bits(c.access_mode_1_0() | c.access_mode_4_2() << 2);
        self.qpn = c.qpn();
        self.variant = c.mkey_7_0();
        self.whole = c.length64();
        self.remote_invalidate = c.en_rinval();
        self.pd = c.pd();
        self.start = c.start_addr();
        self.len = c.len();
        self.log_entity = c.log_page_size();
        self.has_format = c.bsf_en();
        self.waits_for_odd = c.expected_sigerr_count();
    }

    /// How its data have signatures, if they do.
    pub(crate) fn signed(&self) -> Option<Format> {
        self.format.filter(|_| self.has_format)
    }

    /// A mistake was found: whether its owner is told, who waits for the first, or has said that he knows of those before.
    pub(crate) fn tells_of_mistake(&mut self) -> bool {
        let tells = self.waits_for_odd != self.odd_mistakes;
        self.odd_mistakes ^= tells;
        tells
    }
}
