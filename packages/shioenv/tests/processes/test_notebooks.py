"""A notebook as it is saved: rich results, and one line of progress."""

from __future__ import annotations

import re

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbconvert.preprocessors import ExecutePreprocessor

PROGRESS = """\
from shioenv.dataset.generate import Progress, progress_line
show = progress_line()
for done in range(1001):
    show(Progress(done, 1000, 0, done, 0, done / 100))
"""
NOTES = """\
show = progress_line()
show(Progress(0, 2, 0, 0, 0, 0.0))
show(Progress(0, 2, 0, 0, 0, 0.0, "a note"))
show(Progress(2, 2, 0, 0, 0, 1.0))
"""
RESULT = """\
import shioenv
patch = shioenv.ContextPatch((("a", "/fs/~1tmp~1.x", {}),))
shioenv.Behavior(2, b"<script>alert('shown')</script>", patch)
"""


@pytest.fixture(scope="module")
def saved() -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_code_cell(source) for source in (PROGRESS, NOTES, RESULT)]
    notebook: nbformat.NotebookNode = nbformat.v4.new_notebook(cells=cells)
    ExecutePreprocessor(timeout=120, kernel_name="python3").preprocess(notebook, {})
    return notebook


def test_progress_leaves_one_line(saved: nbformat.NotebookNode) -> None:
    (output,) = saved.cells[0].outputs
    assert output.data == {"text/plain": "1000/1000 records, 100.0/s"}


def test_a_note_stays_beside_the_progress(saved: nbformat.NotebookNode) -> None:
    lines = [output.data["text/plain"] for output in saved.cells[1].outputs]
    assert lines == ["a note", "2/2 records, 2.0/s"]


def test_a_result_is_a_table_that_runs_nothing(saved: nbformat.NotebookNode) -> None:
    page, _ = HTMLExporter(template_name="basic").from_notebook_node(saved)
    (table,) = re.findall(r"<table>.*?</table>", page, re.DOTALL)
    assert "exit code 2" in table
    assert "added   /tmp/.x" in table
    assert "&lt;script&gt;" in table
    assert "<script>alert" not in page
