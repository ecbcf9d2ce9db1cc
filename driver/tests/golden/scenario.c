/* Calls each verb of libibverbs that reaches rxe's kernel driver, in a fixed order with fixed
 * arguments. `golden.rs` makes the same calls. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        if (!(call)) {                                                                             \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, strerror(errno));                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Attributes as libibverbs copies them, whether the mask names them or not. */
static struct ibv_qp_attr attributes(int gid_index, const union ibv_gid *gid) {
    struct ibv_qp_attr attr = {
        .pkey_index = 0, .port_num = 1, .qp_access_flags = 7, .qkey = 0x11,
        .path_mtu = IBV_MTU_1024, .dest_qp_num = 0x12, .rq_psn = 0x13, .sq_psn = 0x14,
        .max_rd_atomic = 2, .max_dest_rd_atomic = 3, .min_rnr_timer = 12, .timeout = 14,
        .retry_cnt = 6, .rnr_retry = 7,
    };
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = *gid;
    attr.ah_attr.grh.sgid_index = gid_index;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.grh.flow_label = 0x15;
    attr.ah_attr.grh.traffic_class = 0x16;
    attr.ah_attr.sl = 1;
    attr.ah_attr.port_num = 1;
    return attr;
}

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    OK(list && list[0]);
    struct ibv_context *ctx = ibv_open_device(list[0]);
    OK(ctx);

    struct ibv_device_attr old;
    struct ibv_device_attr_ex ex;
    OK(!ibv_query_device(ctx, &old));
    OK(!ibv_query_device_ex(ctx, NULL, &ex));
    struct ibv_port_attr port;
    OK(!ibv_query_port(ctx, 1, &port));
    struct ibv_gid_entry gid;
    OK(!ibv_query_gid_ex(ctx, 1, 1, &gid, 0));
    struct ibv_gid_entry *gids = calloc(16, sizeof(*gids));
    OK(ibv_query_gid_table(ctx, gids, 16, 0) > 0);

    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    OK(pd);
    void *page = mmap((void *)0x10000000, 8192, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    OK(page == (void *)0x10000000);
    struct ibv_mr *mr = ibv_reg_mr(pd, page, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    OK(mr);
    OK(!ibv_dereg_mr(mr));
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    OK(mw);
    OK(!ibv_dealloc_mw(mw));

    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    OK(channel);
    struct ibv_cq *with = ibv_create_cq(ctx, 10, NULL, channel, 0);
    OK(with);
    OK(!ibv_req_notify_cq(with, 1));
    OK(!ibv_resize_cq(with, 100));
    OK(!ibv_destroy_cq(with));
    struct ibv_cq *cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
    OK(cq);

    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 20, .max_sge = 3}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
    OK(srq);
    struct ibv_srq_attr limit = {.srq_limit = 5};
    OK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
    struct ibv_srq_attr size = {.max_wr = 100};
    OK(!ibv_modify_srq(srq, &size, IBV_SRQ_MAX_WR));
    OK(!ibv_query_srq(srq, &size));

    enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
    for (int i = 0; i < 3; i++) {
        struct ibv_qp_init_attr init = {
            .send_cq = cq,
            .recv_cq = cq,
            .srq = types[i] == IBV_QPT_RC ? srq : NULL,
            .cap = {.max_send_wr = 16, .max_recv_wr = 17, .max_send_sge = 2, .max_recv_sge = 3,
                    .max_inline_data = 32},
            .qp_type = types[i],
            .sq_sig_all = types[i] == IBV_QPT_UC,
        };
        struct ibv_qp *qp = ibv_create_qp(pd, &init);
        OK(qp);
        struct ibv_qp_attr attr = attributes(1, &gid.gid);
        attr.qp_state = IBV_QPS_INIT;
        OK(!ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                              (types[i] == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
        if (types[i] == IBV_QPT_RC) {
            attr.qp_state = IBV_QPS_RTR;
            OK(!ibv_modify_qp(qp, &attr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                  IBV_QP_MIN_RNR_TIMER));
            attr.qp_state = IBV_QPS_RTS;
            OK(!ibv_modify_qp(qp, &attr,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
            struct ibv_qp_attr seen;
            OK(!ibv_query_qp(qp, &seen, IBV_QP_STATE | IBV_QP_AV, &init));
            struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
            OK(!ibv_post_send(qp, &wr, &bad));
        }
        if (types[i] == IBV_QPT_UD) {
            union ibv_gid group = {.raw = {0xff, 0x0e, [10] = 0xff, 0xff, 239, 1, 2, 3}};
            OK(!ibv_attach_mcast(qp, &group, 0));
            OK(!ibv_detach_mcast(qp, &group, 0));
            struct ibv_ah *ah = ibv_create_ah(pd, &attr.ah_attr);
            OK(ah);
            OK(!ibv_destroy_ah(ah));
        }
        OK(!ibv_destroy_qp(qp));
    }
    OK(!ibv_destroy_srq(srq));
    OK(!ibv_destroy_cq(cq));
    OK(!ibv_destroy_comp_channel(channel));
    OK(!ibv_dealloc_pd(pd));
    OK(!ibv_close_device(ctx));
    return 0;
}
