/* Opens a device, uses it, and prints what it says, and whether the libmlx5.so.1 that this is linked with serves it. */
#include <stdio.h>
#include <infiniband/mlx5dv.h>

int main(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	if (count != 1)
		return 2;
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_device_attr attr;
	if (!context || ibv_query_device(context, &attr))
		return 3;
	printf("%s: max_qp %d max_cqe %d vendor %x\n", ibv_get_device_name(list[0]), attr.max_qp, attr.max_cqe,
	       attr.vendor_id);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 10, 10, 1, 1 } };
	struct ibv_qp *qp = pd && cq ? ibv_create_qp(pd, &init) : NULL;
	printf("a queue pair: %d\n", qp != NULL);
	printf("mlx5dv: %d\n", mlx5dv_is_supported(list[0]));
	return !qp || ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(context);
}
