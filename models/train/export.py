"""Writes a training run's weights and all configuration files to `models/fovea-shapes`.

    python export.py --run /tmp/fovea-run
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from safetensors.torch import load_file, save_file

from model import PIXEL_MEAN, PIXEL_STD
from scene import MODEL_SIZE
from train import CHECKPOINT_FOLDER
from vocabulary import BOS, CHAT_TEMPLATE, EOS, IMAGE, PAD

PREPROCESSOR = {
    "crop_size": {"height": MODEL_SIZE, "width": MODEL_SIZE},
    "do_center_crop": True,
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": PIXEL_MEAN,
    "image_processor_type": "CLIPImageProcessor",
    "image_std": PIXEL_STD,
    "processor_class": "LlavaProcessor",
    "resample": 3,
    "rescale_factor": 1 / 255,
    "size": {"shortest_edge": MODEL_SIZE},
}
PROCESSOR = {
    "image_token": IMAGE,
    "num_additional_image_tokens": 1,
    "patch_size": 8,
    "processor_class": "LlavaProcessor",
    "vision_feature_select_strategy": "default",
}
SPECIAL_TOKENS_MAP = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD, "image_token": IMAGE}
TOKENIZER = {
    **SPECIAL_TOKENS_MAP,
    "add_bos_token": False,
    "add_eos_token": False,
    "chat_template": CHAT_TEMPLATE,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 2048,
    "padding_side": "left",
    "processor_class": "LlavaProcessor",
    "tokenizer_class": "PreTrainedTokenizerFast",
}


def classical_name(name: str) -> str:
    """The name the tensor has in LLaVA checkpoints on the hub."""
    prefix = "vision_tower."
    if name.startswith(prefix) and not name.startswith(prefix + "vision_model."):
        return prefix + "vision_model." + name.removeprefix(prefix)
    return name


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    source = parser.parse_args().run / "export"
    target = CHECKPOINT_FOLDER
    tensors = load_file(source / "model.safetensors")
    save_file(
        {classical_name(name): tensor for name, tensor in tensors.items()},
        target / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = json.loads((source / "config.json").read_text())
    config |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config["text_config"] |= {"architectures": ["LlamaForCausalLM"]}
    write_json(target / "config.json", config)
    write_json(target / "generation_config.json", json.loads((source / "generation_config.json").read_text()))
    write_json(target / "preprocessor_config.json", PREPROCESSOR)
    write_json(target / "processor_config.json", PROCESSOR)
    write_json(target / "special_tokens_map.json", SPECIAL_TOKENS_MAP)
    write_json(target / "tokenizer_config.json", TOKENIZER)
    (target / "chat_template.jinja").write_text(CHAT_TEMPLATE)


if __name__ == "__main__":
    main()
