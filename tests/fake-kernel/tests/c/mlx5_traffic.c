/* Traffic of every kind between queue pairs of this process, executed by the loopback device. */
#include "common.h"
#ifdef WITH_MLX5DV
#include <infiniband/mlx5dv.h>
#endif

#define HALF 65536

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char *A, *B;
static union ibv_gid gid;

static void fill(char *to, int seed, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		to[i] = seed * 31 + i * 7 + i / 251;
}

/* Waits until data is there that a completion of the other side does not tell of. */
static void arrives(const void *at, const void *what, size_t len)
{
	for (int i = 0; i < 5000 && memcmp(at, what, len); i++)
		usleep(1000);
	CHECK(!memcmp(at, what, len));
}

static struct ibv_wc expect(uint64_t id, enum ibv_wc_status status, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = completion(cq);
	if (wc.wr_id != id || wc.status != status)
		printf("got %llu %s, not %llu %s\n", (unsigned long long)wc.wr_id,
		       ibv_wc_status_str(wc.status), (unsigned long long)id,
		       ibv_wc_status_str(status));
	CHECK(wc.wr_id == id && wc.status == status);
	if (status == IBV_WC_SUCCESS)
		CHECK(wc.opcode == opcode);
	return wc;
}

static void pair(enum ibv_qp_type type, struct ibv_srq *srq, struct ibv_qp *qp[2], int rnr_retry)
{
	for (int i = 0; i < 2; i++) {
		qp[i] = make_qp(pd, cq, srq, type);
		CHECK(qp[i] && !to_init(qp[i], type));
	}
	for (int i = 0; i < 2; i++)
		CHECK(!to_rts(qp[i], type, &gid, qp[1 - i]->qp_num, rnr_retry));
}

static void end_pair(struct ibv_qp *qp[2])
{
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(qp[i]));
}

