"""Prints, for each RDMA device, the file that holds the provider code of its context: `DEVICE<TAB>FILE`.

A configuration loads many providers; the one that serves a device is the one whose functions its context holds. The
layout read here is libibverbs' public one: `struct ibv_context { struct ibv_device *device; struct ibv_context_ops ops; }`,
where `poll_cq` is the twelfth operation (infiniband/verbs.h).
"""

import ctypes
import sys

POLL_CQ_WORD = 1 + 11

verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
verbs.ibv_open_device.restype = ctypes.c_void_p
verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
verbs.ibv_close_device.argtypes = [ctypes.c_void_p]


def mapped_file(address):
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split(None, 5)
            low, high = (int(part, 16) for part in fields[0].split("-"))
            if low <= address < high:
                return fields[5].strip() if len(fields) > 5 else "anonymous memory"
    return "no mapping"


count = ctypes.c_int()
devices = verbs.ibv_get_device_list(ctypes.byref(count))
for index in range(count.value):
    name = verbs.ibv_get_device_name(devices[index]).decode()
    context = verbs.ibv_open_device(devices[index])
    if not context:
        print(f"{name}\tnot opened (errno {ctypes.get_errno()})")
        continue
    words = ctypes.cast(context, ctypes.POINTER(ctypes.c_void_p))
    print(f"{name}\t{mapped_file(words[POLL_CQ_WORD])}")
    verbs.ibv_close_device(context)
sys.exit(0 if count.value else 1)
