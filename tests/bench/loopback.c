/*
 * Times verbs over whatever provider libibverbs loads: two RC queue pairs of one process, connected to each other, so that
 * no second polling process fights for the processor.
 *
 *   loopback DEVICE GID_INDEX SCALE [OPERATION SIZE MODE]
 *
 * For each operation (send, write, read), size (8, 4096) and mode prints "OPERATION SIZE MODE NANOSECONDS_PER_OPERATION".
 *   latency  post one, poll until it is complete (send: until the receiver has it)
 *   rate     post lists of BATCH, each list's last request signalled, WINDOW requests in flight
 * SCALE is the number of latency operations; the rate has four times as many.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 16, WINDOW = 64, MAX_SIZE = 4096 };

#define CHECK(condition, what)                                                              \
	do {                                                                                \
		if (!(condition)) {                                                         \
			fprintf(stderr, "loopback: %s: %s\n", what, strerror(errno));       \
			exit(1);                                                            \
		}                                                                           \
	} while (0)

struct end {
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	uint8_t *buffer;
	struct ibv_mr *mr;
};

static struct end ends[2];

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static void make(struct end *end, struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2 * WINDOW, .max_recv_wr = 2 * WINDOW, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	end->send_cq = ibv_create_cq(context, 2 * WINDOW, NULL, NULL, 0);
	end->recv_cq = ibv_create_cq(context, 2 * WINDOW, NULL, NULL, 0);
	CHECK(end->send_cq && end->recv_cq, "ibv_create_cq");
	attr.send_cq = end->send_cq;
	attr.recv_cq = end->recv_cq;
	end->qp = ibv_create_qp(pd, &attr);
	CHECK(end->qp, "ibv_create_qp");
	end->buffer = aligned_alloc(4096, MAX_SIZE);
	CHECK(end->buffer, "aligned_alloc");
	end->mr = ibv_reg_mr(pd, end->buffer, MAX_SIZE,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	CHECK(end->mr, "ibv_reg_mr");
}

static void connect_to(struct end *end, const struct end *other, int gid_index, const union ibv_gid *gid)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = other->qp->qp_num,
		.max_dest_rd_atomic = 8,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = *gid, .sgid_index = gid_index, .hop_limit = 1 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 8,
	};

	errno = ibv_modify_qp(end->qp, &init,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	CHECK(!errno, "to INIT");
	errno = ibv_modify_qp(end->qp, &rtr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	CHECK(!errno, "to RTR");
	errno = ibv_modify_qp(end->qp, &rts,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				      IBV_QP_MAX_QP_RD_ATOMIC);
	CHECK(!errno, "to RTS");
}

/* Polls until `count` completions have come. */
static void reap(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc[BATCH];

	while (count > 0) {
		int got = ibv_poll_cq(cq, count < BATCH ? count : BATCH, wc);

		CHECK(got >= 0, "ibv_poll_cq");
		for (int i = 0; i < got; i++)
			if (wc[i].status != IBV_WC_SUCCESS) {
				fprintf(stderr, "loopback: completion: %s\n", ibv_wc_status_str(wc[i].status));
				exit(1);
			}
		count -= got;
	}
}

static void post_receives(uint32_t size, int count)
{
	struct ibv_sge sge = { (uintptr_t)ends[1].buffer, size, ends[1].mr->lkey };
	struct ibv_recv_wr wr[BATCH], *bad;

	for (int i = 0; i < count; i++)
		wr[i] = (struct ibv_recv_wr){ .next = i + 1 < count ? &wr[i + 1] : NULL, .sg_list = &sge, .num_sge = 1 };
	errno = ibv_post_recv(ends[1].qp, wr, &bad);
	CHECK(!errno, "ibv_post_recv");
}

static void post(enum ibv_wr_opcode opcode, uint32_t size, int count)
{
	struct ibv_sge sge = { (uintptr_t)ends[0].buffer, size, ends[0].mr->lkey };
	struct ibv_send_wr wr[BATCH], *bad;

	for (int i = 0; i < count; i++) {
		wr[i] = (struct ibv_send_wr){
			.next = i + 1 < count ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = i + 1 < count ? 0 : IBV_SEND_SIGNALED,
		};
		wr[i].wr.rdma.remote_addr = (uintptr_t)ends[1].buffer;
		wr[i].wr.rdma.rkey = ends[1].mr->rkey;
	}
	errno = ibv_post_send(ends[0].qp, wr, &bad);
	CHECK(!errno, "ibv_post_send");
}

