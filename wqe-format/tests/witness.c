/* Fills rxe's work queue entries as the C headers lay them out and prints their bytes, one entry a
 * line. HAVE_FLUSH is defined where the headers know flush and atomic write. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <arpa/inet.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_rxe.h>

static union {
	struct rxe_send_wqe wqe;
	unsigned char bytes[256];
} s;

static union {
	struct rxe_recv_wqe wqe;
	unsigned char bytes[88];
} r;

static void hex(const char *name, const unsigned char *bytes, size_t n)
{
	printf("%s ", name);
	for (size_t i = 0; i < n; i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

static struct rxe_send_wqe *start(unsigned int opcode, unsigned int flags)
{
	memset(&s, 0, sizeof(s));
	s.wqe.wr.wr_id = 0x1122334455667788ull;
	s.wqe.wr.opcode = opcode;
	s.wqe.wr.send_flags = flags;
	return &s.wqe;
}

static void sges(struct rxe_dma_info *dma, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		dma->sge[i].addr = 0x7f0000001000ull + i;
		dma->sge[i].length = 100 * (i + 1);
		dma->sge[i].lkey = 0x4200 + i;
		dma->length += 100 * (i + 1);
	}
	dma->resid = dma->length;
	dma->num_sge = n;
}

static void done(const char *name)
{
	hex(name, s.bytes, sizeof(s.bytes));
}

static void rdma(const char *name, unsigned int opcode, int imm)
{
	struct rxe_send_wqe *w = start(opcode, 2);

	w->wr.wr.rdma.remote_addr = w->iova = 0xfedcba9876543210ull;
	w->wr.wr.rdma.rkey = 0x9abc01;
	if (imm)
		w->wr.ex.imm_data = htonl(0x01020304);
	sges(&w->dma, 2);
	done(name);
}

#define VALUE(name) printf("value %s %llu\n", #name, (unsigned long long)(name))
#define SIZE(type) printf("size %s %zu\n", #type, sizeof(struct type))
#define AT(type, field) printf("offset %s.%s %zu\n", #type, #field, offsetof(struct type, field))

int main(void)
{
	struct rxe_send_wqe *w;
	struct rxe_av *av;

	w = start(IB_UVERBS_WR_SEND, 2 | 4);
	sges(&w->dma, 3);
	done("send");

	w = start(IB_UVERBS_WR_SEND, 2 | 8);
	memcpy(w->dma.inline_data, "inline data", 11);
	w->dma.length = w->dma.resid = 11;
	done("send_inline");

	w = start(IB_UVERBS_WR_SEND_WITH_IMM, 0);
	w->wr.ex.imm_data = htonl(0x01020304);
	sges(&w->dma, 1);
	done("send_imm");

	w = start(IB_UVERBS_WR_SEND_WITH_INV, 1);
	w->wr.ex.invalidate_rkey = 0x01020304;
	sges(&w->dma, 1);
	done("send_inv");

	rdma("write", IB_UVERBS_WR_RDMA_WRITE, 0);
	rdma("write_imm", IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, 1);
	rdma("read", IB_UVERBS_WR_RDMA_READ, 0);

	w = start(IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, 2);
	w->wr.wr.atomic.remote_addr = w->iova = 0xfedcba9876543210ull;
	w->wr.wr.atomic.compare_add = 0x1111111122222222ull;
	w->wr.wr.atomic.swap = 0x3333333344444444ull;
	w->wr.wr.atomic.rkey = 0x9abc01;
	sges(&w->dma, 1);
	done("cmp_swp");

	w = start(IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, 2);
	w->wr.wr.atomic.remote_addr = w->iova = 0xfedcba9876543210ull;
	w->wr.wr.atomic.compare_add = 0x1111111122222222ull;
	w->wr.wr.atomic.rkey = 0x9abc01;
	sges(&w->dma, 1);
	done("fetch_add");

	w = start(IB_UVERBS_WR_BIND_MW, 2);
	w->wr.wr.mw.addr = 0x7f0000002000ull;
	w->wr.wr.mw.length = 0x123456789ull;
	w->wr.wr.mw.mr_lkey = 0x51;
	w->wr.wr.mw.mw_rkey = 0x62;
	w->wr.wr.mw.rkey = 0x63;
	w->wr.wr.mw.access = 6;
	done("bind_mw");

	w = start(IB_UVERBS_WR_LOCAL_INV, 2);
	w->wr.ex.invalidate_rkey = 0x01020304;
	done("local_inv");

	w = start(IB_UVERBS_WR_SEND, 2);
	w->wr.wr.ud.remote_qpn = 0x123456;
	w->wr.wr.ud.remote_qkey = 0x11111111;
	w->wr.wr.ud.ah_num = 7;
	sges(&w->dma, 1);
	done("ud_handle");

	w = start(IB_UVERBS_WR_SEND, 2);
	w->wr.wr.ud.remote_qpn = 0x123456;
	w->wr.wr.ud.remote_qkey = 0x11111111;
	av = &w->wr.wr.ud.av;
	av->port_num = 1;
	av->network_type = RXE_NETWORK_TYPE_IPV4;
	memcpy(av->dmac, "\x02\x00\x00\x00\x00\x09", 6);
	memcpy(av->grh.dgid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x02", 16);
	av->grh.flow_label = 0x12345;
	av->grh.sgid_index = 1;
	av->grh.hop_limit = 64;
	av->grh.traffic_class = 0x20;
	av->sgid_addr._sockaddr_in.sin_family = AF_INET;
	av->sgid_addr._sockaddr_in.sin_addr.s_addr = htonl(0x0a000001);
	av->dgid_addr._sockaddr_in.sin_family = AF_INET;
	av->dgid_addr._sockaddr_in.sin_addr.s_addr = htonl(0x0a000002);
	sges(&w->dma, 1);
	done("ud_vector4");

	w = start(IB_UVERBS_WR_SEND, 2);
	w->wr.wr.ud.remote_qpn = 0x123456;
	w->wr.wr.ud.remote_qkey = 0x11111111;
	av = &w->wr.wr.ud.av;
	av->port_num = 1;
	av->network_type = RXE_NETWORK_TYPE_IPV6;
	memcpy(av->dmac, "\x02\x00\x00\x00\x00\x09", 6);
	memcpy(av->grh.dgid.raw, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x02", 16);
	av->grh.hop_limit = 64;
	av->sgid_addr._sockaddr_in6.sin6_family = AF_INET6;
	memcpy(&av->sgid_addr._sockaddr_in6.sin6_addr, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
	av->dgid_addr._sockaddr_in6.sin6_family = AF_INET6;
	memcpy(&av->dgid_addr._sockaddr_in6.sin6_addr, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x02", 16);
	sges(&w->dma, 1);
	done("ud_vector6");

#ifdef HAVE_FLUSH
	w = start(IB_UVERBS_WR_FLUSH, 2);
	w->wr.wr.flush.remote_addr = w->iova = 0xfedcba9876543210ull;
	w->wr.wr.flush.length = 4096;
	w->wr.wr.flush.rkey = 0x9abc01;
	w->wr.wr.flush.type = IB_FLUSH_PERSISTENT;
	w->wr.wr.flush.level = IB_FLUSH_MR;
	w->dma.length = w->dma.resid = 4096;
	done("flush");

	w = start(IB_UVERBS_WR_ATOMIC_WRITE, 2);
	w->wr.wr.rdma.remote_addr = w->iova = 0xfedcba9876543210ull;
	w->wr.wr.rdma.rkey = 0x9abc01;
	memcpy(w->dma.atomic_wr, "8 bytes!", 8);
	w->dma.length = w->dma.resid = 8;
	done("atomic_write");
#endif

	memset(&r, 0, sizeof(r));
	r.wqe.wr_id = 0x1122334455667788ull;
	sges(&r.wqe.dma, 3);
	hex("recv", r.bytes, sizeof(r.bytes));

	AT(rxe_queue_buf, log2_elem_size);
	AT(rxe_queue_buf, index_mask);
	AT(rxe_queue_buf, producer_index);
	AT(rxe_queue_buf, consumer_index);
	AT(rxe_queue_buf, data);
	SIZE(rxe_av);
	SIZE(rxe_sge);
	SIZE(rxe_dma_info);
	SIZE(rxe_send_wr);
	SIZE(rxe_send_wqe);
	SIZE(rxe_recv_wqe);
	SIZE(ib_uverbs_wc);
	AT(rxe_send_wqe, dma);
	AT(rxe_recv_wqe, dma);
	AT(ib_uverbs_wc, wr_id);
	AT(ib_uverbs_wc, status);
	AT(ib_uverbs_wc, opcode);
	AT(ib_uverbs_wc, vendor_err);
	AT(ib_uverbs_wc, byte_len);
	AT(ib_uverbs_wc, ex);
	AT(ib_uverbs_wc, qp_num);
	AT(ib_uverbs_wc, src_qp);
	AT(ib_uverbs_wc, wc_flags);
	AT(ib_uverbs_wc, pkey_index);
	AT(ib_uverbs_wc, slid);
	AT(ib_uverbs_wc, sl);
	AT(ib_uverbs_wc, dlid_path_bits);
	AT(ib_uverbs_wc, port_num);
	VALUE(IB_UVERBS_WC_SEND);
	VALUE(IB_UVERBS_WC_RDMA_WRITE);
	VALUE(IB_UVERBS_WC_RDMA_READ);
	VALUE(IB_UVERBS_WC_COMP_SWAP);
	VALUE(IB_UVERBS_WC_FETCH_ADD);
	VALUE(IB_UVERBS_WC_BIND_MW);
	VALUE(IB_UVERBS_WC_LOCAL_INV);
	VALUE(IB_UVERBS_ACCESS_LOCAL_WRITE);
	VALUE(IB_UVERBS_ACCESS_REMOTE_WRITE);
	VALUE(IB_UVERBS_ACCESS_REMOTE_READ);
	VALUE(IB_UVERBS_ACCESS_REMOTE_ATOMIC);
	VALUE(IB_UVERBS_ACCESS_MW_BIND);
	VALUE(IB_UVERBS_ACCESS_ZERO_BASED);
	VALUE(IB_UVERBS_QPT_RC);
	VALUE(IB_UVERBS_QPT_UC);
	VALUE(IB_UVERBS_QPT_UD);
#ifdef HAVE_FLUSH
	VALUE(IB_UVERBS_WC_FLUSH);
	VALUE(IB_UVERBS_WC_ATOMIC_WRITE);
	VALUE(IB_UVERBS_ACCESS_FLUSH_GLOBAL);
	VALUE(IB_UVERBS_ACCESS_FLUSH_PERSISTENT);
	VALUE(IB_FLUSH_GLOBAL);
	VALUE(IB_FLUSH_PERSISTENT);
	VALUE(IB_FLUSH_RANGE);
	VALUE(IB_FLUSH_MR);
#endif
	return 0;
}
