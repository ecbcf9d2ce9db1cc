/*
 * Everything a program sees of the control verbs of an mlx5 device, as lines: sizes that were granted, numbers that were
 * answered, the errno of what is refused. The lines are the same under every provider.
 *
 * Left out: addresses, and what the kernel chooses anew each time.
 */
#include "common.h"
#include <fcntl.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static char *memory;

/* The name of an errno, so that a difference reads well. */
static const char *err(int number)
{
	return number ? strerrorname_np(number) : "0";
}

/* What became of a verb that answers a pointer and was called by MAKE. */
#define MADE(object) ((object) != NULL ? "ok" : err(errno))
#define MAKE(call) (errno = 0, call)
/* The same where libmlx5 leaves errno as it was. */
#define REFUSED(call) ((call) ? "ok" : "refused")

static void device(void)
{
	struct ibv_device_attr old;
	printf("device old: %s\n", err(ibv_query_device(context, &old)));
	printf(" fw %s vendor %x part %u max qp %d wr %d sge %d cq %d cqe %d mr %d srq %d %d %d atomics %d ports %d flags %x\n",
	       old.fw_ver, old.vendor_id, old.vendor_part_id, old.max_qp, old.max_qp_wr, old.max_sge, old.max_cq,
	       old.max_cqe, old.max_mr, old.max_srq, old.max_srq_wr, old.max_srq_sge, old.atomic_cap,
	       old.phys_port_cnt, old.device_cap_flags);
	struct ibv_device_attr_ex attr;
	struct ibv_query_device_ex_input input = { 1 };
	printf("device: input %s", err(ibv_query_device_ex(context, &input, &attr)));
	printf(" none %s\n", err(ibv_query_device_ex(context, NULL, &attr)));
	printf(" tso %u %x rss %x %lx %x pacing %u %u %x timestamps %lx %lx raw %x tm %u %u wq %u cq %u %u dm %lu odp %lx\n",
	       attr.tso_caps.max_tso, attr.tso_caps.supported_qpts, attr.rss_caps.supported_qpts,
	       attr.rss_caps.rx_hash_fields_mask, attr.rss_caps.rx_hash_function,
	       attr.packet_pacing_caps.qp_rate_limit_min, attr.packet_pacing_caps.qp_rate_limit_max,
	       attr.packet_pacing_caps.supported_qpts, attr.completion_timestamp_mask, attr.hca_core_clock,
	       attr.raw_packet_caps, attr.tm_caps.max_num_tags, attr.tm_caps.max_ops, attr.max_wq_type_rq,
	       attr.cq_mod_caps.max_cq_count, attr.cq_mod_caps.max_cq_period, attr.max_dm_size,
	       attr.odp_caps.general_caps);
	printf(" pci atomics %x %x %x\n", attr.pci_atomic_caps.fetch_add, attr.pci_atomic_caps.swap,
	       attr.pci_atomic_caps.compare_swap);
	for (int port = 0; port < 3; port++) {
		struct ibv_port_attr p = { 0 };
		printf("port %d: %s", port, err(ibv_query_port(context, port, &p)));
		printf(" state %d mtu %d lid %d gids %d link %d width %d speed %d\n", p.state, p.active_mtu, p.lid,
		       p.gid_tbl_len, p.link_layer, p.active_width, p.active_speed);
	}
	struct ibv_values_ex values = { .comp_mask = 4 };
	printf("rt values: unknown mask %s\n", err(ibv_query_rt_values_ex(context, &values)));
	values.comp_mask = 0;
	printf("rt values: nothing asked %s", err(ibv_query_rt_values_ex(context, &values)));
	printf(" %x\n", values.comp_mask);
}

