/* What the C programs of these tests share. They stop at the first thing that is not as it should be. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			printf("%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #cond, errno,    \
			       strerror(errno));                                                  \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

#define GID_INDEX 1

static inline struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	/* which library's function posts */
	const char *provider = getenv("EXPECT_PROVIDER");
	Dl_info info;
	CHECK(dladdr(*(void **)&context->ops.post_send, &info));
	CHECK(!provider || strstr(info.dli_fname, provider));
	return context;
}

static inline struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq,
				     enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.qp_type = type,
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = 16,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = 64 },
	};
	return ibv_create_qp(pd, &init);
}

static inline int to_init(struct ibv_qp *qp, enum ibv_qp_type type)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = 0x1234,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	return ibv_modify_qp(qp, &attr,
			     mask | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

static inline int to_rts(struct ibv_qp *qp, enum ibv_qp_type type, union ibv_gid *gid,
			 uint32_t peer, int rnr_retry)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = 77,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64 } },
	};
	int mask = IBV_QP_STATE;
	if (type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	int err = ibv_modify_qp(qp, &attr, mask);
	if (err)
		return err;
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 77,
		.timeout = 8,
		.retry_cnt = 1,
		.rnr_retry = rnr_retry,
		.max_rd_atomic = 4,
	};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &rts, mask);
}

/* The next completion; fails after five seconds without one. */
static inline struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	for (int i = 0; i < 5000; i++) {
		int n = ibv_poll_cq(cq, 1, &wc);
		CHECK(n >= 0);
		if (n)
			return wc;
		usleep(1000);
	}
	CHECK(!"no completion");
	return wc;
}

static inline int none(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	return ibv_poll_cq(cq, 1, &wc) == 0;
}

static inline int post_recv(struct ibv_qp *qp, struct ibv_srq *srq, uint64_t id, struct ibv_mr *mr,
			    void *to, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)to, len, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
	return srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);
}

static inline int post(struct ibv_qp *qp, struct ibv_send_wr wr, struct ibv_mr *mr, void *from,
		       uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)from, len, mr->lkey };
	struct ibv_send_wr *bad;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	return ibv_post_send(qp, &wr, &bad);
}

/* A domain of extended connections of its own. */
static inline struct ibv_xrcd *make_xrcd(struct ibv_context *context)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &attr);
	CHECK(xrcd);
	return xrcd;
}

/* A shared receive queue of such a domain. */
static inline struct ibv_srq *make_xrc_srq(struct ibv_xrcd *xrcd, struct ibv_pd *pd, struct ibv_cq *cq,
					   struct ibv_srq_attr size)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = size,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = xrcd,
		.cq = cq,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(pd->context, &attr);
	CHECK(srq);
	return srq;
}

/* A part of a program, which the command line names. */
struct part {
	const char *name;
	void (*run)(void);
};

/* Runs the parts that the arguments name; without any, all. */
static inline void run_parts(const struct part *parts, size_t count, int argc, char **argv)
{
	for (size_t i = 0; i < count; i++) {
		int chosen = argc < 2;
		for (int j = 1; j < argc; j++)
			chosen |= !strcmp(argv[j], parts[i].name);
		if (chosen)
			parts[i].run();
	}
}

#define RUN_PARTS(parts, argc, argv) run_parts(parts, sizeof(parts) / sizeof(parts[0]), argc, argv)
