"""Programs that do what programs do, each of which must not notice that it is watched.

Every one has ``train`` (a small loop of torch, which is imported at its first call) and says in the
end what came of it. What holds up or breaks the program alone is no case here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .guests import Guest

TRAIN = r'''
import os, signal, sys, time

made = {}

def train(steps=5, make=None, before_step=lambda number: None):
    """The sum of the weights afterwards. All calls go on with one optimizer of each kind."""
    import torch

    if make not in made:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4)
        made[make] = model, (make or torch.optim.SGD)(model.parameters(), lr=0.1)
    model, optimizer = made[make]
    for number in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4)).sum().backward()
        before_step(number)
        optimizer.step()
    return round(sum(value.detach().sum().item() for value in model.parameters()), 4)

def own(names):
    """Without what the collector is allowed to add."""
    return [name for name in names if not str(name).endswith("/worker/watch/site")]

def wait_for(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
'''

FACTS = r"""
import json, resource, threading, warnings

def dispositions():
    handlers = {}
    for number in sorted(signal.valid_signals()):
        handlers[int(number)] = repr(signal.getsignal(number)).partition(" at ")[0]
    return handlers

status = open("/proc/self/status").read().splitlines()
descriptors = {}
for number in sorted(map(int, os.listdir("/proc/self/fd"))):
    try:
        link = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        continue
    descriptors[number] = link.partition("[")[0] + f" inheritable={os.get_inheritable(number)}"
variables = {
    name: ":".join(part for part in value.split(":") if not part.endswith("/watch/site"))
    for name, value in os.environ.items()
    if not name.startswith(("TORCHSCALE_", "GUEST_"))
}
if not variables.get("PYTHONPATH"):
    variables.pop("PYTHONPATH", None)
mask = os.umask(0)
os.umask(mask)
leader = int(os.environ["GUEST_LEADER"])
print(json.dumps({
    "dispositions": dispositions(),
    "masks": [line for line in status if line.startswith(("SigIgn", "SigBlk", "SigCgt", "Cap", "NoNew", "Groups"))],
    "descriptors": descriptors,
    "variables": variables,
    "umask": mask,
    "cwd": os.getcwd(),
    "limits": {
        name: resource.getrlimit(getattr(resource, name))
        for name in dir(resource) if name.startswith("RLIMIT_")
    },
    "nice": os.nice(0),
    "cores": sorted(os.sched_getaffinity(0)),
    "policy": os.sched_getscheduler(0),
    "oom": open("/proc/self/oom_score_adj").read(),
    "in session": os.getsid(0) == leader,
    "in group of the command": os.getpgid(0) == int(os.environ["GUEST_COMMAND"]),
    "path": own(sys.path),
    "argv": [ascii(argument) for argument in sys.argv],
    "flags": repr(sys.flags),
    "warn options": sys.warnoptions,
    "filters": repr(warnings.filters),
    "hooks": [sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__,
              repr(threading.excepthook), sys.gettrace() is None, sys.getprofile() is None],
    "recursion": sys.getrecursionlimit(),
    "switch": sys.getswitchinterval(),
    "encoding": [sys.stdout.encoding, sys.stdin.encoding, sys.stderr.errors, sys.getfilesystemencoding()],
    "buffering": [sys.stdout.line_buffering, sys.stdout.isatty()],
    "input": sys.stdin.read(),
}, indent=1))
"""


def _light(name: str, source: str, **options: object) -> Guest:
    """A program without torch."""
    return Guest(name, TRAIN + source, **options)  # type: ignore[arg-type]


def _guest(name: str, source: str, steps: int | None = 5, **options: object) -> Guest:
    return Guest(name, TRAIN + source, steps, **options)  # type: ignore[arg-type]


def _shell(script: str) -> tuple[str, ...]:
    """Runs what follows after, or in, a line of bash."""
    return ("bash", "-c", script if '"$@"' in script else f'{script}; exec "$@"', "bash")


SIGNALS = (
    *("TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "XCPU", "VTALRM", "PROF"),
    *("IO", "PWR", "STKFLT", "WINCH", "CONT", "TSTP", "URG", "TTIN", "TTOU"),
)
"""Those that somebody sends a process, and that it can handle."""
COMMON = ("TERM", "HUP", "QUIT", "ALRM", "TSTP")
RARE = ("STKFLT", "PWR", "URG", "TTIN", "TTOU")
DEADLY = tuple(
    name for name in SIGNALS if name not in ("WINCH", "CONT", "TSTP", "URG", "TTIN", "TTOU")
)

_HANDLES = r"""
target, *names = sys.argv[1:]
pid, send = int(os.environ["GUEST_COMMAND"]), os.kill if target == "alone" else os.killpg
for name in names:
    number, seen = getattr(signal, "SIG" + name), []
    signal.signal(number, lambda number, frame, seen=seen, name=name: seen.append(name))
    try:
        send(pid, number)
    except ProcessLookupError:
        print("the command is gone")
    wait_for(lambda: seen)
    print("seen:", set(seen))
sys.exit(7)
"""
_DIES = r"""
name, = sys.argv[1:]
signal.signal(getattr(signal, "SIG" + name), signal.SIG_DFL)
os.kill(int(os.environ["GUEST_COMMAND"]), getattr(signal, "SIG" + name))
time.sleep(30)
print("alive")
"""
_COUNTS = r"""
names, seen = sys.argv[1:], []
for name in names:
    signal.signal(getattr(signal, "SIG" + name), lambda number, frame, name=name: seen.append(name))
