"""Trains the checkpoint in `models/fovea-tools`.

Data      drawn while training by `conversations.py`; step i of seed s uses the random stream
          "train-<s>-<i>". Held-out conversations use other streams and other words.
Lessons   one tool without descriptions first; all of it from a quarter of the time on.
Precision bfloat16 autocast, float32 weights. The learning rate follows the
          processor's time, so that a busy machine changes nothing.

    python train.py --run /tmp/fovea-tools-run --minutes 45

A run that stopped goes on from its last saved state when started again with the same folder.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from pathlib import Path

import torch

from batches import Batch, Packer
from conversations import MAX_TOOLS
from model import create_model, losses
from vocabulary import load_tokenizer

BATCH_SIZE = 12
PEAK_RATE = 2e-3
WARMUP_STEPS = 100
PLAIN_PART = 0.12  # of the time
ALL_TOOLS_PART = 0.25
REPORT_EVERY = 20
SAVE_EVERY = 50
CHECKPOINT_FOLDER = Path(__file__).resolve().parent.parent / "fovea-tools"


class Run:
    """Weights, optimizer and progress of one training run; lives in `folder`/state.pt."""

    def __init__(self, folder: Path, seed: int, minutes: float) -> None:
        self.folder, self.seed, self.seconds = folder, seed, minutes * 60
        torch.manual_seed(seed)
        self.packer = Packer(load_tokenizer(CHECKPOINT_FOLDER))
        self.model = create_model(len(self.packer.tokenizer))
        parameters = [*self.model.parameters()]
        self.optimizer = torch.optim.AdamW(
            [{"params": [p for p in parameters if (p.ndim > 1) == decays], "weight_decay": 0.05 * decays}
             for decays in (True, False)],
            lr=PEAK_RATE, betas=(0.9, 0.98),
        )  # fmt: skip
        self.step, self.spent = 0, 0.0
        if (folder / "state.pt").exists():
            state = torch.load(folder / "state.pt", weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, self.spent = state["step"], state["spent"]

    def save(self) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state | {"step": self.step, "spent": self.spent}, self.folder / "state.tmp")
        os.replace(self.folder / "state.tmp", self.folder / "state.pt")
        self.model.save_pretrained(self.folder / "export")

    @property
    def part(self) -> float:
        return min(1.0, self.spent / self.seconds)

    def batch(self) -> Batch:
        rng = random.Random(f"train-{self.seed}-{self.step}")
        max_tools = min(MAX_TOOLS, 1 + int(self.part / ALL_TOOLS_PART * (MAX_TOOLS - 1) + 0.5))
        return self.packer.batch(rng, BATCH_SIZE, max_tools, plain=self.part < PLAIN_PART)

    def advance(self) -> dict[str, float]:
        started = time.process_time()
        rate = PEAK_RATE * min(1.0, (self.step + 1) / WARMUP_STEPS)
        rate *= 0.005 + 0.995 * 0.5 * (1 + math.cos(math.pi * self.part))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        batch = self.batch()
        fields = [torch.from_numpy(value) for value in vars(batch).values()]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, report = losses(self.model, *fields)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.spent += time.process_time() - started
        return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="folder for the run's state and exports")
    parser.add_argument("--minutes", type=float, default=45, help="of processor time, in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.run.mkdir(parents=True, exist_ok=True)
    run = Run(options.run, options.seed, options.minutes)
    run.model.train()
    sums: dict[str, float] = {}
    last = time.monotonic()
    while run.part < 1:
        for key, value in run.advance().items():
            sums[key] = sums.get(key, 0.0) + value
        if run.step % REPORT_EVERY == 0:
            means = "  ".join(f"{key} {value / REPORT_EVERY:.4f}" for key, value in sums.items())
            pace = (time.monotonic() - last) / REPORT_EVERY
            print(f"{time.strftime('%H:%M:%S')} step {run.step}  {100 * run.part:.1f} %  {pace:.2f} s/step  {means}", flush=True)
            sums, last = {}, time.monotonic()
        if run.step % SAVE_EVERY == 0:
            run.save()
    run.save()
    print(f"done: {run.step} steps, {run.spent / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
