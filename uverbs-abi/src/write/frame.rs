//! The headers of plain `write()`, and such bytes taken apart.

use zerocopy::FromBytes;

use crate::Reserved;

use super::WriteSpec;

/// Marks the number of an extended command.
#[doc(alias = "IB_USER_VERBS_CMD_FLAG_EXTENDED")]
pub const FLAG_EXTENDED: u32 = 0x8000_0000;
/// The number without marks.
#[doc(alias = "IB_USER_VERBS_CMD_COMMAND_MASK")]
pub const COMMAND_MASK: u32 = 0xff;

abi_structs! {
    /// Header of every command.
    "ib_uverbs_cmd_hdr" CmdHeader [8] {
        0 command: u32,
        /// All bytes of the command with this header, in words of 4; for an extended one the core
        /// request, in words of 8.
        4 in_words: u16,
        /// All bytes of the response, in words of 4; for an extended one the core response, in words
        /// of 8.
        6 out_words: u16,
    }

    /// Second header of an extended command.
    "ib_uverbs_ex_cmd_hdr" ExCmdHeader [16] {
        /// Address of the response.
        0 response: u64,
        /// The driver's request, in words of 8.
        8 provider_in_words: u16,
        /// The driver's response, in words of 8.
        10 provider_out_words: u16,
        12 cmd_hdr_reserved: Reserved<4>,
    }
}

/// A plain command taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainView<'b> {
    /// Number and extension.
    pub command: u32,
    /// The command, if this crate knows it.
    pub spec: Option<&'static WriteSpec>,
    /// The core request; for a command that is not known, everything.
    pub request: &'b [u8],
    /// The driver's request.
    pub uhw_in: &'b [u8],
    /// Address of the response in the client; 0 if there is none.
    pub response: u64,
    /// Bytes that the client has for the core response.
    pub response_len: usize,
    /// Bytes that the client has for the driver's response, directly behind the core's.
    pub uhw_out_len: usize,
}

impl<'b> PlainView<'b> {
    /// Takes the bytes of one `write()` apart; `None` if lengths do not agree (the kernel's
    /// `EINVAL`).
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        let (header, rest) = CmdHeader::read_from_prefix(bytes).ok()?;
        let spec = super::find(header.command);
        if header.command & FLAG_EXTENDED != 0 {
            let (ex, rest) = ExCmdHeader::read_from_prefix(rest).ok()?;
            let request_len = usize::from(header.in_words) * 8;
            let uhw_len = usize::from(ex.provider_in_words) * 8;
            if rest.len() != request_len + uhw_len || !ex.cmd_hdr_reserved.is_zero() {
                return None;
            }
            let (request, uhw_in) = rest.split_at(request_len);
            return Some(Self {
                command: header.command,
                spec,
                request,
                uhw_in,
                response: ex.response,
                response_len: usize::from(header.out_words) * 8,
                uhw_out_len: usize::from(ex.provider_out_words) * 8,
            });
        }
        if bytes.len() != usize::from(header.in_words) * 4 {
            return None;
        }
        let out_len = usize::from(header.out_words) * 4;
        let (request_len, response_len) = match spec {
            Some(spec) => (spec.request_len, spec.response_len),
            None => (rest.len(), out_len),
        };
        let (request, uhw_in) = rest.split_at_checked(request_len)?;
        let uhw_out_len = out_len.checked_sub(response_len)?;
        let response = match spec {
            Some(spec) if spec.has_response_pointer() => u64::read_from_prefix(request).ok()?.0,
            _ => 0,
        };
        Some(Self {
            command: header.command,
            spec,
            request,
            uhw_in,
            response,
            response_len,
            uhw_out_len,
        })
    }
}
