"""The bundled model's answers for several operands and for empty input match the machine."""

from __future__ import annotations

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv_model.files import load_model
from shioenv_model.model import Model

APART = r"""
cat README.md nofile
cat nofile README.md
cat -n README.md nofile
cut -c1 nofile data/ids.txt
chmod 644 README.md nofile
chown root nofile README.md
sha256sum nofile data/ids.txt
rm nofile README.md
rmdir data nofile
mkdir new data
touch nodir/a b
tac nofile data/ids.txt
sed -n 1p nofile data/ids.txt
sort README.md nofile
""".strip().split("\n")
EMPTY = r"""
cat /dev/null
cat /dev/null > README.md; wc -c README.md
wc -l < /dev/null
ls < /dev/null
sort < /dev/null > out; ls -l out
xargs -n1 echo < data/ids.txt
xargs echo < data/ids.txt
""".strip().split("\n")


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model()


@pytest.mark.parametrize("text", APART + EMPTY)
def test_the_model_does_what_the_machine_does(
    text: str, model: Model, observer: SandboxRunner
) -> None:
    said, right = model.run(text), observer.run(text)
    assert (said.output, said.exit_code) == (right.output, right.exit_code)
    ours, theirs = ({repr(each) for each in one.patch.operations} for one in (said, right))
    assert ours == theirs
