/* Calls mlx5dv on a device and prints what it answers, without addresses: the same text is expected of every
 * libmlx5.so.1. Printed errors are numbers of errno. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/mlx5dv.h>

#define NUMBER(what) printf("%s %" PRIu64 "\n", #what, (uint64_t)(what))

static void device(struct ibv_context *context)
{
	struct mlx5dv_context dv = { .comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION | MLX5DV_CONTEXT_MASK_SWP |
		MLX5DV_CONTEXT_MASK_STRIDING_RQ | MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS | MLX5DV_CONTEXT_MASK_DYN_BFREGS |
		MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE | MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS |
		MLX5DV_CONTEXT_MASK_DC_ODP_CAPS | MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK |
		MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS | MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD |
		MLX5DV_CONTEXT_MASK_DCI_STREAMS | MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH |
		MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM | MLX5DV_CONTEXT_MASK_REG_C0 };
	NUMBER(mlx5dv_query_device(context, &dv));
	NUMBER(dv.version);
	NUMBER(dv.flags);
	NUMBER(dv.comp_mask);
	NUMBER(dv.cqe_comp_caps.max_num);
	NUMBER(dv.cqe_comp_caps.supported_format);
	NUMBER(dv.sw_parsing_caps.sw_parsing_offloads);
	NUMBER(dv.sw_parsing_caps.supported_qpts);
	NUMBER(dv.striding_rq_caps.min_single_stride_log_num_of_bytes);
	NUMBER(dv.striding_rq_caps.max_single_wqe_log_num_of_strides);
	NUMBER(dv.striding_rq_caps.supported_qpts);
	NUMBER(dv.tunnel_offloads_caps);
	NUMBER(dv.max_dynamic_bfregs);
	NUMBER(dv.max_clock_info_update_nsec);
	NUMBER(dv.flow_action_flags);
	NUMBER(dv.dc_odp_caps);
	NUMBER(dv.hca_core_clock != NULL);
	NUMBER(dv.num_lag_ports);
	NUMBER(dv.sig_caps.block_size);
	NUMBER(dv.sig_caps.block_prot);
	NUMBER(dv.sig_caps.t10dif_bg);
	NUMBER(dv.sig_caps.crc_type);
	NUMBER(dv.dci_streams_caps.max_log_num_concurent);
	NUMBER(dv.max_wr_memcpy_length);
	NUMBER(dv.max_dc_rd_atom);
	NUMBER(dv.max_dc_init_rd_atom);
	NUMBER(dv.reg_c0.mask);
	char path[64];
	memset(path, 0xee, sizeof(path));
	NUMBER(mlx5dv_get_data_direct_sysfs_path(context, path, sizeof(path)));
	NUMBER((uint8_t)path[0]);
	/* What the official library does over VFIO only. */
	errno = 0;
	NUMBER((uintptr_t)mlx5dv_devx_alloc_msi_vector(context));
	NUMBER(errno);
	errno = 0;
	NUMBER((uintptr_t)mlx5dv_devx_create_eq(context, path, sizeof(path), path, sizeof(path)));
	NUMBER(errno);
	struct mlx5dv_vfio_context_attr nowhere = { .pci_name = "ffff:ff:1f.7", .comp_mask = 1 };
	errno = 0;
	NUMBER((uintptr_t)mlx5dv_get_vfio_device_list(&nowhere));
	NUMBER(errno);
	struct mlx5dv_clock_info clock = {};
	NUMBER(mlx5dv_get_clock_info(context, &clock));
	NUMBER(clock.mult);
	NUMBER(clock.shift);
	NUMBER(mlx5dv_ts_to_ns(&clock, 1000000));
}