for name in names:
    os.killpg(int(os.environ["GUEST_COMMAND"]), getattr(signal, "SIG" + name))
    wait_for(lambda: name in seen)
    time.sleep(0.2)
print("seen:", seen)
"""
_STOPS = r'''
import subprocess
script = """
kill -{name} {sign}$GUEST_COMMAND
i=0
until grep -q '^State:.T' /proc/{pid}/status || [ $i -ge 400 ]; do i=$((i+1)); sleep 0.05; done
grep -q '^State:.T' /proc/{pid}/status && echo stopped
kill -CONT {sign}$GUEST_COMMAND
i=0
while grep -q '^State:.T' /proc/{pid}/status && [ $i -lt 400 ]; do i=$((i+1)); sleep 0.05; done
grep -q '^State:.T' /proc/{pid}/status || echo goes on
kill -CONT {pid}
"""
name, target = sys.argv[1:]
script = script.format(name=name, sign="-" if target == "group" else "", pid=os.getpid())
helper = subprocess.Popen(["setsid", "sh", "-c", script], stdout=open("told", "w"))
helper.wait()
print(open("told").read())
'''


def _handling(target: str, names: Sequence[str]) -> Guest:
    name = f"handles {', '.join(names)}, each sent to {target}"
    return _light(name, _HANDLES, arguments=(target, *names))


SIGNAL_GUESTS = [
    _handling("alone", [name for name in SIGNALS if name not in RARE]),
    _handling("group", COMMON),
    *(
        _light(f"dies of {name} sent to the command alone", _DIES, arguments=(name,))
        for name in DEADLY
        if name not in RARE
    ),
    _light(
        "each signal to the group arrives once",
        _COUNTS,
        arguments=("TERM", "HUP", "USR1", "USR2", "INT"),
    ),
    *(
        _light(
            f"{name} stops it and CONT has it go on, sent to {target}",
            _STOPS,
            arguments=(name, target),
        )
        for name in ("TSTP", "STOP")
        for target in ("alone", "group")
        if (name, target)
        != ("STOP", "alone")  # nothing can be told of a signal that cannot be caught
    ),
]

_LEAVES_A_KILLER = r"""
import subprocess
script = "while [ -d /proc/%d ]; do sleep 0.01; done; while kill -%s $GUEST_COMMAND; do sleep 0.01; done"
null = subprocess.DEVNULL
if os.environ["GUEST_COMMAND"] != str(os.getpid()):
    subprocess.Popen(["setsid", "sh", "-c", script % (os.getpid(), sys.argv[1])], stdin=null, stdout=null, stderr=null)
sys.exit(7)
"""
_ENDS = "sys.exit(7)"
_DAMAGES = r"""
import shutil
job = os.environ.get("TORCHSCALE_WATCH")
def write(path, text):
    with open(path, "w") as file:
        file.write(text)
def change(path, key, value):
    import re
    write(path, re.sub(f'"{key}": [^,]+,', f'"{key}": {value},', open(path).read()))
if job:
    DO
time.sleep(SECONDS)
sys.exit(7)
"""
_FOLDER_DAMAGES = {
    "runs.json has a time that cannot be": """change(f"{job}/runs.json", "started", "1e300")""",
    "runs.json has an end that cannot be": """change(f"{job}/runs.json", "ended", "-1e300")""",
    "runs.json is empty": """write(f"{job}/runs.json", "")""",
    "runs.json is a folder": """os.unlink(f"{job}/runs.json"); os.mkdir(f"{job}/runs.json")""",
    "runs.json is a pipe": """os.unlink(f"{job}/runs.json"); os.mkfifo(f"{job}/runs.json")""",
    "watch.json is a folder": """os.mkdir(f"{job}/watch.json")""",
    "watch.json is a pipe": """os.mkfifo(f"{job}/watch.json")""",
    "ranks is a pipe": """os.mkfifo(f"{job}/ranks")""",
    "a rank's folder is full of pipes": """
    os.makedirs(f"{job}/ranks/0.0")
    for name in ("rank.json", "marks-000001.bin", "calls-000001.bin", "lengths-000001.bin",
                 "shares-000001.bin", "names.jsonl", "use.json", "checkpoints.json"):
        os.mkfifo(f"{job}/ranks/0.0/{name}")""",
    "attempts and cells are pipes": """os.mkfifo(f"{job}/attempts"); os.mkfifo(f"{job}/cells")""",
    "a problem is a pipe": """os.mkfifo(f"{job}/problem-1")""",
    "the folder is gone": """shutil.rmtree(job)""",
    "the folder is a file": """shutil.rmtree(job); write(job, "")""",
    "the folder is a pipe": """shutil.rmtree(job); os.mkfifo(job)""",
    "the folder is a link to itself": """shutil.rmtree(job); os.symlink(job, job)""",
}

EXIT_GUESTS = [
    *(
        _light(
            name,
            _ENDS,
            before=_shell(script),
            options=options,
            hides_errors=True,
            prints_report=True,
        )
        for name, script, options in (
            ("exit code with closed stdout", "exec >&-", ()),
            ("exit code with closed stdout, as JSON", "exec >&-", ("--json",)),
            ("exit code with closed stderr", "exec 2>&-", ()),
            ("exit code with nothing open", "exec <&- >&- 2>&-", ()),
            ("exit code with a full stdout", "exec >/dev/full", ()),
            ("exit code with a full stdout, as JSON", "exec >/dev/full", ("--json",)),
            ("exit code with a full stderr", "exec 2>/dev/full", ()),
            ("exit code before head, as JSON", '"$@" | true; exit ${PIPESTATUS[0]}', ("--json",)),
            ("exit code as JSON", "true", ("--json",)),
        )
    ),
    *(
        _light(
            f"exit code with {name} while the summary is made",
            _LEAVES_A_KILLER,
            arguments=(name,),
            hides_errors=True,
        )
        for name in ("TERM", "INT", "HUP", "USR1")
    ),
    *(
        _light(
            f"exit code where {name}",
            _DAMAGES.replace("DO", action).replace(
                "SECONDS", "0.2" if "gone" not in name else "2.5"
            ),
        )
        for name, action in _FOLDER_DAMAGES.items()
    ),
    _light(
        "exit code in a folder that cannot be written any more",
        """
