/* Keys with signatures: every rule in the work requests that it becomes, and errors of signatures in the completion queue,
 * which this writes in the device's place. Prints without addresses, so that every libmlx5.so.1 has to print the same. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <infiniband/mlx5dv.h>

#define NUMBER(what) printf("%s %" PRIu64 "\n", #what, (uint64_t)(what))

struct bed {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	struct mlx5dv_qp_ex *dv;
	struct mlx5dv_qp memory;
	struct mlx5dv_cq entries;
	/* Blocks of the send queue that were shown, work requests that are not complete, entries of the completion queue that were written. */
	unsigned shown, open, produced;
};

static struct mlx5dv_mkey *key(struct bed *bed, uint32_t flags, uint16_t entries)
{
	struct mlx5dv_mkey_init_attr init = { .pd = bed->pd, .create_flags = flags, .max_entries = entries };
	errno = 0;
	struct mlx5dv_mkey *made = mlx5dv_create_mkey(&init);
	printf("key of flags %u: %d\n", flags, made ? 0 : errno);
	if (made) {
		NUMBER(init.max_entries);
		NUMBER(made->lkey);
		NUMBER(made->rkey);
	}
	return made;
}

static const uint32_t SIGNED = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;

static int up(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int done = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.ah_attr = { .dlid = 1, .port_num = 1, .is_global = 1, .grh = { .hop_limit = 1 } } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };
	return done ? done : ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ||
		      ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						   IBV_QP_MAX_QP_RD_ATOMIC);
}

static int queues(struct bed *bed, uint32_t wrs, uint32_t inlines, uint32_t flags, int all)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = ibv_cq_ex_to_cq(bed->cq), .recv_cq = ibv_cq_ex_to_cq(bed->cq),
		.qp_type = IBV_QPT_RC, .pd = bed->pd, .cap = { wrs, 0, 1, 0, inlines }, .sq_sig_all = all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_LOCAL_INV };
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS |
		MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS, .create_flags = flags,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE };
	errno = 0;
	bed->qp = mlx5dv_create_qp(bed->context, &init, &dv);
	printf("queue pair of flags %u: %d\n", flags, bed->qp ? 0 : errno);
	if (!bed->qp)
		return 0;
	bed->ex = ibv_qp_to_qp_ex(bed->qp);
	bed->dv = mlx5dv_qp_ex_from_ibv_qp_ex(bed->ex);
	struct mlx5dv_obj obj = { .qp = { bed->qp, &bed->memory } };
	memset(&bed->memory, 0, sizeof(bed->memory));
	NUMBER(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
	NUMBER(init.cap.max_inline_data);
	NUMBER(bed->memory.sq.wqe_cnt);
	bed->shown = bed->open = 0;
	NUMBER(up(bed->qp));
	return 1;
}

/* What was posted since the last time, as the doorbell record counts it. */
static void show(struct bed *bed)
{
	unsigned posted = be32toh(bed->memory.dbrec[MLX5_SND_DBR]) & 0xffff;
	while (bed->shown != posted) {
		unsigned at = bed->shown % bed->memory.sq.wqe_cnt;
		uint32_t *wqe = (uint32_t *)((char *)bed->memory.sq.buf + 64 * at);
		unsigned units = be32toh(wqe[1]) & 0x3f;
		printf("at %u:\n", bed->shown & 0xffff);
		for (unsigned unit = 0; unit < units; unit++) {
			uint32_t *four = (uint32_t *)((char *)bed->memory.sq.buf + (64 * at + 16 * unit) % (64 * bed->memory.sq.wqe_cnt));
			/* Of requests without immediate data, the place of it is left as it was. */
			int stale = !unit && (be32toh(wqe[0]) & 0xff) != MLX5_OPCODE_UMR;
			printf("  %08x %08x %08x %08x\n", be32toh(four[0]), be32toh(four[1]), be32toh(four[2]), stale ? 0 : be32toh(four[3]));
		}
		bed->shown += (units + 3) / 4;
	}
}

/* An entry of the completion queue, as the device writes it. */
static struct mlx5_cqe64 *entry(struct bed *bed)
{
	unsigned at = bed->produced % bed->entries.cqe_cnt;
	return (struct mlx5_cqe64 *)((char *)bed->entries.buf + bed->entries.cqe_size * at + bed->entries.cqe_size - 64);
}