static void connected(enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp *qp[2];
	pair(type, srq, qp, 7);
	/* several turns of the rings; payloads inside the completion, in one element, in several */
	for (int i = 0; i < 200; i++) {
		uint32_t len = i < 80 ? i : i * 397 % HALF;
		fill(A, i, len);
		memset(B, 0, len + 1);
		CHECK(!post_recv(qp[1], srq, 1000 + i, mr, B, HALF));
		uint32_t cut = len / 3;
		struct ibv_sge list[2] = { { (uintptr_t)A, cut, mr->lkey },
					   { (uintptr_t)A + cut, len - cut, mr->lkey } };
		struct ibv_send_wr *bad, wr = {
			.wr_id = i,
			.opcode = i % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
			.imm_data = htobe32(0xabcd0000 + i),
			.send_flags = IBV_SEND_SIGNALED | (len <= 64 && i % 3 ? IBV_SEND_INLINE : 0),
			.sg_list = list,
			.num_sge = 2,
		};
		CHECK(!ibv_post_send(qp[0], &wr, &bad));
		struct ibv_wc wc = expect(1000 + i, IBV_WC_SUCCESS, IBV_WC_RECV);
		CHECK(wc.byte_len == len && wc.qp_num == qp[1]->qp_num);
		/* a payload inside the completion lies over the bits of the route header */
		CHECK((wc.wc_flags & ~IBV_WC_GRH) == (i % 2 ? IBV_WC_WITH_IMM : 0));
		if (i % 2)
			CHECK(be32toh(wc.imm_data) == 0xabcd0000u + i);
		expect(i, IBV_WC_SUCCESS, IBV_WC_SEND);
		CHECK(!memcmp(A, B, len) && !B[len]);
	}
	fill(A, 9, 64);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_INLINE,
				  .wr.rdma = { (uintptr_t)B + 128, mr->rkey } };
	CHECK(!post(qp[0], wr, mr, A, 64));
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = htobe32(77);
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)B;
	wr.wr_id = 5;
	CHECK(!post_recv(qp[1], srq, 6, mr, B, 4));
	CHECK(!post(qp[0], wr, mr, A, 64));
	struct ibv_wc wc = expect(6, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(wc.byte_len == 64 && be32toh(wc.imm_data) == 77);
	expect(5, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	CHECK(!memcmp(A, B, 64) && !memcmp(A, B + 128, 64));
	if (type == IBV_QPT_RC) {
		for (uint32_t len = 8; len <= 64; len += 28) {
			memset(A, 0, 65);
			wr.opcode = IBV_WR_RDMA_READ;
			CHECK(!post(qp[0], wr, mr, A, len));
			CHECK(expect(5, IBV_WC_SUCCESS, IBV_WC_RDMA_READ).byte_len == len);
			CHECK(!memcmp(A, B, len) && !A[len]);
		}
		uint64_t *word = (uint64_t *)B, *old = (uint64_t *)A;
		*word = 40;
		struct ibv_send_wr at = { .wr_id = 7,
					  .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					  .send_flags = IBV_SEND_SIGNALED,
					  .wr.atomic = { (uintptr_t)B, 2, 0, mr->rkey } };
		CHECK(!post(qp[0], at, mr, A, 8));
		CHECK(expect(7, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD).byte_len == 8);
		CHECK(*old == 40 && *word == 42);
		at.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		at.wr.atomic.compare_add = 42;
		at.wr.atomic.swap = 7;
		CHECK(!post(qp[0], at, mr, A, 8));
		expect(7, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
		CHECK(*old == 42 && *word == 7);
	}
	end_pair(qp);
}

static void errors(void)
{
	struct ibv_qp *qp[2];
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	/* no receive request: fails after its retries; what follows is flushed */
	pair(IBV_QPT_RC, NULL, qp, 2);
	CHECK(!post(qp[0], wr, mr, A, 8));
	wr.wr_id = 2;
	wr.send_flags = 0;
	CHECK(!post(qp[0], wr, mr, A, 8));
	expect(1, IBV_WC_RNR_RETRY_EXC_ERR, 0);
	expect(2, IBV_WC_WR_FLUSH_ERR, 0);
	end_pair(qp);
	/* with retries for ever, a late receive request still gets it */
	pair(IBV_QPT_RC, NULL, qp, 7);
	CHECK(!post(qp[0], wr, mr, A, 8));
	usleep(3000);
	CHECK(none(cq));
	CHECK(!post_recv(qp[1], NULL, 3, mr, B, 8));
	expect(3, IBV_WC_SUCCESS, IBV_WC_RECV);
	/* a wrong key */
	wr = (struct ibv_send_wr){ .wr_id = 4,
				   .opcode = IBV_WR_RDMA_WRITE,
				   .wr.rdma = { (uintptr_t)B, mr->rkey ^ 1 } };
	CHECK(!post(qp[0], wr, mr, A, 8));
	expect(4, IBV_WC_REM_ACCESS_ERR, 0);
	end_pair(qp);
	/* a receive request that is too small */
	pair(IBV_QPT_RC, NULL, qp, 7);
	CHECK(!post_recv(qp[1], NULL, 5, mr, B, 4));
	wr = (struct ibv_send_wr){ .wr_id = 6, .opcode = IBV_WR_SEND };
	CHECK(!post(qp[0], wr, mr, A, 8));
	expect(5, IBV_WC_LOC_LEN_ERR, 0);
	expect(6, IBV_WC_REM_INV_REQ_ERR, 0);
	end_pair(qp);
	/* a local key that is none */
	pair(IBV_QPT_RC, NULL, qp, 7);
	struct ibv_mr wrong = *mr;
	wrong.lkey ^= 2;
	CHECK(!post(qp[0], wr, &wrong, A, 8));
	expect(6, IBV_WC_LOC_PROT_ERR, 0);
	end_pair(qp);
	/* moved to error by hand: receive requests come back */
	pair(IBV_QPT_RC, NULL, qp, 7);
	CHECK(!post_recv(qp[1], NULL, 8, mr, B, 4));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK(!ibv_modify_qp(qp[1], &attr, IBV_QP_STATE));
	expect(8, IBV_WC_WR_FLUSH_ERR, 0);
	/* and nobody answers at the other end */
	CHECK(!post(qp[0], wr, mr, A, 8));
	expect(6, IBV_WC_RETRY_EXC_ERR, 0);
	end_pair(qp);
}

static struct ibv_ah *address(void)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64 } };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	return ah;
}

