"""Breaks things under a program's traffic and tells what the program sees.

Usage: faults.py GID [FAULT...]

The program has a reliable connection between mlx5_0 and mlx5_1, which a cable joins. Prints a JSON line for each fault: what
each side's completion queue reported, in order and with repetitions left out where their number is a matter of time, the
asynchronous events of each device, and the states of the queue pairs.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time

from pyverbs import enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

gid_index = int(sys.argv[1])

SIZE = 8192
SLOTS = 16
RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_ATOMIC
# 4.096 µs * 2^14 = 67 ms; five times.
TIMEOUT, RETRIES = 14, 4
# 0.64 ms (IBTA table 45).
RNR_TIMER = 12


# Other constants begin with IBV_WC_ too.
STATUSES = {
    getattr(e, "IBV_WC_" + text): text
    for text in (
        "SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR BAD_RESP_ERR LOC_ACCESS_ERR"
        " REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR RNR_RETRY_EXC_ERR FATAL_ERR RESP_TIMEOUT_ERR GENERAL_ERR"
    ).split()
}


def name(prefix, value):
    for text in dir(e):
        if text.startswith(prefix) and getattr(e, text) == value:
            return text[len(prefix):]
    return str(value)


def order(*words):
    subprocess.run(["connectx", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def provider():
    """File name of the provider's library that this process has loaded."""
    with open("/proc/self/maps") as maps:
        files = {os.path.basename(line.split()[-1]) for line in maps}
    found = [file for file in files if file.startswith(("libmlx5", "liboxverbs"))]
    return " ".join(sorted(found))


def event_descriptors():
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "infinibandevent" in os.readlink(f"/proc/self/fd/{fd}"):
                found.add(int(fd))
        except OSError:
            pass
    return found


class Side:
    """A device and a queue pair."""

    def __init__(self, device):
        before = event_descriptors()
        self.device = device
        self.context = Context(name=device)
        (self.events_fd,) = event_descriptors() - before
        self.events = []
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 256)
        self.mr = MR(self.pd, SIZE * SLOTS * 2, RIGHTS)
        cap = QPCap(max_send_wr=64, max_recv_wr=64)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        self.qp = QP(self.pd, init)
        self.port = self.context.query_port(1)
        self.gid = self.context.query_gid(1, gid_index)
        self.seen = []

    def connect(self, other, rnr_retry):
        roce = self.port.link_layer == e.IBV_LINK_LAYER_ETHERNET
        route = GlobalRoute(dgid=other.gid, sgid_index=gid_index)
        path = AHAttr(gr=route, is_global=int(roce), port_num=1, dlid=other.port.lid)
        attr = QPAttr(port_num=1, path_mtu=e.IBV_MTU_1024)
        attr.qp_access_flags = RIGHTS
        self.qp.to_init(attr)
        attr.ah_attr = path
        attr.dest_qp_num = other.qp.qp_num
        attr.rq_psn = attr.sq_psn = 7
        attr.min_rnr_timer = RNR_TIMER
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
        self.qp.to_rtr(attr)
        attr.timeout, attr.retry_cnt, attr.rnr_retry = TIMEOUT, RETRIES, rnr_retry
        self.qp.to_rts(attr)

    def receive(self, count):
        for slot in range(count):
            self.qp.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[self.piece(SLOTS + slot % SLOTS)]))

    def piece(self, slot, length=SIZE):
        return SGE(self.mr.buf + slot * SIZE, length, self.mr.lkey)

    def send(self, wr_id, opcode=e.IBV_WR_SEND, to=None, length=SIZE):
        wr = SendWR(wr_id=wr_id, num_sge=1, sg=[self.piece(wr_id % SLOTS, length)], opcode=opcode,
                    send_flags=e.IBV_SEND_SIGNALED)
        if to:
            wr.set_wr_rdma(*to)
        self.qp.post_send(wr)

    def poll(self):
        """Statuses of the completions that are there."""
        count, completions = self.cq.poll(64)
        statuses = [STATUSES.get(it.status, str(it.status)) for it in completions[:count]]
        self.seen += statuses
        return statuses

    def take_events(self):
        while select.select([self.events_fd], [], [], 0)[0]:
            event = self.context.get_async_event()
            self.events.append(name("IBV_EVENT_", event.event_type))
            event.ack()

    def state(self):
        try:
            attr, _ = self.qp.query(e.IBV_QP_STATE)
            return name("IBV_QPS_", attr.qp_state)
        except PyverbsError as error:
            return type(error).__name__

    def close(self):
        errors = []
        for it in (self.qp, self.mr, self.cq, self.pd, self.context):
            try:
                it.close()
            except PyverbsError as error:
                errors.append(f"{type(it).__name__}: {error}")
        return errors