static void produce(struct bed *bed, uint8_t opcode)
{
	struct mlx5_cqe64 *cqe = entry(bed);
	__atomic_store_n(&cqe->op_own, opcode << 4 | !!(bed->produced & bed->entries.cqe_cnt), __ATOMIC_RELEASE);
	bed->produced++;
}

/* The work request that was posted last is complete. */
static void completes(struct bed *bed, uint32_t user_index)
{
	unsigned posted = be32toh(bed->memory.dbrec[MLX5_SND_DBR]) & 0xffff;
	unsigned at = (posted - 1) & 0xffff;
	uint32_t *wqe = (uint32_t *)((char *)bed->memory.sq.buf + 64 * (at % bed->memory.sq.wqe_cnt));
	struct mlx5_cqe64 *cqe = entry(bed);
	memset(cqe, 0, 63);
	cqe->srqn_uidx = htobe32(user_index);
	cqe->sop_drop_qpn = htobe32((be32toh(wqe[0]) & 0xff) << 24 | bed->qp->qp_num);
	cqe->wqe_counter = htobe16(at);
	produce(bed, MLX5_CQE_REQ);
}

static void errs(struct bed *bed, uint32_t lkey, uint16_t syndrome, uint8_t type, uint8_t domain)
{
	uint32_t words[16] = { [4] = htobe32(0x11121314), htobe32(0x21222324), htobe32(0x31323334), htobe32(0x41424344),
		htobe32((uint32_t)syndrome << 16 | type << 8 | domain), htobe32(lkey), htobe32(0x51525354), htobe32(0x61626364) };
	memcpy(entry(bed), words, 63);
	produce(bed, MLX5_CQE_SIG_ERR);
}

static void check(struct mlx5dv_mkey *key)
{
	struct mlx5dv_mkey_err found;
	memset(&found, 0xee, sizeof(found));
	NUMBER(mlx5dv_mkey_check(key, &found));
	NUMBER((uint32_t)found.err_type);
	printf("%" PRIx64 " %" PRIx64 " %" PRIx64 "\n", found.err.sig.actual_value, found.err.sig.expected_value,
	       found.err.sig.offset);
}

static void poll(struct bed *bed, int lazily)
{
	if (!lazily) {
		struct ibv_wc wc[4];
		memset(wc, 0, sizeof(wc));
		int count = ibv_poll_cq(ibv_cq_ex_to_cq(bed->cq), 4, wc);
		printf("polled: %d\n", count);
		for (int i = 0; i < count; i++)
			printf("  %" PRIu64 " status %d opcode %d\n", wc[i].wr_id, wc[i].status, wc[i].opcode);
		return;
	}
	struct ibv_poll_cq_attr attr = {};
	int done = ibv_start_poll(bed->cq, &attr);
	printf("started: %d\n", done);
	if (done)
		return;
	do
		printf("  %" PRIu64 " status %d opcode %d\n", bed->cq->wr_id, bed->cq->status, ibv_wc_read_opcode(bed->cq));
	while (!ibv_next_poll(bed->cq));
	ibv_end_poll(bed->cq);
}

/* Everything is polled, and the queue is free again. */
static void settle(struct bed *bed)
{
	completes(bed, 0);
	poll(bed, 0);
}

struct call {
	struct mlx5dv_mkey *key;
	uint32_t flags, conf;
	int access, list, turns, setters;
	const struct mlx5dv_sig_block_attr *attr, *again;
};