static void datagrams(void)
{
	struct ibv_qp *qp[2];
	pair(IBV_QPT_UD, NULL, qp, 7);
	struct ibv_ah *ah = address();
	fill(A, 3, 1024);
	struct ibv_send_wr wr = { .wr_id = 1,
				  .opcode = IBV_WR_SEND_WITH_IMM,
				  .imm_data = htobe32(99),
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.ud = { ah, qp[1]->qp_num, 0x1234 } };
	for (int i = 0; i < 100; i++) {
		uint32_t len = i * 10;
		memset(B, 0, 2048);
		CHECK(!post_recv(qp[1], NULL, 2, mr, B, 40 + 1024));
		CHECK(!post(qp[0], wr, mr, A, len));
		struct ibv_wc wc = expect(2, IBV_WC_SUCCESS, IBV_WC_RECV);
		CHECK(wc.byte_len == 40 + len && wc.src_qp == qp[0]->qp_num);
		CHECK(wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM));
		CHECK(!memcmp(A, B + 40, len));
		expect(1, IBV_WC_SUCCESS, IBV_WC_SEND);
	}
	/* a wrong queue key: sent, not received */
	wr.wr.ud.remote_qkey = 0x4321;
	CHECK(!post_recv(qp[1], NULL, 2, mr, B, 40 + 1024));
	CHECK(!post(qp[0], wr, mr, A, 8));
	expect(1, IBV_WC_SUCCESS, IBV_WC_SEND);
	usleep(1000);
	CHECK(none(cq));
	union ibv_gid group = { .raw = { [0] = 0xff, [1] = 0x0e, [15] = 7 } };
	CHECK(!ibv_attach_mcast(qp[1], &group, 0));
	CHECK(ibv_destroy_qp(qp[1]) == EBUSY);
	CHECK(!ibv_detach_mcast(qp[1], &group, 0));
	CHECK(!ibv_destroy_ah(ah));
	end_pair(qp);
}

static void events(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel);
	struct ibv_cq *old = cq;
	cq = ibv_create_cq(context, 31, (void *)0x77, channel, 0);
	CHECK(cq);
	struct ibv_qp *qp[2];
	pair(IBV_QPT_RC, NULL, qp, 7);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *about;
	void *its;
	for (int round = 0; round < 10; round++) {
		/* unsignaled sends never leave their queue, so each round has its own */
		if (round) {
			end_pair(qp);
			pair(IBV_QPT_RC, NULL, qp, 7);
		}
		/* only for a solicited one */
		CHECK(!ibv_req_notify_cq(cq, 1));
		CHECK(!post_recv(qp[1], NULL, 1, mr, B, 8));
		wr.send_flags = 0;
		CHECK(!post(qp[0], wr, mr, A, 8));
		expect(1, IBV_WC_SUCCESS, IBV_WC_RECV);
		usleep(1000);
		CHECK(poll(&fd, 1, 0) == 0);
		wr.send_flags = IBV_SEND_SOLICITED;
		CHECK(!post_recv(qp[1], NULL, 2, mr, B, 8));
		CHECK(!post(qp[0], wr, mr, A, 8));
		CHECK(!ibv_get_cq_event(channel, &about, &its));
		CHECK(about == cq && its == (void *)0x77);
		ibv_ack_cq_events(cq, 1);
		expect(2, IBV_WC_SUCCESS, IBV_WC_RECV);
		/* for any; and one that came before the queue was armed */
		CHECK(!ibv_req_notify_cq(cq, 0));
		wr.send_flags = 0;
		CHECK(!post_recv(qp[1], NULL, 3, mr, B, 8));
		CHECK(!post(qp[0], wr, mr, A, 8));
		CHECK(!ibv_get_cq_event(channel, &about, &its));
		ibv_ack_cq_events(cq, 1);
		CHECK(!post_recv(qp[1], NULL, 4, mr, B, 8));
		CHECK(!post(qp[0], wr, mr, A, 8));
		expect(3, IBV_WC_SUCCESS, IBV_WC_RECV);
		usleep(2000);
		CHECK(!ibv_req_notify_cq(cq, 0));
		CHECK(!ibv_get_cq_event(channel, &about, &its));
		ibv_ack_cq_events(cq, 1);
		expect(4, IBV_WC_SUCCESS, IBV_WC_RECV);
	}
	CHECK(!ibv_req_notify_cq(cq, 0));
	CHECK(!post_recv(qp[1], NULL, 0, mr, B, 8));
	CHECK(!post(qp[0], wr, mr, A, 8));
	CHECK(poll(&fd, 1, 5000) == 1);
	end_pair(qp);
	/* an event that nobody fetches does not keep the queue from going away */
	CHECK(!ibv_destroy_cq(cq));
	CHECK(poll(&fd, 1, 0) == 0);
	CHECK(!ibv_destroy_comp_channel(channel));
	cq = old;
}

