/* Every kind of traffic between two queue pairs of one process, every byte and completion checked. */
#include "common.h"
#include <pthread.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static char *buf;
static union ibv_gid gid;

#define HALF 65536
#define A buf
#define B (buf + HALF)

static void fill(char *at, int seed, size_t len)
{
	for (size_t i = 0; i < len; i++)
		at[i] = (char)(i * 7 + seed);
}

static void pair(enum ibv_qp_type type, struct ibv_srq *srq, struct ibv_qp *qp[2], int rnr_retry)
{
	for (int i = 0; i < 2; i++) {
		qp[i] = make_qp(pd, cq, srq, type);
		CHECK(qp[i]);
		CHECK(to_init(qp[i], type) == 0);
	}
	for (int i = 0; i < 2; i++)
		CHECK(to_rts(qp[i], type, &gid, qp[1 - i]->qp_num, rnr_retry) == 0);
}

static void end_pair(struct ibv_qp *qp[2])
{
	for (int i = 0; i < 2; i++)
		CHECK(ibv_destroy_qp(qp[i]) == 0);
}

static void expect(uint64_t id, enum ibv_wc_status status, enum ibv_wc_opcode opcode, uint32_t len,
		   int flags)
{
	struct ibv_wc wc = completion(cq);
	CHECK(wc.wr_id == id);
	CHECK(wc.status == status);
	if (status == IBV_WC_SUCCESS) {
		CHECK(wc.opcode == opcode);
		CHECK(wc.byte_len == len);
		CHECK(wc.wc_flags == (unsigned)flags);
	}
}

static void connected(enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp *qp[2];
	pair(type, srq, qp, 7);
	/* more than one turn of a ring of 31 entries */
	for (int i = 0; i < 100; i++) {
		uint32_t len = i * 397 % HALF;
		fill(A, i, len);
		memset(B, 0, len);
		CHECK(post_recv(qp[1], srq, 1000 + i, mr, B, HALF) == 0);
		CHECK(post(qp[0],
			   (struct ibv_send_wr){ .wr_id = i,
						 .opcode = i % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
						 .imm_data = htobe32(0xabcd0000 + i),
						 .send_flags = IBV_SEND_SIGNALED },
			   mr, A, len) == 0);
		struct ibv_wc wc = completion(cq);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 1000u + i);
		CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == len && wc.qp_num == qp[1]->qp_num);
		CHECK(wc.src_qp == qp[0]->qp_num);
		if (i % 2)
			CHECK(wc.wc_flags == IBV_WC_WITH_IMM && be32toh(wc.imm_data) == 0xabcd0000u + i);
		expect(i, IBV_WC_SUCCESS, IBV_WC_SEND, len, i % 2 ? IBV_WC_WITH_IMM : 0);
		CHECK(memcmp(A, B, len) == 0);
	}
	/* inline, unsignaled, then a write with notice */
	fill(A, 9, 64);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_INLINE,
				  .wr.rdma = { (uintptr_t)B + 128, mr->rkey } };
	CHECK(post(qp[0], wr, mr, A, 64) == 0);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)B;
	wr.wr_id = 5;
	CHECK(post_recv(qp[1], srq, 6, mr, B, 4) == 0);
	CHECK(post(qp[0], wr, mr, A, 64) == 0);
	expect(6, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM, 64, IBV_WC_WITH_IMM);
	expect(5, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 64, IBV_WC_WITH_IMM);
	CHECK(memcmp(A, B, 64) == 0 && memcmp(A, B + 128, 64) == 0);
	if (type == IBV_QPT_RC) {
		memset(A, 0, 64);
		wr.opcode = IBV_WR_RDMA_READ;
		CHECK(post(qp[0], wr, mr, A, 64) == 0);
		expect(5, IBV_WC_SUCCESS, IBV_WC_RDMA_READ, 64, 0);
		CHECK(memcmp(A, B, 64) == 0);
		uint64_t *word = (uint64_t *)B, *old = (uint64_t *)A;
		*word = 40;
		struct ibv_send_wr at = { .wr_id = 7,
					  .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					  .send_flags = IBV_SEND_SIGNALED,
					  .wr.atomic = { (uintptr_t)B, 2, 0, mr->rkey } };
		CHECK(post(qp[0], at, mr, A, 8) == 0);
		expect(7, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD, 8, 0);
		CHECK(*old == 40 && *word == 42);
		at.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		at.wr.atomic.compare_add = 42;
		at.wr.atomic.swap = 7;
		CHECK(post(qp[0], at, mr, A, 8) == 0);
		expect(7, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP, 8, 0);
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
	CHECK(post(qp[0], wr, mr, A, 8) == 0);
	wr.wr_id = 2;
	wr.send_flags = 0;
	CHECK(post(qp[0], wr, mr, A, 8) == 0);
	expect(1, IBV_WC_RNR_RETRY_EXC_ERR, 0, 0, 0);
	expect(2, IBV_WC_WR_FLUSH_ERR, 0, 0, 0);
	end_pair(qp);
	/* with retries for ever, a late receive request still gets it */
	pair(IBV_QPT_RC, NULL, qp, 7);
	CHECK(post(qp[0], wr, mr, A, 8) == 0);
	usleep(3000);
	CHECK(none(cq));
	CHECK(post_recv(qp[1], NULL, 3, mr, B, 8) == 0);
	expect(3, IBV_WC_SUCCESS, IBV_WC_RECV, 8, 0);
	/* a wrong key */
	wr = (struct ibv_send_wr){ .wr_id = 4,
				   .opcode = IBV_WR_RDMA_WRITE,
				   .wr.rdma = { (uintptr_t)B, mr->rkey ^ 1 } };
	CHECK(post(qp[0], wr, mr, A, 8) == 0);
	expect(4, IBV_WC_REM_ACCESS_ERR, 0, 0, 0);
	end_pair(qp);
	/* a receive request that is too small */
	pair(IBV_QPT_RC, NULL, qp, 7);
	CHECK(post_recv(qp[1], NULL, 5, mr, B, 4) == 0);
	wr = (struct ibv_send_wr){ .wr_id = 6, .opcode = IBV_WR_SEND };
	CHECK(post(qp[0], wr, mr, A, 8) == 0);
	expect(5, IBV_WC_REM_INV_REQ_ERR, 0, 0, 0);
	expect(6, IBV_WC_REM_INV_REQ_ERR, 0, 0, 0);
	end_pair(qp);
	/* moved to error by hand: receive requests come back */
	pair(IBV_QPT_RC, NULL, qp, 7);
	CHECK(post_recv(qp[1], NULL, 8, mr, B, 4) == 0);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(qp[1], &attr, IBV_QP_STATE) == 0);
	expect(8, IBV_WC_WR_FLUSH_ERR, 0, 0, 0);
	/* and nobody answers at the other end */
	CHECK(post(qp[0], wr, mr, A, 8) == 0);
	expect(6, IBV_WC_RETRY_EXC_ERR, 0, 0, 0);
	end_pair(qp);
}

