"""Subcommands of `shioenv model`: list, show, fetch and publish models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shioenv.cli import printing, shared

app = typer.Typer(
    name="model", no_args_is_help=True, help="List, inspect, download and publish models."
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="[MODEL]",
        autocompletion=shared.completing("shioenv_model.files:model_names"),
        help="A model by name or file (default: the included one).",
        show_default=False,
    ),
]


@shared.command(app, "shioenv model list", name="list")
def list_() -> shared.Printout:
    """List the included model and those in the cache."""
    from shioenv_model.files import model_names

    found = model_names()
    document = {name: {"file": str(path), "bytes": path.stat().st_size} for name, path in
                found.items()}  # fmt: skip
    table = printing.table(("model", "MB", "file"), left=1)
    for name, path in found.items():
        table.add_row(name, f"{path.stat().st_size / 1e6:.1f}", str(path))
    return shared.Printout(document, [table])


@shared.command(app, "shioenv model show")
def show(model: Name = "default") -> shared.Printout:
    """Show a model's card: training data, accuracy, limits."""
    from shioenv_model.files import located, opened, read_card

    path = located(model)
    card = read_card(opened(path))
    learned, base = card.get("learned", {}), card.get("base")
    parts = ", ".join(
        f"{each['records']} {each['policy']} ({each['sampler']}, seed {each['seed']})"
        for each in card.get("material", [])
    )
    if card.get("kind") == "seq2seq":
        return shared.Printout(card, printing.rows(_written(card, path)), indent=2)
    facts = {
        "model": f"{card.get('name', model)}, {path}",
        "system": f"{card.get('system')} {card.get('system_digest', '')[:12]}",
        "records": card.get("records"),
        "material": parts,
        **_origin(card),
        **(
            {"accuracy": f"{learned.get('right')} of {learned.get('held_back')} held-out inputs"}
            if learned
            else {}
        ),
        **({"adds to": f"{base['name']} {base['digest']}"} if base else {}),
        "limits": card.get("limits"),
        "license": card.get("license"),
    }
    return shared.Printout(card, printing.rows(facts), indent=2)


@shared.command(app, "shioenv model get somebody/ubuntu-shell")
def get(
    repository: shared.HubRepository,
    *,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Local name of the model (default: its own name)."),
    ] = None,
) -> shared.Printout:
    """Download a model from a hub to the cache.

    Needs the extra shioenv[train]. HF_ENDPOINT selects a server other than the Hugging Face Hub.
    """
    from shioenv_model.hub import get as fetch

    file = fetch(repository, name)
    called = file.name.partition(".")[0]
    document = {"name": called, "file": str(file), "bytes": file.stat().st_size}
    said = f"{called}: {file}, {file.stat().st_size / 1e6:.1f} MB; shioenv model show {called}"
    return shared.Printout(document, [said])


@shared.command(app, "shioenv model push ./my.model somebody/ubuntu-shell")
def push(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model by name or file.")],
    repository: shared.HubRepository,
    *,
    private: shared.PrivateRepository = False,
) -> shared.Printout:
    """Publish a model and its card on a hub.

    Needs the extra shioenv[train], and a token in HF_TOKEN.
    """
    from shioenv_model.hub import push as put

    url = put(model, repository, private=private)
    return shared.Printout({"repository": repository, "url": url}, [f"{model} is in {url}"])


def _origin(card: dict[str, Any]) -> dict[str, object]:
    """Return the grammars, recipe and version in a model's card, as far as present."""
    material = card.get("material", [])
    found = {
        key: sorted({each[name][:12] for each in material if each.get(name)})
        for key, name in (("grammars", "grammar_digest"), ("recipe", "recipe_sha256"))
    }
    made: dict[str, object] = {key: ", ".join(each) for key, each in found.items() if each}
    return {**made, "version": card["version"]} if card.get("version") else made


def _written(card: dict[str, Any], path: Path) -> dict[str, object]:
    """Return the displayed facts of a sequence model."""
    learned = card["learned"]
    return {
        "model": f"{card['name']}, {path}",
        "systems": ", ".join(f"{name} {each['digest'][:12]}" for name, each in
                             card["systems"].items()),
        "records": card["records"],
        **_origin(card),
        "weights": f"{card['parameters'] / 1e6:.1f} million, {card['steps']} steps, "
        f"seed {card['plan']['seed']}",
        "accuracy": f"{learned['right']} of {learned['held_back']} held-out inputs",
        "limits": card["limits"],
        "license": card["license"],
    }  # fmt: skip
