#!/usr/bin/env python3
"""A small policy engine: reports files that users removed or created, by their user.

Usage: changelog_policy.py FSNAME-MDT0000 USER

USER is the id that `lctl --device FSNAME-MDT0000 changelog_register -n` printed. The program runs
as root on a host with a mount. After a restart it continues with the first record that it had not
cleared, so it may see some records twice.
"""

import re
import subprocess
import sys

# 1 01CREAT 15:13:28.337394784 2026.11.30 0x0 t=[0x200000401:0x1:0x0] ... u=0:0 ... p=[...] name
RECORD = re.compile(rb"(?P<index>\d+) (?P<type>\d\d)(?P<kind>\w+) +(?P<time>\S+ \S+) (?P<flags>0x\w+) (?P<rest>.*)")
# name s=[0x200000401:0x1:0x0] sp=[0x200000007:0x1:0x0] old
RENAMED = re.compile(rb"(.*) s=(\[[0-9a-fx:]+\]) sp=(\[[0-9a-fx:]+\]) (.*)", re.DOTALL)
# Records that are processed before they are cleared together.
BATCH = 1000


def parse(line):
    """Returns a record as a dictionary, or None for a line that is none."""
    match = RECORD.match(line.rstrip(b"\n"))
    if match is None:
        return None
    record = {key: value.decode() for key, value in match.groupdict().items() if key != "rest"}
    fields, _, name = match["rest"].partition(b" p=")
    for field in fields.split(b" "):
        key, _, value = field.partition(b"=")
        record[key.decode()] = value.decode(errors="surrogateescape")
    if name:
        parent, _, name = name.partition(b" ")
        record["p"] = parent.decode()
        if record["kind"] == "RENME":
            name, source, parent, old = RENAMED.match(name).groups()
            record["s"], record["sp"] = source.decode(), parent.decode()
            record["old"] = old.decode(errors="surrogateescape")
        record["name"] = name.decode(errors="surrogateescape")
    return record


def process(record):
    """The policy. It must accept a record that it has seen before."""
    if record["kind"] in ("CREAT", "UNLNK"):
        print(f"{record['time']} user {record['u']} {record['kind']} {record['t']} {record['name']!r}", flush=True)


def main():
    mdt, user = sys.argv[1:]
    pending = 0
    with subprocess.Popen(["lfs", "changelog", "--follow", mdt], stdout=subprocess.PIPE) as reader:
        for line in reader.stdout:
            record = parse(line)
            if record is None:
                continue
            process(record)
            pending += 1
            if pending == BATCH:
                subprocess.run(["lfs", "changelog_clear", mdt, user, record["index"]], check=True)
                pending = 0
    return reader.returncode


if __name__ == "__main__":
    sys.exit(main())