static struct ibv_cq *completions(struct ibv_context *context, uint16_t size)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 100 };
	struct mlx5dv_cq_init_attr dv = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = size };
	struct ibv_cq_ex *cq = mlx5dv_create_cq(context, &init, &dv);
	if (!cq) {
		printf("no CQ of %u: %d\n", size, errno);
		return NULL;
	}
	struct mlx5dv_cq shown;
	struct mlx5dv_obj obj = { .cq = { ibv_cq_ex_to_cq(cq), &shown } };
	memset(&shown, 0xee, sizeof(shown));
	NUMBER(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	NUMBER((uintptr_t)shown.buf % 4096);
	NUMBER((uintptr_t)shown.dbrec % 64);
	NUMBER((uintptr_t)shown.cq_uar % 4096);
	NUMBER(shown.cqe_cnt);
	NUMBER(shown.cqe_size);
	NUMBER(shown.comp_mask);
	return ibv_cq_ex_to_cq(cq);
}

static void show_qp(struct ibv_qp *qp)
{
	struct mlx5dv_qp shown;
	struct mlx5dv_obj obj = { .qp = { qp, &shown } };
	memset(&shown, 0xee, sizeof(shown));
	shown.comp_mask = MLX5DV_QP_MASK_UAR_MMAP_OFFSET | MLX5DV_QP_MASK_RAW_QP_HANDLES;
	NUMBER(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
	NUMBER((uintptr_t)shown.dbrec % 64);
	NUMBER((char *)shown.sq.buf - (char *)shown.rq.buf);
	NUMBER(shown.sq.wqe_cnt);
	NUMBER(shown.sq.stride);
	NUMBER(shown.rq.wqe_cnt);
	NUMBER(shown.rq.stride);
	NUMBER((uintptr_t)shown.bf.reg % 4096 >= 0x800);
	NUMBER(shown.bf.size);
	NUMBER(shown.comp_mask);
	NUMBER(shown.sqn);
	NUMBER(shown.rqn);
}

static void queue_pairs(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq)
{
	enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	uint32_t flags[] = { 0, MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE, MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE, 1 << 12 };
	uint64_t ops[] = { 0, MLX5DV_QP_EX_WITH_RAW_WQE, MLX5DV_QP_EX_WITH_MKEY_CONFIGURE };
	for (int t = 0; t < 3; t++)
		for (int f = 0; f < 4; f++)
			for (int o = 0; o < 3; o++) {
				struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = types[t], .pd = pd,
					.cap = { 10 + 7 * t, 5, 2, 3, 60 },
					.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					.send_ops_flags = IBV_QP_EX_WITH_SEND };
				struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS |
					MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS, .create_flags = flags[f], .send_ops_flags = ops[o] };
				printf("type %d flags %u ops %u\n", types[t], flags[f], (unsigned)ops[o]);
				errno = 0;
				struct ibv_qp *qp = mlx5dv_create_qp(context, &init, &dv);
				if (!qp) {
					printf("none: %d\n", errno);
					continue;
				}
				NUMBER(init.cap.max_send_wr);
				NUMBER(init.cap.max_inline_data);
				show_qp(qp);
				struct mlx5dv_qp_ex *ex = mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(qp));
				NUMBER(ex->wr_raw_wqe != NULL);
				NUMBER(ex->wr_mkey_configure != NULL);
				NUMBER(ex->wr_set_dc_addr != NULL);
				NUMBER(ibv_destroy_qp(qp));
			}
	for (int type = MLX5DV_DCTYPE_DCT; type <= MLX5DV_DCTYPE_DCI + 1; type++) {
		struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_DRIVER, .pd = pd,
			.srq = type == MLX5DV_DCTYPE_DCT ? srq : NULL, .comp_mask = IBV_QP_INIT_ATTR_PD };
		struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC };
		dv.dc_init_attr.dc_type = type;
		if (type == MLX5DV_DCTYPE_DCT)
			dv.dc_init_attr.dct_access_key = 0x1234;
		else {
			init.cap.max_send_wr = 20;
			init.cap.max_send_sge = 1;
			init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
			init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
		}
		errno = 0;
		struct ibv_qp *qp = mlx5dv_create_qp(context, &init, &dv);
		printf("DC type %d: %d\n", type, qp ? 0 : errno);
		if (qp && type == MLX5DV_DCTYPE_DCI) {
			show_qp(qp);
			NUMBER(mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(qp))->wr_set_dc_addr != NULL);
		}
		if (qp)
			NUMBER(ibv_destroy_qp(qp));
	}
}