static int post(struct bed *bed, const struct call *call)
{
	struct mlx5dv_mkey_conf_attr conf = { .conf_flags = call->conf };
	struct ibv_sge pieces[8];
	struct mlx5dv_mr_interleaved turns[8];
	for (int i = 0; i < 8; i++) {
		pieces[i] = (struct ibv_sge){ 0x1000 * (i + 1), 520 + i, 0x100 + i };
		turns[i] = (struct mlx5dv_mr_interleaved){ 0x2000 * (i + 1), 512, 8, 0x200 + i };
	}
	int setters = call->access + (call->list || call->turns) + !!call->attr + !!call->again;
	ibv_wr_start(bed->ex);
	bed->ex->wr_id = 77;
	bed->ex->wr_flags = call->flags;
	mlx5dv_wr_mkey_configure(bed->dv, call->key, call->setters ? call->setters : setters, &conf);
	if (call->access)
		mlx5dv_wr_set_mkey_access_flags(bed->dv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (call->list)
		mlx5dv_wr_set_mkey_layout_list(bed->dv, call->list, pieces);
	if (call->turns)
		mlx5dv_wr_set_mkey_layout_interleaved(bed->dv, 3, call->turns, turns);
	if (call->attr)
		mlx5dv_wr_set_mkey_sig_block(bed->dv, call->attr);
	if (call->again)
		mlx5dv_wr_set_mkey_sig_block(bed->dv, call->again);
	/* What follows waits. */
	bed->ex->wr_id = 78;
	bed->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(bed->ex, 1, 2);
	ibv_wr_set_sge(bed->ex, 3, 4, 5);
	int done = ibv_wr_complete(bed->ex);
	printf("posted: %d\n", done);
	show(bed);
	return done;
}

static const uint32_t INLINE = IBV_SEND_INLINE, SIGNALED = IBV_SEND_INLINE | IBV_SEND_SIGNALED;

#define CRC(kind, from) { .type = MLX5DV_SIG_CRC_TYPE_##kind, .seed = from }
static const struct mlx5dv_sig_crc crcs[] = { CRC(CRC32, 0), CRC(CRC32, UINT32_MAX), CRC(CRC32C, 0), CRC(CRC32C, UINT32_MAX),
	CRC(CRC64_XP10, 0), CRC(CRC64_XP10, UINT64_MAX) };
static const struct mlx5dv_sig_t10dif difs[] = {
	{ MLX5DV_SIG_T10DIF_CRC, 0, 0x1122, 0x33445566, 0 },
	{ MLX5DV_SIG_T10DIF_CRC, 0xffff, 0x1122, 0x33445567, MLX5DV_SIG_T10DIF_FLAG_REF_REMAP },
	{ MLX5DV_SIG_T10DIF_CSUM, 0, 0x1123, 0x33445566, MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE },
	{ MLX5DV_SIG_T10DIF_CSUM, 0xffff, 0x1123, 0x33445567, MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE | MLX5DV_SIG_T10DIF_FLAG_REF_REMAP },
	{ MLX5DV_SIG_T10DIF_CRC, 0, 0, 0, MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE | MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE },
};
enum { DOMAINS = 6 + 5 };

static struct mlx5dv_sig_block_domain domain(int which, int size)
{
	struct mlx5dv_sig_block_domain of = { .block_size = size };
	if (which < 6) {
		of.sig_type = MLX5DV_SIG_TYPE_CRC;
		of.sig.crc = &crcs[which];
	} else {
		of.sig_type = MLX5DV_SIG_TYPE_T10DIF;
		of.sig.dif = &difs[which - 6];
	}
	return of;
}

/* Each domain alone, and every pair with blocks alike and not, passed on as it comes and by mask. */
static void rules(struct bed *bed)
{
	struct mlx5dv_mkey *made = key(bed, SIGNED, 5);
	for (int memory = -1; memory < DOMAINS; memory++)
		for (int wire = -1; wire < DOMAINS; wire++)
			for (int mask = 0; mask < 2; mask++) {
				int size = (memory + wire + 2) % 5;
				struct mlx5dv_sig_block_domain m = domain(memory, size), w = domain(wire, mask || memory != wire + 1 ? size : 4 - size);
				struct mlx5dv_sig_block_attr attr = { memory < 0 ? NULL : &m, wire < 0 ? NULL : &w,
					.flags = mask ? MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK : 0, .check_mask = 0x5a + memory, .copy_mask = 0xc3 + wire };
				struct call call = { made, mask ? SIGNALED : INLINE, .access = wire & 1, .list = 1 + (memory & 3), .attr = &attr };
				printf("memory %d wire %d mask %d\n", memory, wire, mask);
				/* One that cannot be leaves the key in doubt with the official library: another one, then. */
				if (post(bed, &call)) {
					NUMBER(mlx5dv_destroy_mkey(made));
					made = key(bed, SIGNED, 5);
				} else {
					settle(bed);
				}
			}
	NUMBER(mlx5dv_destroy_mkey(made));
}

/* What one key goes through. */
static void lives(struct bed *bed, int lazily)
{
	struct mlx5dv_mkey *made = key(bed, SIGNED | MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE, 4), *other = key(bed, SIGNED, 4);
	struct mlx5dv_sig_block_domain dif = domain(7, 0), crc = domain(3, 0), wide = domain(5, 3);
	struct mlx5dv_sig_block_attr both = { &dif, &crc, .check_mask = 0xff }, memory = { &wide, NULL, .check_mask = 0x0f },
		wire = { NULL, &dif, .check_mask = 0xf0 };
	struct call plain = { made, SIGNALED, .access = 1, .list = 2 }, first = { made, SIGNALED | IBV_SEND_FENCE, .turns = 2, .attr = &both },
		same = { made, SIGNALED | IBV_SEND_SOLICITED, .access = 1 }, nothing = { made, INLINE },
		second = { made, INLINE, .list = 3, .access = 1, .attr = &memory }, third = { made, SIGNALED, .attr = &wire },
		reset = { made, SIGNALED, MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR, .list = 1 },
		anew = { made, SIGNALED, MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR, .list = 1, .attr = &memory };
	const struct call *steps[] = { &plain, &nothing, &first, &same, &nothing, &second, &same, &third, &reset, &nothing, &anew, &same, &reset };
	check(made);
	for (int step = 0; step < 13; step++) {
		printf("step %d\n", step);
		NUMBER(post(bed, steps[step]));
		settle(bed);
		/* Errors alone, before and behind completions, of both keys, over the end of the queue. */
		if (step % 3 == 2) {
			errs(bed, made->lkey | 0x77, 1 << 13, 0, step & 1);
			poll(bed, lazily);
			check(made);
			check(made);
			check(other);
		}
		if (step % 4 == 3) {
			errs(bed, other->lkey, 1 << 12, 0, 0);
			completes(bed, 0);
			errs(bed, made->lkey, 1 << 11, 0, 1);
			errs(bed, made->lkey, 1 << 12 | 1 << 13, 0, 1);
			poll(bed, lazily);
			check(made);
			check(other);
			poll(bed, !lazily);
		}
		if (step == 6) {
			/* What no rule explains stays. */
			for (int domain = 0; domain < 3; domain++)
				for (int bit = 10; bit < 14; bit++)
					for (int type = 0; type < 2; type++) {
						errs(bed, made->lkey, 1 << bit, type | 0x58, domain | 0xa0);
						poll(bed, lazily);
						check(made);
					}
			errs(bed, made->lkey, 1 << 13, 0, 1);
			poll(bed, !lazily);
			check(made);
		}
	}
	NUMBER(mlx5dv_destroy_mkey(other));
	NUMBER(mlx5dv_destroy_mkey(made));
}

/* What is refused, each on a key of its own. */
static void refusals(struct bed *bed)
{
	struct mlx5dv_mkey *unsigned_key = key(bed, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 4), *wide = key(bed, SIGNED, 4);
	struct mlx5dv_sig_block_domain good = domain(1, 0), bad[10];
	struct mlx5dv_sig_crc seeds[] = { CRC(CRC32, 1), CRC(CRC32, UINT64_MAX), CRC(CRC64_XP10, UINT32_MAX), CRC(CRC32C, 0) };
	struct mlx5dv_sig_t10dif tags[] = { { MLX5DV_SIG_T10DIF_CRC, 1 }, { 2, 0 }, { MLX5DV_SIG_T10DIF_CRC, 0, .flags = 8 } };
	seeds[3].type = 3;
	for (int i = 0; i < 10; i++)
		bad[i] = domain(i < 4 ? 0 : 6, 0);
	for (int i = 0; i < 4; i++)
		bad[i].sig.crc = &seeds[i];
	for (int i = 0; i < 3; i++)
		bad[4 + i].sig.dif = &tags[i];
	bad[7].block_size = 5;
	bad[8].comp_mask = 1;
	bad[9].sig_type = 2;
	struct mlx5dv_sig_block_attr attr = { &good, NULL }, none = { NULL, NULL }, flags = { &good, NULL, .flags = 2 },
		masks = { &good, NULL, .comp_mask = 1 };
	const struct mlx5dv_sig_block_attr *attrs[] = { &none, &flags, &masks };
	for (int i = 0; i < 3; i++) {
		struct mlx5dv_mkey *made = key(bed, SIGNED, 4);
		struct call call = { made, INLINE, .attr = attrs[i] };
		NUMBER(post(bed, &call));
		NUMBER(mlx5dv_destroy_mkey(made));
	}
	for (int i = 0; i < 10; i++)
		for (int side = 0; side < 2; side++) {
			struct mlx5dv_mkey *made = key(bed, SIGNED, 4);
			struct mlx5dv_sig_block_attr one = { side ? &good : &bad[i], side ? &bad[i] : NULL };
			struct call call = { made, INLINE, .list = 1, .attr = &one };
			printf("refused %d %d\n", i, side);
			NUMBER(post(bed, &call));
			NUMBER(mlx5dv_destroy_mkey(made));
		}
	struct call calls[] = { { unsigned_key, INLINE, .attr = &attr }, { wide, INLINE, .attr = &attr, .again = &attr },
		{ wide, 0, .attr = &attr }, { wide, INLINE, 2, .attr = &attr }, { wide, INLINE, .list = 4, .attr = &attr },
		{ wide, INLINE, .list = 8, .attr = &attr } };
	for (int i = 0; i < 6; i++) {
		if (calls[i].key == wide)
			calls[i].key = key(bed, SIGNED, 8);
		printf("refused call %d\n", i);
		NUMBER(post(bed, &calls[i]));
		if (calls[i].key != unsigned_key)
			NUMBER(mlx5dv_destroy_mkey(calls[i].key));
	}
	struct call reset = { unsigned_key, SIGNALED, MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR, .list = 1 };
	NUMBER(post(bed, &reset));
	settle(bed);
	check(unsigned_key);
	/* More bytes than a rule counts: 3 times 4 times a GiB and more, said earlier and with the rule. */
	for (int early = 0; early < 2; early++) {
		struct mlx5dv_mkey_conf_attr conf = {};
		struct mlx5dv_mr_interleaved turn = { 0x1000, 0xffff, 0, 7 };
		ibv_wr_start(bed->ex);
		bed->ex->wr_flags = INLINE;
		mlx5dv_wr_mkey_configure(bed->dv, wide, early ? 1 : 2, &conf);
		mlx5dv_wr_set_mkey_layout_interleaved(bed->dv, 70000, 1, &turn);
		if (early)
			mlx5dv_wr_mkey_configure(bed->dv, wide, 1, &conf);
		mlx5dv_wr_set_mkey_sig_block(bed->dv, &attr);
		NUMBER(ibv_wr_complete(bed->ex));
		NUMBER(mlx5dv_destroy_mkey(wide));
		wide = key(bed, SIGNED, 4);
	}
	NUMBER(mlx5dv_destroy_mkey(wide));
	NUMBER(mlx5dv_destroy_mkey(unsigned_key));
	key(bed, MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO, 4);
	key(bed, 0, 4);
	key(bed, 1 << 9 | SIGNED, 4);
}

/* Where three requests have no room, nothing is posted. */
static void full(struct bed *bed)
{
	struct mlx5dv_sig_block_domain good = domain(1, 0), other = domain(7, 1);
	struct mlx5dv_sig_block_attr attr = { &good, &other, .check_mask = 1 };
	for (int i = 0; i < 12; i++) {
		struct mlx5dv_mkey *made = key(bed, SIGNED, 4);
		struct call call = { made, SIGNALED, .list = 1, .attr = &attr };
		NUMBER(post(bed, &call));
		NUMBER(mlx5dv_destroy_mkey(made));
	}
	settle(bed);
}

int main(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct bed bed = { count ? ibv_open_device(list[0]) : NULL };
	if (!bed.context)
		return 1;
	bed.pd = ibv_alloc_pd(bed.context);
	struct ibv_cq_init_attr_ex init = { .cqe = 30, .wc_flags = IBV_WC_STANDARD_FLAGS };
	bed.cq = ibv_create_cq_ex(bed.context, &init);
	struct mlx5dv_obj obj = { .cq = { ibv_cq_ex_to_cq(bed.cq), &bed.entries } };
	NUMBER(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	NUMBER(bed.entries.cqe_cnt);
	/* Which wait for the program at an error, and which make a completion of every request. */
	uint32_t flags[] = { 0, MLX5DV_QP_CREATE_SIG_PIPELINING, 0 };
	for (int round = 0; round < 3; round++) {
		printf("round %d\n", round);
		if (!queues(&bed, round == 2 ? 40 : 8, 140, flags[round], round == 2))
			continue;
		/* Without the device's word there are no keys. */
		struct mlx5dv_mkey *made = key(&bed, SIGNED, 4);
		if (made) {
			NUMBER(mlx5dv_destroy_mkey(made));
			if (round != 1)
				rules(&bed);
			lives(&bed, round & 1);
			refusals(&bed);
			full(&bed);
		}
		NUMBER(ibv_destroy_qp(bed.qp));
	}
	NUMBER(ibv_destroy_cq(ibv_cq_ex_to_cq(bed.cq)));
	NUMBER(ibv_dealloc_pd(bed.pd));
	NUMBER(ibv_close_device(bed.context));
	ibv_free_device_list(list);
	return 0;
}
