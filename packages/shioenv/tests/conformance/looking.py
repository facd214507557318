"""Run inputs whose results depend on the file system, and print each result as JSON.

A separate program, so that it can run with the cache directory on different file systems.
"""

from __future__ import annotations

import json
import sys

from shioenv.behavior.observe import open_sandbox
from shioenv.system.store import find_system

INPUTS = (
    "ls -f; ls -f / /etc /usr/bin; find / -xdev",
    "ls -laR; ls -las /etc; ls -iU; find . -ls",
    "stat -c '%n %s %b %B %h %i %o %A %U %G %X %Y' / * data/* /usr /usr/bin/* /var/log/*",
    "du -a; du -s /usr /etc /var; du --apparent-size -s /",
    "cat data/* archives/* > /dev/null 2>&1; cksum /usr/bin/* > /dev/null",
    "du -a data archives; du -s /usr/bin; ls -ls data; stat -c '%n %b' data/* /usr/bin/*",
    "tar cf - . | tar t; cp -r data e; ls -fiR e; tar cf t --sort=none data; tar tf t",
    "touch z a m; mkdir q; ls -f; rm README.md; ls -f; ls -id . q; du . q",
    "cd /etc; touch zz aa; ls -f; find . | tail -40; stat -c '%s %h %b %i' .; ls -f /",
    "mkdir d; cd d; touch 1 2 3; mkdir x; rm 2; touch 4; ls -fs; mv ../data .; find .; du -a data",
    "chmod -R g+w data; ls -la --time-style=+ -R data; find data -printf '%p %i %s %b\\n'",
    "rm -rv documents; mv -v logs l; ls -f l",
    "du data/sparse.img; cp --sparse=always data/sparse.img s; du s; cksum s; stat -c '%b %s' s",
    "grep -rl root /etc 2> /dev/null; find /usr/share -newer /etc/passwd; ls -lu data",
    "df -P / | awk '{print $1, $2, $3, $6}'; stat -f -c '%s %S %b %f %c' /",
)


def main() -> None:
    """Print code, output, patch and digests of each input, in order."""
    results = []
    with open_sandbox(find_system()) as sandbox:
        for text in INPUTS:
            behavior = sandbox.run(text)
            patch = behavior.patch.to_json()
            digests = sorted(behavior.content_digests.items())
            results.append([text, behavior.exit_code, behavior.text, patch, digests])
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