import subprocess
if os.environ.get("TORCHSCALE_WATCH"):
    subprocess.run(["mount", "-o", "remount,ro", os.environ["TORCHSCALE_WATCH"]], check=True)
sys.exit(7)
""",
        mounts="mount -t tmpfs none JOB",
    ),
    _light("exit code of text", "sys.exit('a text')"),
    _light("exit code of 300", "sys.exit(300)"),
    _light("exit code of _exit", "print('no flush'); os._exit(9)"),
    _light("exit code of an exception", "raise ValueError('own')"),
    _light("exit code of abort", "os.abort()"),
    _light("exit code of an exception as it ends", "import atexit; atexit.register(lambda: 1 / 0)"),
    _light(
        "exit code of a process that it leaves",
        """
import subprocess
subprocess.Popen(["sleep", "5"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
sys.exit(3)
""",
    ),
    _light(
        "a megabyte of output",
        "sys.stdout.write('x' * (1 << 20)); sys.stderr.write('y' * (1 << 20) + chr(10))",
    ),
]

START_GUESTS = [
    _light("facts at the start", FACTS),
    _light("facts under nohup", FACTS, before=("nohup",)),
    _light(
        "facts with ignored and blocked signals, limits, a nice value and further descriptors",
        FACTS,
        before=(
            *_shell(
                "ulimit -n 300; ulimit -c 0; ulimit -s 4096; ulimit -t 100; umask 027; "
                "exec 7</dev/null 9>&1"
            ),
            *("nice", "-n", "5", "taskset", "-c", "0", "env"),
            "--ignore-signal=INT,QUIT,TERM,HUP,USR1,USR2,CHLD,PIPE,ALRM,TSTP",
            "--block-signal=INT,TERM,HUP,USR1,CHLD,ALRM",
        ),
    ),
    _light("facts in a session of its own", FACTS, around=("setsid", "--wait")),
    _light(
        "facts with closed stdin",
        FACTS.replace("sys.stdin.read()", "sys.stdin").replace("sys.stdin.encoding", "0"),
        before=_shell("exec <&-"),
    ),
    _light(
        "facts without an environment",
        FACTS.replace('os.environ["GUEST_LEADER"]', "-1").replace(
            'os.environ["GUEST_COMMAND"]', "-1"
        ),
        around=("env", "-i"),
    ),
    _light(
        "facts of odd arguments",
        FACTS,
        arguments=("--help", "", "--", "-o", "a b", b"\xff\xfe", "--json"),
    ),
    _light(
        "facts in the C locale",
        FACTS,
        variables={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ),
    _light("facts of an isolated Python", FACTS, flags=("-I",)),
    _light("facts without site", FACTS, flags=("-S",)),
    _light("facts in development mode", FACTS, flags=("-X", "dev", "-W", "error")),
]

_REACHES_INSIDE = r"""
import inspect, pickle, torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed import _functional_collectives as functional
from torch.utils.data import DataLoader, dataloader

names = {
    "save": torch.save, "load": torch.load, "backward": torch.autograd.backward,
    "step": torch.optim.SGD.step, "optimizer": torch.optim.Optimizer.__init__,
    "next": dataloader._BaseDataLoaderIter.__next__, "loader": DataLoader.__iter__,
    "init": dist.init_process_group, "init2": dist.distributed_c10d.init_process_group,
    "wait_tensor": functional.wait_tensor, "train": torch.nn.Module.train,
    "forward": torch.nn.parallel.DistributedDataParallel.forward, "p2p": dist.P2POp.__init__,
    "dcp save": checkpoint.save, "dcp load": checkpoint.load, "async": checkpoint.async_save,
}
"""

TORCH_GUESTS = [
    _guest("plain", "print(train()); print(sys.stdin.read(), file=sys.stderr)"),
    # signals
    _guest(
        "trains on where HUP and INT are ignored",
        """
train(2)
for number in (signal.SIGHUP, signal.SIGINT):
    os.killpg(0, number)
    time.sleep(0.2)
    train(1)
print(train(1), signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGINT))
""",
        before=("nohup", *_shell("trap '' INT")),
    ),
    _guest(
        "dies of Ctrl-C",
        "train(); os.killpg(0, signal.SIGINT); time.sleep(30); print('alive')",
        None,
    ),
    _guest(
        "own signals and its children's, timers, training in a handler, and Ctrl-C",
        """
import subprocess
import torch
own_signals, others = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD), []
for number in own_signals:
    signal.signal(number, lambda number, frame: others.append(signal.Signals(number).name))
