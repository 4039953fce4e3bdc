#!/usr/bin/python3
"""Records scenes on this host, as root, while no other program uses it: record.py DIRECTORY SCENE...

The host has cgroup v1 with the controllers cpu and cpuacct. Needs target/release/cgscope and target/release/workload
(`cargo build --release -p cgscope-lab --bin workload`). Each scene starts its loads in new cgroups and removes them at its end.
If other programs used the host during a recording, the scene is recorded again.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.abspath(os.path.dirname(__file__) + "/../../../../..")
CGSCOPE, WORKLOAD = TOP + "/target/release/cgscope", TOP + "/target/release/workload"
MOUNTS = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"]
SYSTEM = "/system.slice/"
SESSION = "/user.slice/user-1000.slice/session-3.scope"
POD = "/kubepods/burstable/pod1c8e2f4a-6b7d-4e90-a3f5-0d9b8c7a6e51/"
ENCODER = POD + "9f2d7c4b1a8e6035d4c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0918273645"
PAUSE = POD + "3a1b5c7d9e0f2a4c6e8b0d1f3a5c7e9b1d3f5a7c9e0b2d4f6a8c0e1b3d5f7a9c"
# Three milliseconds of work for each request, then seven of waiting for the next one.
WEB = """import os, time
os.fork(), os.fork()
end = time.monotonic() + 60
while time.monotonic() < end:
    began = time.thread_time()
    while time.thread_time() - began < 0.003: pass
    time.sleep(0.007)
"""
LOOP = "while :; do :; done"
# Of each scene: the cgroups with their quotas (us of every 100 ms), and the loads: cgroup, name, program and arguments.
SCENES = {
    "quota": ({SYSTEM + "render.service": 50_000}, [(SYSTEM + "render.service", "sh", ["/bin/sh", "-c", LOOP])]),
    "threads": (
        {ENCODER: 100_000, PAUSE: None},
        [(ENCODER, "ffmpeg", [WORKLOAD, "burn", "20", "60"]), (PAUSE, "pause", [WORKLOAD, "sleep", "1", "60"])],
    ),
    "neighbour": (
        {SYSTEM + name + ".service": None for name in ("web", "backup", "postgresql")} | {SESSION: None},
        [
            (SYSTEM + "web.service", "web", ["/usr/bin/python3", "-c", WEB]),
            (SYSTEM + "backup.service", "backup", [WORKLOAD, "burn", "2", "60", "pin"]),
            (SYSTEM + "postgresql.service", "postgres", [WORKLOAD, "mix", "13", "60"]),
            (SESSION, "editor", [WORKLOAD, "mix", "3", "60"]),
        ],
    ),
}
SCENES["coarse"] = SCENES["quota"]
# Average CPUs that other programs may use before and during a recording.
OTHERS = 0.08


def busy():
    """CPU time that all CPUs were busy, s."""
    ticks = [int(word) for word in open("/proc/stat").readline().split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / 100


def used(cgroups):
    """CPU time of the scene's cgroups, s."""
    return sum(int(open(MOUNTS[1] + path + "/cpuacct.usage").read()) for path in cgroups) / 1e9


def create(path, quota_us, created):
    for mount in MOUNTS:
        for end in [at for at, letter in enumerate(path + "/") if letter == "/" and at]:
            if not os.path.isdir(mount + path[:end]):
                os.mkdir(mount + path[:end])
                created.append(mount + path[:end])
    if quota_us:
        with open(MOUNTS[0] + path + "/cpu.cfs_quota_us", "w") as file:
            file.write(str(quota_us))


def start(path, name, words, bin):
    # The name of a task is that of its program.
    program = shutil.copy(words[0], bin + "/" + name)

    def enter():
        os.setsid()
        for mount in MOUNTS:
            with open(mount + path + "/cgroup.procs", "w") as file:
                file.write("0")

    quiet = subprocess.DEVNULL
    return subprocess.Popen(words, executable=program, preexec_fn=enter, stdin=quiet, stdout=quiet)


def record(scene, file):
    """Returns the average CPUs that other programs used."""
    cgroups, loads = SCENES[scene]
    created, started = [], []
    with tempfile.TemporaryDirectory() as bin:
        try:
            for path, quota_us in cgroups.items():
                create(path, quota_us, created)
            for path, name, words in loads:
                started.append(start(path, name, words, bin))
            time.sleep(2)
            before, began = busy() - used(cgroups), time.monotonic()
            coarse = ["--mode", "coarse"] if scene == "coarse" else []
            words = [CGSCOPE, "record", "-i", "1s", "-d", "10s", "-o", file] + coarse
            named = ["unshare", "--uts", "sh", "-c", 'hostname web1 && exec "$@"', "sh"]
            subprocess.run(named + words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return (busy() - used(cgroups) - before) / (time.monotonic() - began)
        finally:
            for load in started:
                os.killpg(load.pid, signal.SIGKILL)
                load.wait()
            time.sleep(0.5)
            for path in reversed(created):
                os.rmdir(path)


def wait_for_quiet():
    while True:
        before = busy()
        time.sleep(1)
        if busy() - before <= OTHERS:
            return


def main():
    directory, scenes = sys.argv[1], sys.argv[2:] or list(SCENES)
    for scene in scenes:
        file = f"{directory}/{scene}.rec"
        others = OTHERS + 1
        while others > OTHERS:
            wait_for_quiet()
            if os.path.exists(file):
                os.remove(file)
            others = record(scene, file)
            print(f"{scene}: other programs used {others:.3f} CPUs", flush=True)


main()
