//! What was sent to the kernel, in a form that can be compared and kept in a file.
//!
//! One JSON object per call and line. Addresses differ from run to run, so what is an address in the
//! program is kept as `"ptr"` (or, inside a struct, as eight bytes `ee`), and a file descriptor as `"fd"`.

use serde::{Deserialize, Serialize};
use uverbs_abi::ioctl::wire::{ATTR_F_VALID_OUTPUT, ATTR_UHW_IN, ATTR_UHW_OUT};
use uverbs_abi::ioctl::{Kind, RequestView};
use uverbs_abi::object::device::invoke_write;
use uverbs_abi::types::DriverId;
use uverbs_abi::udata::mlx5;
use uverbs_abi::write::{self, frame};
use zerocopy::FromBytes;

use crate::raw;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "lowercase")]
pub enum Recorded {
    /// `RDMA_VERBS_IOCTL`.
    Ioctl {
        /// C name of the method.
        method: String,
        /// For `INVOKE_WRITE`, the C name of the command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
        /// The header's `driver_id`.
        driver_id: u32,
        /// In the order of the request.
        attrs: Vec<RecordedAttr>,
    },
    /// A command by plain `write()`.
    Write {
        /// C name of the command.
        command: String,
        /// All bytes of the call, in hexadecimal.
        bytes: String,
    },
}

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAttr {
    /// C name, or the number of a driver's attribute.
    pub name: String,
    /// Its number.
    pub id: u16,
    /// `len` of the attribute.
    pub len: u16,
    /// `flags` of the attribute.
    pub flags: u16,
    /// The element of an enumeration.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub elem_id: u8,
    /// Where the payload is: `"inline"`, `"ptr"`, `"out"`, `"handle"`, `"fd"`, `"new"`.
    pub kind: String,
    /// The bytes sent, in hexadecimal; a handle's number; empty for outputs and new objects.
    pub data: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(n: &u8) -> bool {
    *n == 0
}

/// Keeps calls while it is on.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) is_on: bool,
    pub(crate) calls: Vec<Recorded>,
}

impl Recorder {
    pub(crate) fn ioctl(&mut self, view: &RequestView<'_>) {
        if self.is_on {
            self.calls.push(ioctl(view));
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        if self.is_on {
            self.calls.push(plain(bytes));
        }
    }
}

/// What an ioctl request of this process's says; what it points to is read.
pub fn ioctl(view: &RequestView<'_>) -> Recorded {
    let spec = view.spec();
    let command = spec
        .filter(|spec| spec.name == invoke_write::SPEC.name)
        .and_then(|_| view.attrs().find(|attr| attr.id == 2))
        .and_then(|attr| write::find(attr.data as u32));
    let mut attrs = Vec::new();
    for attr in view.attrs() {
        let known = spec.and_then(|spec| spec.attribute_of(view.driver(), attr.id));
        let has_uhw = spec.is_none_or(|spec| spec.has_uhw);
        let name = match known {
            Some(known) => known.name.to_owned(),
            None if has_uhw && attr.id == ATTR_UHW_IN => "UVERBS_ATTR_UHW_IN".to_owned(),
            None if has_uhw && attr.id == ATTR_UHW_OUT => "UVERBS_ATTR_UHW_OUT".to_owned(),
            None => format!("{:#x}", attr.id),
        };
        let is_input = match known {
            Some(known) => !known.kind.is_object() && !known.kind.is_output(),
            None => has_uhw && attr.id == ATTR_UHW_IN,
        };
        let bytes = match attr.inline_input() {
            Some(bytes) => bytes.as_ref().to_vec(),
            None if is_input => raw::copy_in(attr.data, attr.len.into()).unwrap_or_default(),
            None => Vec::new(),
        };
        let (kind, data) = match known.map(|known| known.kind) {
            Some(Kind::NewHandle | Kind::NewFd) => ("new", String::new()),
            Some(Kind::Fd) => ("fd", String::new()),
            Some(Kind::Handle | Kind::DestroyHandle) => ("handle", attr.data.to_string()),
            _ if !is_input => ("out", String::new()),
            _ => {
                let is_inline = attr.inline_input().is_some();
                let method = spec.map_or("", |spec| spec.name);
                let bytes = normalise_input(view, &name, method, command.map(|c| c.name), bytes);
                (if is_inline { "inline" } else { "ptr" }, hex(&bytes))
            }
        };
        attrs.push(RecordedAttr {
            name,
            id: attr.id,
            len: attr.len,
            flags: attr.flags & !ATTR_F_VALID_OUTPUT,
            elem_id: attr.elem_id,
            kind: kind.to_owned(),
            data,
        });
    }
    Recorded::Ioctl {
        method: spec.map_or_else(
            || format!("{}/{}", view.header().object_id, view.header().method_id),
            |spec| spec.name.to_owned(),
        ),
        command: command.map(|command| command.name.to_owned()),
        driver_id: view.header().driver_id,
        attrs,
    }
}

/// What a plain `write()` says.
pub fn plain(bytes: &[u8]) -> Recorded {
    let view = frame::PlainView::parse(bytes);
    let mut bytes = bytes.to_vec();
    let name = match view.and_then(|view| Some((view.spec?, view.uhw_in.len()))) {
        Some((spec, uhw)) => {
            let header = if spec.extended { 24 } else { 8 };
            if spec.extended {
                mask(&mut bytes, 8);
            }
            for at in addresses(spec.name) {
                mask(&mut bytes, header + at);
            }
            // rxe has no such data but what `addresses` knows
            let start = bytes.len() - uhw;
            for at in mlx5_addresses(spec.name, &bytes[start..]) {
                mask_address(&mut bytes, start + at);
            }
            spec.name.to_owned()
        }
        None => "unknown".to_owned(),
    };
    Recorded::Write {
        command: name,
        bytes: hex(&bytes),
    }
}

/// Offsets of addresses in a command's request struct (`uapi rdma/ib_user_verbs.h`): the response's,
/// and user handles, for which programs take addresses.
fn addresses(command: &str) -> &'static [usize] {
    match command {
        "IB_USER_VERBS_CMD_REG_MR" => &[0, 8, 24],
        "IB_USER_VERBS_CMD_REREG_MR" => &[0, 16, 32],
        "IB_USER_VERBS_CMD_CREATE_AH"
        | "IB_USER_VERBS_CMD_CREATE_CQ"
        | "IB_USER_VERBS_CMD_CREATE_QP"
        | "IB_USER_VERBS_CMD_CREATE_SRQ"
        | "IB_USER_VERBS_CMD_CREATE_XSRQ" => &[0, 8],
        // rxe's own part behind the struct: where to answer. mlx5 has none.
        "IB_USER_VERBS_CMD_MODIFY_SRQ" => &[16],
        "IB_USER_VERBS_CMD_OPEN_QP" => &[0, 8],
        "IB_USER_VERBS_EX_CMD_CREATE_CQ" | "IB_USER_VERBS_EX_CMD_CREATE_QP" => &[0],
        "IB_USER_VERBS_EX_CMD_CREATE_WQ" => &[8],
        _ => match write::COMMANDS
            .iter()
            .flat_map(|module| module.iter())
            .find(|spec| spec.name == command)
        {
            Some(spec) if spec.has_response_pointer() => &[0],
            _ => &[],
        },
    }
}