train(3)
subprocess.run(["true"])
os.kill(os.getpid(), signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGUSR2)
print(train(2), sorted(others))
for number in own_signals:
    signal.signal(number, signal.SIG_DFL)
seen = []
def alarm(number, frame):
    seen.append((signal.Signals(number).name, train(2, torch.optim.Adam)))
for name, timer in (("ALRM", "REAL"), ("VTALRM", "VIRTUAL"), ("PROF", "PROF")):
    number, timer = getattr(signal, "SIG" + name), getattr(signal, "ITIMER_" + timer)
    signal.signal(number, alarm)
    train(1)
    signal.setitimer(timer, 0.05)
    # much work at each look, as two of the timers go by the time on the core
    wait_for(lambda: sum(range(300_000)) and any(name == number.name for name, _ in seen))
print(sorted({name for name, _ in seen}))
try:
    os.killpg(0, signal.SIGINT)
    time.sleep(30)
    print("nothing came")
except KeyboardInterrupt:
    print("Ctrl-C")
print(train(3))
sys.exit(130)
""",
        11,
    ),
    _guest(
        "goes elsewhere, in asyncio and in another thread, and saves at TERM",
        """
import asyncio, threading
os.mkdir("other")
os.chdir("other")
print(train())
open("here", "w").close()
async def main():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, print, "USR1")
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.sleep(0.05)
    return train(2), await loop.run_in_executor(None, train, 2)
print(asyncio.run(main()))
thread = threading.Thread(target=lambda: print(train(1)))
thread.start()
thread.join()
def save(number, frame):
    import torch
    torch.save({"steps": 2}, "last.pt")
    sys.exit(9)
signal.signal(signal.SIGTERM, save)
os.kill(int(os.environ["GUEST_COMMAND"]), signal.SIGTERM)
time.sleep(30)
print("alive")
""",
        10,
    ),
    _guest(
        "uses up its core time",
        """
import resource
signal.signal(signal.SIGXCPU, lambda *_: (print("XCPU"), sys.exit(5)))
train()
used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 1, 100))
while True:
    pass
""",
    ),
    # processes
    _guest(
        "forks, a pool by fork, and loaders with workers, one of which raises",
        """
import multiprocessing
import torch
child = os.fork()
print_at = "child" if not child else "parent"
with open(print_at, "w") as file:
    file.write(str(train()))
if not child:
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), train(1))
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.map(train, [2, 3, 4]), train(3))
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 6 and os.environ.get("GUEST_RAISES"):
            raise KeyError("item 6")
        return torch.ones(1) * index
for raises in ("", "1"):
    os.environ["GUEST_RAISES"] = raises
    loader = torch.utils.data.DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context="fork")
    try:
        for batch in loader:
            print(batch.tolist())
    except KeyError as error:
        print(type(error), str(error).splitlines()[0])
    del loader
for number in range(3):
    batches = iter(torch.utils.data.DataLoader(Numbers(), 2))
    try:
        for batch in batches:
            train(1)
    except KeyError as error:
        print("caught", error)
print(train(2))
""",
        20,
    ),
    _guest(
        "forks while it trains",
        """
train(3)
codes = []
for number in range(20):
    child = os.fork()
    if not child:
        train(2)
        os._exit(number)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(codes, train(2))
""",
    ),
    _guest(
        "executes itself again",
        """
print(train(), flush=True)
if "GUEST_AGAIN" not in os.environ:
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "GUEST_AGAIN": "1"})
""",
        None,
    ),
    _guest(
        "a pool by spawn",
        """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(train, [2, 3]))
    print(train())
""",
    ),
    _guest(
        "torch's own start of processes",
        """
import torch.multiprocessing as mp
def work(number, folder):
    with open(f"{folder}/{number}", "w") as file:
        file.write(str(train(3)))
    if number:
        raise ValueError("rank 1 fails")
if __name__ == "__main__":
    train()
    try:
        mp.start_processes(work, (os.getcwd(),), 2, start_method="fork")
    except mp.ProcessRaisedException as error:
        print(error)
""",
    ),
    _guest(
        "pools of concurrent.futures",
        """
import concurrent.futures as futures, multiprocessing
import torch
if __name__ == "__main__":
    with futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        print(list(pool.map(train, [2, 3])))
    with futures.ThreadPoolExecutor(1) as pool:
        print(list(pool.map(train, [2, 3])))
""",
    ),
    # its own process
    _guest(
        "shuts itself in",
        """
import torch
os.mkdir("jail")
os.chroot("jail")
os.chdir("/")
print(train(), os.listdir("/"))
""",
        None,
        before=("unshare", "--user", "--map-root-user"),
    ),
    *(
        _guest(
            name,
            "number = os.open('/dev/null', 0); open('result', 'w').write(f'{number} {train()}')",
            before=_shell(script),
            hides_errors=True,
        )
        for name, script in (
            ("starts with closed stdin", "exec <&-"),
            ("starts with all closed", "exec <&- >&- 2>&-"),
        )
    ),
    _guest(
        "closes all descriptors",
        """
train(1)
time.sleep(0.6)
file = os.open("result", os.O_WRONLY | os.O_CREAT)
os.closerange(3, file)
os.closerange(file + 1, 300)
os.close(1)
for name in ("a", "b", "c", "d", "e", "f"):
    os.open(name, os.O_RDWR | os.O_CREAT)