/* To INIT: the attributes that this kind of queue pair has to have. */
static int initial(struct ibv_qp *qp)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int mask = IBV_QP_STATE | IBV_QP_PORT;
	if (qp->qp_type != IBV_QPT_RAW_PACKET)
		mask |= IBV_QP_PKEY_INDEX;
	if (qp->qp_type == IBV_QPT_UD)
		mask |= IBV_QP_QKEY;
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_UC || qp->qp_type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_ACCESS_FLAGS;
	return ibv_modify_qp(qp, &init, mask);
}

static int sending(struct ibv_qp *qp)
{
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.ah_attr = { .dlid = 1, .port_num = 1, .is_global = 1, .grh = { .hop_limit = 1 } } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };
	int rc = qp->qp_type == IBV_QPT_RC, dci = qp->qp_type == IBV_QPT_DRIVER;
	int path = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | (dci ? 0 : IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	if (qp->qp_type == IBV_QPT_UD || qp->qp_type == IBV_QPT_RAW_PACKET)
		path = IBV_QP_STATE;
	return (qp->state == IBV_QPS_RESET && initial(qp)) ||
	       ibv_modify_qp(qp, &rtr, path | (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)) ||
	       ibv_modify_qp(qp, &rts, IBV_QP_STATE | (qp->qp_type == IBV_QPT_RAW_PACKET ? 0 : IBV_QP_SQ_PSN) |
			     (rc || dci || qp->qp_type == IBV_QPT_XRC_SEND ?
			      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
}

/* What needs capabilities that this firmware may not have, and what is wrong with it whatever they are. */
static void states(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
	/* Through the end of an object, which goes only when all of its numbers are back. */
	uint32_t numbers[6];
	for (int i = 0; i < 6; i++) {
		numbers[i] = 0x1000;
		NUMBER(mlx5dv_reserved_qpn_alloc(context, &numbers[i]));
		NUMBER(numbers[i]);
	}
	for (int i = 0; i < 6; i++)
		NUMBER(mlx5dv_reserved_qpn_dealloc(context, numbers[i]));
	NUMBER(mlx5dv_reserved_qpn_dealloc(context, numbers[0]));
	NUMBER(mlx5dv_reserved_qpn_dealloc(context, 0x1234));
	enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	for (int t = 0; t < 3; t++) {
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = types[t], .cap = { 1, 1, 1, 1 } };
		struct ibv_qp *qp = ibv_create_qp(pd, &init);
		NUMBER(mlx5dv_modify_qp_udp_sport(qp, 55555));
		if (types[t] != IBV_QPT_UD)
			NUMBER(sending(qp));
		NUMBER(mlx5dv_modify_qp_udp_sport(qp, 55555));
		NUMBER(ibv_destroy_qp(qp));
	}
}

static struct ibv_qp *initiator(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_DRIVER, .pd = pd,
		.cap = { 20, 0, 1, 0, 0 }, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE };
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC };
	dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
	return mlx5dv_create_qp(context, &init, &dv);
}