class Pair:
    def __init__(self, rnr_retry=7):
        self.sides = [Side("mlx5_0"), Side("mlx5_1")]
        self.sender, self.receiver = self.sides
        for side, other in (self.sides, self.sides[::-1]):
            side.connect(other, rnr_retry)

    def settle(self, seconds, enough=lambda: False):
        """Collects completions and events until it is enough, or for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for side in self.sides:
                side.poll()
                side.take_events()
            if enough():
                return
            time.sleep(0.002)

    def traffic(self, until):
        """Sends with receives posted, some at a time, until it is time or something fails."""
        sent = done = 0
        failed = False
        self.receiver.receive(SLOTS)
        while not failed and not until(done):
            while sent - done < SLOTS // 2:
                self.sender.send(sent)
                sent += 1
            statuses = self.sender.poll()
            failed = any(status != "SUCCESS" for status in statuses)
            done += len(statuses)
            arrived = self.receiver.poll()
            self.receiver.receive(arrived.count("SUCCESS"))
            for side in self.sides:
                side.take_events()
            if not statuses and not arrived:
                time.sleep(0.0005)
        return sent, done

    def report(self, exact=True):
        def short(seen):
            runs = []
            for status in seen:
                if not runs or runs[-1] != status:
                    runs.append(status)
            return runs

        told = {}
        for role, side in zip(("sender", "receiver"), self.sides):
            side.take_events()
            told[role] = {
                "completions": side.seen if exact else short(side.seen),
                "events": side.events,
                "state": side.state(),
            }
        for role, side in zip(("sender", "receiver"), self.sides):
            told[role]["closing"] = side.close()
        return told


def in_the_middle(pair, what, patience, noticed=lambda: True):
    """Does something while there is traffic, and goes on for a while after it was noticed."""
    busy = threading.Event()
    done = threading.Event()

    def act():
        busy.wait()
        what()
        done.set()

    thread = threading.Thread(target=act)
    thread.start()
    end = None

    def until(completed):
        nonlocal end
        if completed > 50:
            busy.set()
        if done.is_set() and end is None and noticed():
            end = time.monotonic() + patience
        return end is not None and time.monotonic() > end

    pair.traffic(until)
    busy.set()
    thread.join()
    pair.settle(1)


def loss():
    """One frame of a hundred is lost: nobody notices."""
    pair = Pair()
    pattern = bytes(range(256)) * (SIZE // 256)
    order("loss", "1%")
    for slot in range(SLOTS):
        pair.sender.mr.write(bytes([slot]) + pattern[1:], SIZE, slot * SIZE)
    pair.traffic(lambda done: done >= 400)
    pair.settle(3, lambda: len(pair.sender.seen) >= 400 and len(pair.receiver.seen) >= len(pair.sender.seen))
    right = all(
        pair.receiver.mr.read(SIZE, (SLOTS + slot) * SIZE)[1:] == pattern[1:] for slot in range(SLOTS)
    )
    order("loss", 0)
    return {**pair.report(exact=False), "data": right}


def cut():
    """The link goes in the middle of traffic."""
    pair = Pair()
    in_the_middle(pair, lambda: order("cut"), 3)
    order("restore")
    pair.settle(3, lambda: all("PORT_ACTIVE" in side.events for side in pair.sides))
    return pair.report(exact=False)


def rkey():
    """A write with a key that nobody gave out, between good ones."""
    pair = Pair()
    pair.receiver.receive(4)
    there = pair.receiver.mr
    for wr_id, key in enumerate([there.rkey, there.rkey ^ 0xff, there.rkey, there.rkey]):
        pair.sender.send(wr_id, e.IBV_WR_RDMA_WRITE, (key, there.buf))
    pair.settle(2, lambda: len(pair.sender.seen) >= 4 and len(pair.receiver.seen) >= 4)
    pair.settle(0.3)
    return pair.report()


def bounds():
    """A read past the end of what may be read."""
    pair = Pair()
    pair.receiver.receive(2)
    there = pair.receiver.mr
    for wr_id, address in enumerate([there.buf, there.buf + SIZE * SLOTS * 2 - 8, there.buf]):
        pair.sender.send(wr_id, e.IBV_WR_RDMA_READ, (there.rkey, address))
    pair.settle(2, lambda: len(pair.sender.seen) >= 3 and len(pair.receiver.seen) >= 2)
    pair.settle(0.3)
    return pair.report()


def rnr():
    """The receiver is not ready for longer than the sender is patient."""
    pair = Pair(rnr_retry=2)
    pair.receiver.receive(2)
    for wr_id in range(5):
        pair.sender.send(wr_id, length=64)
    pair.settle(3, lambda: len(pair.sender.seen) >= 5)
    pair.settle(0.3)
    return pair.report()


def short_receive():
    """A message is longer than the request it meets."""
    pair = Pair()
    side = pair.receiver
    side.qp.post_recv(RecvWR(wr_id=0, num_sge=1, sg=[side.piece(0, 64)]))
    side.receive(1)
    pair.sender.send(0)
    pair.sender.send(1)
    pair.settle(2, lambda: len(pair.sender.seen) >= 2 and len(side.seen) >= 2)
    pair.settle(0.3)
    return pair.report()


def died(number, word):
    """A device stops in the middle of traffic."""
    pair = Pair()
    side = pair.sides[number]
    limit = time.monotonic() + 30

    def noticed():
        return "DEVICE_FATAL" in side.events or time.monotonic() > limit

    in_the_middle(pair, lambda: order(word, number), 3, noticed)
    pair.settle(20, noticed)
    pair.settle(1)
    return pair.report(exact=False)


FAULTS = {
    "loss": loss,
    "cut": cut,
    "rkey": rkey,
    "bounds": bounds,
    "rnr": rnr,
    "short_receive": short_receive,
    "fatal_receiver": lambda: died(1, "fail"),
    "fatal_sender": lambda: died(0, "fail"),
    "reset_receiver": lambda: died(1, "reset"),
    "reset_sender": lambda: died(0, "reset"),
}

for fault in sys.argv[2:] or FAULTS:
    try:
        told = FAULTS[fault]()
    except PyverbsError as error:
        told = {"error": str(error)}
    print(json.dumps({"fault": fault, "provider": provider(), **told}), flush=True)
