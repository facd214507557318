import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shioenv.behavior.capture import Recorder
from shioenv.sandbox.base import Execution, FileChange, FileStat

BASELINE = (
    b'\0declare -p\ndeclare -x HOME="/"\ndeclare -x PWD="/s"\ndeclare -- _="a"\n'
    b"\0function\nf () \n{ \n    ls\n}\n\0shopt -p\nshopt -u extglob\n"
    b"\0set +o\nset +o errexit\n\0ulimit -a\nopen files                          (-n) 1024\n"
    b"\0alias -p\nalias l='ls'\n\0umask\n0022\n\0trap -p\n\0groups\n0\n"
)
RECORDER = Recorder(start="/s", baseline=BASELINE, users={0: "root"}, groups={}, instant=0)
NAMES = st.sampled_from(
    [b"/s/a", b"/s/b", b"/s/b-", b"/s/\xff~", b"/s/d/c", b"/t", b"/s2", b"/t/\\"]
)
FILES = st.builds(
    FileStat,
    mode=st.sampled_from([0o100644, 0o100755, 0o120777, 0o010600]),
    uid=st.integers(0, 1),
    gid=st.just(0),
    size=st.integers(0, 2),
    links=st.integers(1, 2),
    mtime_ns=st.integers(0, 3).map(lambda days: days * 86_400 * 10**9),
    inode=st.integers(1, 4),
    digest=st.sampled_from([None, "00", "11"]),
)
TREES = st.dictionaries(NAMES, FILES)


@given(TREES, TREES)
def test_the_patch_leads_from_the_context_before_to_the_one_after(
    before: dict[bytes, FileStat], after: dict[bytes, FileStat]
) -> None:
    changes = [FileChange(path, before.get(path), after.get(path)) for path in {*before, *after}]
    execution = Execution(
        exit_code=0, output=b"", shell=BASELINE, changes=tuple(changes), started=1e9, ended=1e9
    )
    patch = RECORDER.behavior(execution).patch
    profile: dict[str, Any] = {}
    found = patch.apply(RECORDER.context(profile, before).document)
    expected = RECORDER.context(profile, after).document
    assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)


@given(st.integers(0, len(BASELINE)), st.integers(0, 40), st.binary(max_size=30))
def test_a_damaged_dump_never_raises(position: int, cut: int, junk: bytes) -> None:
    dump = BASELINE[:position] + junk + BASELINE[position + cut :]
    found = RECORDER.behavior(Execution(exit_code=0, output=b"", shell=dump))
    assert found.shell_state_known or not found.patch
    found.patch.apply(RECORDER.context({}, {}).document)
    json.loads(found.patch.to_json())
    found.patch.to_json().encode()