os.write(file, str(train(4)).encode())
time.sleep(1.2)
""",
    ),
    _guest(
        "has no descriptor left",
        """
import resource
import torch
descriptors = []
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
try:
    while True:
        descriptors.append(os.open("/dev/null", 0))
except OSError as error:
    print(error)
print(train(), len(descriptors) > 20)
""",
        None,
    ),
    _guest(
        "has no thread",
        """
import _thread, threading
def refuse(*_):
    raise RuntimeError("can't start new thread")
_thread.start_new_thread = threading._start_new_thread = refuse
for name in ("_start_joinable_thread", "start_joinable_thread"):
    for module in (_thread, threading):
        if hasattr(module, name):
            setattr(module, name, refuse)
print(train())
""",
        None,
    ),
    _guest(
        "has no memory left",
        """
import resource
import torch
train(1)
time.sleep(0.1)
size = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (size + (4 << 20),) * 2)
print(train(4))
""",
        None,
    ),
    _guest(
        "has no memory left before its first step",
        """
import resource
import torch
train(0)
torch.nn.Linear(4, 4)(torch.ones(4)).sum().backward()
size = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (size + (4 << 20),) * 2)
print(train(5))
""",
        None,
    ),
    *(
        _guest(
            f"may write no file, {name}",
            f"""
import resource
import torch
signal.signal(signal.SIGXFSZ, signal.{name})
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
print(train(3))
time.sleep(1.2)
print(train(2))
""",
            None,
        )
        for name in ("SIG_IGN", "SIG_DFL")
    ),
    _guest("warnings are errors", "import torch; print(train())", flags=("-B", "-W", "error")),
    _guest("development mode", "print(train())", flags=("-X", "dev")),
    _guest(
        "own sitecustomize and usercustomize",
        "import sitecustomize; print(train(), sitecustomize.__file__, sys.own)",
        files={
            "own/sitecustomize.py": "import sys; sys.own = [__name__, __file__]",
            "own/usercustomize.py": "import sys; sys.own.append(__file__)",
        },
        before=_shell('export PYTHONPATH="own${PYTHONPATH:+:$PYTHONPATH}"'),
    ),
    _guest(
        "leads a session",
        """
import torch
child = os.fork()
if not child:
    os.setsid()
    open("child", "w").write(str(train()))
    os._exit(0)
os.waitpid(child, 0)
print(train())
""",
    ),
    _guest(
        "dies of a segmentation fault",
        "import ctypes; train(); sys.stdout.flush(); ctypes.string_at(0)",
        None,
    ),
    _guest("leaves by _exit", "print(train(), flush=True); os._exit(7)", None),
    _guest(
        "fails in many ways",
        """
import atexit, threading
atexit.register(print, "first registered")
print(train())
atexit.register(lambda: 1 / 0)
atexit.register(print, "last registered")
thread = threading.Thread(target=lambda: {}["none"], name="own")
thread.start()
thread.join()
raise SystemExit("the end")
""",
    ),
    _guest(
        "fails within a step",
        """
def fail(number):
    if number == 3:
        raise RuntimeError("in the loop")
train(5, before_step=fail)
""",
        3,
    ),
    # the environment
    _guest("clears the environment first", "os.environ.clear(); print(train())", None),
    _guest(
        "clears the environment later",
        "import torch; os.environ.clear(); print(train(2)); os.environ.clear(); print(train(3))",
        None,
    ),
    *(
        _guest(f"{name} is {value}", "print(train())", None, variables={name: value})
        for name, value in (
            ("RANK", "worker-3"),
            ("WORLD_SIZE", "1000000000"),
            ("RANK", "-1"),
            ("LOCAL_RANK", "x"),
        )
    ),
    # imports
    _guest(
        "asks for torch before it imports it, and reloads what depends on it",
        """
import importlib.util, pkgutil, warnings
warnings.simplefilter("ignore")
print(importlib.util.find_spec("torch").origin)
print(getattr(pkgutil, "find_loader", importlib.util.find_spec)("torch") is not None)
for finder in list(sys.meta_path):
    if hasattr(finder, "find_spec"):
        finder.find_spec("torch", None)
from importlib.machinery import PathFinder
print(PathFinder.find_spec("torch").name, "torch" in sys.modules)
import asks, depends
print(train(), depends.SIZE)
importlib.reload(depends)
import torch.optim.lr_scheduler
importlib.reload(torch.optim.lr_scheduler)
importlib.invalidate_caches()
print(importlib.util.find_spec("torch").origin, train())
""",
        10,
        files={
            "asks.py": "import importlib.util\nHAS_TORCH = importlib.util.find_spec('torch') is not None\n",
            "depends.py": "import torch\nSIZE = torch.ones(3).numel()\n",
        },
    ),
    _guest(
        "wraps the finders; steps that raise are caught",
        """
class Wrapped:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Wrapped(finder) for finder in sys.meta_path]
import torch
class Fails(torch.optim.SGD):
    calls = 0
    def step(self, closure=None):
        Fails.calls += 1
        if Fails.calls == 3:
            raise torch.cuda.OutOfMemoryError("no memory")
        if Fails.calls == 5:
            signal.raise_signal(signal.SIGINT)
        return super().step(closure)
model = torch.nn.Linear(2, 2)
optimizer = Fails(model.parameters(), lr=0.1)
def closure(fails):
    if fails:
        raise ValueError("in the closure")
    model(torch.ones(2)).sum().backward()
