/* Makes, changes and destroys one of everything that the public verbs have on mlx5, for the sake of what goes to
 * the kernel. */
#include "common.h"
#include <net/ethernet.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static union ibv_gid gid;
static char buffer[16384] __attribute__((aligned(4096)));

static void queries(void)
{
	struct ibv_device_attr_ex device;
	CHECK(!ibv_query_device_ex(context, NULL, &device));
	struct ibv_device_attr old;
	CHECK(!ibv_query_device(context, &old));
	struct ibv_port_attr port;
	CHECK(!ibv_query_port(context, 1, &port));
	CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	ibv_query_rt_values_ex(context, &values);
}

static void memory(void)
{
	struct ibv_pd *other = ibv_alloc_pd(context);
	CHECK(other);
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(mr);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, buffer, 4096,
			    IBV_ACCESS_LOCAL_WRITE));
	CHECK(!ibv_dereg_mr(mr));
	mr = ibv_reg_mr(pd, buffer, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr);
	CHECK(!ibv_dereg_mr(mr));
	mr = ibv_reg_mr_iova(pd, buffer + 16, 4000, 0x10, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK(!ibv_dereg_mr(mr));
	for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		struct ibv_mw *mw = ibv_alloc_mw(pd, type);
		CHECK(mw);
		CHECK(!ibv_dealloc_mw(mw));
	}
	mr = ibv_alloc_null_mr(pd);
	if (mr)
		CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_dealloc_pd(other));
}

static void completion_queues(void)
{
	static const int sizes[] = { 1, 10, 255, 256, 4000 };
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct ibv_cq *made = ibv_create_cq(context, sizes[i], NULL, i % 2 ? channel : NULL, i % 2);
		CHECK(made);
		CHECK(!ibv_resize_cq(made, sizes[i] * 3));
		struct ibv_modify_cq_attr attr = {
			.attr_mask = IBV_CQ_ATTR_MODERATE,
			.moderate = { .cq_count = 7, .cq_period = 9 },
		};
		CHECK(!ibv_modify_cq(made, &attr));
		CHECK(!ibv_destroy_cq(made));
	}
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 100,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
		.channel = channel,
	};
	struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &attr);
	CHECK(ex);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	ex = ibv_create_cq_ex(context, &attr);
	CHECK(ex);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
	CHECK(!ibv_destroy_comp_channel(channel));
}

static struct ibv_srq *shared(int max_wr, int max_sge)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = max_wr, .max_sge = max_sge } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	return srq;
}

static void shared_receive_queues(void)
{
	static const int sizes[][2] = { { 1, 1 }, { 100, 1 }, { 100, 4 }, { 1000, 15 } };
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct ibv_srq *srq = shared(sizes[i][0], sizes[i][1]);
		struct ibv_srq_attr attr = { .srq_limit = 5 };
		ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
		CHECK(!ibv_query_srq(srq, &attr));
		CHECK(!ibv_destroy_srq(srq));
	}
}

static struct ibv_qp *extended(struct ibv_qp_init_attr_ex init)
{
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	return qp;
}

static void modify_all(struct ibv_qp *qp, enum ibv_qp_type type)
{
	CHECK(!to_init(qp, type));
	CHECK(!to_rts(qp, type, &gid, qp->qp_num, 7));
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RESET;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	CHECK(!to_init(qp, type));
}

static void queue_pairs(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct ibv_srq *srq = shared(64, 2);
	for (unsigned i = 0; i < sizeof(types) / sizeof(*types); i++) {
		struct ibv_qp *qp = make_qp(pd, cq, NULL, types[i]);
		CHECK(qp);
		modify_all(qp, types[i]);
		CHECK(!ibv_destroy_qp(qp));
		/* shapes: inline, entries, signalled, no receives */
		for (int shape = 0; shape < 12; shape++) {
			struct ibv_qp_init_attr init = {
				.send_cq = cq,
				.recv_cq = cq,
				.srq = shape == 5 ? srq : NULL,
				.qp_type = types[i],
				.sq_sig_all = shape & 1,
				.cap = { .max_send_wr = 1 << shape,
					 .max_recv_wr = shape == 5 || shape == 7 ? 0 : 3 * shape + 1,
					 .max_send_sge = 1 + shape,
					 .max_recv_sge = shape == 5 || shape == 7 ? 0 : 1 + shape / 2,
					 .max_inline_data = shape * 37 },
			};
			qp = ibv_create_qp(pd, &init);
			CHECK(qp);
			CHECK(!ibv_destroy_qp(qp));
		}
		/* by the builder's flags */
		qp = extended((struct ibv_qp_init_attr_ex){
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = types[i],
			.pd = pd,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			.send_ops_flags = types[i] == IBV_QPT_UD ?
						  IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM :
						  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND |
							  (types[i] == IBV_QPT_RC ? IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP : 0),
			.cap = { .max_send_wr = 33, .max_recv_wr = 17, .max_send_sge = 3, .max_recv_sge = 3 },
		});
		CHECK(!ibv_destroy_qp(qp));
	}
	CHECK(!ibv_destroy_srq(srq));
}

