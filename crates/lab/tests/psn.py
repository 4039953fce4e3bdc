#!/usr/bin/env python3
"""Walks /proc/PID/task/TID/{stat,wchan,syscall} like psn. Tests use this script because no registry has psn.

psn.py [--seconds S] [--rounds N] [--hz HZ] [--active] [FILE...]

Reads all threads except its own (N times, or for S seconds) and prints one JSON object: rounds, number of threads, the CPU time
of the walks in seconds, and groups: {"COMM|LETTER": samples}. FILE: which files to read besides stat (default: wchan syscall).
The script keeps less data than psn, and writes no database, so it costs less than psn.
"""
import argparse
import collections
import json
import os
import re
import time

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float)
parser.add_argument("--rounds", type=int, default=1)
parser.add_argument("--hz", type=float, default=20)
parser.add_argument("--active", action="store_true")
parser.add_argument("files", nargs="*", default=["wchan", "syscall"])
arguments = parser.parse_args()

OWN = str(os.getpid())
DIGITS = re.compile(r"\d+")


def look(groups):
    threads = 0
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or pid == OWN:
            continue
        try:
            tids = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for tid in tids:
            threads += 1
            try:
                with open(f"/proc/{pid}/task/{tid}/stat") as file:
                    stat = file.read()
                # psn reads the files of every thread, in all states.
                read = []
                for name in arguments.files:
                    with open(f"/proc/{pid}/task/{tid}/{name}") as file:
                        read.append(file.read())
            except OSError:
                continue
            comm, rest = stat[stat.index("(") + 1 :].rsplit(")", 1)
            state = rest.split()[0]
            if not (arguments.active and state in "SZIP"):
                groups[f"{DIGITS.sub('*', comm)}|{state}"] += 1
    return threads


def main():
    groups = collections.Counter()
    rounds = threads = 0
    cpu_s = 0.0
    start = time.time()
    while True:
        before_s = time.process_time()
        threads += look(groups)
        cpu_s += time.process_time() - before_s
        rounds += 1
        if arguments.seconds is None:
            if rounds >= arguments.rounds:
                break
            continue
        until = start + rounds / arguments.hz
        if until >= start + arguments.seconds or time.time() >= start + arguments.seconds:
            break
        time.sleep(max(0, until - time.time()))
    print(json.dumps({"rounds": rounds, "threads": threads, "cpu_s": cpu_s, "groups": groups}))


main()