static void regions(void)
{
	struct ibv_mr *mr = MAKE(ibv_reg_mr(pd, memory, 8192, IBV_ACCESS_LOCAL_WRITE));
	printf("reg_mr: %s", MADE(mr));
	CHECK(mr);
	printf(" length %zu pd %d\n", mr->length, mr->pd == pd);
	printf("rereg: %d", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
					 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
	printf(" access without flag %d\n", ibv_rereg_mr(mr, 0, NULL, NULL, 0, 1));
	printf("rereg translation: %d\n", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 4096, 0));
	printf("dereg: %s\n", err(ibv_dereg_mr(mr)));
	struct ibv_mr *null = MAKE(ibv_alloc_null_mr(pd));
	printf("null mr: %s\n", MADE(null));
	if (null) {
		printf(" lkey %x rkey %x length %zx\n", null->lkey, null->rkey, null->length);
		printf(" dereg %s\n", err(ibv_dereg_mr(null)));
	}
	for (int type = 1; type < 3; type++) {
		struct ibv_mw *mw = MAKE(ibv_alloc_mw(pd, type));
		printf("mw %d: %s", type, MADE(mw));
		printf(" dealloc %s\n", mw ? err(ibv_dealloc_mw(mw)) : "-");
	}
}

static void completion_queues(void)
{
	int sizes[] = { -1, 0, 1, 2, 3, 100, 127, 128, 1000, 4095, 4096, (1 << 22) - 1, 1 << 22, 1 << 24, 0x7fffffff };
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct ibv_cq *cq = MAKE(ibv_create_cq(context, sizes[i], NULL, NULL, 0));
		printf("cq %d: %s", sizes[i], MADE(cq));
		if (cq) {
			printf(" cqe %d", cq->cqe);
			int again[] = { -1, 0, 1, cq->cqe, cq->cqe + 1, 17, 1 << 26 };
			for (unsigned j = 0; j < sizeof again / sizeof *again; j++) {
				printf(" resize %d %s", again[j], err(ibv_resize_cq(cq, again[j])));
				printf(" %d", cq->cqe);
			}
			struct ibv_modify_cq_attr moderate = { .attr_mask = 1, .moderate = { 7, 9 } };
			printf(" modify %s", err(ibv_modify_cq(cq, &moderate)));
			printf(" destroy %s", err(ibv_destroy_cq(cq)));
		}
		printf("\n");
	}
	struct ibv_cq *vector = MAKE(ibv_create_cq(context, 10, NULL, NULL, 1000));
	printf("cq of a vector that is not there: %s\n", MADE(vector));
	for (int bit = 0; bit < 16; bit++) {
		struct ibv_cq_init_attr_ex attr = { .cqe = 10, .wc_flags = 1 << bit };
		struct ibv_cq_ex *cq = MAKE(ibv_create_cq_ex(context, &attr));
		printf("cq_ex wc_flags bit %d: %s", bit, MADE(cq));
		if (cq) {
			void **slots = (void **)&cq->start_poll;
			printf(" slots ");
			for (int slot = 0; slot < 18; slot++)
				printf("%d", slots[slot] != NULL);
			printf(" cqe %d", ibv_cq_ex_to_cq(cq)->cqe);
			ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
		}
		printf("\n");
	}
	for (int bit = 0; bit < 4; bit++) {
		struct ibv_cq_init_attr_ex attr = { .cqe = 10, .comp_mask = 1, .flags = 1 << bit };
		struct ibv_cq_ex *cq = MAKE(ibv_create_cq_ex(context, &attr));
		printf("cq_ex flags bit %d: %s\n", bit, MADE(cq));
		if (cq)
			ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
		attr = (struct ibv_cq_init_attr_ex){ .cqe = 10, .comp_mask = 1 << bit, .parent_domain = pd };
		cq = MAKE(ibv_create_cq_ex(context, &attr));
		printf("cq_ex mask bit %d: %s\n", bit, MADE(cq));
		if (cq)
			ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
	}
}

static void show_cap(const struct ibv_qp_cap *cap)
{
	printf("%u/%u/%u/%u/%u", cap->max_send_wr, cap->max_recv_wr, cap->max_send_sge, cap->max_recv_sge,
	       cap->max_inline_data);
}