static void raw_packets(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RAW_PACKET,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 2, .max_recv_sge = 2 },
	};
	struct ibv_qp *qp = extended(init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .rate_limit = 1000000 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT));
	CHECK(!ibv_destroy_qp(qp));
	init.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	init.max_tso_header = 64;
	CHECK(!ibv_destroy_qp(extended(init)));
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	init.create_flags = IBV_QP_CREATE_SCATTER_FCS | IBV_QP_CREATE_CVLAN_STRIPPING;
	CHECK(!ibv_destroy_qp(extended(init)));
}

static void underlay(void)
{
	struct ibv_qp *qp = extended((struct ibv_qp_init_attr_ex){
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_UD,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.create_flags = IBV_QP_CREATE_SOURCE_QPN,
		.source_qpn = 0x123456,
		.cap = { .max_send_wr = 32, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
	});
	CHECK(!ibv_destroy_qp(qp));
}

static void reliable_domains(void)
{
	struct ibv_xrcd *xrcd = make_xrcd(context);
	struct ibv_srq *srq = make_xrc_srq(xrcd, pd, cq, (struct ibv_srq_attr){ .max_wr = 50, .max_sge = 2 });
	uint32_t number;
	CHECK(!ibv_get_srq_num(srq, &number));
	struct ibv_qp *target = extended((struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	});
	CHECK(!to_init(target, IBV_QPT_XRC_RECV));
	CHECK(!ibv_destroy_qp(target));
	struct ibv_qp *initiator = extended((struct ibv_qp_init_attr_ex){
		.send_cq = cq,
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
		.cap = { .max_send_wr = 20, .max_send_sge = 2, .max_inline_data = 40 },
	});
	CHECK(!ibv_destroy_qp(initiator));
	CHECK(!ibv_destroy_srq(srq));
	CHECK(!ibv_close_xrcd(xrcd));
}

static void address_handles(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.sl = 3,
		.grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64, .traffic_class = 0x20,
			 .flow_label = 0x12345 },
	};
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	CHECK(!ibv_destroy_ah(ah));
}

static void spreading(void)
{
	struct ibv_wq *queues[4];
	for (int i = 0; i < 4; i++) {
		struct ibv_wq_init_attr init = {
			.wq_type = IBV_WQT_RQ, .max_wr = 30 + i, .max_sge = 1 + i, .pd = pd, .cq = cq,
		};
		if (i == 3) {
			init.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
			init.create_flags = IBV_WQ_FLAGS_CVLAN_STRIPPING;
		}
		queues[i] = ibv_create_wq(context, &init);
		CHECK(queues[i]);
		struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
		CHECK(!ibv_modify_wq(queues[i], &attr));
	}
	for (int log = 0; log <= 2; log++) {
		struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = log, .ind_tbl = queues };
		struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(context, &init);
		CHECK(table);
		uint8_t key[40];
		memset(key, 0x5a, sizeof(key));
		struct ibv_qp *qp = extended((struct ibv_qp_init_attr_ex){
			.qp_type = IBV_QPT_RAW_PACKET,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
			.pd = pd,
			.rwq_ind_tbl = table,
			.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
					  .rx_hash_key_len = sizeof(key),
					  .rx_hash_key = key,
					  .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 },
		});
		CHECK(!ibv_destroy_qp(qp));
		CHECK(!ibv_destroy_rwq_ind_table(table));
	}
	for (int i = 0; i < 4; i++)
		CHECK(!ibv_destroy_wq(queues[i]));
}

