/* libmlx5 makes what an RDMA WRITE needs, and posts it; the work request is found in the ring. */
#include "common.h"

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	static char buffer[4096] __attribute__((aligned(4096)));
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel);
	struct ibv_cq *cq = ibv_create_cq(context, 100, (void *)0x1234, channel, 0);
	CHECK(cq && cq->cqe == 127);
	struct ibv_qp *qp = make_qp(pd, cq, NULL, IBV_QPT_RC);
	CHECK(qp);
	union ibv_gid gid;
	CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
	CHECK(!to_init(qp, IBV_QPT_RC));
	CHECK(!to_rts(qp, IBV_QPT_RC, &gid, qp->qp_num, 7));

	CHECK(!ibv_req_notify_cq(cq, 0));
	struct ibv_send_wr wr = {
		.wr_id = 77,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = 0x1122334455667788, .rkey = 0xaabbccdd },
	};
	CHECK(!post(qp, wr, mr, buffer + 16, 100));

	int (*first_block)(uint32_t, uint8_t *) = dlsym(RTLD_DEFAULT, "fake_kernel_first_block");
	int (*complete)(uint32_t) = dlsym(RTLD_DEFAULT, "fake_kernel_complete_sends");
	CHECK(first_block && complete);
	uint8_t block[64];
	CHECK(!first_block(qp->qp_num, block));
	/* RDMA_WRITE of three segments: control, remote address, data */
	uint32_t words[16];
	for (int i = 0; i < 16; i++) {
		memcpy(&words[i], block + 4 * i, 4);
		words[i] = __builtin_bswap32(words[i]);
	}
	CHECK(words[0] == 0x08);
	CHECK(words[1] == ((qp->qp_num << 8) | 3));
	CHECK(block[11] == 8);
	CHECK(words[4] == 0x11223344 && words[5] == 0x55667788 && words[6] == 0xaabbccdd);
	CHECK(words[8] == 100 && words[9] == mr->lkey);
	CHECK((((uint64_t)words[10] << 32) | words[11]) == (uintptr_t)buffer + 16);

	CHECK(none(cq));
	CHECK(complete(qp->qp_num) == 1);
	struct ibv_cq *got;
	void *cq_context;
	CHECK(!ibv_get_cq_event(channel, &got, &cq_context));
	CHECK(got == cq && cq_context == (void *)0x1234);
	ibv_ack_cq_events(cq, 1);
	struct ibv_wc wc = completion(cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 77 && wc.opcode == IBV_WC_RDMA_WRITE);
	CHECK(wc.qp_num == qp->qp_num);
	CHECK(none(cq));

	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_destroy_comp_channel(channel));
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	uint64_t (*resources)(void) = dlsym(RTLD_DEFAULT, "fake_kernel_resources");
	uint64_t (*objects)(void) = dlsym(RTLD_DEFAULT, "fake_kernel_objects");
	CHECK(resources() == 0 && objects() == 0);
	puts("ok");
	return 0;
}
