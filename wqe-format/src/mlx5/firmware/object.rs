//! General objects.

use super::layout::layouts;

layouts! {
    /// What input of a general object's command begins with.
    GeneralObjInCmdHdr = "general_obj_in_cmd_hdr", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 vhca_tunnel_id: 0x20, 0x10;
        u16 obj_type: 0x30, 0x10;
        u32 obj_id: 0x40, 0x20;
        u32 op_param: 0x60, 0x20;
    }

    /// Output of a general object's command.
    GeneralObjOutCmdHdr = "general_obj_out_cmd_hdr", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
        u32 obj_id: 0x40, 0x20;
    }

    /// Parameters of CREATE_GENERAL_OBJECT.
    GeneralObjCreateParam = "general_obj_create_param", 0x4 {
        bool alias_object: 0x0, 0x1;
        u8 log_obj_range: 0x3, 0x5;
    }

    /// Parameters of QUERY_GENERAL_OBJECT.
    GeneralObjQueryParam = "general_obj_query_param", 0x4 {
        bool alias_object: 0x0, 0x1;
        u32 obj_offset: 0x1, 0x1f;
    }
}
