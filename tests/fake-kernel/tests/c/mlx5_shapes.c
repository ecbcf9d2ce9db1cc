/* Makes and destroys what the lines of standard input say, one object a line, and prints what was granted or the
 * errno. See same_control_mlx5.rs. */
#include "common.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;

static void queue_pair(const char *line)
{
	unsigned type, signal, shared, header;
	unsigned long long ops;
	struct ibv_qp_cap cap;
	CHECK(sscanf(line, "%u %u %u %u %u %u %u %u %llx %u", &type, &cap.max_send_wr, &cap.max_recv_wr,
		     &cap.max_send_sge, &cap.max_recv_sge, &cap.max_inline_data, &signal, &shared, &ops,
		     &header) == 10);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = shared ? srq : NULL,
		.qp_type = type,
		.sq_sig_all = signal,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.cap = cap,
	};
	if (ops) {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = ops;
	}
	if (header) {
		init.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
		init.max_tso_header = header;
	}
	errno = 0;
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	if (!qp) {
		printf("errno %d\n", errno);
		return;
	}
	printf("%u %u %u %u %u\n", init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge,
	       init.cap.max_recv_sge, init.cap.max_inline_data);
	CHECK(!ibv_destroy_qp(qp));
}

static void completion_queue(const char *line)
{
	int cqe, again;
	int fields = sscanf(line, "%d %d", &cqe, &again);
	CHECK(fields >= 1);
	errno = 0;
	struct ibv_cq *made = ibv_create_cq(context, cqe, NULL, NULL, 0);
	if (!made) {
		printf("errno %d\n", errno);
		return;
	}
	int granted = made->cqe;
	if (fields < 2)
		printf("%d\n", granted);
	else {
		int err = ibv_resize_cq(made, again);
		printf("%d %d %d\n", granted, err, made->cqe);
	}
	CHECK(!ibv_destroy_cq(made));
}

static void shared_receive_queue(const char *line)
{
	struct ibv_srq_init_attr init = {};
	CHECK(sscanf(line, "%u %u", &init.attr.max_wr, &init.attr.max_sge) == 2);
	errno = 0;
	struct ibv_srq *made = ibv_create_srq(pd, &init);
	if (!made) {
		printf("errno %d\n", errno);
		return;
	}
	printf("%u %u\n", init.attr.max_wr, init.attr.max_sge);
	CHECK(!ibv_destroy_srq(made));
}

static void work_queue(const char *line)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .pd = pd, .cq = cq };
	CHECK(sscanf(line, "%u %u", &init.max_wr, &init.max_sge) == 2);
	errno = 0;
	struct ibv_wq *made = ibv_create_wq(context, &init);
	if (!made) {
		printf("errno %d\n", errno);
		return;
	}
	printf("%u %u\n", init.max_wr, init.max_sge);
	CHECK(!ibv_destroy_wq(made));
}

int main(void)
{
	context = open_first();
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	cq = ibv_create_cq(context, 200, NULL, NULL, 0);
	CHECK(cq);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 64, .max_sge = 2 } };
	srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	char line[200];
	while (fgets(line, sizeof(line), stdin)) {
		/* a mark in the recording */
		struct ibv_port_attr port;
		CHECK(!ibv_query_port(context, 1, &port));
		switch (line[0]) {
		case 'q':
			queue_pair(line + 1);
			break;
		case 'c':
			completion_queue(line + 1);
			break;
		case 's':
			shared_receive_queue(line + 1);
			break;
		case 'w':
			work_queue(line + 1);
			break;
		default:
			CHECK(!"a kind of object");
		}
	}
	CHECK(!ibv_destroy_srq(srq));
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	puts("ok");
	return 0;
}
