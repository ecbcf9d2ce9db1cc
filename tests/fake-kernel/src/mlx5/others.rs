//! The driver's objects that exist here in name only: firmware commands, memory for them, matchers, rates. They are
//! made and destroyed, firmware commands answer zeros, and nothing else comes of them.

use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::ioctl::Kind;
use uverbs_abi::object::mlx5 as tree;

use crate::core::objects::Object;
use crate::event::EventKind;
use crate::request::Call;
use crate::state::State;

const EINVAL: Errno = Errno(libc::EINVAL);
const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
const EPROTONOSUPPORT: Errno = Errno(libc::EPROTONOSUPPORT);

/// Runs a method of such an object.
pub(crate) fn run(st: &mut State, fd: RawFd, call: &Call<'_>) -> Result<(), Errno> {
    let spec = call.view().spec().ok_or(EPROTONOSUPPORT)?;
    let (object, method) = call.view().method();
    if tree::find(object, method).is_none() {
        return Err(EPROTONOSUPPORT);
    }
    spec.check(call.view()).map_err(|_| EINVAL)?;
    if !st.config.mlx5.has_devx {
        return Err(EOPNOTSUPP);
    }
    for attr in call.view().attrs() {
        let Some(known) = spec.attribute(attr.id) else {
            continue;
        };
        let handle = attr.data as u32;
        match known.kind {
            Kind::NewHandle => {
                let handle = st.add_object(fd, Object::Driver(object.0))?;
                call.put_raw_number(attr.id, handle.into())?;
            }
            Kind::NewFd => {
                let (_, file) = st.new_file(EventKind::Async)?;
                call.put_raw_number(attr.id, file as u64)?;
            }
            Kind::DestroyHandle => {
                let Object::Driver(_) = st.object(fd, handle)? else {
                    return Err(EINVAL);
                };
                st.context(fd)?.objects.remove(&handle);
            }
            Kind::Handle => drop(st.object(fd, handle)?),
            Kind::Out | Kind::SliceOut => call.put_bytes(attr.id, &[])?,
            _ => {}
        }
    }
    Ok(())
}
