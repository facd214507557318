"""Run a fixed list of inputs on the default system and print each result as JSON.

A separate program, so that it can run as different users and the results can be compared.
"""

from __future__ import annotations

import json
import sys
import time

from shioenv.behavior.observe import open_sandbox
from shioenv.system.store import build_system

INPUTS = (
    "true",
    "id; whoami; groups; umask; ulimit -a",
    "ls -laR",
    "ls /; ls -la /etc /tmp /var",
    "stat -c '%n %a %U %G %s %h %F' * /etc/* 2>&1 | sort",
    "find . -type f -exec cksum {} + | sort",
    "touch new; mkdir -p a/b/c; ls -la; rmdir a/b/c",
    "rm -rf logs documents; ls",
    "rm -r logs; mkdir logs; touch logs/fresh; ls -la logs",
    "mv documents/notes.txt n; mv data d2; ls -l d2",
    "ln data/users.csv hard; ln -s nowhere soft; ls -l hard soft",
    "ln README.md h; cp README.md h; ls -li README.md h; cp -al config c; ls -i c config",
    "mount --bind . /srv; ln /srv/README.md /srv/h; ls -li h; rm h; mv README.md z; ls -i z",
    "chown ubuntu:www-data README.md; chmod 4755 README.md; chgrp 12345 empty.txt; ls -ln",
    "su ubuntu -c 'id; touch mine; touch /etc/mine; ls -l mine'",
    "su -s /bin/sh bob -c 'cat /etc/shadow; ls /root'",
    "tar cf t.tar data; tar tvf t.tar; tar xf archives/archive.tar; ls",
    "mkfifo p; mknod null c 1 3; mknod block b 8 0; mknod pipe p; ls -l p pipe",
    "mount -t tmpfs none /mnt; echo $?; touch /mnt/x; ls /mnt",
    "ip addr; ip route; ip link set eth0 down; ip -br link",
    "mount; cat /proc/mounts /proc/1/mounts; cut -d' ' -f1,2,4- /proc/self/mountinfo; findmnt",
    "mount -t tmpfs -o uid=1000,size=1m x /mnt; mount --bind /etc /srv; mount; umount /mnt; mount",
    "su ubuntu -c 'mount; df -T; stat -c %d,%i,%h /; cat /proc/1/mounts'",
    "df -aT; df -i /; stat -f / /run /sys; ls -lai / /home; ls -l /proc/sys /proc/tty",
    "find / -xdev ! -path '/dev/*' ! -path /proc -printf '%i %n %D %s %p\\n' | sort",
    "touch documents/x /y; mkdir /etc/z; ls -i / documents; stat -c '%d %i %h %s' / documents /etc",
    "ip -d link; ip -j addr",
    "hostname; hostname other; hostname; uname -n",
    "ping -c 1 -W 1 10.20.30.1 | head -n 1; ping -c 1 192.0.2.7 | grep -c Unreachable",
    "curl -s http://10.20.30.1/; wget -q http://10.20.30.1/missing; echo $?",
    "curl -sI http://10.20.30.1/data.csv",
    "free; lscpu | grep -v Hypervisor; lsblk; nproc; cat /proc/cpuinfo /proc/meminfo /proc/loadavg",
    "ps -eo pid,ppid,user,args",
    "cat /proc/self/uid_map | wc -l; cat /proc/sys/kernel/hostname",
    "echo x > /dev/null; head -c 3 /dev/zero | od -c; head -c 8 /dev/urandom | wc -c",
    "setfattr -n user.a -v b README.md; getfattr README.md",
    "chroot / id; unshare -n true; echo $?",
    "export A=1; B=2; f() { :; }; alias l=ls; cd /tmp; umask 7; shopt -s nullglob; set -f",
    "kill -9 $$",
    "exec nosuch",
    "ls 'unclosed",
    "dd if=/dev/zero of=sparse bs=1 count=1 seek=1M status=none; du sparse; cksum sparse",
    "printf a > $'odd \\n name'; ls --quoting-style=c odd*",
    "sleep 5 & echo started",
    "dmesg | tail -n 2; who; last | head -n 3",
)


def _without_the_hour(text: str) -> str:
    """Replace the times of files that the run itself made by NOW."""
    now = time.time()
    for moment in (now, now - 60):
        text = text.replace(time.strftime(" %H:%M ", time.gmtime(moment)), " NOW ")
    return text


def main() -> None:
    """Print the behaviors by input, and the system's digest."""
    results: dict[str, object] = {}
    system = build_system(report=lambda line: print(line, file=sys.stderr))
    with open_sandbox(system) as sandbox:
        for text in INPUTS:
            behavior = sandbox.run(text)
            results[text] = [
                behavior.exit_code,
                _without_the_hour(behavior.text),
                behavior.patch.to_json(),
                sorted(behavior.content_digests.items()),
            ]
    results["digest"] = system.digest
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
