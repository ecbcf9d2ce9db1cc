/* Every kind of object that libmlx5 makes, and that those in use cannot be destroyed. */
#include "common.h"
#ifdef WITH_MLX5DV
#include <infiniband/mlx5dv.h>
#endif
#include <sys/mman.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static struct ibv_qp *extended_qp(struct ibv_qp_init_attr_ex *attr)
{
	attr->send_cq = attr->send_cq ? attr->send_cq : cq;
	attr->pd = pd;
	attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
	struct ibv_qp *qp = ibv_create_qp_ex(context, attr);
	CHECK(qp);
	return qp;
}

static void shared_queues(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 100, .max_sge = 3 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);
	CHECK(srq);
	struct ibv_srq_attr changed = { .srq_limit = 5 };
	CHECK(!ibv_modify_srq(srq, &changed, IBV_SRQ_LIMIT));
	struct ibv_srq_attr got;
	CHECK(!ibv_query_srq(srq, &got) && got.srq_limit == 5);
	struct ibv_qp *qp = make_qp(pd, cq, srq, IBV_QPT_RC);
	CHECK(qp);
	CHECK(ibv_destroy_srq(srq) == EBUSY);
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_srq(srq));
}

static void extended_connections(void)
{
	struct ibv_xrcd *xrcd = make_xrcd(context);
	struct ibv_srq *srq = make_xrc_srq(xrcd, pd, cq, (struct ibv_srq_attr){ .max_wr = 50, .max_sge = 1 });
	uint32_t srqn;
	CHECK(!ibv_get_srq_num(srq, &srqn) && srqn);
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};
	struct ibv_qp *receiver = ibv_create_qp_ex(context, &target);
	CHECK(receiver);
	struct ibv_qp_init_attr_ex initiator = {
		.qp_type = IBV_QPT_XRC_SEND,
		.cap = { .max_send_wr = 8, .max_send_sge = 2 },
	};
	struct ibv_qp *sender = extended_qp(&initiator);
	union ibv_gid gid;
	CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	CHECK(!ibv_modify_qp(sender, &init, mask));
	CHECK(!ibv_modify_qp(receiver, &init, mask));
	CHECK(ibv_close_xrcd(xrcd) == EBUSY);
	CHECK(!ibv_destroy_qp(receiver));
	CHECK(!ibv_destroy_qp(sender));
	CHECK(!ibv_destroy_srq(srq));
	CHECK(!ibv_close_xrcd(xrcd));
}

/* Two contexts share a domain by a file, and one opens the other's queue pair. To destroy an opened queue pair
 * makes libmlx5 44 and 56 free a doorbell record that it has not, so closing the context must clean up. */
static void shared_domain(void)
{
	FILE *file = tmpfile();
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fileno(file),
		.oflags = O_CREAT,
	};
	struct ibv_context *other = open_first();
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &attr);
	CHECK(xrcd);
	attr.oflags = 0;
	struct ibv_xrcd *same = ibv_open_xrcd(other, &attr);
	CHECK(same);
	attr.oflags = O_CREAT | O_EXCL;
	CHECK(!ibv_open_xrcd(other, &attr));
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};
	struct ibv_qp *receiver = ibv_create_qp_ex(context, &target);
	CHECK(receiver);
	struct ibv_qp_open_attr open_attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = receiver->qp_num,
		.xrcd = same,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_qp *opened = ibv_open_qp(other, &open_attr);
	CHECK(opened && opened->qp_num == receiver->qp_num);
	CHECK(!ibv_destroy_qp(receiver));
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(opened, &init,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	CHECK(!ibv_close_xrcd(xrcd));
	CHECK(ibv_close_xrcd(same) == EBUSY);
	const char *provider = getenv("EXPECT_PROVIDER");
	if (provider && strstr(provider, "oxverbs")) {
		CHECK(!ibv_destroy_qp(opened));
		CHECK(!ibv_close_xrcd(same));
	}
	CHECK(!ibv_close_device(other));
	fclose(file);
}

