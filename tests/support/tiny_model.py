"""A small trained checkpoint, and a server that answers from it in OpenAI's protocol.

`make(directory)` trains a model of two layers over bytes until it has learnt one reply by heart;
`serve(directory)` loads the written checkpoint. As a program it serves: `tiny_model.py DIR` prints
its port.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import torch
from transformers import ByT5Tokenizer, GPT2Config, GPT2LMHeadModel

REPLY = "<OUT>/home/ubuntu\n</OUT> <DIFF>[]</DIFF>"
"""The learnt reply to every prompt."""
WINDOW = 48
"""Bytes of a prompt that it uses: its end."""
STEPS = 120


def make(directory: Path) -> None:
    """Write the checkpoint, weights and tokenizer."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    tokenizer = ByT5Tokenizer()
    learnt = tokenizer(REPLY).input_ids  # ends with the token that ends a text
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=128, n_embd=64, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(STEPS):  # for every prompt
        shown = torch.randint(3, len(tokenizer), (4, WINDOW))
        ids = torch.cat([shown, torch.tensor([learnt] * 4)], dim=1)
        labels = ids.clone()
        labels[:, :WINDOW] = -100
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


class Handler(BaseHTTPRequestHandler):
    """Answers chat completions with the model's reply, greedily."""

    model: Any
    tokenizer: Any

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = "".join(f"{one['role']}: {one['content']}\n" for one in asked["messages"])
        everything = self.tokenizer(prompt).input_ids[:-1]
        ids = torch.tensor([everything[-WINDOW:]])
        with torch.no_grad():
            said = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False,
                max_new_tokens=min(asked["max_tokens"], 64),
                pad_token_id=self.tokenizer.pad_token_id,
            )[0, ids.shape[1] :]  # fmt: skip
        text = self.tokenizer.decode(said, skip_special_tokens=True)
        usage = {"prompt_tokens": len(everything), "completion_tokens": len(said)}
        usage["total_tokens"] = sum(usage.values())
        choice = {"index": 0, "finish_reason": "stop"}
        choice["message"] = {"role": "assistant", "content": text}
        about = {"id": "x", "object": "chat.completion", "created": 0, "model": asked["model"]}
        content = json.dumps({**about, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def serve(directory: Path) -> HTTPServer:
    """Serve the checkpoint in a directory, on a free port."""
    torch.set_num_threads(1)
    Handler.tokenizer = ByT5Tokenizer.from_pretrained(directory)
    Handler.model = GPT2LMHeadModel.from_pretrained(directory).eval()
    return HTTPServer(("127.0.0.1", 0), Handler)


if __name__ == "__main__":
    server = serve(Path(sys.argv[1]))
    print(server.server_port, flush=True)
    server.serve_forever()
