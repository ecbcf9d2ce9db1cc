/* Records what a program says to uverbs devices. Build as a shared object, preload it, and name a
 * file in RECORD: each ioctl and write() goes there before it goes to the kernel. Lines:
 *
 *   I BYTES          an ioctl: header and attributes, in hexadecimal
 *   M ADDRESS BYTES  memory that an attribute of it points to
 *   W BYTES          a write()
 *
 * `cargo run -p uverbs-abi --example describe` turns such a file into text.
 *
 * REFUSE=ENOTTY answers each ioctl as a kernel without it does, REFUSE=EPROTONOSUPPORT each method
 * but INVOKE_WRITE as a kernel that does not know it does, so that the program's fall-backs show.
 * What is refused is not recorded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

static char line[1 << 20];
static size_t used;

static void text(const char *s) {
    while (*s)
        line[used++] = *s++;
}

static void hex(const void *bytes, size_t len) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        uint8_t byte = ((const uint8_t *)bytes)[i];
        line[used++] = digits[byte >> 4];
        line[used++] = digits[byte & 15];
    }
}

static void end(void) {
    static int file = -1;
    if (file < 0 && getenv("RECORD"))
        file = open(getenv("RECORD"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    line[used++] = '\n';
    /* not by write(), which is ours */
    if (syscall(SYS_write, file, line, used) != (long)used)
        abort();
    used = 0;
}

/* The errno for a request, or 0. */
static int refusal(const struct ib_uverbs_ioctl_hdr *hdr) {
    const char *refuse = getenv("REFUSE");
    if (refuse && !strcmp(refuse, "ENOTTY"))
        return ENOTTY;
    int invoke = hdr->object_id == UVERBS_OBJECT_DEVICE &&
                 hdr->method_id == UVERBS_METHOD_INVOKE_WRITE;
    return refuse && *refuse && !invoke ? EPROTONOSUPPORT : 0;
}

static void ioctl_request(const struct ib_uverbs_ioctl_hdr *hdr) {
    text("I ");
    hex(hdr, hdr->length);
    end();
    for (int i = 0; i < hdr->num_attrs; i++) {
        static uint8_t copy[65536];
        const struct ib_uverbs_attr *attr = &hdr->attrs[i];
        struct iovec to = {copy, attr->len}, from = {(void *)(uintptr_t)attr->data, attr->len};
        if (attr->len <= 8 || process_vm_readv(getpid(), &to, 1, &from, 1, 0) != attr->len)
            continue;
        char address[32];
        snprintf(address, sizeof(address), "M %llx ", (unsigned long long)attr->data);
        text(address);
        hex(copy, attr->len);
        end();
    }
}

int ioctl(int fd, unsigned long request, ...) {
    static int (*next)(int, unsigned long, ...);
    va_list args;
    va_start(args, request);
    void *arg = va_arg(args, void *);
    va_end(args);
    if (!next)
        next = dlsym(RTLD_NEXT, "ioctl");
    if (request == RDMA_VERBS_IOCTL) {
        if ((errno = refusal(arg)))
            return -1;
        ioctl_request(arg);
    }
    return next(fd, request, arg);
}

ssize_t write(int fd, const void *bytes, size_t len) {
    char link[64], path[64] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "/infiniband/uverbs")) {
        text("W ");
        hex(bytes, len);
        end();
    }
    return syscall(SYS_write, fd, bytes, len);
}