static void datagrams(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .sgid_index = GID_INDEX, .hop_limit = 9 },
	};
	CHECK(!ibv_query_gid(context, 1, GID_INDEX, &attr.grh.dgid));
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	CHECK(!ibv_destroy_ah(ah));
	for (int i = 0; i < 2; i++) {
		struct ibv_qp *qp = make_qp(pd, cq, NULL, i ? IBV_QPT_UC : IBV_QPT_UD);
		CHECK(qp);
		CHECK(!to_init(qp, qp->qp_type));
		CHECK(!to_rts(qp, qp->qp_type, &attr.grh.dgid, qp->qp_num, 0));
		struct ibv_qp_attr got;
		struct ibv_qp_init_attr got_init;
		CHECK(!ibv_query_qp(qp, &got, IBV_QP_STATE, &got_init));
		CHECK(got.qp_state == IBV_QPS_RTS && got_init.qp_type == qp->qp_type);
		CHECK(!ibv_destroy_qp(qp));
	}
}

static void raw_packets(void)
{
	struct ibv_qp *qp = make_qp(pd, cq, NULL, IBV_QPT_RAW_PACKET);
	CHECK(qp);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_ipv4 ipv4;
	} rule = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL,
			  .size = sizeof(rule),
			  .num_of_specs = 2,
			  .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth) },
		.ipv4 = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof(rule.ipv4) },
	};
	struct ibv_flow *flow = ibv_create_flow(qp, &rule.attr);
	CHECK(flow);
	CHECK(ibv_destroy_qp(qp) == EBUSY);
	CHECK(!ibv_destroy_flow(flow));
	rule.attr.num_of_specs = 3;
	CHECK(!ibv_create_flow(qp, &rule.attr));
	CHECK(!ibv_destroy_qp(qp));
}

static void spreading(void)
{
	struct ibv_wq *wqs[2];
	for (int i = 0; i < 2; i++) {
		struct ibv_wq_init_attr attr = {
			.wq_type = IBV_WQT_RQ, .max_wr = 64, .max_sge = 2, .pd = pd, .cq = cq,
		};
		wqs[i] = ibv_create_wq(context, &attr);
		CHECK(wqs[i] && wqs[i]->wq_num);
		struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
		CHECK(!ibv_modify_wq(wqs[i], &ready));
	}
	struct ibv_rwq_ind_table_init_attr table_attr = { .log_ind_tbl_size = 1, .ind_tbl = wqs };
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(context, &table_attr);
	CHECK(table);
	CHECK(ibv_destroy_wq(wqs[0]) == EBUSY);
	uint8_t key[40] = { 1, 2, 3 };
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_PD,
		.rwq_ind_tbl = table,
		.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
				  .rx_hash_key_len = sizeof(key),
				  .rx_hash_key = key,
				  .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 },
		.pd = pd,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);
	CHECK(qp);
	CHECK(ibv_destroy_rwq_ind_table(table) == EBUSY);
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_rwq_ind_table(table));
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_wq(wqs[i]));
}

#ifdef WITH_MLX5DV /* libmlx5's own interface, which works on its own contexts only */
static void dynamic_connections(void)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 10, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	CHECK(srq);
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_DRIVER,
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = 0x77 },
	};
	struct ibv_qp *target = mlx5dv_create_qp(context, &attr, &dv);
	CHECK(target);
	attr.srq = NULL;
	attr.recv_cq = cq;
	attr.cap.max_send_wr = 8;
	attr.cap.max_send_sge = 1;
	attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
	dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
	struct ibv_qp *initiator = mlx5dv_create_qp(context, &attr, &dv);
	CHECK(initiator);
	struct ibv_qp_attr to = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.min_rnr_timer = 1,
		.path_mtu = IBV_MTU_1024,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = GID_INDEX } },
	};
	CHECK(!ibv_query_gid(context, 1, GID_INDEX, &to.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(target, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	CHECK(!ibv_modify_qp(initiator, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT));
	to.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(target, &to, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU));
	CHECK(target->qp_num);
	CHECK(!ibv_modify_qp(initiator, &to, IBV_QP_STATE | IBV_QP_PATH_MTU));
	to.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(initiator, &to,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN));
	CHECK(!ibv_destroy_qp(initiator));
	CHECK(!ibv_destroy_qp(target));
	CHECK(!ibv_destroy_srq(srq));
}
#endif

