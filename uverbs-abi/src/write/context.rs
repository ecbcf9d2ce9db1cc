//! The context of the open file, and completion channels.

abi_structs! {
    /// Makes the context and, with this command only, the asynchronous event file.
    "ib_uverbs_get_context" GetContext [8] {
        0 response: u64,
    }

    /// Answer to [`GetContext`].
    "ib_uverbs_get_context_resp" GetContextResp [8] {
        0 async_fd: i32,
        4 num_comp_vectors: u32,
    }

    /// Makes a completion channel.
    "ib_uverbs_create_comp_channel" CreateCompChannel [8] {
        0 response: u64,
    }

    /// Answer to [`CreateCompChannel`].
    "ib_uverbs_create_comp_channel_resp" CreateCompChannelResp [4] {
        0 fd: i32,
    }
}

write_commands! {
    "IB_USER_VERBS_CMD_GET_CONTEXT" 0: GetContext => GetContextResp;
    "IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL" 17: CreateCompChannel => CreateCompChannelResp;
}
