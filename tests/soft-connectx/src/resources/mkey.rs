//! Memory keys, as commands (and UMR work requests) set them.

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
    /// Memory windows (type 2) bound to it.
    pub(crate) windows: u32,
}

fn dword(context: &[u8; 64], at: usize) -> u32 {
    u32::from_be_bytes([
        context[at],
        context[at + 1],
        context[at + 2],
        context[at + 3],
    ])
}

fn qword(context: &[u8; 64], at: usize) -> u64 {
    u64::from(dword(context, at)) << 32 | u64::from(dword(context, at + 4))
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
            windows: 0,
        };
        key.load();
        key
    }

    /// Reads the fields from the context again.
    pub(crate) fn load(&mut self) {
        let first = dword(&self.context, 0);
        self.free = first >> 30 & 1 != 0;
        self.umr_enabled = first >> 15 & 1 != 0;
        self.atomic = first >> 14 & 1 != 0;
        self.remote_write = first >> 13 & 1 != 0;
        self.remote_read = first >> 12 & 1 != 0;
        self.local_write = first >> 11 & 1 != 0;
        self.local_read = first >> 10 & 1 != 0;
        let mode = (first >> 8 & 3) as u8 | (((first >> 26 & 7) as u8) << 2);
        self.mode = AccessMode::from_bits(mode);
        self.qpn = dword(&self.context, 4) >> 8;
        self.variant = self.context[7];
        let third = dword(&self.context, 12);
        self.whole = third >> 31 != 0;
        self.remote_invalidate = third >> 24 & 1 != 0;
        self.pd = third & 0xff_ffff;
        self.start = qword(&self.context, 16);
        self.len = qword(&self.context, 24);
        self.log_entity = self.context[59] & 0x3f;
    }
}
