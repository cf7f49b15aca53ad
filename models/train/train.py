"""Trains the checkpoint in `models/fovea-shapes`.

Data      drawn while training by `scene.py` and asked about by `questions.py`; step i of seed s
          uses the random stream "train-<s>-<phase>-<i>", so no picture is seen twice and none comes
          from the streams of the held-out set ("heldout-...").
Phases    1. the vision tower alone learns to say what each 8 x 8 patch shows (`PatchHead`);
          2. everything is trained on answers, with the first loss kept at a smaller weight and
             two more for where an answer starts: which things the question names and where they
             are (`LookHead`), and attention that goes there (`look_loss`).
          The learning rate of phase 2 follows the time spent, so that a busy machine gives fewer
          steps rather than an unfinished run.
Precision bfloat16 autocast, float32 weights.
Seed, time, hardware of the shipped run: see the model card, `models/fovea-shapes/README.md`.

    python train.py --run /tmp/fovea-run --minutes 60

A run that stopped goes on from its last saved state when started again with the same folder.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import torch

from batches import Batch, Packer, training_batches
from model import LookHead, PatchHead, answer_loss, create_model, look_loss, patch_features, patch_loss
from vocabulary import load_tokenizer

FIELDS = ("pixels", "patches", "look_rows", "looks", "cells", "words", "token_ids", "positions", "branches", "targets")
# Per step: pictures of shapes, questions about each, labels, questions about each. Print is what
# the tower takes longest to learn.
MIX = {"vision": (20, 1, 44, 1), "answers": (28, 8, 20, 3)}
VISION_STEPS = 3600
VISION_RATE = 1.5e-3
PEAK_RATE = 2e-3
WARMUP_STEPS = 150
TOWER_SHARE = 0.25  # of the rate, for the tower once it has learned to see; more makes it forget
PATCH_WEIGHT = 0.5
LOOK_WEIGHT = 0.5
SAVE_EVERY = 200
CHECKPOINT_FOLDER = Path(__file__).resolve().parent.parent / "fovea-shapes"


def produce(queue: multiprocessing.Queue, seed: int, phase: str, first_step: int) -> None:
    """Runs in a process of its own: fills the queue with the batches of the steps that follow."""
    packer = Packer(load_tokenizer(CHECKPOINT_FOLDER))
    step = first_step
    while True:
        queue.put(training_batches(packer, f"train-{seed}-{phase}-{step}", *MIX[phase]))
        step += 1


def tensors(batch: Batch) -> list[torch.Tensor]:
    return [torch.from_numpy(getattr(batch, field)) for field in FIELDS]


class Run:
    """Weights, optimizer and progress of one training run; lives in `folder`/state.pt."""

    def __init__(self, folder: Path, seed: int, minutes: float) -> None:
        self.folder, self.seed, self.seconds = folder, seed, minutes * 60
        torch.manual_seed(seed)
        tokenizer = load_tokenizer(CHECKPOINT_FOLDER)
        self.model = create_model(tokenizer.get_vocab_size())
        self.head = PatchHead(self.model.config.vision_config.hidden_size)
        tower = [*self.model.model.vision_tower.parameters(), *self.head.parameters()]
        others = [*self.model.model.multi_modal_projector.parameters(), *self.model.lm_head.parameters()]
        others += self.model.model.language_model.parameters()
        self.look_head = LookHead(self.model.config.text_config.hidden_size)
        self.parameters = [*tower, *others, *self.look_head.parameters()]
        self.optimizer = torch.optim.AdamW(
            [
                {"name": name, "params": [p for p in part if (p.ndim > 1) == decays], "weight_decay": 0.05 * decays}
                for name, part in (("tower", tower), ("others", others))
                for decays in (True, False)
            ]
            + [{"name": "look head", "params": [*self.look_head.parameters()], "weight_decay": 0.0}],
            lr=VISION_RATE, betas=(0.9, 0.98),
        )  # fmt: skip
        self.phase, self.step, self.spent = "vision", 0, 0.0  # `spent`: seconds in phase "answers"
        if (folder / "state.pt").exists():
            state = torch.load(folder / "state.pt", weights_only=True)
            self.model.load_state_dict(state["model"])
            self.head.load_state_dict(state["head"])
            self.look_head.load_state_dict(state["look_head"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.phase, self.step, self.spent = state["phase"], state["step"], state["spent"]

    def save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "head": self.head.state_dict(),
            "look_head": self.look_head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "phase": self.phase,
            "step": self.step,
            "spent": self.spent,
        }
        torch.save(state, self.folder / "state.tmp")
        os.replace(self.folder / "state.tmp", self.folder / "state.pt")

    def export(self) -> None:
        self.model.save_pretrained(self.folder / "export")

    @property
    def done(self) -> bool:
        return self.phase == "answers" and self.spent >= self.seconds

    def rate(self) -> float:
        warmup = min(1.0, (self.step + 1) / WARMUP_STEPS)
        if self.phase == "vision":
            return VISION_RATE * warmup * (1 - 0.7 * self.step / VISION_STEPS)
        part = min(1.0, self.spent / self.seconds)
        return PEAK_RATE * warmup * (0.005 + 0.995 * 0.5 * (1 + math.cos(math.pi * part)))

    def advance(self, batches: list[Batch]) -> dict[str, float]:
        """One optimizer step; the losses and accuracies to report."""
        for group in self.optimizer.param_groups:
            tower = group["name"] == "tower" and self.phase == "answers"
            group["lr"] = self.rate() * (TOWER_SHARE if tower else 1)
        report: dict[str, float] = {}
        for name, batch in zip(("scene", "label"), batches, strict=True):
            pixels, patches, look_rows, looks, cells, words, *sequence = tensors(batch)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                features = patch_features(self.model, pixels)
                loss, report[f"{name} patches"] = patch_loss(self.head(features), patches)
                if self.phase == "answers":
                    answers, report[f"{name} tokens"], states = answer_loss(self.model, features, *sequence)
                    report[f"{name} loss"] = answers.item()
                    loss = answers + PATCH_WEIGHT * loss
                    if len(looks):
                        look = look_loss(self.model, look_rows, looks)
                        report[f"{name} look"] = look.item()
                        before, behind = (state[look_rows[:, 0], look_rows[:, 1]] for state in states)
                        named, found = self.look_head.word_loss(before, words), self.look_head.cell_loss(behind, cells)
                        report[f"{name} words"], report[f"{name} cells"] = named.item(), found.item()
                        loss = loss + LOOK_WEIGHT * (look + named + found)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return report


def train_phase(run: Run) -> None:
    phase = run.phase
    context = multiprocessing.get_context("spawn")
    queue = context.Queue(maxsize=6)
    producer = context.Process(target=produce, args=(queue, run.seed, phase, run.step), daemon=True)
    producer.start()
    sums: dict[str, float] = {}
    since, last = 0, time.monotonic()
    try:
        while not run.done and (phase == "answers" or run.step < VISION_STEPS):
            started = time.monotonic()
            for key, value in run.advance(queue.get()).items():
                sums[key] = sums.get(key, 0.0) + value
            since += 1
            if phase == "answers":
                run.spent += time.monotonic() - started
            if run.step % 20 == 0:
                pace = (time.monotonic() - last) / since
                means = "  ".join(f"{key} {value / since:.4f}" for key, value in sums.items())
                print(
                    f"{time.strftime('%H:%M:%S')} {phase} step {run.step}  {100 * run.spent / run.seconds:.1f} %  "
                    f"{pace:.2f} s/step  rate {run.rate():.1e}  {means}",
                    flush=True,
                )
                sums, since, last = {}, 0, time.monotonic()
            if run.step % SAVE_EVERY == 0:
                run.save()
                run.export()
    finally:
        producer.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="folder for the run's state and exports")
    parser.add_argument("--minutes", type=float, default=60, help="length of the second phase")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="1 is faster where other work shares the cores")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the producer is ended too
    options.run.mkdir(parents=True, exist_ok=True)
    run = Run(options.run, options.seed, options.minutes)
    if run.phase == "vision":
        train_phase(run)
        run.phase, run.step = "answers", 0
        run.save()
    train_phase(run)
    run.save()
    run.export()
    print(f"done: {run.step} steps, {run.spent / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
