/* Calls what only mlx5dv has, for the sake of what goes to the kernel. Nothing comes of the objects on the fake kernel,
 * and what some of the calls do with its empty answers does not matter here. */
#include "common.h"
#include <infiniband/mlx5dv.h>
#include <sys/eventfd.h>

static char buffer[8192] __attribute__((aligned(4096)));

static void firmware(struct ibv_context *context)
{
	uint32_t in[16] = { htobe32(0x00000b00) }, out[16];
	mlx5dv_devx_general_cmd(context, in, 16, out, 64);
	struct mlx5dv_devx_obj *obj = mlx5dv_devx_obj_create(context, in, sizeof(in), out, 16);
	CHECK(obj);
	mlx5dv_devx_obj_query(obj, in, 16, out, sizeof(out));
	mlx5dv_devx_obj_modify(obj, in, sizeof(in), out, 16);
	struct mlx5dv_devx_cmd_comp *answers = mlx5dv_devx_create_cmd_comp(context);
	CHECK(answers);
	mlx5dv_devx_obj_query_async(obj, in, 16, 512, 0x1234, answers);
	mlx5dv_devx_destroy_cmd_comp(answers);
	for (int flags = 0; flags < 2; flags++) {
		struct mlx5dv_devx_event_channel *events = mlx5dv_devx_create_event_channel(context, flags);
		CHECK(events);
		uint16_t numbers[5] = { 0, 2, 5, 9, 11 };
		mlx5dv_devx_subscribe_devx_event(events, obj, sizeof(numbers), numbers, 0x77);
		mlx5dv_devx_subscribe_devx_event(events, NULL, 2, numbers, 0x78);
		int fd = eventfd(0, 0);
		mlx5dv_devx_subscribe_devx_event_fd(events, fd, obj, 7);
		close(fd);
		mlx5dv_devx_destroy_event_channel(events);
	}
	struct mlx5dv_devx_umem *umem = mlx5dv_devx_umem_reg(context, buffer, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(umem);
	CHECK(!mlx5dv_devx_umem_dereg(umem));
	struct mlx5dv_devx_umem_in large = { .addr = buffer, .size = 8192, .access = 1, .pgsz_bitmap = 1 << 12 };
	umem = mlx5dv_devx_umem_reg_ex(context, &large);
	CHECK(umem);
	CHECK(!mlx5dv_devx_umem_dereg(umem));
	uint32_t eqn;
	mlx5dv_devx_query_eqn(context, 1, &eqn);
	CHECK(!mlx5dv_devx_obj_destroy(obj));
}

static void pages(struct ibv_context *context)
{
	struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(context, MLX5DV_UAR_ALLOC_TYPE_BF);
	if (uar)
		mlx5dv_devx_free_uar(uar);
	struct mlx5dv_var *var = mlx5dv_alloc_var(context, 0);
	if (var)
		mlx5dv_free_var(var);
	uint8_t rate[48] = { 0, 0, 0, 9 };
	for (int flags = 0; flags < 2; flags++) {
		struct mlx5dv_pp *pp = mlx5dv_pp_alloc(context, sizeof(rate), rate, flags);
		if (pp)
			mlx5dv_pp_free(pp);
	}
	struct mlx5dv_port port;
	mlx5dv_query_port(context, 1, &port);
	struct ibv_alloc_dm_attr attr = { .length = 4096, .log_align_req = 12 };
	struct mlx5dv_alloc_dm_attr dv = { .type = MLX5DV_DM_TYPE_STEERING_SW_ICM };
	struct ibv_dm *dm = mlx5dv_alloc_dm(context, &attr, &dv);
	if (dm)
		ibv_free_dm(dm);
	dv.type = MLX5DV_DM_TYPE_MEMIC;
	dm = mlx5dv_alloc_dm(context, &attr, &dv);
	if (dm) {
		mlx5dv_dm_map_op_addr(dm, 3);
		ibv_free_dm(dm);
	}
}

static void steering(struct ibv_context *context, struct ibv_qp *qp)
{
	struct {
		size_t size;
		uint64_t words[8];
	} mask = { 64, { 255 } }, value = { 64, { 7 } };
	struct mlx5dv_flow_matcher_attr attr = {
		.type = IBV_FLOW_ATTR_NORMAL,
		.priority = 3,
		.match_criteria_enable = 1,
		.match_mask = (void *)&mask,
	};
	struct mlx5dv_flow_matcher *matcher = mlx5dv_create_flow_matcher(context, &attr);
	CHECK(matcher);
	CHECK(!mlx5dv_destroy_flow_matcher(matcher));
	attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	attr.comp_mask = MLX5DV_FLOW_MATCHER_MASK_FT_TYPE;
	attr.ft_type = MLX5DV_FLOW_TABLE_TYPE_RDMA_RX;
	matcher = mlx5dv_create_flow_matcher(context, &attr);
	CHECK(matcher);
	uint64_t field[2] = { 0x0102030405060708, 9 };
	struct ibv_flow_action *modify = mlx5dv_create_flow_action_modify_header(
		context, sizeof(field), field, MLX5DV_FLOW_TABLE_TYPE_NIC_RX);
	CHECK(modify);
	struct ibv_flow_action *decap = mlx5dv_create_flow_action_packet_reformat(
		context, 0, NULL, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2,
		MLX5DV_FLOW_TABLE_TYPE_NIC_RX);
	CHECK(decap);
	struct ibv_flow_action *encap = mlx5dv_create_flow_action_packet_reformat(
		context, 50, buffer, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL,
		MLX5DV_FLOW_TABLE_TYPE_NIC_TX);
	CHECK(encap);
	struct mlx5dv_flow_action_attr actions[] = {
		{ .type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = qp },
		{ .type = MLX5DV_FLOW_ACTION_TAG, .tag_value = 0x1234 },
		{ .type = MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION, .action = modify },
		{ .type = MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION, .action = decap },
		{ .type = MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION, .action = encap },
	};
	for (int n = 1; n <= 5; n++)
		mlx5dv_create_flow(matcher, (void *)&value, n, actions);
	actions[0].type = MLX5DV_FLOW_ACTION_DROP;
	mlx5dv_create_flow(matcher, (void *)&value, 1, actions);
	ibv_destroy_flow_action(modify);
	struct mlx5dv_steering_anchor_attr anchor_attr = { .ft_type = MLX5DV_FLOW_TABLE_TYPE_NIC_RX, .priority = 5 };
	struct mlx5dv_steering_anchor *anchor = mlx5dv_create_steering_anchor(context, &anchor_attr);
	CHECK(anchor);
	CHECK(!mlx5dv_destroy_steering_anchor(anchor));
}

static void queue_pairs(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_DRIVER,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.cap = { .max_send_wr = 20, .max_send_sge = 2 },
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCI },
	};
	struct ibv_qp *qp = mlx5dv_create_qp(context, &init, &dv);
	if (qp)
		ibv_destroy_qp(qp);
	init.cap = (struct ibv_qp_cap){};
	init.srq = srq;
	dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
	dv.dc_init_attr.dct_access_key = 0x1122334455667788;
	qp = mlx5dv_create_qp(context, &init, &dv);
	if (qp) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
		ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
		ibv_destroy_qp(qp);
	}
	init.qp_type = IBV_QPT_RC;
	init.srq = NULL;
	init.cap = (struct ibv_qp_cap){ .max_send_wr = 20, .max_send_sge = 2, .max_recv_wr = 3, .max_recv_sge = 3 };
	dv = (struct mlx5dv_qp_init_attr){
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE,
	};
	qp = mlx5dv_create_qp(context, &init, &dv);
	if (qp) {
		uint32_t in[16] = { htobe32(0x050b0000) }, out[64];
		mlx5dv_devx_qp_query(qp, in, 16, out, sizeof(out));
		ibv_destroy_qp(qp);
	}
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 100 };
	struct mlx5dv_cq_init_attr cq_dv = {
		.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE | MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE,
		.cqe_size = 128,
		.cqe_comp_res_format = MLX5DV_CQE_RES_FORMAT_HASH,
	};
	struct ibv_cq_ex *ex = mlx5dv_create_cq(context, &cq_init, &cq_dv);
	if (ex)
		ibv_destroy_cq(ibv_cq_ex_to_cq(ex));
	struct ibv_wq_init_attr wq_init = { .wq_type = IBV_WQT_RQ, .max_wr = 16, .max_sge = 1, .pd = pd, .cq = cq };
	struct mlx5dv_wq_init_attr wq_dv = {
		.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ,
		.striding_rq_attrs = { .single_stride_log_num_of_bytes = 6, .single_wqe_log_num_of_strides = 9 },
	};
	struct ibv_wq *wq = mlx5dv_create_wq(context, &wq_init, &wq_dv);
	if (wq)
		ibv_destroy_wq(wq);
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	struct ibv_cq *cq = ibv_create_cq(context, 200, NULL, NULL, 0);
	CHECK(cq);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 64, .max_sge = 2 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	struct ibv_qp *qp = make_qp(pd, cq, NULL, IBV_QPT_RAW_PACKET);
	CHECK(qp);
	firmware(context);
	pages(context);
	steering(context, qp);
	queue_pairs(context, pd, cq, srq);
	puts("ok");
	return 0;
}
