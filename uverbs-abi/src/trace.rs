//! Requests as text, for tracers and for comparing what two programs send.
//!
//! One line per request, one indented line per attribute or field:
//!
//! ```text
//! UVERBS_METHOD_CQ_CREATE
//!   UVERBS_ATTR_CREATE_CQ_HANDLE new
//!   UVERBS_ATTR_CREATE_CQ_CQE in 0a000000
//!   UVERBS_ATTR_CREATE_CQ_EVENT_FD optional fd 5
//! IB_USER_VERBS_CMD_ALLOC_PD by INVOKE_WRITE
//!   out 4
//! ```
//!
//! mlx5's driver data is shown by its fields too.
//!
//! With [`Show::Portable`], what differs from run to run is left out: addresses, user handles, and
//! numbers of descriptors. Two programs that do the same then have the same text.

use core::fmt;

use crate::ioctl::wire::{ATTR_UHW_IN, ATTR_UHW_OUT};
use crate::ioctl::{AttrView, Kind, RequestView};
use crate::layout::Layout;
use crate::object::device::invoke_write;
use crate::types::DriverId;
use crate::udata::mlx5;
use crate::write::frame::PlainView;
use crate::write::{self, WriteSpec};

/// How much of a request to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Everything.
    All,
    /// Everything but addresses, user handles and numbers of descriptors.
    Portable,
}

/// The memory of the program that made the request.
pub trait Memory {
    /// Calls `f` with `len` bytes at `address`, or with `None` if they cannot be read.
    fn with(&self, address: u64, len: usize, f: &mut dyn FnMut(Option<&[u8]>));
}

/// Writes an ioctl request. `INVOKE_WRITE` is written as the command that it carries.
pub fn ioctl(
    out: &mut dyn fmt::Write,
    view: &RequestView<'_>,
    memory: &dyn Memory,
    show: Show,
) -> fmt::Result {
    let spec = view.spec();
    if spec.is_some_and(|spec| spec.name == invoke_write::SPEC.name) {
        return invoke(out, view, memory, show);
    }
    match spec {
        Some(spec) => writeln!(out, "{}", spec.name)?,
        None => {
            let (object, method) = view.method();
            writeln!(out, "object {:#x} method {method:#x}", object.0)?;
        }
    }
    for attr in view.attrs() {
        let known = spec.and_then(|spec| spec.attribute_of(view.driver(), attr.id));
        write!(out, "  ")?;
        match (known, attr.id) {
            (Some(known), _) => write!(out, "{}", known.name)?,
            (None, ATTR_UHW_IN) => write!(out, "UVERBS_ATTR_UHW_IN")?,
            (None, ATTR_UHW_OUT) => write!(out, "UVERBS_ATTR_UHW_OUT")?,
            (None, id) => write!(out, "attribute {id:#x}")?,
        }
        if !attr.mandatory() {
            write!(out, " optional")?;
        }
        let layout = match (spec, known, attr.id) {
            (Some(spec), None, ATTR_UHW_IN) if spec.has_uhw => {
                layout_of(view.driver(), spec.name, attr.len.into())
            }
            _ => None,
        };
        if let Some(layout) = layout {
            writeln!(out, " in")?;
            with_input(&attr, memory, &mut |bytes| match bytes {
                Some(bytes) => driver_data(out, layout, bytes, show),
                None => writeln!(out, "    unreadable"),
            })?;
            continue;
        }
        let kind = match (known, attr.id) {
            (Some(known), _) => Some(known.kind),
            (None, ATTR_UHW_IN) => Some(Kind::In),
            (None, ATTR_UHW_OUT) => Some(Kind::Out),
            (None, _) => None,
        };
        let hidden = show == Show::Portable
            && known.is_some_and(|known| known.name.ends_with("_USER_HANDLE"));
        attribute(out, &attr, kind, hidden, memory, show)?;
        writeln!(out)?;
    }
    Ok(())
}

fn attribute(
    out: &mut dyn fmt::Write,
    attr: &AttrView,
    kind: Option<Kind>,
    hidden: bool,
    memory: &dyn Memory,
    show: Show,
) -> fmt::Result {
    match kind {
        _ if hidden => write!(out, " in {} bytes", attr.len),
        Some(Kind::NewHandle | Kind::NewFd) => write!(out, " new"),
        Some(Kind::Handle | Kind::DestroyHandle) => write!(out, " object {}", attr.data),
        Some(Kind::Fd) if show == Show::Portable => write!(out, " fd"),
        Some(Kind::Fd) => write!(out, " fd {}", attr.data as i64),
        Some(Kind::Out | Kind::SliceOut) => write!(out, " out {} bytes", attr.len),
        Some(Kind::EnumIn) => {
            write!(out, " element {} in ", attr.elem_id)?;
            input(out, attr, memory)
        }
        Some(_) => {
            write!(out, " in ")?;
            input(out, attr, memory)
        }
        None if show == Show::Portable => write!(out, " {} bytes", attr.len),
        None => write!(out, " {} bytes {:#x}", attr.len, attr.data),
    }
}

fn input(out: &mut dyn fmt::Write, attr: &AttrView, memory: &dyn Memory) -> fmt::Result {
    with_input(attr, memory, &mut |bytes| match bytes {
        Some(bytes) => hex(out, bytes),
        None => write!(out, "unreadable"),
    })
}

fn with_input(
    attr: &AttrView,
    memory: &dyn Memory,
    f: &mut dyn FnMut(Option<&[u8]>) -> fmt::Result,
) -> fmt::Result {
    if let Some(inline) = attr.inline_input() {
        return f(Some(inline.as_ref()));
    }
    let mut result = Ok(());
    memory.with(attr.data, attr.len.into(), &mut |bytes| result = f(bytes));
    result
}