/* What firmware commands change of queue pairs of every kind, before they send and then. */
static void changes(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
	enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_DRIVER };
	for (int t = 0; t < 6; t++) {
		struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = types[t], .pd = pd,
			.cap = { 1, 1, 1, 1 }, .comp_mask = IBV_QP_INIT_ATTR_PD };
		if (types[t] == IBV_QPT_XRC_SEND)
			init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
		struct ibv_qp *qp = types[t] == IBV_QPT_DRIVER ? initiator(context, pd, cq) : ibv_create_qp_ex(context, &init);
		printf("changes of type %d: %d\n", types[t], qp ? 0 : errno);
		if (!qp)
			continue;
		for (int round = 0; round < 3; round++) {
			uint8_t port = 77, active = 77;
			NUMBER(qp->state);
			NUMBER(mlx5dv_query_qp_lag_port(qp, &port, &active));
			NUMBER(port);
			NUMBER(active);
			NUMBER(mlx5dv_modify_qp_lag_port(qp, 2));
			NUMBER(mlx5dv_query_qp_lag_port(qp, &port, &active));
			NUMBER(port);
			NUMBER(active);
			NUMBER(mlx5dv_modify_qp_lag_port(qp, 3));
			NUMBER(mlx5dv_query_qp_lag_port(qp, &port, &active));
			NUMBER(port);
			NUMBER(mlx5dv_dci_stream_id_reset(qp, 0x123));
			NUMBER(mlx5dv_modify_qp_sched_elem(qp, NULL, NULL));
			if (round < 2)
				NUMBER(round ? sending(qp) : initial(qp));
		}
		NUMBER(ibv_destroy_qp(qp));
	}
}

static void canceling(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd, .cap = { 8, 1, 1, 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND };
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE };
	struct ibv_qp *qp = mlx5dv_create_qp(context, &init, &dv);
	struct mlx5dv_qp_ex *view = mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(qp));
	NUMBER(sending(qp));
	for (int i = 0; i < 5; i++) {
		struct ibv_send_wr wr = { .wr_id = 1 + i % 2, .opcode = i == 4 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND }, *bad;
		NUMBER(ibv_post_send(qp, &wr, &bad));
	}
	printf("canceled while sending: %d\n", mlx5dv_qp_cancel_posted_send_wrs(view, 1));
	struct ibv_qp_attr drain = { .qp_state = IBV_QPS_SQD };
	NUMBER(ibv_modify_qp(qp, &drain, IBV_QP_STATE));
	for (int id = 0; id < 4; id++)
		printf("canceled of %d: %d\n", id, mlx5dv_qp_cancel_posted_send_wrs(view, id));
	struct mlx5dv_qp shown = {};
	struct mlx5dv_obj obj = { .qp = { qp, &shown } };
	NUMBER(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
	for (int i = 0; i < 5; i++)
		NUMBER(((uint32_t *)((char *)shown.sq.buf + 64 * i))[0]);
	NUMBER(ibv_destroy_qp(qp));
}

static void addresses(struct ibv_pd *pd)
{
	for (int global = 0; global < 2; global++) {
		struct ibv_ah_attr attr = { .dlid = 3, .sl = 5, .port_num = 1, .is_global = global, .grh = { .hop_limit = 1 } };
		for (int i = 0; i < 16; i++)
			attr.grh.dgid.raw[i] = i + 1;
		struct ibv_ah *ah = ibv_create_ah(pd, &attr);
		printf("address %d: %d\n", global, ah ? 0 : errno);
		if (!ah)
			continue;
		NUMBER(mlx5dv_map_ah_to_qp(ah, 0x123456));
		NUMBER(mlx5dv_map_ah_to_qp(ah, 0x654321));
		NUMBER(ibv_destroy_ah(ah));
	}
}