static void shared_queue(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 30, .max_sge = 2 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	connected(IBV_QPT_RC, srq);
	for (int i = 0; i < 3; i++)
		CHECK(!post_recv(NULL, srq, i, mr, B, 8));
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	struct ibv_qp *qp[2];
	pair(IBV_QPT_RC, srq, qp, 7);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
	CHECK(!post(qp[0], wr, mr, A, 8));
	expect(0, IBV_WC_SUCCESS, IBV_WC_RECV);
	struct ibv_async_event event;
	CHECK(!ibv_get_async_event(context, &event));
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
	ibv_ack_async_event(&event);
	end_pair(qp);
	CHECK(!ibv_destroy_srq(srq));
}

static void windows(void)
{
	struct ibv_qp *qp[2];
	pair(IBV_QPT_RC, NULL, qp, 7);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	CHECK(mw);
	struct ibv_mw_bind bind = { .wr_id = 3,
				    .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = { mr, (uintptr_t)B, 16, IBV_ACCESS_REMOTE_WRITE } };
	CHECK(!ibv_bind_mw(qp[1], mw, &bind));
	expect(3, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
	fill(A, 1, 16);
	struct ibv_send_wr wr = { .wr_id = 4,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { (uintptr_t)B, mw->rkey } };
	CHECK(!post(qp[0], wr, mr, A, 16));
	expect(4, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	CHECK(!memcmp(A, B, 16));
	wr.wr.rdma.remote_addr++;
	CHECK(!post(qp[0], wr, mr, A, 16));
	expect(4, IBV_WC_REM_ACCESS_ERR, 0);
	CHECK(!ibv_dealloc_mw(mw));
	end_pair(qp);

	/* the second type: bound by a work request, invalidated from the other side and from here */
	pair(IBV_QPT_RC, NULL, qp, 7);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(mw);
	for (int i = 0; i < 4; i++) {
		struct ibv_send_wr *bad, bind_wr = {
			.wr_id = 10,
			.opcode = IBV_WR_BIND_MW,
			.send_flags = IBV_SEND_SIGNALED,
			.bind_mw = { .mw = mw,
				     .rkey = ibv_inc_rkey(mw->rkey),
				     .bind_info = { mr, (uintptr_t)B, 4096, IBV_ACCESS_REMOTE_WRITE } },
		};
		CHECK(!ibv_post_send(qp[1], &bind_wr, &bad));
		expect(10, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
		mw->rkey = bind_wr.bind_mw.rkey;
		fill(A, i, 100);
		wr = (struct ibv_send_wr){ .wr_id = 11,
					   .opcode = IBV_WR_RDMA_WRITE,
					   .wr.rdma = { (uintptr_t)B, mw->rkey } };
		CHECK(!post(qp[0], wr, mr, A, 100));
		arrives(B, A, 100);
		if (i % 2) {
			struct ibv_send_wr inv = { .wr_id = 12,
						   .opcode = IBV_WR_LOCAL_INV,
						   .send_flags = IBV_SEND_SIGNALED,
						   .invalidate_rkey = mw->rkey };
			CHECK(!ibv_post_send(qp[1], &inv, &bad));
			expect(12, IBV_WC_SUCCESS, IBV_WC_LOCAL_INV);
		} else {
			CHECK(!post_recv(qp[1], NULL, 13, mr, B, 8));
			struct ibv_send_wr inv = { .wr_id = 14,
						   .opcode = IBV_WR_SEND_WITH_INV,
						   .invalidate_rkey = mw->rkey };
			CHECK(!post(qp[0], inv, mr, A, 8));
			struct ibv_wc wc = expect(13, IBV_WC_SUCCESS, IBV_WC_RECV);
			CHECK((wc.wc_flags & ~IBV_WC_GRH) == IBV_WC_WITH_INV && wc.invalidated_rkey == mw->rkey);
		}
	}
	CHECK(!post(qp[0], wr, mr, A, 100));
	expect(11, IBV_WC_REM_ACCESS_ERR, 0);
	CHECK(!ibv_dealloc_mw(mw));
	end_pair(qp);
}

static void extended_connections(void)
{
	struct ibv_xrcd *xrcd = make_xrcd(context);
	struct ibv_srq *srq = make_xrc_srq(xrcd, pd, cq, (struct ibv_srq_attr){ .max_wr = 10, .max_sge = 1 });
	uint32_t srqn;
	CHECK(!ibv_get_srq_num(srq, &srqn));
	struct ibv_qp_init_attr_ex target_attr = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd,
	};
	struct ibv_qp_init_attr_ex initiator_attr = {
		.qp_type = IBV_QPT_XRC_SEND, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd, .send_cq = cq,
		.cap = { .max_send_wr = 8, .max_send_sge = 1 },
	};
	struct ibv_qp *qp[2] = { ibv_create_qp_ex(context, &initiator_attr),
				 ibv_create_qp_ex(context, &target_attr) };
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr to = { .qp_state = IBV_QPS_INIT, .port_num = 1,
					  .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
		CHECK(!ibv_modify_qp(qp[i], &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
		to = (struct ibv_qp_attr){
			.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp[1 - i]->qp_num,
			.max_dest_rd_atomic = 4, .min_rnr_timer = 1,
			.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = GID_INDEX } },
		};
		int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		CHECK(!ibv_modify_qp(qp[i], &to, mask | (i ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
		to = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 8, .retry_cnt = 1, .rnr_retry = 7 };
		mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
		CHECK(!ibv_modify_qp(qp[i], &to, mask | (i ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)));
	}
	for (int i = 0; i < 20; i++) {
		uint32_t len = i * 9;
		fill(A, i, len);
		CHECK(!post_recv(NULL, srq, 20 + i, mr, B, 4096));
		struct ibv_send_wr wr = { .wr_id = i, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
					  .qp_type.xrc.remote_srqn = srqn };
		CHECK(!post(qp[0], wr, mr, A, len));
		CHECK(expect(20 + i, IBV_WC_SUCCESS, IBV_WC_RECV).byte_len == len);
		expect(i, IBV_WC_SUCCESS, IBV_WC_SEND);
		CHECK(!memcmp(A, B, len));
	}
	end_pair(qp);
	CHECK(!ibv_destroy_srq(srq));
	CHECK(!ibv_close_xrcd(xrcd));
}

#ifdef WITH_MLX5DV /* libmlx5's own interface, which works on its own contexts only */
static void dynamic_connections(void)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 10, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_DRIVER, .send_cq = cq, .recv_cq = cq,
					    .srq = srq, .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD };
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = 0x1234567890 },
	};
	struct ibv_qp *target = mlx5dv_create_qp(context, &attr, &dv);
	attr.srq = NULL;
	attr.cap = (struct ibv_qp_cap){ .max_send_wr = 8, .max_send_sge = 1 };
	attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
	dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
	struct ibv_qp *initiator = mlx5dv_create_qp(context, &attr, &dv);
	CHECK(target && initiator);
	struct ibv_qp_attr to = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .min_rnr_timer = 1, .path_mtu = IBV_MTU_1024,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .rnr_retry = 7, .retry_cnt = 1, .timeout = 8,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = GID_INDEX } },
	};
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	CHECK(!ibv_modify_qp(target, &to, init | IBV_QP_ACCESS_FLAGS));
	CHECK(!ibv_modify_qp(initiator, &to, init));
	to.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(target, &to, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU));
	CHECK(!ibv_modify_qp(initiator, &to, IBV_QP_STATE | IBV_QP_PATH_MTU));
	to.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(initiator, &to, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN));
	struct ibv_ah *ah = address();
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(initiator);
	struct mlx5dv_qp_ex *dv_ex = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
	for (int i = 0; i < 20; i++) {
		fill(A, i, 500);
		CHECK(!post_recv(NULL, srq, 30, mr, B, 4096));
		ibv_wr_start(ex);
		ex->wr_id = 31;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(ex);
		mlx5dv_wr_set_dc_addr(dv_ex, ah, target->qp_num, 0x1234567890);
		ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)A, 500);
		CHECK(!ibv_wr_complete(ex));
		CHECK(expect(30, IBV_WC_SUCCESS, IBV_WC_RECV).byte_len == 500);
		expect(31, IBV_WC_SUCCESS, IBV_WC_SEND);
		CHECK(!memcmp(A, B, 500));
	}
	CHECK(!ibv_destroy_ah(ah));
	CHECK(!ibv_destroy_qp(initiator));
	CHECK(!ibv_destroy_qp(target));
	CHECK(!ibv_destroy_srq(srq));
}
#endif

