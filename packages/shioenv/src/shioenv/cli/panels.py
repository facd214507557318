"""Panels of options in the help of commands with many options."""

from __future__ import annotations

from typing import Any

MANY = 8
"""The number of options up to which a command's help has a single panel."""

PANELS = {
    "Inputs": "sampler command policy horizon composite-share mistakes session-length grammars "
    "sampler-label cwd history pool suite max-arguments",
    "Scores": "budget noise-runs estimator target-se process-budget without-scores",
    "Execution": "system sandbox revert timeout start-timeout without-shell-state workers engine "
    "address cache-size no-cache tty runs",
    "Output": "format compress license markdown figure log",
    "Models": "model machine-below seq2seq stages without abstain-below explain language-model "
    "endpoint agent",
    "Training": "size seq2seq-size memory-sizes device minutes total-minutes steps batch-tokens "
    "learning-rate every patience checkpoint questions",
    "Comparison": "against against-system level at-least",
    "Access": "host port key key-file passwords authorized-keys",
    "Limits": "sessions idle rate connections per-address max-duration delay max-turns",
}
"""The panels, with the names of their options. Other options are in the first panel."""

_PANEL_OF = {f"--{name}": panel for panel, names in PANELS.items() for name in names.split()}


class InPanels:
    """A mixin for commands and groups, which prints their options in panels."""

    params: list[Any]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help. The panel that an option itself declares is kept."""
        options = [each for each in self.params if each.param_type_name == "option"]
        if len(options) > MANY:
            for option in options:
                option.rich_help_panel = option.rich_help_panel or _PANEL_OF.get(option.opts[0])
        super().format_help(ctx, formatter)  # type: ignore[misc]