static void queue_pairs(void)
{
	struct ibv_cq *cq = MAKE(ibv_create_cq(context, 100, NULL, NULL, 0));
	struct ibv_srq_init_attr sattr = { .attr = { .max_wr = 10, .max_sge = 1 } };
	struct ibv_srq *srq = MAKE(ibv_create_srq(pd, &sattr));
	CHECK(cq && srq);
	struct ibv_qp_cap caps[] = {
		{ 1, 1, 1, 1, 0 },	  { 16, 16, 4, 4, 64 },	   { 0, 16, 0, 4, 0 },	  { 16, 0, 4, 0, 0 },
		{ 100, 1000, 1, 1, 200 }, { 33, 33, 30, 32, 0 },   { 16, 16, 1, 33, 0 },  { 16, 16, 31, 1, 0 },
		{ 16, 16, 200, 1, 0 },	  { 16, 16, 1, 200, 0 },   { 16, 16, 1, 1, 900 }, { 16, 16, 1, 1, 2000 },
		{ 40000, 1, 1, 1, 0 },	  { 1, 40000, 1, 1, 0 },   { 1u << 31, 1, 1, 1, 0 }, { 1, 1u << 31, 1, 1, 0 },
		{ 8192, 8192, 1, 1, 0 },  { 512, 512, 2, 2, 220 },
	};
	enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET };
	for (int t = 0; t < 4; t++)
		for (unsigned c = 0; c < sizeof caps / sizeof *caps; c++)
			for (int with_srq = 0; with_srq < 2; with_srq++) {
				if (with_srq && c > 3)
					continue;
				struct ibv_qp_init_attr init = {
					.send_cq = cq,
					.recv_cq = cq,
					.srq = with_srq ? srq : NULL,
					.qp_type = types[t],
					.cap = caps[c],
				};
				struct ibv_qp *qp = MAKE(ibv_create_qp(pd, &init));
				printf("qp type %d srq %d ", types[t], with_srq);
				show_cap(&caps[c]);
				printf(": %s", MADE(qp));
				if (qp) {
					printf(" ");
					show_cap(&init.cap);
					struct ibv_qp_attr attr;
					struct ibv_qp_init_attr got;
					printf(" query %s ", err(ibv_query_qp(qp, &attr, IBV_QP_CAP, &got)));
					show_cap(&attr.cap);
					printf(" ");
					show_cap(&got.cap);
					printf(" destroy %s", err(ibv_destroy_qp(qp)));
				}
				printf("\n");
			}
	/* types that need more, or are not there */
	for (int type = 0; type < 12; type++) {
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = { 1, 1, 1, 1, 0 } };
		struct ibv_qp *qp = MAKE(ibv_create_qp(pd, &init));
		printf("qp type %d: %s\n", type, qp ? "ok" : "refused");
		if (qp)
			ibv_destroy_qp(qp);
	}
	/* the builder: which operations a type has */
	for (int t = 0; t < 4; t++)
		for (int bit = 0; bit < 14; bit++) {
			struct ibv_qp_init_attr_ex init = {
				.send_cq = cq,
				.recv_cq = cq,
				.qp_type = types[t],
				.cap = { 16, 16, 4, 4, 64 },
				.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
				.pd = pd,
				.send_ops_flags = 1ull << bit,
			};
			struct ibv_qp *qp = MAKE(ibv_create_qp_ex(context, &init));
			printf("qp_ex type %d op %d: %s", types[t], bit, MADE(qp));
			if (qp) {
				struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(qp);
				void **slots = (void **)&qpx->wr_atomic_cmp_swp;
				printf(" ");
				show_cap(&init.cap);
				printf(" slots ");
				/* 44 has one less than 56, which mlx5 never fills */
				for (int slot = 0; slot < 20; slot++)
					printf("%d", slots[slot] != NULL);
				ibv_destroy_qp(qp);
			}
			printf("\n");
		}
	printf("destroy %s", err(ibv_destroy_srq(srq)));
	printf(" %s\n", err(ibv_destroy_cq(cq)));
}