static void datagrams(void)
{
	struct ibv_qp *qp[2];
	pair(IBV_QPT_UD, NULL, qp, 7);
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64 } };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	fill(A, 3, 1024);
	memset(B, 0, 2048);
	CHECK(post_recv(qp[1], NULL, 2, mr, B, 40 + 1024) == 0);
	struct ibv_send_wr wr = { .wr_id = 1,
				  .opcode = IBV_WR_SEND_WITH_IMM,
				  .imm_data = htobe32(99),
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.ud = { ah, qp[1]->qp_num, 0x1234 } };
	CHECK(post(qp[0], wr, mr, A, 1024) == 0);
	struct ibv_wc wc = completion(cq);
	CHECK(wc.wr_id == 2 && wc.status == IBV_WC_SUCCESS && wc.byte_len == 40 + 1024);
	CHECK(wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM) && wc.src_qp == qp[0]->qp_num);
	CHECK(memcmp(A, B + 40, 1024) == 0);
	expect(1, IBV_WC_SUCCESS, IBV_WC_SEND, 1024, IBV_WC_WITH_IMM);
	/* a wrong queue key: sent, not received */
	wr.wr.ud.remote_qkey = 0x4321;
	CHECK(post_recv(qp[1], NULL, 2, mr, B, 40 + 1024) == 0);
	CHECK(post(qp[0], wr, mr, A, 8) == 0);
	expect(1, IBV_WC_SUCCESS, IBV_WC_SEND, 8, IBV_WC_WITH_IMM);
	CHECK(none(cq));
	/* a group; the receive request from before is still there */
	union ibv_gid group = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 0xef, [15] = 7 } };
	CHECK(ibv_attach_mcast(qp[1], &group, 0) == 0);
	CHECK(ibv_destroy_qp(qp[1]) == EBUSY);
	CHECK(ibv_detach_mcast(qp[1], &group, 0) == 0);
	CHECK(ibv_destroy_ah(ah) == 0);
	end_pair(qp);
}

