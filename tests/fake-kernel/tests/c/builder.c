/* The lock that ibv_wr_start takes: released on every way out, so that a second thread can always go on; and what an
 * aborted or failed batch leaves behind: nothing. */
#include "common.h"
#include <pthread.h>
#include <time.h>

static struct ibv_qp_ex *ex;
static struct ibv_mr *mr;
static char buf[4096];

static void one_send(uint64_t id)
{
	ex->wr_id = id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)buf, 8);
}

static void *takes_the_lock(void *unused)
{
	(void)unused;
	ibv_wr_start(ex);
	ibv_wr_abort(ex);
	return NULL;
}

static void another_thread_goes_on(void)
{
	pthread_t thread;
	struct timespec limit;
	CHECK(pthread_create(&thread, NULL, takes_the_lock, NULL) == 0);
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 5;
	CHECK(pthread_timedjoin_np(thread, NULL, &limit) == 0);
}

int main(void)
{
	struct ibv_context *context = open_first();
	union ibv_gid gid;
	CHECK(ibv_query_gid(context, 1, GID_INDEX, &gid) == 0);
	struct ibv_pd *plain = ibv_alloc_pd(context), *pd = plain;
	struct ibv_td *td = NULL;
	if (getenv("THREAD_DOMAIN")) {
		struct ibv_td_init_attr td_attr = { 0 };
		td = ibv_alloc_td(context, &td_attr);
		struct ibv_parent_domain_init_attr parent = { .pd = plain, .td = td };
		pd = ibv_alloc_parent_domain(context, &parent);
		CHECK(td && pd);
	}
	mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = ibv_create_cq(context, 63, NULL, NULL, 0);
	CHECK(pd && mr && cq);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2,
			 .max_inline_data = 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	ex = ibv_qp_to_qp_ex(qp);
	CHECK(ex);
	/* an operation that was not asked for has no function; one that the transport lacks is refused */
	struct ibv_qp_init_attr_ex lacking = init;
	lacking.qp_type = IBV_QPT_UD;
	lacking.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
	CHECK(!ibv_create_qp_ex(context, &lacking) && errno == EOPNOTSUPP);

	/* not ready to send: only the end of the batch says so */
	CHECK(to_init(qp, IBV_QPT_RC) == 0);
	if (getenv("EXPECT_STATE_GATE")) {
		ibv_wr_start(ex);
		one_send(1);
		CHECK(ibv_wr_complete(ex) == EINVAL);
		another_thread_goes_on();
	}
	CHECK(to_rts(qp, IBV_QPT_RC, &gid, qp->qp_num, 7) == 0);
	if (getenv("BREAK_PROMISE")) {
		/* nobody else was to come */
		ibv_wr_start(ex);
		ibv_wr_start(ex);
		return 0;
	}
	CHECK(post_recv(qp, NULL, 100, mr, buf + 1024, 1024) == 0);

	/* an error anywhere posts none of the batch */
	ibv_wr_start(ex);
	one_send(2);
	ex->wr_id = 3;
	ibv_wr_send(ex);
	static char big[4096];
	ibv_wr_set_inline_data(ex, big, sizeof(big));
	one_send(4);
	int refused = ibv_wr_complete(ex);
	/* mlx5 has another number for it */
	CHECK(refused == EINVAL || refused == ENOMEM);
	another_thread_goes_on();
	usleep(20000);
	CHECK(none(cq));

	/* an aborted batch is gone */
	ibv_wr_start(ex);
	one_send(5);
	one_send(6);
	ibv_wr_abort(ex);
	another_thread_goes_on();
	usleep(20000);
	CHECK(none(cq));

	/* and the next batch is itself only */
	ibv_wr_start(ex);
	one_send(7);
	CHECK(ibv_wr_complete(ex) == 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completion(cq);
		CHECK(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 7 || wc.wr_id == 100));
	}
	usleep(20000);
	CHECK(none(cq));
	another_thread_goes_on();

	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
	if (td)
		CHECK(ibv_dealloc_td(td) == 0 && ibv_dealloc_pd(plain) == 0);
	CHECK(ibv_close_device(context) == 0);
	puts("ok");
	return 0;
}