static void steering(void)
{
	struct ibv_qp *qp = extended((struct ibv_qp_init_attr_ex){
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RAW_PACKET,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.cap = { .max_send_wr = 1, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1 },
	});
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_ipv4 ip;
	} rule = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule), .num_of_specs = 2, .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH,
			 .size = sizeof(rule.eth),
			 .val = { .dst_mac = { 2, 1, 2, 3, 4, 5 }, .ether_type = 0x0008 },
			 .mask = { .dst_mac = { 255, 255, 255, 255, 255, 255 }, .ether_type = 0xffff } },
		.ip = { .type = IBV_FLOW_SPEC_IPV4,
			.size = sizeof(rule.ip),
			.val = { .dst_ip = 0x0100007f },
			.mask = { .dst_ip = 0xffffffff } },
	};
	struct ibv_flow *flow = ibv_create_flow(qp, &rule.attr);
	CHECK(flow);
	CHECK(!ibv_destroy_flow(flow));
	struct ibv_flow_attr all = { .type = IBV_FLOW_ATTR_SNIFFER, .size = sizeof(all), .port = 1 };
	flow = ibv_create_flow(qp, &all);
	CHECK(flow);
	CHECK(!ibv_destroy_flow(flow));
	CHECK(!ibv_destroy_qp(qp));
}

static void device_memory(void)
{
	struct ibv_device_attr_ex device;
	CHECK(!ibv_query_device_ex(context, NULL, &device));
	if (!device.max_dm_size)
		return;
	struct ibv_alloc_dm_attr attr = { .length = 4096, .log_align_req = 3 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr);
	CHECK(dm);
	struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, 64, 1024, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_free_dm(dm));
}

static void thread_domains(void)
{
	struct ibv_td_init_attr td_attr = {};
	struct ibv_td *td = ibv_alloc_td(context, &td_attr);
	CHECK(td);
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
	CHECK(parent);
	struct ibv_qp *qp = make_qp(parent, cq, NULL, IBV_QPT_RC);
	CHECK(qp);
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_dealloc_pd(parent));
	CHECK(!ibv_dealloc_td(td));
	/* more queue pairs than there are registers of their own: they are shared then */
	struct ibv_qp *many[40];
	for (int i = 0; i < 40; i++) {
		many[i] = make_qp(pd, cq, NULL, IBV_QPT_RC);
		CHECK(many[i]);
	}
	for (int i = 0; i < 40; i++)
		CHECK(!ibv_destroy_qp(many[i]));
}

static void multicast(void)
{
	struct ibv_qp *qp = make_qp(pd, cq, NULL, IBV_QPT_UD);
	CHECK(qp);
	union ibv_gid group = { .raw = { 0xff, 0x0e, [10] = 0xff, 0xff, 239, 1, 2, 3 } };
	CHECK(!ibv_attach_mcast(qp, &group, 0));
	CHECK(!ibv_detach_mcast(qp, &group, 0));
	CHECK(!ibv_destroy_qp(qp));
}

/* Neither closed nor destroyed: libmlx5 writes through a null doorbell record when an opened queue pair is destroyed
 * (mlx5_free_db in 44 and 56). */
static void opened_queue_pairs(void)
{
	struct ibv_xrcd *xrcd = make_xrcd(context);
	struct ibv_qp *target = extended((struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	});
	struct ibv_qp_open_attr open = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE |
			     IBV_QP_OPEN_ATTR_CONTEXT,
		.qp_num = target->qp_num,
		.xrcd = xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_qp *opened = ibv_open_qp(context, &open);
	CHECK(opened && opened->qp_num == target->qp_num);
}

static const struct part parts[] = {
	{ "queries", queries },
	{ "memory", memory },
	{ "completion_queues", completion_queues },
	{ "shared_receive_queues", shared_receive_queues },
	{ "queue_pairs", queue_pairs },
	{ "raw_packets", raw_packets },
	{ "underlay", underlay },
	{ "reliable_domains", reliable_domains },
	{ "address_handles", address_handles },
	{ "spreading", spreading },
	{ "steering", steering },
	{ "device_memory", device_memory },
	{ "thread_domains", thread_domains },
	{ "multicast", multicast },
	{ "opened_queue_pairs", opened_queue_pairs },
};

/* The parts to run, by name; all without any. */
int main(int argc, char **argv)
{
	context = open_first();
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	cq = ibv_create_cq(context, 200, NULL, NULL, 0);
	CHECK(cq);
	CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
	RUN_PARTS(parts, argc, argv);
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	puts("ok");
	return 0;
}
