//! Memory regions and memory windows: memory keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use uverbs_abi::handle::{Mr, Mw, Pd};
use uverbs_abi::types::{AccessFlags, MwType, ReregMrFlags};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::mkey::{CreateMkeyIn, CreateMkeyOut, Mkc};

use super::Objects;
use super::domain::Pdn;
use super::platform::Mapped;
use super::ring::pages;
use crate::control::kernel::{MrKeys, MwKeys, UserMr};
use crate::sys::errno::Errno;

/// A key that any queue pair of its domain may use (`MLX5_MKEY_...`: all ones).
const ANY_QP: u32 = 0xff_ffff;
/// Translation by a list of pages (`MLX5_MKC_ACCESS_MODE_MTT`).
const MODE_PAGES: u8 = 1;
/// Translation by a list of other keys (`MLX5_MKC_ACCESS_MODE_KLMS`).
const MODE_KEYS: u8 = 2;
/// Smallest and largest page of a key: 4 KiB and 2 GiB, what UMR can say (`mlx5_umr_pas`, 5 bits).
const LOG_PAGE: std::ops::RangeInclusive<u32> = 12..=31;
/// Octowords for the one window of a memory window, in the units that the device allocates.
const WINDOW_OCTOWORDS: u32 = 4;

/// Rights that reach into local memory from outside of it, and so need the right to write there.
const NEEDS_LOCAL_WRITE: AccessFlags =
    AccessFlags(AccessFlags::REMOTE_WRITE.0 | AccessFlags::REMOTE_ATOMIC.0);

/// Rights that may be asked for: all but paging, which we have none of, and flushing, which mlx5 has no operation for.
/// What is optional may be asked for and not known.
const SUPPORTED: AccessFlags = AccessFlags(
    NEEDS_LOCAL_WRITE.0
        | AccessFlags::LOCAL_WRITE.0
        | AccessFlags::REMOTE_READ.0
        | AccessFlags::MW_BIND.0
        | AccessFlags::ZERO_BASED.0
        | AccessFlags::HUGETLB.0
        | AccessFlags::OPTIONAL_RANGE.0,
);

/// A memory region.
#[derive(Debug)]
pub(super) struct Region {
    index: u32,
    pd: Arc<Pdn>,
    request: UserMr,
    mapped: Arc<Mapped>,
}

/// A memory window.
#[derive(Debug)]
pub(super) struct Window {
    index: u32,
    _pd: Arc<Pdn>,
}

/// The low byte of keys, another for each one, so that a key of before is noticed.
#[derive(Debug, Default)]
pub(super) struct Variants(AtomicU8);