caught = []
for number in range(60):
    try:
        optimizer.step(lambda: closure(number == 10))
    except (RuntimeError, ValueError, KeyboardInterrupt) as error:
        caught.append(type(error).__name__)
print(caught)
print(train())
""",
        57,  # of the first optimizer
    ),
    _guest(
        "has a list of finders of its own, and files whose name raises",
        """
class Finders(list):
    def remove(self, value):
        raise RuntimeError("finders stay")
class Silent:
    def find_module(self, name, path=None):
        return None
import warnings
warnings.simplefilter("ignore")
sys.meta_path = Finders([Silent(), *sys.meta_path])
print(train())
import io
import torch
class Target(io.BytesIO):
    error = SystemExit
    @property
    def name(self):
        raise self.error("from name")
class Refuses(io.BytesIO):
    def write(self, content):
        raise OSError("no room")
class Odd(io.BytesIO):
    name = property(lambda self: 5)
    def getbuffer(self):
        raise KeyboardInterrupt("from getbuffer")
for error in (SystemExit, ValueError, KeyboardInterrupt, RecursionError, MemoryError, GeneratorExit):
    target = Target()
    Target.error = error
    for action in (lambda: torch.save(torch.ones(2), target), lambda: target.seek(0), lambda: torch.load(target)):
        try:
            print(error.__name__, action())
        except BaseException as raised:
            print(type(raised), raised)
for target in (Refuses(), Odd(), "missing/folder/file"):
    try:
        print(torch.save(torch.ones(2), target))
    except BaseException as raised:
        print(type(raised), str(raised).splitlines()[0])
torch.save(torch.ones(2), "saved.pt")
print(torch.load("saved.pt"), train())
""",
        10,
    ),
    _guest(
        "loads torch in a way of its own; groups fail, and come twice",
        """
import importlib.machinery
class Plain:
    def __init__(self, loader):
        self.loader = loader
    def create_module(self, spec):
        return self.loader.create_module(spec)
    def exec_module(self, module):
        print("loading", module.__name__)
        self.loader.exec_module(module)
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name)
        spec.loader = Plain(spec.loader)
        return spec
sys.meta_path.insert(0, Finder)
import torch
print(type(torch.__loader__), type(torch.__spec__.loader))
print(train())
import torch.distributed as dist
for arguments in (
    dict(backend="gloo", init_method="tcp://127.0.0.1:99999", rank=0, world_size=1),
    dict(backend="none"),
    dict(backend="gloo", rank=3),
):
    try:
        dist.init_process_group(**arguments)
    except BaseException as error:
        print(type(error), str(error).splitlines()[0])
print(train(1), dist.is_initialized())
import torch
for cycle in range(2):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    value = torch.ones(2)
    dist.all_reduce(value)
    print(value.tolist(), train(2), dist.get_world_size())
    dist.destroy_process_group()
""",
        10,
    ),
    _guest(
        "the first import of torch fails",
        """
import importlib.machinery
class Finder:
    left = 1
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "torch" and cls.left:
            cls.left -= 1
            raise ImportError("not yet")
sys.meta_path.insert(0, Finder)
try:
    import torch
except ImportError as error:
    print(error)
print(train())
""",
    ),
    # the loop
    _guest(
        "optimizers of its own",
        """
