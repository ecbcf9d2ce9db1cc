//! Rates that send queues are held to.

use super::layout::layouts;

layouts! {
    /// A rate in kbit/s, the longest burst in bytes, and how long packets mostly are.
    SetPpRateLimitContext = "set_pp_rate_limit_context", 0x30 {
        u32 rate_limit: 0x0, 0x20;
        u32 burst_upper_bound: 0x20, 0x20;
        u16 typical_packet_size: 0x50, 0x10;
    }

    /// Input of SET_PP_RATE_LIMIT (0x780): an entry of the table of rates, of which number 0 is no limit for good.
    SetPpRateLimitIn = "set_pp_rate_limit_in", 0x40 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
        u16 rate_limit_index: 0x50, 0x10;
        (SetPpRateLimitContext) ctx: 0x80, 0x180;
    }

    /// Output of SET_PP_RATE_LIMIT (0x780).
    SetPpRateLimitOut = "set_pp_rate_limit_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}