static void states(enum ibv_qp_type type)
{
	struct ibv_cq *cq = MAKE(ibv_create_cq(context, 100, NULL, NULL, 0));
	struct ibv_qp *qp = make_qp(pd, cq, NULL, type);
	union ibv_gid gid;
	CHECK(cq && qp && ibv_query_gid(context, 1, GID_INDEX, &gid) == 0);
	struct ibv_sge sge = { (uintptr_t)memory, 8, 1 };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv = NULL;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send = NULL;
	printf("type %d reset: recv %s", type, err(ibv_post_recv(qp, &recv, &bad_recv)));
	printf(" bad %d send %s", bad_recv == &recv, err(ibv_post_send(qp, &send, &bad_send)));
	printf(" bad %d\n", bad_send == &send);
	bad_recv = NULL;
	bad_send = NULL;
	printf(" to init %s", err(to_init(qp, type)));
	printf(" state %d", qp->state);
	printf(" recv %s", err(ibv_post_recv(qp, &recv, &bad_recv)));
	send.num_sge = 0;
	printf(" send of nothing %s", err(ibv_post_send(qp, &send, &bad_send)));
	send.num_sge = 1;
	printf(" send %s bad %d\n", err(ibv_post_send(qp, &send, &bad_send)), bad_send == &send);
	printf(" to rts %s", err(to_rts(qp, type, &gid, qp->qp_num, 7)));
	printf(" state %d", qp->state);
	if (type != IBV_QPT_UD)
		printf(" send %s", err(ibv_post_send(qp, &send, &bad_send)));
	send.opcode = 77;
	if (type != IBV_QPT_UD)
		printf(" opcode %s", err(ibv_post_send(qp, &send, &bad_send)));
	send.opcode = IBV_WR_SEND;
	send.num_sge = 100;
	printf(" sges %s", err(ibv_post_send(qp, &send, &bad_send)));
	send.num_sge = -1;
	if (type != IBV_QPT_UD)
		printf(" %s", err(ibv_post_send(qp, &send, &bad_send)));
	recv.num_sge = 100;
	printf(" recv sges %s", err(ibv_post_recv(qp, &recv, &bad_recv)));
	recv.num_sge = 1;
	int posted = 0;
	while (ibv_post_recv(qp, &recv, &bad_recv) == 0)
		posted++;
	printf(" recvs until full %d %s", posted, err(ibv_post_recv(qp, &recv, &bad_recv)));
	send.num_sge = 1;
	posted = 0;
	if (type != IBV_QPT_UD) {
		while (ibv_post_send(qp, &send, &bad_send) == 0)
			posted++;
		printf(" sends until full %d %s", posted, err(ibv_post_send(qp, &send, &bad_send)));
	}
	printf("\n");
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	printf(" to error %s", err(ibv_modify_qp(qp, &attr, IBV_QP_STATE)));
	printf(" state %d", qp->state);
	attr.qp_state = IBV_QPS_RESET;
	printf(" to reset %s", err(ibv_modify_qp(qp, &attr, IBV_QP_STATE)));
	printf(" state %d", qp->state);
	printf(" recv %s\n", err(ibv_post_recv(qp, &recv, &bad_recv)));
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000, .comp_mask = 1 };
	printf(" rate mask %s", err(ibv_modify_qp_rate_limit(qp, &rate)));
	rate = (struct ibv_qp_rate_limit_attr){ .max_burst_sz = 1000 };
	printf(" burst without rate %s\n", err(ibv_modify_qp_rate_limit(qp, &rate)));
	struct ibv_ece ece = { 0 };
	printf(" ece %s", err(ibv_query_ece(qp, &ece)));
	printf(" vendor %x options %x", ece.vendor_id, ece.options);
	struct ibv_ece set[] = { { 1, 2, 0 }, { 0x15b3, 2, 1 }, { 0x15b3, 2, 0 } };
	for (int i = 0; i < 3; i++)
		printf(" set %s", err(ibv_set_ece(qp, &set[i])));
	printf(" in order %d\n", ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0));
	printf(" destroy %s", err(ibv_destroy_qp(qp)));
	printf(" %s\n", err(ibv_destroy_cq(cq)));
}