fn normalise_input(
    view: &RequestView<'_>,
    attr: &str,
    method: &str,
    command: Option<&str>,
    mut bytes: Vec<u8>,
) -> Vec<u8> {
    if attr.ends_with("_USER_HANDLE") || attr == "MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR" {
        mask(&mut bytes, 0);
    }
    if attr == "UVERBS_ATTR_CORE_IN" {
        for at in command.map_or(&[][..], addresses) {
            mask(&mut bytes, *at);
        }
    }
    if attr == "UVERBS_ATTR_UHW_IN" {
        let places = match view.driver() {
            DriverId::MLX5 => mlx5_addresses(command.unwrap_or(method), &bytes),
            // rxe's only request: the address of an answer.
            _ if command == Some("IB_USER_VERBS_CMD_MODIFY_SRQ") => &[0],
            _ => &[],
        };
        for at in places {
            mask_address(&mut bytes, *at);
        }
    }
    bytes
}

/// Offsets of addresses in mlx5's data (`uapi rdma/mlx5-abi.h`): rings and doorbell records.
fn mlx5_addresses(call: &str, bytes: &[u8]) -> &'static [usize] {
    match call {
        "UVERBS_METHOD_CQ_CREATE"
        | "UVERBS_METHOD_SRQ_CREATE"
        | "UVERBS_METHOD_WQ_CREATE"
        | "IB_USER_VERBS_CMD_CREATE_CQ"
        | "IB_USER_VERBS_EX_CMD_CREATE_CQ"
        | "IB_USER_VERBS_CMD_CREATE_SRQ"
        | "IB_USER_VERBS_CMD_CREATE_XSRQ"
        | "IB_USER_VERBS_EX_CMD_CREATE_WQ" => &[0, 8],
        "IB_USER_VERBS_CMD_RESIZE_CQ" => &[0],
        "UVERBS_METHOD_QP_CREATE"
        | "IB_USER_VERBS_CMD_CREATE_QP"
        | "IB_USER_VERBS_EX_CMD_CREATE_QP"
            if bytes.len() == size_of::<mlx5::CreateQp>() =>
        {
            let (input, _) = mlx5::CreateQp::read_from_prefix(bytes).unwrap_or_default();
            if input.flags.contains(mlx5::CreateQpFlags::TYPE_DCT) {
                &[0, 8] // the third is a key
            } else {
                &[0, 8, 40]
            }
        }
        "IB_USER_VERBS_EX_CMD_CREATE_FLOW" => &[8],
        _ => &[],
    }
}

/// Masks an address, so that it is to be seen whether there is one.
fn mask_address(bytes: &mut [u8], at: usize) {
    if bytes
        .get(at..at + 8)
        .is_some_and(|address| address != [0; 8])
    {
        mask(bytes, at);
    }
}

fn mask(bytes: &mut [u8], at: usize) {
    if let Some(address) = bytes.get_mut(at..at + 8) {
        address.fill(0xee);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
