"""Runs tests of rdma-core's Python suite in the guest, each in its own process.

Usage: runner.py SUITE EXPECTED TIMEOUT DEVICE GID WHICH

SUITE is the suite's `tests` folder, EXPECTED the beginning of the file name of the provider that must serve, WHICH a
regular expression for the tests' names or @FILE with names. The suite is imported once; every test runs in a fork of that,
made before libibverbs has loaded any provider. Prints JSON lines: first {"tests": NAMES}, then {"test", "start"} before a
test and {"test", "result", "detail", "provider", "seconds"} after it.
"""

import gc
import importlib.abc
import importlib.machinery
import json
import os
import re
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import types
import unittest
import warnings

suite, expected, timeout, device, gid, which = sys.argv[1:7]
timeout = float(timeout)

sys.path[:0] = [suite, os.path.dirname(suite)]
# A device that user space drives by itself is named by its place on the bus.
name = ["--pci-dev", device.removeprefix("vfio:")] if device.startswith("vfio:") else ["--dev", device]
sys.argv[1:] = [*name, "--gid", gid]
warnings.simplefilter("ignore")
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class WithoutLibmlx5(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for pyverbs' modules that are linked with libmlx5.

    That library registers itself with libibverbs when it is loaded, before any other provider can, and then serves every
    mlx5 device. The suite imports it for all its tests; those that use it are skipped.
    """

    PACKAGE = "pyverbs.providers.mlx5."

    class Missing:
        def __init__(self, *_, **__):
            raise unittest.SkipTest("the test is about libmlx5 itself")

    def find_spec(self, name, path=None, target=None):
        if name.startswith(self.PACKAGE) and not name.endswith("_enums"):
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: type(name, (self.Missing,), {})
        return module

    def exec_module(self, module):
        pass


# Where ours stands in its place, what must serve is named for that.
if expected == "liboxverbs" and device.startswith("mlx5"):
    sys.meta_path.insert(0, WithoutLibmlx5())

from args_parser import parser  # noqa: E402

parser.parse_args()
import tests  # noqa: E402
from pyverbs.device import get_device_list  # noqa: E402

# libmlx5 is a library of its own, of which the provider's file is another name.
OFFICIAL = r"libmlx5(-rdmav\d+)?\.so[.\d]*" if device.startswith(("mlx5", "vfio:")) else r"librxe-rdmav\d+\.so"
PROVIDER = re.compile(r"/(" + OFFICIAL + r"|liboxverbs[^/]*\.so)$")

# Beginnings of the names of libraries that pyverbs itself links.
LINKED = ("libmlx5", "liboxverbs_mlx5")


def providers():
    """Files of providers for the device that this process has mapped."""
    with open("/proc/self/maps") as maps:
        return sorted({m[1] for m in map(PROVIDER.search, map(str.rstrip, maps)) if m})


def cases(test):
    if isinstance(test, unittest.TestSuite):
        for inner in test:
            yield from cases(inner)
    else:
        yield test


def say(**what):
    print(json.dumps(what), flush=True)


class Result(unittest.TestResult):
    """The outcome of one test, its subtests included; the worst counts."""

    ORDER = ["passed", "skipped", "failed", "error"]

    def __init__(self):
        super().__init__()
        self.outcome, self.detail = "passed", ""

    def note(self, outcome, detail):
        if self.ORDER.index(outcome) > self.ORDER.index(self.outcome):
            self.outcome, self.detail = outcome, detail

    def addSkip(self, test, reason):
        self.note("skipped", str(reason))

    def addFailure(self, test, error):
        self.note("failed", "".join(traceback.format_exception(*error)))

    def addError(self, test, error):
        self.note("error", "".join(traceback.format_exception(*error)))

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addError(test, error)

    def addExpectedFailure(self, test, error):
        pass

    def addUnexpectedSuccess(self, test):
        self.note("failed", "passed although it is expected to fail")


def in_child(case, answer, output):
    os.setpgid(0, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    result = Result()
    case.run(result)
    served = providers()
    if not served:
        # The test made no use of a device; assert what would have served one.
        get_device_list()
        served = providers()
    # Objects that the test left to the collector are destroyed here, where a crash is seen.
    case.__dict__.clear()
    gc.collect()
    if len(served) != 1 or not served[0].startswith(expected):
        result.outcome = "wrong provider"
        result.detail = f"mapped are {served}, expected is {expected}"
    text = {"result": result.outcome, "detail": result.detail[-4000:], "provider": ",".join(served)}
    os.write(answer, json.dumps(text).encode())
    os._exit(0)


def run(case):
    begin = time.monotonic()
    say(test=case.id(), start=True)
    reader, writer = os.pipe()
    output = tempfile.TemporaryFile()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            in_child(case, writer, output.fileno())
        finally:
            os._exit(70)
    os.close(writer)
    text, ended = b"", False
    while not ended:
        left = begin + timeout - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            break
        part = os.read(reader, 65536)
        text += part
        ended = not part
    os.close(reader)
    try:
        # Also what the test forked and left behind, which holds the pipe open.
        os.killpg(pid, signal.SIGKILL) if not ended and not text else None
    except ProcessLookupError:
        pass
    _, status = os.waitpid(pid, 0)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    output.seek(0)
    printed = output.read().decode(errors="replace")[-4000:]
    if text:
        answer = json.loads(text)
    elif not ended:
        answer = {"result": "timeout", "detail": f"killed after {timeout:.0f} s", "provider": ""}
    else:
        answer = {"result": "error", "detail": "the test's process ended early", "provider": ""}
    if os.WIFSIGNALED(status) and not (not text and not ended):
        answer["result"] = "crashed"
        answer["detail"] = signal.Signals(os.WTERMSIG(status)).name
    if answer["result"] not in ("passed", "skipped"):
        answer["detail"] += "\n" + printed
    say(test=case.id(), seconds=round(time.monotonic() - begin, 3), **answer)


def main():
    everything = {}
    for module in tests.__test_modules__:
        for case in cases(unittest.defaultTestLoader.loadTestsFromModule(module)):
            everything.setdefault(case.id(), case)
    # libmlx5, or ours in its place, is loaded with the suite, see above.
    early = [name for name in providers() if expected not in LINKED or not name.startswith(expected)]
    if early:
        sys.exit(f"a provider was loaded before the first test: {early}")
    if which.startswith("@"):
        with open(which[1:]) as file:
            wanted = file.read().split()
    else:
        wanted = [name for name in everything if re.search(which, name)]
    say(tests=wanted)
    gc.collect()
    gc.freeze()
    for name in wanted:
        run(everything[name])


main()
