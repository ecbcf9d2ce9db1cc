// Segments as rdma-core's headers lay them out, one a line: a name and its bytes.
// With WITH_WQE_H the private wqe.h is on the include path, and what only it knows is printed too.
#include <endian.h>
#include <stdio.h>
#include <string.h>
#ifdef WITH_WQE_H
#include <wqe.h>
#else
#include <infiniband/mlx5dv.h>
#endif

static void line(const char *name, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;

	printf("%s ", name);
	for (size_t i = 0; i < n; i++)
		printf("%02x", p[i]);
	printf("\n");
}

#define LINE(name, value) line(name, &(value), sizeof(value))

static const uint64_t REMOTE = 0xfedcba9876543210ull;
static const uint32_t RKEY = 0x9abc01;

static void ctrl(void)
{
	struct mlx5_wqe_ctrl_seg c = { 0 };

	mlx5dv_set_ctrl_seg(&c, 0xfffe, MLX5_OPCODE_SEND, 0, 0x800001, MLX5_WQE_CTRL_CQ_UPDATE, 3, 0, 0);
	LINE("ctrl_send", c);
	line("doorbell_send", &c, 8);
	mlx5dv_set_ctrl_seg(&c, 0x0102, MLX5_OPCODE_RDMA_WRITE_IMM, 0, 0xabcdef,
			    MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_SOLICITED | MLX5_WQE_CTRL_FENCE, 63, 0x5a,
			    htobe32(0x01020304));
	LINE("ctrl_write_imm", c);
	mlx5dv_set_ctrl_seg(&c, 7, MLX5_OPCODE_MMO, 1, 0x12, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE, 4, 0, 0);
	LINE("ctrl_mmo", c);
	mlx5dv_set_ctrl_seg(&c, 1, MLX5_OPCODE_SEND_INVAL, 0, 0x34, 0, 1, 0, htobe32(RKEY));
	c.dci_stream_channel_id = htobe16(0x1234);
	LINE("ctrl_send_inv_stream", c);
}

static void rdma(void)
{
	struct mlx5_wqe_raddr_seg r = { .raddr = htobe64(REMOTE), .rkey = htobe32(RKEY) };
	struct mlx5_wqe_atomic_seg cas = { .swap_add = htobe64(0x3333333344444444), .compare = htobe64(0x1111111122222222) };
	struct mlx5_wqe_atomic_seg add = { .swap_add = htobe64(0xffffffffffffffff) };

	LINE("raddr", r);
	LINE("atomic_cas", cas);
	LINE("atomic_add", add);
}

static void datagram(void)
{
	uint8_t mac[6] = { 2, 0, 0, 0, 0, 9 };
	uint8_t gid[16] = { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 };
	struct mlx5_wqe_datagram_seg d;

	memset(&d, 0, sizeof(d));
	mlx5dv_set_dgram_seg(&d, 0x1122334455667788ull, 0xfedcba, 1, 0x5a, 0x81, 0xc123, mac, 0x20, 64,
			     (1u << 30) | (3u << 20) | 0x12345, gid);
	LINE("datagram_dc", d);
	mlx5dv_set_dgram_seg(&d, (uint64_t)0x80010000 << 32, 0x123456, 1, 0x0a, 0, 0xf0b5, mac, 0, 255,
			     (1u << 20) | 0xfffff, gid);
	LINE("datagram_ud", d);
}

static void ethernet(void)
{
	uint8_t header[18] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18 };
	struct mlx5_wqe_eth_seg e = { 0 };

	// The function copies over the end of inline_hdr_start, which compilers warn of; the bytes go where they belong.
	struct mlx5_wqe_eth_seg *volatile p = &e;
	e.cs_flags = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
	e.mss = htobe16(1460);
	e.inline_hdr_sz = htobe16(18);
	memcpy((char *)p + offsetof(struct mlx5_wqe_eth_seg, inline_hdr_start), header, sizeof(header));
	LINE("eth", e);
}

static void data(void)
{
	struct mlx5_wqe_data_seg d;
	struct mlx5_wqe_inl_data_seg i = { .byte_count = htobe32(44 | MLX5_INLINE_SEG) };
	struct mlx5_wqe_srq_next_seg n = { .next_wqe_index = htobe16(0x0102) };

	mlx5dv_set_data_seg(&d, 0x40000000, 0x4201, 0x7f0000001000);
	LINE("data", d);
	mlx5dv_set_data_seg(&d, 0, MLX5_INVALID_LKEY, 0);
	LINE("data_terminator", d);
	LINE("inline", i);
	LINE("srq_next", n);
}

