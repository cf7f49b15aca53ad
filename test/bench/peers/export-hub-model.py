"""Exports the benches' checkpoint to ONNX the way the `onnx/` folders of the hub were made, for transformers.js to run.

The steps and options are those of transformers.js's own conversion scripts (`scripts/convert.py` and
`scripts/quantize.py` of its version 3): Optimum's export of `text-generation-with-past`, OnnxSlim, then `q4` by
MatMulNBitsQuantizer (symmetric blocks of 32) and `q8` by dynamic quantisation (int8 weights, uint8 activations).

Needed for `npm run bench -- transformers-js-hub` only, once; Python 3.11:
  pip install torch==2.13.0 transformers==4.52.4 optimum==1.26.1 onnx==1.18.0 onnxruntime==1.22.0 onnxslim==0.1.52 \
      onnxscript==0.7.2 numpy==2.2.6
  python export-hub-model.py CHECKPOINT OUTPUT
"""

import argparse
import copy
import json
import shutil
import tempfile
from functools import partial
from pathlib import Path

import onnx
import onnxslim
import torch
from onnxruntime.quantization import QuantizationMode, QuantType
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.registry import IntegerOpsRegistry


def export(checkpoint: Path, folder: Path) -> onnx.ModelProto:
    # Optimum was written for torch's tracing exporter, which newer versions of torch take on request only.
    torch.onnx.export = partial(torch.onnx.export, dynamo=False)
    from optimum.exporters.onnx import main_export

    main_export(str(checkpoint), output=folder, task="text-generation-with-past", do_validation=False)
    return onnxslim.slim(onnx.load(folder / "model.onnx"))


def quantise_to_q4(model: onnx.ModelProto) -> onnx.ModelProto:
    quantizer = MatMulNBitsQuantizer(model, block_size=32, is_symmetric=True, accuracy_level=None)
    quantizer.process()
    return quantizer.model.model


def quantise_to_q8(model: onnx.ModelProto) -> onnx.ModelProto:
    quantizer = ONNXQuantizer(
        model,
        per_channel=None,
        reduce_range=None,
        mode=QuantizationMode.IntegerOps,
        static=False,
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QUInt8,
        tensors_range=None,
        nodes_to_quantize=[],
        nodes_to_exclude=[],
        op_types_to_quantize=set(IntegerOpsRegistry.keys()),
        extra_options={"EnableSubgraph": True, "MatMulConstBOnly": True},
    )
    quantizer.quantize_model()
    return quantizer.model.model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="folder that the benches wrote")
    parser.add_argument("output", type=Path, help="receives what transformers.js loads")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as exported:
        model = export(options.checkpoint, Path(exported))
        (options.output / "onnx").mkdir(parents=True, exist_ok=True)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(options.checkpoint / name, options.output / name)
        config = json.loads((Path(exported) / "config.json").read_text())
    # Without an end-of-sequence token nothing stops it early, and no step has to look for one.
    config.pop("eos_token_id", None)
    (options.output / "config.json").write_text(json.dumps(config, indent=2))
    (options.output / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "do_sample": False}))
    for file, quantise in (("model_q4.onnx", quantise_to_q4), ("model_quantized.onnx", quantise_to_q8)):
        print(f"Writing {file} ...", flush=True)
        onnx.save(quantise(copy.deepcopy(model)), options.output / "onnx" / file)


if __name__ == "__main__":
    main()