impl Variants {
    fn next(&self) -> u8 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// What may be done with memory, and with the device's own help.
#[derive(Clone, Copy, Debug)]
struct Rights {
    access: AccessFlags,
    relaxed_write: bool,
    relaxed_read: bool,
    /// Whether the device pages on demand, and so asks of each page whether it is there.
    pages_may_miss: bool,
}

/// The bits of a page in a list that say that it is there, to be read and written (`MLX5_EN_RD`, `MLX5_EN_WR` of Linux
/// `mlx5/device.h`).
const PRESENT: u64 = 3;

/// CREATE_MKEY for memory that begins at `iova` for the device and at `request.hca_va` in work requests.
fn region_command(
    request: &UserMr,
    rights: Rights,
    pdn: u32,
    iova: u64,
    variant: u8,
) -> Result<Vec<u8>, Errno> {
    let log_page = page_of_region(request.hca_va, iova, request.length)?;
    let list = pages(iova, request.length, log_page);
    // the list is whole octowords, of two pages each
    let octowords = list.len().div_ceil(2);
    let size = u32::try_from(octowords).map_err(|_| Errno(libc::ENOMEM))?;
    let mut input = vec![0; CreateMkeyIn::SIZE + octowords * 16];
    let present = if rights.pages_may_miss { PRESENT } else { 0 };
    for (place, page) in input[CreateMkeyIn::SIZE..].chunks_exact_mut(8).zip(list) {
        let page = page | present;
        place.copy_from_slice(&page.to_be_bytes());
    }
    let mut command = CreateMkeyIn::new(&mut input[..]).map_err(|_| Errno(libc::EINVAL))?;
    command
        .set_opcode(Opcode::CREATE_MKEY.0)
        .set_pg_access(rights.pages_may_miss)
        .set_translations_octword_actual_size(size);
    let has = |right| rights.access.contains(right);
    let mut key = command.memory_key_mkey_entry_mut();
    common(&mut key, pdn, variant, MODE_PAGES);
    key.set_a(has(AccessFlags::REMOTE_ATOMIC))
        .set_rw(has(AccessFlags::REMOTE_WRITE))
        .set_rr(has(AccessFlags::REMOTE_READ))
        .set_lw(has(AccessFlags::LOCAL_WRITE))
        .set_relaxed_ordering_write(rights.relaxed_write)
        .set_relaxed_ordering_read(rights.relaxed_read)
        .set_start_addr(request.hca_va)
        .set_len(request.length)
        .set_translations_octword_size(size)
        .set_log_page_size(log_page as u8);
    Ok(input)
}

/// CREATE_MKEY for a window, free until it is bound.
fn window_command(kind: MwType, pdn: u32, variant: u8) -> [u8; CreateMkeyIn::SIZE] {
    let mut command = CreateMkeyIn::zeroed();
    command.set_opcode(Opcode::CREATE_MKEY.0);
    let mut key = command.memory_key_mkey_entry_mut();
    common(&mut key, pdn, variant, MODE_KEYS);
    key.set_free(true)
        .set_en_rinval(kind == MwType::TYPE_2)
        .set_translations_octword_size(WINDOW_OCTOWORDS);
    command.into_inner()
}

fn common(key: &mut Mkc<&mut [u8]>, pdn: u32, variant: u8, mode: u8) {
    key.set_pd(pdn)
        .set_qpn(ANY_QP)
        .set_mkey_7_0(variant)
        .set_access_mode_1_0(mode)
        .set_umr_en(true)
        .set_lr(true);
}

/// The page size of a region: addresses of work requests and of the device are alike within a page.
fn page_of_region(va: u64, iova: u64, bytes: u64) -> Result<u32, Errno> {
    let alike = (va ^ iova).trailing_zeros();
    if alike < *LOG_PAGE.start() {
        return Err(Errno(libc::EINVAL));
    }
    // the smallest that takes one page, or the largest there is
    let end = va.wrapping_add(bytes - 1);
    let wanted = 64 - (va ^ end).leading_zeros();
    Ok(wanted.min(alike).clamp(*LOG_PAGE.start(), *LOG_PAGE.end()))
}

impl Objects {
    fn rights(&self, access: AccessFlags) -> Result<Rights, Errno> {
        let local_write = access.contains(AccessFlags::LOCAL_WRITE);
        let wants = access.0 & NEEDS_LOCAL_WRITE.0 != 0;
        // what the kernel's core refuses (`ib_check_mr_access`): reaching in without local write, bits without a meaning, and
        // what the device cannot do
        if wants && !local_write || access.0 & !SUPPORTED.0 != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let relaxed = access.contains(AccessFlags::RELAXED_ORDERING);
        let caps = &self.caps.general;
        Ok(Rights {
            access,
            relaxed_write: relaxed && caps.relaxed_ordering_write(),
            relaxed_read: relaxed && caps.relaxed_ordering_read(),
            pages_may_miss: caps.pg(),
        })
    }

    /// Registers memory.
    ///
    /// # Safety
    ///
    /// As for [`Uctx::reg_mr`](crate::control::kernel::Uctx::reg_mr).
    pub unsafe fn reg_mr(&self, request: &UserMr) -> Result<MrKeys, Errno> {
        let pd = self.pds.get(request.pd.0)?;
        if request.length == 0 || request.start.checked_add(request.length).is_none() {
            return Err(Errno(libc::EINVAL));
        }
        let rights = self.rights(request.access)?;
        let mapped = Arc::new(self.platform.map(request.start, request.length)?);
        self.make_region(request, rights, pd, mapped)
    }