static volatile int acked;

static void *ack_later(void *queue)
{
	usleep(50000);
	acked = 1;
	ibv_ack_cq_events(queue, 2);
	return NULL;
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
	CHECK(ibv_req_notify_cq(cq, 1) == 0);
	CHECK(post_recv(qp[1], NULL, 0, mr, B, 8) == 0);
	CHECK(post(qp[0], wr, mr, A, 8) == 0);
	CHECK(poll(&fd, 1, 0) == 0);
	wr.send_flags = IBV_SEND_SOLICITED;
	CHECK(post_recv(qp[1], NULL, 0, mr, B, 8) == 0);
	CHECK(post(qp[0], wr, mr, A, 8) == 0);
	CHECK(poll(&fd, 1, 0) == 1);
	struct ibv_cq *about;
	void *its;
	CHECK(ibv_get_cq_event(channel, &about, &its) == 0);
	CHECK(about == cq && its == (void *)0x77);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
	ibv_ack_cq_events(cq, 1);
	/* two fetched and not yet acknowledged: destroying waits for that */
	for (int i = 0; i < 2; i++) {
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		CHECK(post_recv(qp[1], NULL, 0, mr, B, 8) == 0);
		CHECK(post(qp[0], wr, mr, A, 8) == 0);
		CHECK(ibv_get_cq_event(channel, &about, &its) == 0);
	}
	/* an event that nobody fetches does not keep the queue from going away */
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	CHECK(post_recv(qp[1], NULL, 0, mr, B, 8) == 0);
	CHECK(post(qp[0], wr, mr, A, 8) == 0);
	CHECK(poll(&fd, 1, 0) == 1);
	end_pair(qp);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, ack_later, cq) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(acked);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(poll(&fd, 1, 0) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	cq = old;
}

static void shared_queue(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 30, .max_sge = 2 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	connected(IBV_QPT_RC, srq);
	struct ibv_srq_attr attr = { .max_wr = 100 };
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == 0);
	CHECK(ibv_query_srq(srq, &attr) == 0);
	CHECK(attr.max_wr == 127);
	connected(IBV_QPT_RC, srq);
	for (int i = 0; i < 3; i++)
		CHECK(post_recv(NULL, srq, i, mr, B, 8) == 0);
	attr.srq_limit = 3;
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
	struct ibv_qp *qp[2];
	pair(IBV_QPT_RC, srq, qp, 7);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
	CHECK(post(qp[0], wr, mr, A, 8) == 0);
	expect(0, IBV_WC_SUCCESS, IBV_WC_RECV, 8, 0);
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
	ibv_ack_async_event(&event);
	end_pair(qp);
	CHECK(ibv_destroy_srq(srq) == 0);
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
	CHECK(ibv_bind_mw(qp[1], mw, &bind) == 0);
	expect(3, IBV_WC_SUCCESS, IBV_WC_BIND_MW, 0, 0);
	fill(A, 1, 16);
	struct ibv_send_wr wr = { .wr_id = 4,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { (uintptr_t)B, mw->rkey } };
	CHECK(post(qp[0], wr, mr, A, 16) == 0);
	expect(4, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 16, 0);
	CHECK(memcmp(A, B, 16) == 0);
	CHECK(ibv_dereg_mr(mr) != 0);
	wr.wr.rdma.remote_addr++;
	CHECK(post(qp[0], wr, mr, A, 16) == 0);
	expect(4, IBV_WC_REM_ACCESS_ERR, 0, 0, 0);
	CHECK(ibv_dealloc_mw(mw) == 0);
	end_pair(qp);
}

int main(void)
{
	context = open_first();
	CHECK(ibv_query_gid(context, 1, GID_INDEX, &gid) == 0);
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	buf = aligned_alloc(4096, 2 * HALF);
	memset(buf, 0, 2 * HALF);
	mr = ibv_reg_mr(pd, buf, 2 * HALF,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
	CHECK(mr);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	cq = ibv_create_cq(context, 63, NULL, NULL, 0);
	CHECK(cq);
	connected(IBV_QPT_RC, NULL);
	CHECK(ibv_resize_cq(cq, 200) == 0 && cq->cqe == 255);
	connected(IBV_QPT_UC, NULL);
	shared_queue();
	datagrams();
	events();
	windows();
	errors();
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	free(buf);
	puts("ok");
	return 0;
}
