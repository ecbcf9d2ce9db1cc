//! Keys with signatures: what work requests made of them, and what the device found wrong.
//!
//! A completion queue meets an error that names a key, and no work request; it keeps the error at the key and goes on. The
//! program asks the key.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wqe_format::mlx5::{
    BlockSignature, CrcKind, SignatureDomain, SignatureErrorCqe, SignatureRule,
};

/// The signatures of a key. Its locks are for posting and for errors; nothing waits for them otherwise.
#[derive(Debug)]
pub struct KeySignature {
    memory_psv: u32,
    wire_psv: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) rule: Option<SignatureRule>,
    /// Bytes that the key stands for.
    pub(super) length: u64,
    /// Errors, from 1 on. The device reports the next one once a work request tells it the lowest bit of their number.
    errors: u32,
    pub(super) to_tell: bool,
    found: Option<SignatureErrorCqe>,
}

impl State {
    /// The number of errors as the device is told.
    pub(super) const fn count(&self) -> u32 {
        self.errors & 1
    }
}

/// What is wrong with data (`enum mlx5dv_mkey_err_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WrongPart {
    /// Guard of T10-DIF, or CRC.
    Guard = 1,
    /// Reference tag.
    RefTag = 2,
    /// Application tag.
    AppTag = 3,
}

/// A signature that was not what it had to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// Which part of it.
    pub part: WrongPart,
    /// What was found.
    pub actual: u64,
    /// What was expected.
    pub expected: u64,
    /// Bytes of the key's data before the block.
    pub offset: u64,
}

/// The device reported an error that the key's rule does not explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownKeyError;

impl fmt::Display for UnknownKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an error of a signature that the key does not have")
    }
}

impl std::error::Error for UnknownKeyError {}

impl KeySignature {
    /// Those of a new key, whose states for memory and for the wire are these.
    pub fn new(memory_psv: u32, wire_psv: u32) -> Self {
        Self {
            memory_psv,
            wire_psv,
            state: Mutex::new(State {
                rule: None,
                length: 0,
                errors: 1,
                to_tell: true,
                found: None,
            }),
        }
    }

    /// The numbers of its states: memory, wire.
    pub(super) fn psvs(&self) -> (u32, u32) {
        (self.memory_psv, self.wire_psv)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // What is inside is whole between two stores.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last error that a completion queue met since this was asked, if any.
    ///
    /// # Errors
    ///
    /// The error is not one of a signature that the key's rule has. It stays.
    #[doc(alias = "mlx5dv_mkey_check")]
    pub fn check(&self) -> Result<Option<KeyError>, UnknownKeyError> {
        let mut state = self.state();
        let Some(found) = state.found else {
            return Ok(None);
        };
        let error = error(&found, state.rule.as_ref()).ok_or(UnknownKeyError)?;
        state.found = None;
        Ok(Some(error))
    }
}

/// What an entry says of data that a rule is about.
fn error(found: &SignatureErrorCqe, rule: Option<&SignatureRule>) -> Option<KeyError> {
    let syndrome = found.syndrome.get();
    let wrong = |bit: u16| syndrome & 1 << bit != 0;
    let part = match (wrong(11), wrong(12), wrong(13)) {
        (true, ..) => WrongPart::RefTag,
        (_, true, _) => WrongPart::AppTag,
        (.., true) => WrongPart::Guard,
        _ => return None,
    };
    let rule = rule?;
    let domain: SignatureDomain = match (found.sig_type & 7, found.domain & 7) {
        (0, 0) => rule.wire,
        (0, 1) => rule.memory,
        _ => None,
    }?;
    let value = |upper: u32, lower: u32| {
        let whole = u64::from(upper) << 32 | u64::from(lower);
        match (part, domain.signature) {
            (WrongPart::RefTag, _) => whole & 0xffff_ffff,
            (WrongPart::AppTag, _) => whole >> 32 & 0xffff,
            (WrongPart::Guard, BlockSignature::T10Dif { .. }) => whole >> 48,
            (WrongPart::Guard, BlockSignature::Crc { kind, .. }) => match kind {
                CrcKind::Crc64Xp10 => whole,
                CrcKind::Crc32 | CrcKind::Crc32c => whole >> 32,
            },
        }
    };
    Some(KeyError {
        part,
        actual: value(found.actual_trans_sig.get(), found.actual_ref_tag.get()),
        expected: value(found.expected_trans_sig.get(), found.expected_ref_tag.get()),
        offset: found.err_offset.get(),
    })
}

/// The keys with signatures of a device.
#[derive(Debug, Default)]
pub struct SignatureKeys(Mutex<HashMap<u32, Arc<KeySignature>>>);

impl SignatureKeys {
    fn keys(&self) -> MutexGuard<'_, HashMap<u32, Arc<KeySignature>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Errors of the key with this index (the key's number without its low byte) are kept in `key` from now on.
    pub fn insert(&self, index: u32, key: Arc<KeySignature>) {
        self.keys().insert(index, key);
    }

    /// The key is gone.
    pub fn remove(&self, index: u32) {
        self.keys().remove(&index);
    }

    /// Keeps an error at its key; says whether there is one.
    pub(super) fn keep(&self, found: SignatureErrorCqe) -> bool {
        let keys = self.keys();
        let Some(key) = keys.get(&(found.mkey.get() >> 8)) else {
            return false;
        };
        let mut state = key.state();
        state.errors = state.errors.wrapping_add(1);
        state.to_tell = true;
        state.found = Some(found);
        true
    }
}