static void shared_receive_queues(void)
{
	struct ibv_srq_attr sizes[] = { { 0, 1, 0 },   { 1, 1, 0 },   { 10, 1, 0 },	 { 16, 3, 5 },
					{ 1000, 31, 0 }, { 16, 33, 0 }, { 16, 1000, 0 }, { 1 << 15, 1, 0 },
					{ (1 << 15) + 1, 1, 0 } };
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct ibv_srq_init_attr init = { .attr = sizes[i] };
		struct ibv_srq *srq = MAKE(ibv_create_srq(pd, &init));
		printf("srq %u/%u/%u: %s", sizes[i].max_wr, sizes[i].max_sge, sizes[i].srq_limit, MADE(srq));
		if (srq) {
			struct ibv_srq_attr got = { 0 };
			printf(" %u/%u", init.attr.max_wr, init.attr.max_sge);
			printf(" query %s", err(ibv_query_srq(srq, &got)));
			printf(" %u/%u/%u", got.max_wr, got.max_sge, got.srq_limit);
			struct ibv_srq_attr change = { 100, 1, 3 };
			printf(" limit %s", err(ibv_modify_srq(srq, &change, IBV_SRQ_LIMIT)));
			printf(" size %s", err(ibv_modify_srq(srq, &change, IBV_SRQ_MAX_WR)));
			struct ibv_sge sge[40] = { { (uintptr_t)memory, 8, 1 } };
			struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = 1 }, *bad;
			int posted = 0;
			while (posted < 1000 && ibv_post_srq_recv(srq, &wr, &bad) == 0)
				posted++;
			printf(" posted %d", posted);
			if (posted < 1000)
				printf(" then %s", err(ibv_post_srq_recv(srq, &wr, &bad)));
			wr.num_sge = 40;
			printf(" sges %s", err(ibv_post_srq_recv(srq, &wr, &bad)));
			printf(" destroy %s", err(ibv_destroy_srq(srq)));
		}
		printf("\n");
	}
}