static void schedules(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct mlx5dv_sched_attr root = {}, attr = { .flags = 3, .bw_share = 40, .max_avg_bw = 50 };
	struct mlx5dv_sched_attr wrong[] = { { .flags = 1 }, { .comp_mask = 1 }, { .flags = 4 } };
	for (int i = 0; i < 3; i++) {
		errno = 0;
		printf("node %d: %d\n", i, mlx5dv_sched_node_create(context, &wrong[i]) ? 0 : errno);
		printf("leaf %d: %d\n", i, mlx5dv_sched_leaf_create(context, &wrong[i]) ? 0 : errno);
	}
	struct mlx5dv_sched_node *top = mlx5dv_sched_node_create(context, &root);
	printf("root: %d\n", top ? 0 : errno);
	if (!top)
		return;
	attr.parent = top;
	struct mlx5dv_sched_node *node = mlx5dv_sched_node_create(context, &attr);
	attr.parent = node;
	attr.flags = 1;
	struct mlx5dv_sched_leaf *leaf = mlx5dv_sched_leaf_create(context, &attr);
	attr.flags = 2;
	struct mlx5dv_sched_leaf *other = mlx5dv_sched_leaf_create(context, &attr);
	printf("%d %d %d\n", node != NULL, leaf != NULL, other != NULL);
	NUMBER(mlx5dv_sched_node_modify(node, &attr));
	NUMBER(mlx5dv_sched_leaf_modify(leaf, &attr));
	NUMBER(mlx5dv_sched_leaf_modify(leaf, &root));
	for (int i = 0; i < 3; i++) {
		NUMBER(mlx5dv_sched_node_modify(node, &wrong[i]));
		NUMBER(mlx5dv_sched_leaf_modify(leaf, &wrong[i]));
	}
	enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_RAW_PACKET };
	for (int t = 0; t < 3; t++) {
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = types[t], .cap = { 1, 1, 1, 1 } };
		struct ibv_qp *qp = ibv_create_qp(pd, &init);
		if (!qp)
			continue;
		for (int round = 0; round < 3; round++) {
			NUMBER(mlx5dv_modify_qp_sched_elem(qp, leaf, NULL));
			NUMBER(mlx5dv_modify_qp_sched_elem(qp, leaf, other));
			NUMBER(mlx5dv_modify_qp_sched_elem(qp, NULL, other));
			if (round < 2)
				NUMBER(round ? sending(qp) : initial(qp));
		}
		NUMBER(ibv_destroy_qp(qp));
	}
	NUMBER(mlx5dv_sched_leaf_destroy(other));
	NUMBER(mlx5dv_sched_leaf_destroy(leaf));
	NUMBER(mlx5dv_sched_node_destroy(node));
	NUMBER(mlx5dv_sched_node_destroy(top));
}

/* The program's memory for queues: what is asked for, and whether all of it comes back. */
static int given, refusing;

static void *give(size_t size, void *data)
{
	void *memory = NULL;
	printf("asked for %zu%s\n", size, data == &given ? "" : " with other data");
	if (refusing || posix_memalign(&memory, 4096, size))
		return NULL;
	memset(memory, 0xee, size);
	given++;
	return memory;
}

static void take(void *memory, void *data)
{
	given -= data == &given;
	free(memory);
}

static void own_memory(struct ibv_context *context, struct ibv_pd *pd)
{
	struct mlx5dv_ctx_allocators mine = { give, take, &given }, half = { give }, none = {};
	NUMBER(mlx5dv_set_context_attr(context, 0, &mine));
	NUMBER(mlx5dv_set_context_attr(context, 2, &mine));
	for (int round = 0; round < 4; round++) {
		refusing = round == 1;
		NUMBER(mlx5dv_set_context_attr(context, MLX5DV_CTX_ATTR_BUF_ALLOCATORS, round < 2 ? &mine : round == 2 ? &half : &none));
		struct ibv_srq_init_attr srq_init = { .attr = { 300, 2, 0 } };
		struct ibv_cq *cq = ibv_create_cq(context, 1000, NULL, NULL, 0);
		/* Where memory is refused, the official library leaves errno as it was. */
		printf("own memory, CQ: %d\n", cq != NULL);
		struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
		printf("own memory, SRQ: %d\n", srq != NULL);
		if (cq) {
			struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 100, 50, 3, 2 } };
			struct ibv_qp *qp = ibv_create_qp(pd, &init);
			printf("own memory, QP: %d\n", qp != NULL);
			NUMBER(ibv_resize_cq(cq, 5000));
			if (qp)
				NUMBER(ibv_destroy_qp(qp));
			NUMBER(ibv_destroy_cq(cq));
		}
		if (srq)
			NUMBER(ibv_destroy_srq(srq));
		NUMBER(given);
	}
}

