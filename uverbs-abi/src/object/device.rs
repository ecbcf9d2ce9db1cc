//! The device and the context of the open file.

methods! {
    DEVICE;

    /// Runs a write command; see [`write`](crate::write).
    "UVERBS_METHOD_INVOKE_WRITE" invoke_write = 0 with uhw {
        /// The command's request struct.
        "UVERBS_ATTR_CORE_IN" CORE_IN = 0: SliceIn<u8>, optional;
        /// Room for the command's response struct.
        "UVERBS_ATTR_CORE_OUT" CORE_OUT = 1: SliceOut<u8>, optional;
        /// The command's number, with [`FLAG_EXTENDED`](crate::write::frame::FLAG_EXTENDED) for
        /// extended ones.
        "UVERBS_ATTR_WRITE_CMD" WRITE_CMD = 2: Const<u32>, required;
    }

    /// Lists the handles of one kind of object that the open file has.
    "UVERBS_METHOD_INFO_HANDLES" info_handles = 1 {
        "UVERBS_ATTR_INFO_OBJECT_ID" OBJECT_ID = 0: Const<crate::object::Object>, required;
        /// How many handles were written.
        "UVERBS_ATTR_INFO_TOTAL_HANDLES" TOTAL_HANDLES = 1: Out<u32>, optional;
        "UVERBS_ATTR_INFO_HANDLES_LIST" HANDLES_LIST = 2: SliceOut<u32>, optional;
    }

    /// Attributes of a port.
    "UVERBS_METHOD_QUERY_PORT" query_port = 2 {
        /// From 1.
        "UVERBS_ATTR_QUERY_PORT_PORT_NUM" PORT_NUM = 0: Const<u32>, required;
        "UVERBS_ATTR_QUERY_PORT_RESP" RESP = 1: Out<types::PortAttrEx>, required;
    }

    /// Makes the open file's context; the first command of any program.
    "UVERBS_METHOD_GET_CONTEXT" get_context = 3 with uhw {
        "UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS" NUM_COMP_VECTORS = 0: Out<u32>, optional;
        "UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT" CORE_SUPPORT = 1: Out<types::CoreSupport>, optional;
    }

    /// What [`get_context`] answered, for a process that was given the file.
    "UVERBS_METHOD_QUERY_CONTEXT" query_context = 4 {
        "UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS" NUM_COMP_VECTORS = 0: Out<u32>, optional;
        "UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT" CORE_SUPPORT = 1: Out<types::CoreSupport>, optional;
    }

    /// All valid GIDs of all ports.
    "UVERBS_METHOD_QUERY_GID_TABLE" query_gid_table = 5 {
        /// Bytes of one entry as the program knows it.
        "UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE" ENTRY_SIZE = 0: Const<u64>, required;
        /// None is defined; a `u32` of 0.
        "UVERBS_ATTR_QUERY_GID_TABLE_FLAGS" FLAGS = 1: Flags<u32>, optional;
        "UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES" RESP_ENTRIES = 2: SliceOut<types::GidEntry>, required;
        "UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES" RESP_NUM_ENTRIES = 3: Out<u64>, required;
    }

    /// One GID; `ENODATA` if the entry is empty.
    "UVERBS_METHOD_QUERY_GID_ENTRY" query_gid_entry = 6 {
        "UVERBS_ATTR_QUERY_GID_ENTRY_PORT" PORT = 0: Const<u32>, required;
        "UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX" GID_INDEX = 1: Const<u32>, required;
        /// None is defined; a `u32` of 0.
        "UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS" FLAGS = 2: Flags<u32>, optional;
        "UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY" RESP_ENTRY = 3: Out<types::GidEntry>, required;
    }
}
