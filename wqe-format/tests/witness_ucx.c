// Lets UCX's mlx5 transport expand compressed completions.
//
// Argument: the library (libuct_ib.so.0 of UCX 1.13: basic layout; libuct_ib_mlx5.so.0 from 1.17 on: enhanced layout).
// Standard input, for each case: a line "LOG INDEX BLOCKS" and 2^LOG lines with the bytes of the ring's entries. INDEX is
// that of the title. Standard output, for each case: a line for each completion, and an empty line.
//
// The structs have the layout of UCX's `ib_mlx5.h`; fields have our own names.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY 64

struct unzip_basic {
	uint64_t title[ENTRY / 8];
	uint8_t minis[8][8];
	uint32_t block, current, index;
	uint16_t counter;
};

struct cq_basic {
	uint8_t *ring;
	unsigned consumer, sequence, length, log_entry, number;
	void *uar;
	volatile uint32_t *record;
	struct unzip_basic unzip;
};

struct unzip_enhanced {
	uint64_t title[ENTRY / 8];
	uint8_t minis[7][8];
	uint32_t block, current, index;
	uint16_t counter;
	uint8_t has_title;
};

struct cq_enhanced {
	int kind;
	uint8_t *ring;
	unsigned consumer, sequence, log_length, mask, log_entry, number;
	void *uar;
	volatile uint32_t *record;
	int compressed;
	unsigned own_offset, own_mask;
	struct unzip_enhanced unzip;
	uint8_t room[512];
};

static void print(const uint8_t *entry)
{
	for (int i = 0; i < ENTRY; i++)
		printf("%02x", entry[i]);
	printf("\n");
}

static void basic(void *init, void *next, uint8_t *ring, unsigned log, unsigned index, unsigned blocks)
{
	unsigned most = 1u << log;
	struct cq_basic cq = { .ring = ring, .consumer = index, .length = 1u << log, .log_entry = 6 };

	while (blocks--) {
		((void (*)(void *, void *))init)(ring + (cq.consumer & (cq.length - 1)) * ENTRY, &cq);
		do {
			cq.consumer++;
			print(((uint8_t *(*)(void *))next)(&cq));
			// A struct that is laid out otherwise would go on for ever.
			if (most-- == 0)
				exit(1);
		} while (cq.unzip.current > 0);
	}
}

static void enhanced(void *init, void *next, uint8_t *ring, unsigned log, unsigned index, unsigned blocks)
{
	unsigned most = 1u << log;
	struct cq_enhanced cq = {
		.ring = ring, .consumer = index + 1, .log_length = log, .mask = (1u << log) - 1, .log_entry = 6,
		.compressed = 1, .own_offset = 62, .own_mask = 0xff,
	};

	while (blocks--) {
		((void (*)(void *))init)(&cq);
		do {
			cq.consumer++;
			print(((uint8_t *(*)(void *))next)(&cq));
			// A struct that is laid out otherwise would go on for ever.
			if (most-- == 0)
				exit(1);
		} while (cq.unzip.current > 0);
	}
}

int main(int argc, char **argv)
{
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
	unsigned log, index, blocks;

	if (!library) {
		fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: witness_ucx LIBRARY");
		return 1;
	}
	void *init = dlsym(library, "uct_ib_mlx5_iface_cqe_unzip_init");
	void *next = dlsym(library, "uct_ib_mlx5_iface_cqe_unzip");
	if (!init || !next) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	int is_basic = strstr(argv[1], "libuct_ib_mlx5") == NULL;
	while (scanf("%u %u %u", &log, &index, &blocks) == 3) {
		uint8_t *ring = calloc(1u << log, ENTRY);

		for (unsigned i = 0; i < ENTRY << log; i++) {
			unsigned byte;

			if (scanf("%2x", &byte) != 1)
				return 1;
			ring[i] = byte;
		}
		(is_basic ? basic : enhanced)(init, next, ring, log, index, blocks);
		printf("\n");
		free(ring);
	}
	// Without exit handlers: the library was made for a live transport.
	fflush(stdout);
	_Exit(0);
}
