"""Writes a training run's weights and all configuration files to `models/fovea-tools`.

    python export.py --run /tmp/fovea-tools-run
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from safetensors.torch import load_file, save_file

from train import CHECKPOINT_FOLDER
from vocabulary import CHAT_TEMPLATE, load_tokenizer


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--to", type=Path, default=CHECKPOINT_FOLDER)
    options = parser.parse_args()
    source, target = options.run / "export", options.to
    target.mkdir(parents=True, exist_ok=True)
    load_tokenizer(CHECKPOINT_FOLDER).save_pretrained(target)
    tokenizer_config = json.loads((target / "tokenizer_config.json").read_text())
    write_json(target / "tokenizer_config.json", tokenizer_config | {"chat_template": CHAT_TEMPLATE})
    (target / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    tensors = load_file(source / "model.safetensors")
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    for name in ("config.json", "generation_config.json"):
        write_json(target / name, json.loads((source / name).read_text()))


if __name__ == "__main__":
    main()
