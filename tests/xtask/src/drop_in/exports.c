/* Objects that are handed from one process to another (rdma-core 65), here both in one: what is handed over, byte for byte, and
 * what becomes of the objects that are made of it. Every libmlx5.so.1 has to print the same. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/mlx5dv.h>

#define NUMBER(what) printf("%s %" PRIu64 "\n", #what, (uint64_t)(what))

static struct mlx5dv_export_sizes sizes;

static void show(const char *what, const uint8_t *blob, size_t length)
{
	printf("%s", what);
	for (size_t i = 0; i < length; i++)
		printf(" %02x", blob[i]);
	printf("\n");
}

static void command(uint8_t *in, uint16_t opcode, uint16_t kind)
{
	memset(in, 0x31, 256);
	in[0] = opcode >> 8;
	in[1] = opcode;
	in[6] = kind >> 8;
	in[7] = kind;
}

static void objects(struct ibv_context *context)
{
	/* Opcode, kind of a general object. */
	static const uint16_t made[][2] = { { 0x500 }, { 0x900 }, { 0x930 }, { 0x933 }, { 0x936 }, { 0x939 }, { 0x93d }, { 0x200 },
		{ 0xa00, 0x0a }, { 0xa00, 0x20 }, { 0xa00, 0x24 }, { 0xa00, 0x25 }, { 0xa00, 0x31 }, { 0xa00, 0x2c } };
	for (int i = 0; i < 14; i++)
		for (int through = 0; through < 2; through++) {
			uint8_t in[256], out[64], blob[64];
			command(in, made[i][0], made[i][1]);
			memset(out, 0, sizeof(out));
			errno = 0;
			struct mlx5dv_devx_obj *object = mlx5dv_devx_obj_create(context, in, sizeof(in), out, sizeof(out));
			printf("object of %x %x: %d\n", made[i][0], made[i][1], object ? 0 : errno);
			if (!object)
				continue;
			memset(blob, 0xee, sizeof(blob));
			NUMBER(mlx5dv_devx_obj_export(object, blob));
			show("handed over:", blob, sizeof(blob));
			struct mlx5dv_devx_obj *other = mlx5dv_devx_obj_import(context, blob);
			memset(blob, 0xdd, sizeof(blob));
			NUMBER(mlx5dv_devx_obj_export(other, blob));
			show("and again:", blob, sizeof(blob));
			command(in, 0xa02, made[i][1]);
			NUMBER(mlx5dv_devx_obj_query(other, in, 64, out, sizeof(out)));
			if (through) {
				NUMBER(mlx5dv_devx_obj_destroy(other));
				mlx5dv_devx_obj_unimport(object);
			} else {
				mlx5dv_devx_obj_unimport(other);
				NUMBER(mlx5dv_devx_obj_destroy(object));
			}
		}
}

static void memory(struct ibv_context *context)
{
	for (int through = 0; through < 2; through++) {
		void *pages = aligned_alloc(4096, 8192);
		struct mlx5dv_devx_umem *umem = mlx5dv_devx_umem_reg(context, pages, 8192, 7);
		printf("memory: %d\n", umem ? 0 : errno);
		if (!umem)
			return;
		uint8_t blob[64];
		memset(blob, 0xee, sizeof(blob));
		NUMBER(mlx5dv_devx_umem_export(umem, blob));
		show("handed over:", blob, sizeof(blob));
		struct mlx5dv_devx_umem *other = mlx5dv_devx_umem_import(context, blob);
		NUMBER(other->umem_id);
		if (through) {
			NUMBER(mlx5dv_devx_umem_dereg(other));
			mlx5dv_devx_umem_unimport(umem);
		} else {
			mlx5dv_devx_umem_unimport(other);
			NUMBER(mlx5dv_devx_umem_dereg(umem));
		}
		free(pages);
	}
}

static void pages(struct ibv_context *context)
{
	for (int through = 0; through < 2; through++) {
		errno = 0;
		struct mlx5dv_var *page = mlx5dv_alloc_var(context, 0);
		printf("page: %d\n", page ? 0 : errno);
		if (!page)
			return;
		uint8_t blob[64];
		memset(blob, 0xee, sizeof(blob));
		NUMBER(mlx5dv_var_export(page, blob));
		show("handed over:", blob, sizeof(blob));
		struct mlx5dv_var *other = mlx5dv_var_import(context, blob);
		NUMBER(other->page_id);
		NUMBER(other->length);
		NUMBER(other->mmap_off);
		NUMBER(other->comp_mask);
		if (through) {
			mlx5dv_free_var(other);
			mlx5dv_var_unimport(page);
		} else {
			mlx5dv_var_unimport(other);
			mlx5dv_free_var(page);
		}
	}
}

int main(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context = count ? ibv_open_device(list[0]) : NULL;
	if (!context)
		return 1;
	uint32_t room[8];
	for (size_t length = 12; length <= sizeof(room); length += 20) {
		memset(room, 0xee, sizeof(room));
		_mlx5dv_get_export_sizes((struct mlx5dv_export_sizes *)room, length);
		for (int i = 0; i < 8; i++)
			NUMBER(room[i]);
	}
	mlx5dv_get_export_sizes(&sizes);
	NUMBER(sizes.devx_obj_attrs_size <= 64 && sizes.devx_umem_attrs_size <= 64 && sizes.var_attrs_size <= 64);
	objects(context);
	memory(context);
	pages(context);
	/* Which Linux 6.12 does not know. */
	struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(context, MLX5DV_UAR_ALLOC_TYPE_BF);
	printf("doorbells as a file: %d\n", uar ? mlx5dv_devx_uar_export_dmabuf_fd(uar) : -2);
	if (uar)
		mlx5dv_devx_free_uar(uar);
	NUMBER(ibv_close_device(context));
	ibv_free_device_list(list);
	return 0;
}
