//! What strict checks let pass, each with its source.

use wqe_format::mlx5::firmware::Opcode;

/// Fields of commands that `mlx5_ifc.h` lacks.
#[derive(Debug)]
pub(crate) struct Field {
    /// The command; none for all.
    pub(crate) opcode: Option<Opcode>,
    /// First bit and width, counted as `mlx5_ifc.h` does.
    pub(crate) bits: (usize, usize),
    /// Who has it.
    pub(crate) source: &'static str,
}

const fn field(opcode: Opcode, first: usize, width: usize, source: &'static str) -> Field {
    Field {
        opcode: Some(opcode),
        bits: (first, width),
        source,
    }
}

const PRM_STRUCTS: &str = "rdma-core tests/mlx5_prm_structs.py, CreateCqIn and SwCqc";
const LIBMLX5: &str = "rdma-core providers/mlx5/mlx5_ifc.h";

/// Fields that are not reserved although `mlx5_ifc.h` says so.
pub(crate) const FIELDS: [Field; 14] = [
    // The kernel writes it into whatever a program sends by DEVX, QUERY_HCA_CAP too, before it looks at the command.
    Field {
        opcode: None,
        bits: (0x10, 0x10),
        source: "Linux drivers/infiniband/hw/mlx5/devx.c, general_obj_in_cmd_hdr.uid",
    },
    // cqn, cq_umem_offset, cq_umem_id, dbr_umem_id.
    field(Opcode::CREATE_CQ, 0x48, 0x18, PRM_STRUCTS),
    field(Opcode::CREATE_CQ, 0x280, 0x40, PRM_STRUCTS),
    field(Opcode::CREATE_CQ, 0x2c0, 0x20, PRM_STRUCTS),
    field(Opcode::CREATE_CQ, 0x80 + 0x20, 0x20, PRM_STRUCTS),
    field(Opcode::MODIFY_CQ, 0x280, 0x40, PRM_STRUCTS),
    field(Opcode::MODIFY_CQ, 0x2c0, 0x20, PRM_STRUCTS),
    // dbr_umem_id, data_in_order.
    field(Opcode::CREATE_QP, 0xc0 + 0x720, 0x20, LIBMLX5),
    field(Opcode::CREATE_QP, 0xc0 + 0x5a, 1, LIBMLX5),
    // qpc_ext, opt_param_mask_95_32.
    field(Opcode::INIT2INIT_QP, 0x40, 1, LIBMLX5),
    field(Opcode::INIT2INIT_QP, 0x840, 0x40, LIBMLX5),
    field(Opcode::RTS2RTS_QP, 0x40, 1, LIBMLX5),
    field(Opcode::RTS2RTS_QP, 0x840, 0x40, LIBMLX5),
    // data_in_order.
    field(Opcode::CREATE_DCT, 0x80 + 0x1d, 1, LIBMLX5),
];

/// A reserved word of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Behind the address and the key at the peer.
    Remote,
    /// In the second half of a long address vector, before the MAC address.
    Vector,
}

/// A reserved word that may hold what a request on an earlier turn of the ring left in its place.
#[derive(Debug)]
pub(crate) struct LeftOver {
    pub(crate) word: Word,
    /// Who leaves it.
    pub(crate) source: &'static str,
}

/// Words that are left as they are.
pub(crate) const LEFT_OVER: [LeftOver; 2] = [
    LeftOver {
        word: Word::Remote,
        source: "UCX src/uct/ib/mlx5/ib_mlx5.inl, uct_ib_mlx5_ep_set_rdma_seg: address and key are set and nothing else, where it is built without SSE 4.2, as Debian's is",
    },
    LeftOver {
        word: Word::Vector,
        source: "UCX src/uct/ib/mlx5/ib_mlx5.inl, uct_ib_mlx5_set_dgram_seg: the fields of the second half are set one by one",
    },
];

/// Whether a word may be left over from another request.
pub(crate) fn may_be_left_over(word: Word) -> bool {
    LEFT_OVER.iter().any(|known| known.word == word)
}

/// How a copy in a BlueFlame register may differ from the request in memory.
#[derive(Debug)]
pub(crate) struct Difference {
    /// Who makes it.
    pub(crate) source: &'static str,
    /// Whether it is this one.
    pub(crate) is_it: fn(copy: &[u8], request: &[u8]) -> bool,
}

/// Copies that may differ.
pub(crate) const DIFFERENCES: [Difference; 1] = [Difference {
    source: "Linux drivers/net/ethernet/mellanox/mlx5/core/wc.c: the copy of a NOP asks for a completion, memory does not",
    is_it: |copy, request| crate::transport::asks_only_here(copy, request).is_some(),
}];

/// Whether a copy may differ from the request in this way.
pub(crate) fn difference(copy: &[u8], request: &[u8]) -> bool {
    DIFFERENCES.iter().any(|known| (known.is_it)(copy, request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_has_a_source() {
        for Field { bits, source, .. } in &FIELDS {
            assert!(bits.1 != 0 && source.contains('/'), "{bits:x?}");
        }
        for Difference { source, .. } in &DIFFERENCES {
            assert!(source.contains('/'));
        }
        for LeftOver { source, .. } in &LEFT_OVER {
            assert!(source.contains('/'));
        }
    }
}