import torch
class Own(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
    def step(self, closure=None):
        for group in self.param_groups:
            for value in group["params"]:
                value.data -= group["lr"] * value.grad
class Wrapper(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)
print(train(4, Own), train(3, Wrapper), Own.step.__name__, Wrapper.step.__qualname__)
""",
        None,
    ),
    _guest(
        "traces itself, looks at all it has, waits for its threads, does without garbage collection",
        """
import threading
names = set()
def trace(frame, event, argument):
    if threading.current_thread() is not threading.main_thread():
        names.add(os.path.basename(frame.f_code.co_filename))
    return None
threading.settrace(trace)
threading.setprofile(trace)
sys.settrace(trace)
train(3)
sys.setprofile(trace)
train(2)
time.sleep(0.3)
print(sys.gettrace() is trace, sys.getprofile() is trace)
sys.settrace(None); sys.setprofile(None)
print(sorted(names))
threading.settrace(None); threading.setprofile(None)
import torch, warnings
train()
print([sys.excepthook is sys.__excepthook__, repr(threading.excepthook), sys.gettrace(), sys.getprofile()])
print({int(n): repr(signal.getsignal(n)).partition(" at ")[0] for n in signal.valid_signals()})
print([line for line in open("/proc/self/status") if line.startswith(("SigIgn", "SigBlk"))])
print(own(sys.path), torch.get_num_threads(), torch.__spec__.loader.__class__, torch.__loader__.__class__)
print(warnings.filters, torch.__spec__.origin, sys.getrecursionlimit(), sys.getswitchinterval())
print(sys.modules["torch"] is torch)
threads = [threading.Thread(target=time.sleep, args=(0.1,)) for _ in range(3)]
for thread in threads:
    thread.start()
print(train())
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(2)
        print(thread.name, thread.is_alive())
print(threading.active_count(), [thread.name for thread in threading.enumerate()])
import gc
seen = []
gc.callbacks.append(lambda phase, information: seen.append(phase))
train(2)
gc.collect()
gc.disable()
print(seen[:2])
gc.callbacks.clear()
train(3)
time.sleep(0.6)
print(gc.isenabled(), gc.callbacks, gc.get_threshold(), gc.get_freeze_count())
""",
        20,
    ),
    _guest(
        "functions as they are seen, pickled and copied",
        _REACHES_INSIDE
        + """
train(2)
for name, value in names.items():
    print(name, value.__module__, value.__qualname__, value.__name__, len(value.__doc__ or ""))
    print(inspect.signature(value), inspect.isfunction(value))
    print(len(inspect.getsource(value)))
    print(sorted(value.__annotations__), hasattr(value, "__self__"))
print(names["init"] is names["init2"])
import copy, pickletools, subprocess
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(torch.arange(4.0), 2)
model(torch.ones(2)).sum().backward()
optimizer.step()
for name, value in {**names, "an optimizer": optimizer, "a loader": loader, "a model": model}.items():
    try:
        content = pickle.dumps(value, 0)
    except Exception as error:
        print(name, type(error), error)
        continue
    used = [word for opcode, word, _ in pickletools.genops(content) if opcode.name == "GLOBAL"]
    print(name, used, b"torchscale" in content, content[:200])  # storages have addresses in it
copied = copy.deepcopy(optimizer)
copied.step()
print(sorted(vars(copied)), sorted(vars(optimizer)), len(copy.deepcopy(loader)), copy.deepcopy(model))
print(torch.save(names["save"], "by-reference.pt"), train(3))
""",
        5,
    ),
    # the folder of the run
    *(
        _guest(
            f"trains where {name}",
            f"""
import shutil
job = os.environ.get("TORCHSCALE_WATCH")
print(train(3))
time.sleep(0.8)
if job:
    {action}
time.sleep(0.8)
print(train(2))
import torch
torch.save(torch.ones(1), "saved.pt")
""",
            None,
        )
        for name, action in (
            ("the folder is removed", "shutil.rmtree(job)"),
            (
                "its files become pipes",
                """
    folder = f"{job}/ranks/0.0"
    further = "names.jsonl calls-000001.bin checkpoints.json use.json.part rank.json.part"
    for name in {*os.listdir(folder), *further.split()}:
        if os.path.lexists(f"{folder}/{name}"):
            os.unlink(f"{folder}/{name}")
        os.mkfifo(f"{folder}/{name}")
    os.makedirs(f"{job}/hang")
    os.mkfifo(f"{job}/hang/autopsy-request")
    os.mkfifo(f"{job}/hang/autopsy-rank-0.part")""",
            ),
        )
    ),
    _guest(
        "trains where the folder is full",
        """
print(train(3))
if os.environ.get("TORCHSCALE_WATCH"):
    try:
        with open(os.environ["TORCHSCALE_WATCH"] + "/fill", "wb", 0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        pass
time.sleep(0.8)
print(train(2))
""",
        None,
        mounts="mount -t tmpfs -o size=256k none JOB",
    ),
]

_MORE = """
import torch
model = torch.nn.Linear(2, 2)
torch.optim.SGD(model.parameters(), lr=0.1).step()
print("more")
"""

CAMPAIGN_GUESTS = [
    _handling("group", [name for name in SIGNALS if name not in COMMON]),
    _handling("alone", RARE),
    *(
        _light(f"dies of {name} sent to the command alone", _DIES, arguments=(name,))
        for name in ("STKFLT", "PWR")
    ),
    _guest(
        "arguments as they are seen",
        _REACHES_INSIDE
        + """
del names["wait"]  # of C
for name, value in names.items():
    print(name, inspect.getfullargspec(value), value.__defaults__, value.__kwdefaults__)
    print(inspect.getsourcefile(value), value.__code__.co_varnames)
print(train())
""",
    ),
    _guest(
        "trains where the folder is read-only",
        """
import subprocess
print(train(3))
if os.environ.get("TORCHSCALE_WATCH"):
    subprocess.run(["mount", "-o", "remount,ro", os.environ["TORCHSCALE_WATCH"]], check=True)
time.sleep(0.8)
print(train(2))
""",
        None,
        mounts="mount -t tmpfs -o size=256k none JOB",
    ),
    _guest(
        "trains where the folder is full from the start",
        "print(train())",
        None,
        mounts="mount -t tmpfs -o size=16k none JOB",
    ),
    _guest(
        "a pool by a fork server",
        """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        print(pool.map(train, [2, 3]))
    print(train())
""",
    ),
    _guest(
        "torch's own start of processes by spawn",
        """
import torch.multiprocessing as mp
def work(number, folder):
    with open(f"{folder}/{number}", "w") as file:
        file.write(str(train(3)))
if __name__ == "__main__":
    mp.spawn(work, (os.getcwd(),), 2)
    print(train())
""",
        None,
    ),
    _guest(
        "loaders with workers by spawn",
        """
import torch
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.ones(1) * index
if __name__ == "__main__":
    print(train())
    for batch in torch.utils.data.DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context="spawn"):
        print(batch.tolist())
""",
    ),
    _guest(
        "forks and runs a program that trains",
        """
import subprocess
print(train(2))
done = subprocess.run([sys.executable, "-c", "import train_more"], capture_output=True, text=True)
print(done.stdout, done.stderr, done.returncode)
child = os.fork()
if not child:
    os.execv(sys.executable, [sys.executable, "-c", "print(5)"])
print(os.waitpid(child, 0)[1], train(3))
""",
        files={"train_more.py": _MORE},
    ),
    _guest(
        "a child whose rank is no number",
        """
import subprocess
print(train(2))
odd = {**os.environ, "RANK": "worker-3"}
done = subprocess.run([sys.executable, "-c", "import train_more"], env=odd, capture_output=True, text=True)
print(done.stdout, done.stderr, done.returncode)
os.environ["RANK"] = "worker-4"
print(train(3))
""",
        files={"train_more.py": _MORE},
    ),
    _guest(
        "goes to the background",
        """
import torch
if os.fork():
    os._exit(4)
os.setsid()
open("result", "w").write(str(train()))
""",
        None,
    ),
    _guest(
        "compiles its step",
        """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
counted = []
def backend(graph, inputs):
    counted.append(len(list(graph.graph.nodes)))
    return graph.forward
@torch.compile(backend=backend)
def step(value):
    return model(value).sum()
for _ in range(5):
    optimizer.zero_grad()
    step(torch.ones(4)).backward()
    optimizer.step()
@torch.compile(backend=backend, fullgraph=False)
def whole(value):
    loss = model(value).sum()
    model.train()
    return loss
whole(torch.ones(4)).backward()
print(counted, torch._dynamo.utils.counters["graph_break"])
""",
    ),
    *(
        _guest(f"{name} is {value}", "print(train())", None, variables={name: value})
        for name, value in (
            ("RANK", "99999999999999999999"),
            ("WORLD_SIZE", "-5"),
            ("WORLD_SIZE", "x"),
            ("LOCAL_WORLD_SIZE", "x"),
            ("TORCHELASTIC_RESTART_COUNT", "x"),
            ("TORCHELASTIC_RESTART_COUNT", "-3"),
            ("RANK", "٣"),
            ("RANK", "1_0"),
            ("LOCAL_WORLD_SIZE", "1000000000"),
            ("TORCH_FR_BUFFER_SIZE", "99999999999999999999"),
            ("TORCH_FR_BUFFER_SIZE", "²"),
        )
    ),
    _guest("optimized", "print(train())", flags=("-OO", "-u")),
    _guest("isolated", "print(train())", None, flags=("-I",)),
    _guest("without the environment", "print(train())", None, flags=("-E",)),
    _guest("aborts while it trains", "train(); os.abort()", None),
    _guest(
        "is killed while it trains",
        "print(train(), flush=True); os.kill(os.getpid(), 9)",
        None,
    ),
    _guest(
        "ends in a thread's call while others run",
        """
import threading
threading.Thread(target=time.sleep, args=(0.5,)).start()
print(train())
threading.Thread(target=lambda: (time.sleep(0.2), os._exit(6))).start()
time.sleep(2)
""",
        None,
    ),
    _guest(
        "saves in threads and in a handler",
        """
import threading
import torch
signal.signal(signal.SIGALRM, lambda *_: torch.save(torch.ones(3), "alarm.pt"))
threads = [threading.Thread(target=torch.save, args=(torch.ones(2), f"{n}.pt")) for n in range(3)]
for thread in threads:
    thread.start()
signal.setitimer(signal.ITIMER_REAL, 0.01)
for number in range(20):
    torch.save(torch.ones(10000), "main.pt")
wait_for(lambda: os.path.exists("alarm.pt"))
for thread in threads:
    thread.join()
print(train())
""",
    ),
    _guest(
        "a child forked while another thread saves",
        """
import threading
import torch
is_over = threading.Event()
def save():
    while not is_over.is_set():
        torch.save(torch.ones(1000), "loop.pt")
thread = threading.Thread(target=save)
thread.start()
codes = []
for number in range(15):
    child = os.fork()
    if not child:
        torch.save(torch.ones(2), "child.pt")
        os._exit(0)
    codes.append(wait_for(lambda: os.waitpid(child, os.WNOHANG) != (0, 0)))
    if not codes[-1]:
        os.kill(child, 9)
        os.waitpid(child, 0)
is_over.set()
thread.join()
print(codes, train())
""",
    ),
]

_IN_CAMPAIGN = (
    *("a pool by spawn", "torch's own start of processes", "pools of concurrent.futures"),
    *("forks while it trains", "leads a session", "uses up its core time", "development mode"),
    *("starts with closed stdin", "has no memory left", "may write no file, SIG_IGN"),
    *("LOCAL_RANK is x", "RANK is -1", "clears the environment later", "fails within a step"),
    *("the first import of torch fails", "optimizers of its own", "leaves by _exit"),
)
"""Programs with torch that are like others here: two imports of torch take six seconds of a core."""
_REAL = (
    "own sitecustomize and usercustomize",
    "asks for torch before it imports it, and reloads what depends on it",
    "wraps the finders; steps that raise are caught",
    "has a list of finders of its own, and files whose name raises",
    "loads torch in a way of its own; groups fail, and come twice",
    "the first import of torch fails",
    "functions as they are seen, pickled and copied",
    *("closes all descriptors", "has no descriptor left"),
    "traces itself, looks at all it has, waits for its threads, does without garbage collection",
    "has no memory left before its first step",
)
"""Programs that look at how they were started and what they import, or at all that a process has:
also by themselves they are started as users do."""
TORCH = [dataclasses.replace(guest, is_real=guest.name in _REAL) for guest in TORCH_GUESTS]
ALWAYS = [
    *(guest for guest in TORCH if guest.name not in _IN_CAMPAIGN),
    *START_GUESTS,
    *EXIT_GUESTS,
    *SIGNAL_GUESTS,
]
CAMPAIGN = [*(guest for guest in TORCH if guest.name in _IN_CAMPAIGN), *CAMPAIGN_GUESTS]
