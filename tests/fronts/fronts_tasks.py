"""Tasks for every front, and what a scripted agent answers."""

from __future__ import annotations

from shioenv.tasks.task import Goal, Task


def task(name: str, goal: Goal, prompt: str, solution: str) -> Task:
    return Task(
        id=name,
        prompt=prompt,
        cwd="/home/ubuntu",
        goal=goal,
        solution=solution,
        reduced=solution.split()[0],
        commands=[solution.split()[0]],
        irreducibility=1.0,
        n_arguments=1,
        record=0,
        system="debian-12",
        system_digest="0" * 64,
    )


TASKS = [
    task(
        "gone",
        Goal(patch=[["r", "/fs/documents~1notes.txt"]]),
        "`documents/notes.txt` is to be gone, and nothing else.",
        "rm documents/notes.txt",
    ),
    task(
        "user",
        Goal(output="root\n"),
        "Print the name of whoever runs this shell.",
        "id -un",
    ),
]
REPLIES = {
    "gone": ["ls documents", "cd documents; f=notes.txt", "rm $f"],
    "user": ["pwd", "whoami"],
}