static void umr(void)
{
	struct mlx5_wqe_umr_ctrl_seg c = {
		.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN,
		.klm_octowords = htobe16(4),
		.mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
				     MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY | MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE),
	};
	struct mlx5_wqe_mkey_context_seg m = {
		.access_flags = MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE |
				MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ,
		.qpn_mkey = htobe32(0xabcdef00 | 0x7f),
		.start_addr = htobe64(0x7f0000002000),
		.len = htobe64(0x123456789),
	};
	struct mlx5_wqe_mkey_context_seg f = { .free = MLX5_WQE_MKEY_CONTEXT_FREE };
	struct mlx5_wqe_umr_klm_seg k = {
		.byte_count = htobe32(4096), .mkey = htobe32(0x51), .address = htobe64(0x7f0000002000)
	};
	struct mlx5_wqe_umr_repeat_block_seg b = {
		.byte_count = htobe32(12), .op = htobe32(0x400), .repeat_count = htobe32(100), .num_ent = htobe16(2)
	};
	struct mlx5_wqe_umr_repeat_ent_seg e = {
		.stride = htobe16(64), .byte_count = htobe16(8), .memkey = htobe32(0x62), .va = htobe64(0x7f0000003000)
	};

	LINE("umr_ctrl", c);
	LINE("mkey_context", m);
	LINE("mkey_context_free", f);
	LINE("klm", k);
	LINE("repeat_block", b);
	LINE("repeat_entry", e);
}

// Completions: the fields go in by name, and the header's own functions read the last byte.
static void cqe(void)
{
	struct mlx5_cqe64 c = {
		.ml_path = 0x83, .slid = htobe16(0x0102), .flags_rqpn = htobe32((1u << 28) | (5u << 24) | 0xfedcba),
		.hds_ip_ext = MLX5_CQE_L3_OK | MLX5_CQE_L4_OK, .l4_hdr_type_etc = MLX5_CQE_L3_HDR_TYPE_IPV4 << 2 | 1,
		.vlan_info = htobe16(0x6123), .srqn_uidx = htobe32(0x00abcdef), .imm_inval_pkey = htobe32(0x01020304),
		.app = 1, .app_op = 2, .app_info = htobe16(0x0304), .byte_cnt = htobe32(0x01020304),
		.timestamp = htobe64(0x1122334455667788), .sop_drop_qpn = htobe32(0x10800001),
		.wqe_counter = htobe16(0xfffe), .signature = 0x5a, .op_own = (MLX5_CQE_RESP_SEND_IMM << 4) | 8 | 2,
	};

	mlx5dv_set_cqe_owner(&c, 1);
	LINE("cqe", c);
	printf("cqe_opcode %02x\n", mlx5dv_get_cqe_opcode(&c));
	printf("cqe_format %02x\n", mlx5dv_get_cqe_format(&c));
	printf("cqe_se %02x\n", mlx5dv_get_cqe_se(&c));
	printf("cqe_owner %02x\n", mlx5dv_get_cqe_owner(&c));
}

#ifdef WITH_WQE_H
static void private(void)
{
	struct mlx5_wqe_xrc_seg x = { .xrc_srqn = htobe32(0x123456) };
	struct mlx5_wqe_masked_atomic_seg m = {
		.swap_add = htobe64(1), .compare = htobe64(2), .swap_add_mask = htobe64(3), .compare_mask = htobe64(4)
	};
	struct mlx5_mmo_metadata_seg o = { .local_key = htobe32(0x51), .local_address = htobe64(0x7f0000002000) };
	struct mlx5_wqe_set_psv_seg p = {
		.psv_index = htobe32(0x123456), .syndrome = htobe16(0x0102), .transient_signature = htobe64(0x1122334455667788)
	};

	LINE("private_xrc", x);
	LINE("private_masked_cas", m);
	LINE("private_mmo", o);
	LINE("private_set_psv", p);
}
#endif

int main(void)
{
	ctrl();
	rdma();
	datagram();
	ethernet();
	data();
	umr();
	cqe();
#ifdef WITH_WQE_H
	private();
#endif
	return 0;
}