static void latency(enum ibv_wr_opcode opcode, uint32_t size, int count)
{
	for (int i = 0; i < count; i++) {
		if (opcode == IBV_WR_SEND)
			post_receives(size, 1);
		post(opcode, size, 1);
		if (opcode == IBV_WR_SEND)
			reap(ends[1].recv_cq, 1);
		reap(ends[0].send_cq, 1);
	}
}

static void rate(enum ibv_wr_opcode opcode, uint32_t size, int count)
{
	int posted = 0, done = 0;

	while (done < count) {
		while (posted < count && posted - done < WINDOW) {
			if (opcode == IBV_WR_SEND)
				post_receives(size, BATCH);
			post(opcode, size, BATCH);
			posted += BATCH;
		}
		reap(ends[0].send_cq, 1);
		if (opcode == IBV_WR_SEND)
			reap(ends[1].recv_cq, BATCH);
		done += BATCH;
	}
}

static void measure(const char *name, enum ibv_wr_opcode opcode, uint32_t size, const char *mode, int scale)
{
	int is_rate = !strcmp(mode, "rate");
	int count = is_rate ? (4 * scale + BATCH - 1) / BATCH * BATCH : scale;
	double start;

	/* The first operations fault pages in and wake the kernel's tasks. */
	latency(opcode, size, 4);
	start = now();
	if (is_rate)
		rate(opcode, size, count);
	else
		latency(opcode, size, count);
	printf("%s %u %s %.0f\n", name, size, mode, (now() - start) / count);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; enum ibv_wr_opcode opcode; } operations[] = {
		{ "send", IBV_WR_SEND }, { "write", IBV_WR_RDMA_WRITE }, { "read", IBV_WR_RDMA_READ },
	};
	static const uint32_t sizes[] = { 8, 4096 };
	static const char *const modes[] = { "latency", "rate" };
	struct ibv_context *context = NULL;
	struct ibv_device **devices;
	struct ibv_pd *pd;
	union ibv_gid gid;
	int scale, gid_index;

	if (argc != 4 && argc != 7) {
		fprintf(stderr, "usage: loopback DEVICE GID_INDEX SCALE [OPERATION SIZE MODE]\n");
		return 2;
	}
	gid_index = atoi(argv[2]);
	scale = atoi(argv[3]);
	devices = ibv_get_device_list(NULL);
	CHECK(devices, "ibv_get_device_list");
	for (int i = 0; devices[i]; i++)
		if (!strcmp(ibv_get_device_name(devices[i]), argv[1]))
			context = ibv_open_device(devices[i]);
	CHECK(context, "ibv_open_device");
	pd = ibv_alloc_pd(context);
	CHECK(pd, "ibv_alloc_pd");
	errno = ibv_query_gid(context, 1, gid_index, &gid);
	CHECK(!errno, "ibv_query_gid");
	make(&ends[0], context, pd);
	make(&ends[1], context, pd);
	connect_to(&ends[0], &ends[1], gid_index, &gid);
	connect_to(&ends[1], &ends[0], gid_index, &gid);
	for (int o = 0; o < 3; o++)
		for (int s = 0; s < 2; s++)
			for (int m = 0; m < 2; m++)
				if (argc == 4 || (!strcmp(argv[4], operations[o].name) &&
						  (uint32_t)atoi(argv[5]) == sizes[s] && !strcmp(argv[6], modes[m])))
					measure(operations[o].name, operations[o].opcode, sizes[s], modes[m], scale);
	for (int i = 0; i < 2; i++) {
		ibv_destroy_qp(ends[i].qp);
		ibv_dereg_mr(ends[i].mr);
		ibv_destroy_cq(ends[i].send_cq);
		ibv_destroy_cq(ends[i].recv_cq);
	}
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	ibv_free_device_list(devices);
	return 0;
}