/* The first two basic blocks, without the key and the address of memory that the library has for itself. */
static void show_copy(struct ibv_qp *qp)
{
	struct mlx5dv_qp shown = {};
	struct mlx5dv_obj obj = { .qp = { qp, &shown } };
	NUMBER(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
	for (int i = 0; i < 32; i++)
		if (i % 16 < 5 || i % 16 > 7)
			printf("%08x\n", ((uint32_t *)shown.sq.buf)[i]);
}

static void copying(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_parent_domain_init_attr join = { .pd = pd };
	struct ibv_pd *joined = ibv_alloc_parent_domain(context, &join);
	enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_DRIVER, IBV_QPT_UC, IBV_QPT_UD };
	for (int t = 0; t < 4; t++) {
		struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = types[t], .pd = t ? joined : pd,
			.cap = { 8, 0, 1, 0 }, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };
		struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
			.send_ops_flags = MLX5DV_QP_EX_WITH_MEMCPY };
		if (types[t] == IBV_QPT_DRIVER) {
			dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
			dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		}
		errno = 0;
		struct ibv_qp *qp = mlx5dv_create_qp(context, &init, &dv);
		printf("copying, type %d: %d\n", types[t], qp ? 0 : errno);
		if (!qp)
			continue;
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
		struct mlx5dv_qp_ex *view = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
		NUMBER(sending(qp));
		size_t lengths[] = { 4096, 1ul << 31, 0, (1ul << 31) + 1 };
		for (int i = 0; i < 4; i++) {
			ibv_wr_start(ex);
			ex->wr_id = i;
			ex->wr_flags = i ? IBV_SEND_SIGNALED : 0;
			mlx5dv_wr_memcpy(view, 0x111, 0x2000, 0x333, 0x4000, lengths[i]);
			NUMBER(ibv_wr_complete(ex));
		}
		show_copy(qp);
		NUMBER(ibv_destroy_qp(qp));
	}
	NUMBER(ibv_dealloc_pd(joined));
}

int main(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_device *device_found = NULL;
	for (int i = 0; i < count; i++)
		if (mlx5dv_is_supported(list[i]))
			device_found = list[i];
	if (!device_found)
		return 2;
	struct mlx5dv_context_attr attr = {};
	struct ibv_context *context = mlx5dv_open_device(device_found, &attr);
	if (!context) {
		printf("not opened: %d\n", errno);
		return 1;
	}
	device(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct mlx5dv_pd shown_pd;
	struct mlx5dv_obj obj = { .pd = { pd, &shown_pd } };
	NUMBER(mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD));
	NUMBER(shown_pd.pdn);
	completions(context, 7);
	struct ibv_cq *wide = completions(context, 128), *cq = completions(context, 64);
	struct ibv_srq_init_attr init = { .attr = { 20, 2, 0 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct mlx5dv_srq shown_srq = { .comp_mask = MLX5DV_SRQ_MASK_SRQN };
	struct mlx5dv_obj srq_obj = { .srq = { srq, &shown_srq } };
	NUMBER(mlx5dv_init_obj(&srq_obj, MLX5DV_OBJ_SRQ));
	NUMBER(shown_srq.stride);
	NUMBER(shown_srq.head);
	NUMBER(shown_srq.tail);
	NUMBER(shown_srq.comp_mask);
	queue_pairs(context, pd, cq, srq);
	states(context, pd, cq);
	changes(context, pd, cq);
	canceling(context, pd, cq);
	addresses(pd);
	schedules(context, pd, cq);
	copying(context, pd, cq);
	own_memory(context, pd);
	NUMBER(ibv_destroy_srq(srq));
	NUMBER(ibv_destroy_cq(cq));
	NUMBER(ibv_destroy_cq(wide));
	NUMBER(ibv_dealloc_pd(pd));
	NUMBER(ibv_close_device(context));
	ibv_free_device_list(list);
	return 0;
}