fn invoke(
    out: &mut dyn fmt::Write,
    view: &RequestView<'_>,
    memory: &dyn Memory,
    show: Show,
) -> fmt::Result {
    let command = view.attrs().find_map(|attr| match attr.id {
        2 => u32::try_from(attr.data).ok(),
        _ => None,
    });
    let spec = command.and_then(write::find);
    name(out, command.unwrap_or(u32::MAX), spec)?;
    writeln!(out, " by INVOKE_WRITE")?;
    for attr in view.attrs() {
        match attr.id {
            0 => with_input(&attr, memory, &mut |bytes| match bytes {
                Some(bytes) => request(out, spec, bytes, show),
                None => writeln!(out, "  in unreadable"),
            })?,
            1 => writeln!(out, "  out {} bytes", attr.len)?,
            ATTR_UHW_IN => with_input(&attr, memory, &mut |bytes| match bytes {
                Some(bytes) => {
                    let name = spec.map_or("", |spec| spec.name);
                    match layout_of(view.driver(), name, bytes.len()) {
                        Some(layout) => {
                            writeln!(out, "  driver in")?;
                            driver_data(out, layout, bytes, show)
                        }
                        None => uhw_in(out, spec, bytes, show),
                    }
                }
                None => writeln!(out, "  driver in unreadable"),
            })?,
            ATTR_UHW_OUT => writeln!(out, "  driver out {} bytes", attr.len)?,
            _ => {}
        }
    }
    Ok(())
}

/// Writes a request that came by `write()`.
pub fn plain(out: &mut dyn fmt::Write, view: &PlainView<'_>, show: Show) -> fmt::Result {
    name(out, view.command, view.spec)?;
    writeln!(out, " by write()")?;
    if !view.request.is_empty() {
        request(out, view.spec, view.request, show)?;
    }
    if view.response_len > 0 {
        writeln!(out, "  out {} bytes", view.response_len)?;
    }
    if !view.uhw_in.is_empty() {
        uhw_in(out, view.spec, view.uhw_in, show)?;
    }
    if view.uhw_out_len > 0 {
        writeln!(out, "  driver out {} bytes", view.uhw_out_len)?;
    }
    Ok(())
}

fn name(out: &mut dyn fmt::Write, command: u32, spec: Option<&WriteSpec>) -> fmt::Result {
    match spec {
        Some(spec) => write!(out, "{}", spec.name),
        None => write!(out, "command {command:#x}"),
    }
}

/// How the driver's data is laid out, where this crate knows.
fn layout_of(driver: DriverId, call: &str, len: usize) -> Option<&'static Layout> {
    match driver {
        DriverId::MLX5 => mlx5::request_layout(call, len),
        _ => None,
    }
}

/// The driver's data, by its fields that are not zero.
fn driver_data(out: &mut dyn fmt::Write, layout: &Layout, bytes: &[u8], show: Show) -> fmt::Result {
    for field in layout.fields {
        let Some(value) = bytes.get(field.offset..field.offset + field.size) else {
            break; // sent by a program that knows less
        };
        if value.iter().all(|byte| *byte == 0) {
            continue;
        }
        write!(out, "    {}", field.name)?;
        if show == Show::All || !field.name.ends_with("_addr") {
            write!(out, " ")?;
            hex(out, value)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The fields of a core request that are not zero, and what follows it.
fn request(
    out: &mut dyn fmt::Write,
    spec: Option<&WriteSpec>,
    bytes: &[u8],
    show: Show,
) -> fmt::Result {
    let Some(spec) = spec else {
        write!(out, "  in ")?;
        hex(out, bytes)?;
        return writeln!(out);
    };
    let Some((core, rest)) = bytes.split_at_checked(spec.request_len) else {
        return writeln!(out, "  in {} bytes, too short", bytes.len());
    };
    fields(out, spec.request, core, show)?;
    if !rest.is_empty() {
        write!(out, "  then ")?;
        hex(out, rest)?;
        writeln!(out)?;
    }
    Ok(())
}

fn fields(out: &mut dyn fmt::Write, layout: &Layout, bytes: &[u8], show: Show) -> fmt::Result {
    for field in layout.fields {
        let value = &bytes[field.offset..field.offset + field.size];
        if value.iter().all(|byte| *byte == 0) {
            continue;
        }
        if show == Show::Portable {
            match field.name {
                "response" => continue,
                "user_handle" => {
                    writeln!(out, "  user_handle")?;
                    continue;
                }
                "comp_channel" if value != [0xff; 4] => {
                    writeln!(out, "  comp_channel")?;
                    continue;
                }
                _ => {}
            }
        }
        write!(out, "  {} ", field.name)?;
        hex(out, value)?;
        writeln!(out)?;
    }
    Ok(())
}

/// rxe passes an address to modify_srq; nobody else's request is known to hold any.
fn uhw_in(
    out: &mut dyn fmt::Write,
    spec: Option<&WriteSpec>,
    bytes: &[u8],
    show: Show,
) -> fmt::Result {
    let address = spec.is_some_and(|spec| spec.number == 33) && bytes.len() == 8;
    if address && show == Show::Portable {
        return writeln!(out, "  driver in {} bytes", bytes.len());
    }
    write!(out, "  driver in ")?;
    hex(out, bytes)?;
    writeln!(out)
}

fn hex(out: &mut dyn fmt::Write, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
}