static void memory(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 5000 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr);
	CHECK(dm);
	struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, 64, 1000, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK(ibv_free_dm(dm) == EBUSY);
	CHECK(!ibv_memcpy_to_dm(dm, 8, "abcdefg", 8));
	char back[8];
	CHECK(!ibv_memcpy_from_dm(back, dm, 8, 8) && !strcmp(back, "abcdefg"));
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_free_dm(dm));

	static char buffer[8192] __attribute__((aligned(4096)));
	mr = ibv_reg_mr(pd, buffer, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	CHECK(mr);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buffer + 4096, 4096, 0));
	for (int i = 0; i < 2; i++) {
		struct ibv_mw *mw = ibv_alloc_mw(pd, i ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
		CHECK(mw);
		CHECK(!ibv_dealloc_mw(mw));
	}
	CHECK(!ibv_dereg_mr(mr));
	mr = ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	struct ibv_sge list = { (uintptr_t)buffer, 4096, mr->lkey };
	CHECK(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &list, 1));
	CHECK(!ibv_dereg_mr(mr));
	mr = ibv_reg_mr(pd, buffer, 4096, IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!ibv_dereg_mr(mr));
	mr = ibv_alloc_null_mr(pd);
	CHECK(mr);
	CHECK(!ibv_dereg_mr(mr));
	int fd = memfd_create("buffer", 0);
	CHECK(fd >= 0 && !ftruncate(fd, 8192));
	mr = ibv_reg_dmabuf_mr(pd, 4096, 4096, 0x4000, fd, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK(!ibv_dereg_mr(mr));
	close(fd);
}

static void domains(void)
{
	struct ibv_td_init_attr attr = { 0 };
	struct ibv_td *td = ibv_alloc_td(context, &attr);
	CHECK(td);
	struct ibv_parent_domain_init_attr parent_attr = { .pd = pd, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &parent_attr);
	CHECK(parent);
	struct ibv_qp *qp = make_qp(parent, cq, NULL, IBV_QPT_RC);
	CHECK(qp);
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_dealloc_pd(parent));
	CHECK(!ibv_dealloc_td(td));
	/* more queue pairs than registers of their own */
	struct ibv_qp *many[40];
	for (int i = 0; i < 40; i++) {
		many[i] = make_qp(pd, cq, NULL, IBV_QPT_RC);
		CHECK(many[i]);
	}
	for (int i = 0; i < 40; i++)
		CHECK(!ibv_destroy_qp(many[i]));
}

static void completion_queues(void)
{
	struct ibv_cq *other = ibv_create_cq(context, 10, NULL, NULL, 0);
	CHECK(other && other->cqe == 15);
	CHECK(!ibv_resize_cq(other, 100) && other->cqe == 127);
	CHECK(!ibv_resize_cq(other, 20) && other->cqe == 31);
	struct ibv_modify_cq_attr moderation = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { .cq_count = 10, .cq_period = 20 },
	};
	CHECK(!ibv_modify_cq(other, &moderation));
	CHECK(ibv_create_cq(context, 10, NULL, NULL, 100) == NULL);
	CHECK(!ibv_destroy_cq(other));
	CHECK(ibv_create_cq(context, 1 << 23, NULL, NULL, 0) == NULL);
	int has_clock = getenv("EXPECT_CLOCK") != NULL;
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 100,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN |
			    (has_clock ? IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK : 0),
	};
	struct ibv_cq_ex *extended = ibv_create_cq_ex(context, &attr);
	CHECK(extended);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(extended)));
	if (has_clock) {
#ifdef WITH_MLX5DV
		struct mlx5dv_clock_info clock;
		CHECK(!mlx5dv_get_clock_info(context, &clock) && clock.mult && clock.shift);
#endif
		struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
		CHECK(!ibv_query_rt_values_ex(context, &values));
	}
}

static const struct part parts[] = {
	{ "srq", shared_queues },
	{ "xrc", extended_connections },
	{ "open", shared_domain },
	{ "ud", datagrams },
	{ "raw", raw_packets },
	{ "rss", spreading },
#ifdef WITH_MLX5DV
	{ "dc", dynamic_connections },
#endif
	{ "memory", memory },
	{ "domains", domains },
	{ "cq", completion_queues },
};

/* The arguments are the parts to run; without any, all. */
int main(int argc, char **argv)
{
	context = open_first();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 100, NULL, NULL, 0);
	CHECK(pd && cq);
	RUN_PARTS(parts, argc, argv);
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	uint64_t (*resources)(void) = dlsym(RTLD_DEFAULT, "fake_kernel_resources");
	uint64_t (*objects)(void) = dlsym(RTLD_DEFAULT, "fake_kernel_objects");
	CHECK(resources() == 0 && objects() == 0);
	puts("ok");
	return 0;
}
