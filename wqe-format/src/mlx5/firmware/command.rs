//! How commands reach the device: the queue's entries, mailboxes, what every command and reply begins with.

use super::layout::layouts;

layouts! {
    /// A command in the queue: 16 bytes of it and of its reply stand here, the rest in mailboxes.
    CmdQueueEntry = "cmd_queue_entry", 0x40 {
        u8 type_: 0x0, 0x8;
        u32 input_length: 0x20, 0x20;
        u32 input_mailbox_pointer_63_32: 0x40, 0x20;
        u32 input_mailbox_pointer_31_9: 0x60, 0x17;
        bytes command_input_inline_data: 0x80, 0x80;
        bytes command_output_inline_data: 0x100, 0x80;
        u32 output_mailbox_pointer_63_32: 0x180, 0x20;
        u32 output_mailbox_pointer_31_9: 0x1a0, 0x17;
        u32 output_length: 0x1c0, 0x20;
        u8 token: 0x1e0, 0x8;
        u8 signature: 0x1e8, 0x8;
        u8 status: 0x1f8, 0x7;
        bool ownership: 0x1ff, 0x1;
    }

    /// A mailbox: 512 bytes of a command or a reply, and where the next ones are.
    CmdIfBox = "cmd_if_box", 0x240 {
        bytes mailbox_data: 0x0, 0x1000;
        u32 next_pointer_63_32: 0x1180, 0x20;
        u32 next_pointer_31_10: 0x11a0, 0x16;
        u32 block_number: 0x11c0, 0x20;
        u8 token: 0x11e8, 0x8;
        u8 ctrl_signature: 0x11f0, 0x8;
        u8 signature: 0x11f8, 0x8;
    }

    /// What every command begins with.
    MboxIn = "mbox_in", 0x10 {
        u16 opcode: 0x0, 0x10;
        u16 uid: 0x10, 0x10;
        u16 op_mod: 0x30, 0x10;
    }

    /// What every reply begins with.
    MboxOut = "mbox_out", 0x10 {
        u8 status: 0x0, 0x8;
        u32 syndrome: 0x20, 0x20;
    }

    /// Address of a page of 4 KiB.
    CmdPas = "cmd_pas", 0x8 {
        u32 pa_h: 0x0, 0x20;
        u32 pa_l: 0x20, 0x14;
    }
}
