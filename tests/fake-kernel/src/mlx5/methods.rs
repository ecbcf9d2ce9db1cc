//! Methods of the driver's own, by their numbers in `uapi rdma/mlx5_user_ioctl_cmds.h`.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::ioctl::MethodSpec;
use uverbs_abi::object::{device, dm};
use zerocopy::IntoBytes;

use crate::core::objects::Object;
use crate::request::Call;
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);

/// First number of drivers (`1 << UVERBS_ID_NS_SHIFT`).
pub(crate) const DRIVER: u16 = 1 << 12;

/// `UVERBS_OBJECT_PD`
const OBJECT_PD: u16 = 1;
/// `MLX5_IB_OBJECT_DEVX`
const OBJECT_DEVX: u16 = DRIVER;
/// `MLX5_IB_OBJECT_DEVX_OBJ`
const OBJECT_DEVX_OBJ: u16 = DRIVER + 1;
/// `MLX5_IB_OBJECT_UAR`
const OBJECT_UAR: u16 = DRIVER + 8;

/// Runs a method of the driver's; `None` if the core is to look for it.
pub(crate) fn run(st: &mut State, fd: RawFd, call: &Call<'_>) -> Option<Result<(), Errno>> {
    let header = call.view().header();
    let (object, method) = (header.object_id, header.method_id);
    if object < DRIVER && method < DRIVER {
        return None;
    }
    Some(match (object, method - DRIVER.min(method)) {
        (OBJECT_UAR, 0) => alloc_uar(st, fd, call),
        (OBJECT_UAR, 1) => destroy_uar(st, fd, call),
        (OBJECT_PD, 0) => query_pd(st, fd, call),
        (OBJECT_DEVX, 0) => super::firmware::other(st, call),
        (OBJECT_DEVX_OBJ, 0) => made_by_firmware(st, fd, call),
        (OBJECT_DEVX_OBJ, 2) => modified_by_firmware(st, fd, call),
        (OBJECT_DEVX_OBJ, 3) => match super::firmware::query(st, fd, call) {
            Some(done) => done,
            None => super::others::run(st, fd, call),
        },
        _ => super::others::run(st, fd, call),
    })
}

/// `MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET`, and the two after it.
const DM_START_OFFSET: u16 = DRIVER;
const DM_PAGE_INDEX: u16 = DRIVER + 1;
const DM_TYPE: u16 = DRIVER + 2;
/// `MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX`
const CONTEXT_ANSWER: u16 = DRIVER;

/// Whether the driver adds this attribute to a method of the core's.
pub(crate) fn adds(spec: &MethodSpec, id: u16) -> bool {
    let is = |known: &MethodSpec| spec.object == known.object && spec.id == known.id;
    if is(&dm::alloc::SPEC) {
        return (DM_START_OFFSET..=DM_TYPE).contains(&id);
    }
    is(&device::query_context::SPEC) && id == CONTEXT_ANSWER
}

/// `enum mlx5_ib_uapi_dm_type`
pub(crate) fn dm_type(call: &Call<'_>) -> u64 {
    call.raw_constant(DM_TYPE).unwrap_or(0)
}

/// Where in device memory an allocation is.
pub(crate) fn answer_dm(call: &Call<'_>, page: u32) -> Result<(), Errno> {
    call.put_bytes(DM_START_OFFSET, &0_u64.to_ne_bytes())?;
    call.put_bytes(DM_PAGE_INDEX, &(page as u16).to_ne_bytes())
}

/// What the context was answered.
pub(crate) fn answer_context(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    let answer = st.context(fd)?.mlx5.answer;
    let room = call.room(CONTEXT_ANSWER).unwrap_or(0);
    let bytes = answer.as_bytes();
    call.put_bytes(CONTEXT_ANSWER, &bytes[..room.min(bytes.len())])
}

/// `MLX5_IB_METHOD_DEVX_OBJ_CREATE`: handle, command in, command out.
fn made_by_firmware(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    super::firmware::refuse(&st.config.mlx5, call, DRIVER + 2)?;
    super::others::run(st, fd, call)?;
    super::firmware::numbers(st, fd, call)
}

/// `MLX5_IB_METHOD_DEVX_OBJ_MODIFY`: handle, command in, command out.
fn modified_by_firmware(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    super::firmware::refuse(&st.config.mlx5, call, DRIVER + 2)?;
    super::others::run(st, fd, call)?;
    super::firmware::modified(st, fd, call)
}

/// `MLX5_IB_METHOD_PD_QUERY`: handle in, number out.
fn query_pd(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.raw_constant(DRIVER).ok_or(EINVAL)? as u32;
    let pdn = st.pd(fd, handle)?;
    call.put_bytes(DRIVER + 1, &pdn.to_ne_bytes())
}

/// `MLX5_IB_METHOD_UAR_OBJ_ALLOC`: handle, type, then offset, length and number out.
fn alloc_uar(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    made(st, fd)?;
    let kind = call.raw_constant(DRIVER + 1).ok_or(EINVAL)?;
    // `MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF` and `_NC`.
    if kind > 1 {
        return Err(EINVAL);
    }
    let page_id = st.device(fd)?.mlx5.next_uar();
    let offset = st.context(fd)?.mlx5.uars.add_object(fd, page_id)?;
    let handle = st.add_object(fd, Object::Uar(page_id))?;
    call.put_raw_number(DRIVER, handle.into())?;
    call.put_bytes(DRIVER + 2, &offset.to_ne_bytes())?;
    call.put_bytes(DRIVER + 3, &4096_u32.to_ne_bytes())?;
    call.put_bytes(DRIVER + 4, &page_id.to_ne_bytes())
}

fn destroy_uar(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.raw_constant(DRIVER).ok_or(EINVAL)? as u32;
    let Object::Uar(page_id) = st.object(fd, handle)? else {
        return Err(EINVAL);
    };
    let context = st.context(fd)?;
    context.objects.remove(&handle);
    context.mlx5.uars.objects.remove(&page_id);
    Ok(())
}

fn made(st: &mut State, fd: RawFd) -> Result<(), Errno> {
    match st.context(fd)?.is_made {
        true => Ok(()),
        false => Err(EINVAL),
    }
}