/* Completions that the program has not taken move into the new entries. */
static void resize(void)
{
	struct ibv_qp *qp[2];
	pair(IBV_QPT_RC, NULL, qp, 7);
	for (int round = 0; round < 4; round++) {
		struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
					  .wr.rdma = { (uintptr_t)B, mr->rkey } };
		for (int i = 0; i < 10; i++) {
			wr.wr_id = 50 + i;
			CHECK(!post(qp[0], wr, mr, A, 8));
		}
		expect(50, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		usleep(2000);
		CHECK(!ibv_resize_cq(cq, round % 2 ? 63 : 200));
		wr.wr_id = 60;
		CHECK(!post(qp[0], wr, mr, A, 8));
		for (int i = 1; i <= 10; i++)
			expect(50 + i, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	}
	end_pair(qp);
}

static void reliable(void)
{
	connected(IBV_QPT_RC, NULL);
}

static void unreliable(void)
{
	connected(IBV_QPT_UC, NULL);
}

static const struct part parts[] = {
	{ "rc", reliable },
	{ "uc", unreliable },
	{ "resize", resize },
	{ "srq", shared_queue },
	{ "ud", datagrams },
	{ "events", events },
	{ "windows", windows },
	{ "xrc", extended_connections },
#ifdef WITH_MLX5DV
	{ "dc", dynamic_connections },
#endif
	{ "errors", errors },
};

/* The arguments are the parts to run; without any, all. */
int main(int argc, char **argv)
{
	context = open_first();
	CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
	pd = ibv_alloc_pd(context);
	A = aligned_alloc(4096, 2 * HALF);
	B = A + HALF;
	memset(A, 0, 2 * HALF);
	mr = ibv_reg_mr(pd, A, 2 * HALF,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
	cq = ibv_create_cq(context, 63, NULL, NULL, 0);
	CHECK(pd && mr && cq);
	RUN_PARTS(parts, argc, argv);
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	free(A);
	puts("ok");
	return 0;
}
