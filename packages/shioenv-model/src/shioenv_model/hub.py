"""Models shared in repositories of the Hugging Face Hub.

`HF_ENDPOINT` selects another server with the Hub's protocol. The Hub's library reads a token for
write access from `HF_TOKEN`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shioenv.endpoint import hub_library, short_message
from shioenv.errors import ModelError
from shioenv.files.durable import atomic_write, cache_directory, storage_errors
from shioenv_model.files import SUFFIX, located, opened, read_card

FILE = f"shioenv{SUFFIX}"
"""The name of the model's file in a repository."""

_FEATURE, _EXTRA = "downloading and publishing models", "train"


def get(repository: str, name: str | None = None) -> Path:
    """Download and check a repository's model, and store it in the user's model directory.

    Return the model's file. `name` is the local name (default: the repository's last part). Errors:
    ModelError for a repository without a model, or an unreachable server; MissingExtraError.
    """
    hub = hub_library(_FEATURE, _EXTRA)
    called = name or repository.rpartition("/")[2]
    if not called or "/" in called or called.startswith("."):
        raise ModelError(f"invalid model name {called!r}")
    with tempfile.TemporaryDirectory(prefix="shioenv-model-") as directory:
        with _as_model_errors(repository):
            fetched = Path(hub.hf_hub_download(repository, FILE, local_dir=directory))
        if not read_card(opened(fetched)):
            raise ModelError(f"{repository} has no model card")
        file = cache_directory() / "models" / f"{called}{SUFFIX}"
        with storage_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(file, fetched.read_bytes())
    return file


def push(model: str, repository: str, *, private: bool = False) -> str:
    """Upload a packed model and its card to a repository. Return the repository's address.

    A missing repository is created. Errors: ModelError for a file that is no packed model, or if
    the server rejects the upload; MissingExtraError.
    """
    hub = hub_library(_FEATURE, _EXTRA)
    path = located(model)
    if not path.is_file():
        raise ModelError(f"{path} is a directory", hint="use the model's file")
    card = read_card(opened(path))
    with _as_model_errors(repository):
        api = hub.HfApi()
        made = api.create_repo(repository, private=private, exist_ok=True)
        operations = [
            hub.CommitOperationAdd(FILE, str(path)),
            hub.CommitOperationAdd("README.md", page(card).encode()),
        ]
        api.create_commit(repository, operations, commit_message=f"{card.get('name', model)}")
    return str(made)


def page(card: dict[str, Any]) -> str:
    """Format a card as a README for hubs."""
    learned = card.get("learned", {})
    systems = ", ".join(card.get("systems", {})) or card.get("system", "")
    return "\n".join(
        [
            "---",
            f"license: {str(card.get('license', 'other')).lower()}",
            "library_name: shioenv",
            "tags: [bash, shell]",
            "---",
            f"# {card.get('name', 'a model')}",
            "",
            "Answers shell inputs without executing them: output, exit code, context patch.",
            "",
            f"- kind: {card.get('kind', '')}",
            f"- systems: {systems}",
            f"- records: {card.get('records', '')}",
            f"- accuracy: {learned.get('right', '')} of {learned.get('held_back', '')} held-out "
            "inputs",
            "",
            str(card.get("limits", "")),
            "",
        ]
    )


@contextmanager
def _as_model_errors(repository: str) -> Iterator[None]:
    """Convert any exception to a ModelError, because the library's classes differ by release."""
    try:
        yield
    except Exception as error:
        raise ModelError(f"{repository}: {short_message(error)}") from None