static void xrc(void)
{
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1 };
	struct ibv_xrcd *xrcd = MAKE(ibv_open_xrcd(context, &init));
	printf("xrcd without O_CREAT: %s\n", xrcd ? "ok" : "refused");
	if (xrcd)
		ibv_close_xrcd(xrcd);
	init.oflags = O_CREAT;
	xrcd = MAKE(ibv_open_xrcd(context, &init));
	printf("xrcd: %s\n", MADE(xrcd));
	if (!xrcd)
		return;
	struct ibv_cq *cq = MAKE(ibv_create_cq(context, 100, NULL, NULL, 0));
	CHECK(cq);
	struct ibv_srq_init_attr_ex sattr = {
		.attr = { 10, 2, 0 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = xrcd,
		.cq = cq,
	};
	struct ibv_srq *srq = MAKE(ibv_create_srq_ex(context, &sattr));
	uint32_t number = 0;
	printf("xrc srq: %s %u/%u", MADE(srq), sattr.attr.max_wr, sattr.attr.max_sge);
	if (srq)
		printf(" number %s %d", err(ibv_get_srq_num(srq, &number)), number != 0);
	printf("\n");
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};
	struct ibv_qp *recv = MAKE(ibv_create_qp_ex(context, &target));
	printf("xrc target: %s ", MADE(recv));
	show_cap(&target.cap);
	printf("\n");
	/* libmlx5 crashes when such a queue pair is destroyed */
	if (recv && getenv("OPEN_QP")) {
		struct ibv_qp_open_attr open = {
			.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
			.qp_num = recv->qp_num,
			.xrcd = xrcd,
			.qp_type = IBV_QPT_XRC_RECV,
		};
		struct ibv_qp *opened = MAKE(ibv_open_qp(context, &open));
		printf("open: %s same number %d\n", MADE(opened), opened && opened->qp_num == recv->qp_num);
		CHECK(opened && ibv_destroy_qp(opened) == 0);
	}
	if (recv)
		printf(" destroy %s\n", err(ibv_destroy_qp(recv)));
	struct ibv_qp_init_attr_ex initiator = {
		.qp_type = IBV_QPT_XRC_SEND,
		.send_cq = cq,
		.cap = { 16, 0, 2, 0, 32 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *send = MAKE(ibv_create_qp_ex(context, &initiator));
	printf("xrc initiator: %s ", MADE(send));
	show_cap(&initiator.cap);
	printf(" destroy %s\n", send ? err(ibv_destroy_qp(send)) : "-");
	printf("end %s", srq ? err(ibv_destroy_srq(srq)) : "-");
	printf(" %s", err(ibv_destroy_cq(cq)));
	printf(" %s\n", err(ibv_close_xrcd(xrcd)));
}

static int allocations;

static void *own_alloc(struct ibv_pd *domain, void *given, size_t size, size_t alignment, uint64_t type)
{
	CHECK(given == &allocations);
	/* of an SRQ, libmlx5 does not round the size up to the alignment */
	printf(" [alloc %zu of %zu type %lx]", (size + alignment - 1) / alignment, alignment, type);
	if (++allocations % 2 == 0)
		return IBV_ALLOCATOR_USE_DEFAULT;
	void *place = NULL;
	CHECK(posix_memalign(&place, alignment < 4096 ? 4096 : alignment, size) == 0);
	memset(place, 0, size);
	return place;
}

static void own_free(struct ibv_pd *domain, void *given, void *place, uint64_t type)
{
	CHECK(given == &allocations);
	printf(" [free type %lx]", type);
	free(place);
}

static void domains(void)
{
	struct ibv_td_init_attr tattr = { 1 };
	struct ibv_td *td = MAKE(ibv_alloc_td(context, &tattr));
	printf("td mask: %s\n", MADE(td));
	tattr.comp_mask = 0;
	td = MAKE(ibv_alloc_td(context, &tattr));
	printf("td: %s\n", MADE(td));
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd,
		.td = td,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = own_alloc,
		.free = own_free,
		.pd_context = &allocations,
	};
	struct ibv_pd *parent = MAKE(ibv_alloc_parent_domain(context, &attr));
	printf("parent: %s\n", MADE(parent));
	if (!parent)
		return;
	attr.comp_mask = 8;
	struct ibv_pd *wrong = MAKE(ibv_alloc_parent_domain(context, &attr));
	printf("parent mask: %s\n", MADE(wrong));
	printf("busy: td %s pd %s\n", err(ibv_dealloc_td(td)), err(ibv_dealloc_pd(pd)));
	struct ibv_cq_init_attr_ex cattr = { .cqe = 10, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent };
	printf("cq:");
	struct ibv_cq_ex *cqx = MAKE(ibv_create_cq_ex(context, &cattr));
	printf(" %s\n", MADE(cqx));
	CHECK(cqx);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(cqx);
	printf("srq:");
	struct ibv_srq_init_attr sattr = { .attr = { 10, 1, 0 } };
	struct ibv_srq *srq = MAKE(ibv_create_srq(parent, &sattr));
	printf(" %s\n", MADE(srq));
	printf("qp:");
	struct ibv_qp *qp = make_qp(parent, cq, NULL, IBV_QPT_RC);
	printf(" %s %s\n", MADE(qp), qp && qp->pd == parent ? "same pd" : "");
	printf("busy parent %s\n", err(ibv_dealloc_pd(parent)));
	printf("qp: %s\n", qp ? err(ibv_destroy_qp(qp)) : "-");
	printf("srq: %s\n", srq ? err(ibv_destroy_srq(srq)) : "-");
	printf("cq: %s\n", err(ibv_destroy_cq(cq)));
	struct ibv_mr *mr = MAKE(ibv_reg_mr(parent, memory, 4096, 1));
	printf("mr of parent: %s dereg %s\n", MADE(mr), mr ? err(ibv_dereg_mr(mr)) : "-");
	printf("dealloc parent %s", err(ibv_dealloc_pd(parent)));
	printf(" td %s\n", err(ibv_dealloc_td(td)));
}

