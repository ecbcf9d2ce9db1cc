//! Packets changed on the way: headers added, removed, rewritten.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// A header to be added or removed.
    PacketReformatContextIn = "packet_reformat_context_in", 0x8 {
        u8 reformat_type: 0x0, 0x8;
        u8 reformat_param_0: 0xc, 0x4;
        u16 reformat_data_size: 0x16, 0xa;
        u8 reformat_param_1: 0x20, 0x8;
        bytes reformat_data: 0x30, 0x10;
        [bytes] more_reformat_data: 0x40, 0x8;
    }

    /// Input of ALLOC_PACKET_REFORMAT_CONTEXT (0x93d).
    AllocPacketReformatContextIn = "alloc_packet_reformat_context_in", 0x24 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        (PacketReformatContextIn) packet_reformat_context: 0xe0, 0x40;
    }

    /// Output of ALLOC_PACKET_REFORMAT_CONTEXT (0x93d).
    AllocPacketReformatContextOut = "alloc_packet_reformat_context_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 packet_reformat_id: 0x40, 0x20;
    }

    /// Input of DEALLOC_PACKET_REFORMAT_CONTEXT (0x93e).
    DeallocPacketReformatContextIn = "dealloc_packet_reformat_context_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 packet_reformat_id: 0x40, 0x20;
    }

    /// Output of DEALLOC_PACKET_REFORMAT_CONTEXT (0x93e).
    DeallocPacketReformatContextOut = "dealloc_packet_reformat_context_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Input of ALLOC_MODIFY_HEADER_CONTEXT (0x940).
    AllocModifyHeaderContextIn = "alloc_modify_header_context_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u8 table_type: 0x60, 0x8;
        u8 num_of_actions: 0x78, 0x8;
        [u64] actions: 0x80, 0x40;
    }

    /// Output of ALLOC_MODIFY_HEADER_CONTEXT (0x940).
    AllocModifyHeaderContextOut = "alloc_modify_header_context_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 modify_header_id: 0x40, 0x20;
    }

    /// Input of DEALLOC_MODIFY_HEADER_CONTEXT (0x941).
    DeallocModifyHeaderContextIn = "dealloc_modify_header_context_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 op_mod: 0x30, 0x10;
        u32 modify_header_id: 0x40, 0x20;
    }

    /// Output of DEALLOC_MODIFY_HEADER_CONTEXT (0x941).
    DeallocModifyHeaderContextOut = "dealloc_modify_header_context_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }
}
