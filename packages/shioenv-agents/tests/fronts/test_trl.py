"""A step of TRL's GRPOTrainer on tasks: with a tiny model, and replies from a list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.needs import needed_module

trl = needed_module("trl")
transformers = needed_module("transformers")

from datasets import Dataset  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402
from trl import GRPOTrainer  # noqa: E402

from shioenv.errors import TaskError  # noqa: E402
from shioenv_agents.fronts.trl import OVER, environments, rows  # noqa: E402
from support.fronts_tasks import REPLIES, TASKS  # noqa: E402

pytestmark = [pytest.mark.usefixtures("system"), pytest.mark.filterwarnings("ignore")]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tokenizer() -> Any:
    """Return a tokenizer with a token for each byte, and Qwen's chat template, which TRL
    supports."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={one: n for n, one in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(SPECIAL)
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=template.read_text(),
        padding_side="left",
    )


class Scripted(GRPOTrainer):
    """Returns the next reply for the conversation's task; everything else is TRL's."""

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any, **options: Any) -> Any:
        said = [self._reply(self.processing_class.decode(ids)) for ids in prompt_ids]
        return [self.processing_class.encode(text) for text in said], None

    def _reply(self, conversation: str) -> str:
        task = next(task for task in TASKS if task.prompt in conversation)
        number = conversation.count("<tool_response>")
        if number >= len(REPLIES[task.id]):
            return "Done.<|im_end|>"
        call = {"name": "terminal", "arguments": {"line": REPLIES[task.id][number]}}
        return f"<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>"


def test_a_step_of_training_pays_for_tasks_that_are_done(tmp_path: Path) -> None:
    config = transformers.Qwen3Config(
        vocab_size=300, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, head_dim=8,
    )  # fmt: skip
    processing = tokenizer()
    config.eos_token_id, config.pad_token_id = processing.eos_token_id, processing.pad_token_id
    trainer = Scripted(
        model=transformers.Qwen3ForCausalLM(config),
        processing_class=processing,
        args=trl.GRPOConfig(
            output_dir=str(tmp_path), per_device_train_batch_size=4, num_generations=2,
            max_completion_length=4096, max_steps=1, report_to="none", use_cpu=True, bf16=False,
            logging_steps=1,
        ),
        train_dataset=Dataset.from_list(rows(TASKS)),
        environment_factory=environments(TASKS),
    )  # fmt: skip
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [entry["reward"] for entry in logged] == [1.0]
    assert logged[0]["rewards/TaskEnvironment/mean"] == 1.0
    assert logged[0]["tools/failure_frequency"] == 0.0


def test_what_an_environment_says() -> None:
    environment = environments(TASKS, max_turns=2)()
    environment.reset("gone", prompt=[])
    assert environment.get_reward() == 0.0
    assert "notes.txt" in environment.terminal("ls documents")
    environment.terminal("rm documents/notes.txt")
    assert environment.get_reward() == 1.0
    assert environment.terminal("ls") == OVER
    environment.reset("gone")
    assert environment.get_reward() == 0.0
    with pytest.raises(TaskError):
        environment.reset("missing")


def test_its_tool_is_described_as_transformers_wants_it() -> None:
    schema = transformers.utils.get_json_schema(environments(TASKS)().terminal)["function"]
    assert schema["name"] == "terminal"
    assert list(schema["parameters"]["properties"]) == ["line"]