static void work_queues(void)
{
	struct ibv_cq *cq = MAKE(ibv_create_cq(context, 100, NULL, NULL, 0));
	struct ibv_wq *wq[2];
	for (int i = 0; i < 2; i++) {
		struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 10 << i, .max_sge = 2, .pd = pd, .cq = cq };
		wq[i] = MAKE(ibv_create_wq(context, &init));
		printf("wq: %s", MADE(wq[i]));
		printf(" %u/%u state %d\n", init.max_wr, init.max_sge, wq[i] ? (int)wq[i]->state : -1);
	}
	struct ibv_wq_init_attr refused = { .wq_type = 5, .max_wr = 10, .max_sge = 2, .pd = pd, .cq = cq };
	printf("wq type: %s", REFUSED(ibv_create_wq(context, &refused)));
	refused = (struct ibv_wq_init_attr){ .wq_type = IBV_WQT_RQ, .max_wr = 0, .max_sge = 2, .pd = pd, .cq = cq };
	printf(" size: %s", MADE(MAKE(ibv_create_wq(context, &refused))));
	refused = (struct ibv_wq_init_attr){ .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 2, .pd = pd, .cq = cq, .comp_mask = 2 };
	printf(" mask: %s\n", MADE(MAKE(ibv_create_wq(context, &refused))));
	if (!wq[0] || !wq[1])
		return;
	struct ibv_sge sge = { (uintptr_t)memory, 8, 1 };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	int posted = 0;
	while (posted < 100 && ibv_post_wq_recv(wq[0], &wr, &bad) == 0)
		posted++;
	printf("posted %d then %s\n", posted, err(ibv_post_wq_recv(wq[0], &wr, &bad)));
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	for (int i = 0; i < 2; i++)
		printf("ready %s state %d\n", err(ibv_modify_wq(wq[i], &ready)), wq[i]->state);
	struct ibv_rwq_ind_table_init_attr tattr = { .log_ind_tbl_size = 1, .ind_tbl = wq };
	struct ibv_rwq_ind_table *table = MAKE(ibv_create_rwq_ind_table(context, &tattr));
	printf("table: %s\n", MADE(table));
	if (table) {
		uint8_t key[40] = { 1, 2, 3 };
		struct ibv_qp_init_attr_ex init = {
			.qp_type = IBV_QPT_RAW_PACKET,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
			.pd = pd,
			.rwq_ind_tbl = table,
			.rx_hash_conf = { .rx_hash_function = 1, .rx_hash_key_len = 40, .rx_hash_key = key, .rx_hash_fields_mask = 3 },
		};
		struct ibv_qp *qp = MAKE(ibv_create_qp_ex(context, &init));
		printf("rss qp: %s\n", MADE(qp));
		if (qp) {
			struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
			struct ibv_qp_init_attr got;
			printf(" modify %s", err(ibv_modify_qp(qp, &attr, IBV_QP_STATE)));
			printf(" query %s", err(ibv_query_qp(qp, &attr, 1, &got)));
			printf(" destroy %s\n", err(ibv_destroy_qp(qp)));
		}
		printf("table %s\n", err(ibv_destroy_rwq_ind_table(table)));
	}
	printf("wq %s", err(ibv_destroy_wq(wq[0])));
	printf(" %s", err(ibv_destroy_wq(wq[1])));
	printf(" cq %s\n", err(ibv_destroy_cq(cq)));
}

static void addresses(void)
{
	union ibv_gid gid;
	CHECK(ibv_query_gid(context, 1, GID_INDEX, &gid) == 0);
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 5 } };
	struct ibv_ah *ah = MAKE(ibv_create_ah(pd, &attr));
	printf("ah: %s destroy %s\n", MADE(ah), ah ? err(ibv_destroy_ah(ah)) : "-");
	attr.port_num = 0;
	ah = MAKE(ibv_create_ah(pd, &attr));
	printf("ah port 0: %s\n", REFUSED(ah));
	attr.port_num = 9;
	ah = MAKE(ibv_create_ah(pd, &attr));
	printf("ah port 9: %s\n", REFUSED(ah));
	attr.port_num = 1;
	attr.is_global = 0;
	ah = MAKE(ibv_create_ah(pd, &attr));
	printf("ah without gid: %s\n", MADE(ah));
}

