/*
 * The k-th kernel call of making and destroying each object fails; k grows until none does. Nothing may be
 * left, the error must be the injected one. Steered by the functions that the preloaded library has.
 */
#include "common.h"
#include <dirent.h>
#include <dlfcn.h>

static void (*inject)(uint64_t k, int error);
static int (*clear_fault)(void);
static uint64_t (*objects)(void), (*resources)(void);

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char *buf;
static union ibv_gid gid;

static int descriptors(void)
{
	int n = 0;
	DIR *dir = opendir("/proc/self/fd");
	CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int queue_mappings(void)
{
	int n = 0;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "fake-uverbs") != NULL;
	fclose(maps);
	return n;
}

/* Makes the object; destroys it. Each 0 or an errno; an object that was not destroyed is tried again. */
struct kind {
	const char *name;
	int (*run)(int *create, int *destroy);
};

#define OBJECT(name, type, make, end)                                                              \
	static int name(int *create, int *destroy)                                                 \
	{                                                                                          \
		errno = 0;                                                                         \
		type *object = make;                                                               \
		*create = object ? 0 : errno ? errno : -1;                                         \
		*destroy = 0;                                                                      \
		if (!object)                                                                       \
			return 0;                                                                  \
		*destroy = end(object);                                                            \
		return *destroy && end(object);                                                    \
	}

static struct ibv_srq *make_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 10, .max_sge = 2 } };
	return ibv_create_srq(pd, &init);
}

static struct ibv_ah *make_ah(void)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = gid, .sgid_index = GID_INDEX } };
	return ibv_create_ah(pd, &attr);
}

OBJECT(a_pd, struct ibv_pd, ibv_alloc_pd(context), ibv_dealloc_pd)
OBJECT(a_mr, struct ibv_mr, ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE), ibv_dereg_mr)
OBJECT(a_mw, struct ibv_mw, ibv_alloc_mw(pd, IBV_MW_TYPE_2), ibv_dealloc_mw)
OBJECT(a_channel, struct ibv_comp_channel, ibv_create_comp_channel(context), ibv_destroy_comp_channel)
OBJECT(a_cq, struct ibv_cq, ibv_create_cq(context, 10, NULL, NULL, 0), ibv_destroy_cq)
OBJECT(a_qp, struct ibv_qp, make_qp(pd, cq, NULL, IBV_QPT_RC), ibv_destroy_qp)
OBJECT(a_srq, struct ibv_srq, make_srq(), ibv_destroy_srq)
OBJECT(an_ah, struct ibv_ah, make_ah(), ibv_destroy_ah)

static int a_context(int *create, int *destroy)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	errno = 0;
	struct ibv_context *opened = ibv_open_device(list[0]);
	*create = opened ? 0 : errno ? errno : -1;
	*destroy = 0;
	ibv_free_device_list(list);
	return opened ? ibv_close_device(opened) : 0;
}

static const struct kind kinds[] = {
	{ "context", a_context }, { "pd", a_pd }, { "mr", a_mr },   { "mw", a_mw },
	{ "channel", a_channel }, { "cq", a_cq }, { "qp", a_qp },   { "srq", a_srq },
	{ "ah", an_ah },
};

static void every_call(const struct kind *kind, int error)
{
	int create, destroy;
	/* once without a fault, for what libraries keep after their first use */
	CHECK(kind->run(&create, &destroy) == 0 && !create && !destroy);
	uint64_t k, before_objects = objects(), before_resources = resources();
	int before_fds = descriptors(), before_maps = queue_mappings();
	for (k = 1;; k++) {
		inject(k, error);
		int left = kind->run(&create, &destroy);
		int hit = clear_fault();
		/* libibverbs itself looks for a moved device node when open() fails, and says ENOENT */
		int replaced = kind->run == a_context && k == 1 && create == ENOENT;
		if (hit && error && !replaced && (create ? create != error : destroy && destroy != error)) {
			printf("%s, call %d, errno %d: create gave %d, destroy %d\n", kind->name,
			       (int)k, error, create, destroy);
			exit(1);
		}
		if (left || objects() != before_objects || resources() != before_resources ||
		    descriptors() != before_fds || queue_mappings() != before_maps) {
			printf("%s, call %d, errno %d: left %d, objects %+d, resources %+d, descriptors "
			       "%+d, mappings %+d (create %d, destroy %d)\n",
			       kind->name, (int)k, error, left, (int)(objects() - before_objects),
			       (int)(resources() - before_resources), descriptors() - before_fds,
			       queue_mappings() - before_maps, create, destroy);
			exit(1);
		}
		if (!hit)
			break;
		CHECK(k < 100);
	}
	printf("%s errno %d: %d calls\n", kind->name, error, (int)k - 1);
}

int main(void)
{
	*(void **)&inject = dlsym(RTLD_DEFAULT, "fake_kernel_inject");
	*(void **)&clear_fault = dlsym(RTLD_DEFAULT, "fake_kernel_clear_fault");
	*(void **)&objects = dlsym(RTLD_DEFAULT, "fake_kernel_objects");
	*(void **)&resources = dlsym(RTLD_DEFAULT, "fake_kernel_resources");
	CHECK(inject && clear_fault && objects && resources);
	buf = aligned_alloc(4096, 4096);
	memset(buf, 0, 4096);
	context = open_first();
	CHECK(ibv_query_gid(context, 1, GID_INDEX, &gid) == 0);
	CHECK((pd = ibv_alloc_pd(context)));
	CHECK((cq = ibv_create_cq(context, 10, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE)));
	const int errors[] = { ENOMEM, EINTR, EIO, 0 };
	int short_too = getenv("SHORT_ANSWERS") != NULL;
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		for (int e = 0; e < 3 + short_too; e++)
			every_call(&kinds[i], errors[e]);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	free(buf);
	puts("ok");
	return 0;
}