    fn make_region(
        &self,
        request: &UserMr,
        rights: Rights,
        pd: Arc<Pdn>,
        mapped: Arc<Mapped>,
    ) -> Result<MrKeys, Errno> {
        let variant = self.variants.next();
        let input = region_command(request, rights, pd.0, mapped.iova, variant)?;
        let index = self.create_mkey(&input)?;
        let key = index << 8 | u32::from(variant);
        let handle = self.regions.insert(Region {
            index,
            pd,
            request: *request,
            mapped,
        });
        Ok(MrKeys {
            handle: Mr(handle),
            lkey: key,
            rkey: key,
        })
    }

    fn create_mkey(&self, input: &[u8]) -> Result<u32, Errno> {
        let mut output = CreateMkeyOut::zeroed();
        self.platform.execute(input, output.as_bytes_mut())?;
        Ok(output.mkey_index())
    }

    /// Changes a registration as far as `flags` go: a new key, and the old one is gone. The handle stays.
    ///
    /// # Safety
    ///
    /// As for [`Uctx::rereg_mr`](crate::control::kernel::Uctx::rereg_mr).
    pub unsafe fn rereg_mr(
        &self,
        handle: Mr,
        flags: ReregMrFlags,
        changed: &UserMr,
    ) -> Result<(u32, u32), Errno> {
        if flags.is_empty() {
            return Err(Errno(libc::EINVAL));
        }
        let old = self.regions.get(handle.0)?;
        let mut request = old.request;
        let mut pd = old.pd.clone();
        let mut mapped = old.mapped.clone();
        if flags.contains(ReregMrFlags::CHANGE_PD) {
            request.pd = changed.pd;
            pd = self.pds.get(changed.pd.0)?;
        }
        if flags.contains(ReregMrFlags::CHANGE_ACCESS) {
            request.access = changed.access;
        }
        if flags.contains(ReregMrFlags::CHANGE_TRANSLATION) {
            if changed.length == 0 || changed.start.checked_add(changed.length).is_none() {
                return Err(Errno(libc::EINVAL));
            }
            request.start = changed.start;
            request.length = changed.length;
            request.hca_va = changed.hca_va;
            mapped = Arc::new(self.platform.map(request.start, request.length)?);
        }
        let rights = self.rights(request.access)?;
        let variant = self.variants.next();
        let input = region_command(&request, rights, pd.0, mapped.iova, variant)?;
        let index = self.create_mkey(&input)?;
        let old_index = old.index;
        drop(old);
        let new = Region {
            index,
            pd,
            request,
            mapped,
        };
        // the memory of before stays mapped until its key is gone
        let replaced = self.regions.replace(handle.0, new, |_| {
            self.run_on(Opcode::DESTROY_MKEY, old_index)
        });
        if let Err(errno) = replaced {
            let _ = self.run_on(Opcode::DESTROY_MKEY, index);
            return Err(errno);
        }
        let key = index << 8 | u32::from(variant);
        Ok((key, key))
    }

    /// Ends a registration.
    pub fn dereg_mr(&self, handle: Mr) -> Result<(), Errno> {
        self.regions.remove(handle.0, |region| {
            self.run_on(Opcode::DESTROY_MKEY, region.index)
        })
    }

    /// Makes a memory window.
    pub fn alloc_mw(&self, pd: Pd, kind: MwType) -> Result<MwKeys, Errno> {
        let pd = self.pds.get(pd.0)?;
        if !self.caps.general.imaicl() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let variant = self.variants.next();
        let index = self.create_mkey(&window_command(kind, pd.0, variant))?;
        let handle = self.windows.insert(Window { index, _pd: pd });
        Ok(MwKeys {
            handle: Mw(handle),
            rkey: index << 8 | u32::from(variant),
        })
    }

    /// Destroys a memory window.
    pub fn dealloc_mw(&self, handle: Mw) -> Result<(), Errno> {
        self.windows.remove(handle.0, |window| {
            self.run_on(Opcode::DESTROY_MKEY, window.index)
        })
    }
}