static void device_memory(void)
{
	size_t sizes[] = { 0, 1, 64, 4096, 100000000 };
	for (int i = 0; i < 5; i++) {
		struct ibv_alloc_dm_attr attr = { .length = sizes[i] };
		struct ibv_dm *dm = MAKE(ibv_alloc_dm(context, &attr));
		printf("dm %zu: %s", sizes[i], MADE(dm));
		if (dm) {
			uint32_t there = 0x12345678, back = 0;
			printf(" to %s", err(ibv_memcpy_to_dm(dm, 0, &there, 4)));
			printf(" from %s", err(ibv_memcpy_from_dm(&back, dm, 0, 4)));
			printf(" same %d", there == back);
			printf(" beyond %s odd %s", err(ibv_memcpy_to_dm(dm, sizes[i], &there, 4)),
			       err(ibv_memcpy_to_dm(dm, 1, &there, 4)));
			struct ibv_mr *mr = MAKE(ibv_reg_dm_mr(pd, dm, 0, sizes[i] & ~3, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE));
			printf(" mr %s dereg %s", MADE(mr), mr ? err(ibv_dereg_mr(mr)) : "-");
			mr = MAKE(ibv_reg_dm_mr(pd, dm, 0, 4, IBV_ACCESS_ON_DEMAND));
			printf(" access %s", MADE(mr));
			printf(" free %s", err(ibv_free_dm(dm)));
		}
		printf("\n");
	}
	struct ibv_alloc_dm_attr attr = { .length = 64, .comp_mask = 1 };
	printf("dm mask: %s\n", MADE(MAKE(ibv_alloc_dm(context, &attr))));
}

static void flows(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, NULL, 0);
	struct ibv_qp *qp = make_qp(pd, cq, NULL, IBV_QPT_RAW_PACKET);
	CHECK(cq && qp);
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_ipv4 ipv4;
		struct ibv_flow_spec_tcp_udp udp;
		struct ibv_flow_spec_action_tag tag;
	} rule = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .num_of_specs = 4, .port = 1, .priority = 3 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof rule.eth },
		.ipv4 = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof rule.ipv4 },
		.udp = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof rule.udp },
		.tag = { .type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof rule.tag, .tag_id = 5 },
	};
	memset(&rule.eth.val, 1, sizeof rule.eth.val);
	memset(&rule.eth.mask, 0xff, sizeof rule.eth.mask);
	rule.ipv4.val.dst_ip = htobe32(0x0a000001);
	rule.ipv4.mask.dst_ip = 0xffffffff;
	rule.udp.val.dst_port = htobe16(4791);
	rule.udp.mask.dst_port = 0xffff;
	for (int specs = 0; specs < 5; specs++) {
		rule.attr.num_of_specs = specs;
		struct ibv_flow *flow = MAKE(ibv_create_flow(qp, &rule.attr));
		printf("flow of %d: %s destroy %s\n", specs, MADE(flow), flow ? err(ibv_destroy_flow(flow)) : "-");
	}
	rule.ipv4.type = 0x77;
	struct ibv_flow *flow = MAKE(ibv_create_flow(qp, &rule.attr));
	printf("flow of an unknown kind: %s\n", MADE(flow));
	printf("destroy %s", err(ibv_destroy_qp(qp)));
	printf(" %s\n", err(ibv_destroy_cq(cq)));
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	context = open_first();
	CHECK(posix_memalign((void **)&memory, 4096, 1 << 16) == 0);
	pd = MAKE(ibv_alloc_pd(context));
	CHECK(pd);
	struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
		{ "device", device },
		{ "regions", regions },
		{ "cq", completion_queues },
		{ "qp", queue_pairs },
		{ "srq", shared_receive_queues },
		{ "xrc", xrc },
		{ "domains", domains },
		{ "wq", work_queues },
		{ "ah", addresses },
		{ "dm", device_memory },
		{ "flow", flows },
	};
	for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
		if (argc < 2 || strcmp(argv[1], parts[i].name) == 0) {
			printf("-- %s\n", parts[i].name);
			parts[i].run();
		}
	if (argc < 2 || strcmp(argv[1], "states") == 0) {
		printf("-- states\n");
		states(IBV_QPT_RC);
		states(IBV_QPT_UC);
		states(IBV_QPT_UD);
	}
	printf("-- end pd %s", err(ibv_dealloc_pd(pd)));
	printf(" context %s\n", err(ibv_close_device(context)));
	return 0;
}
