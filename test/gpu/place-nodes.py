"""Loads graphs with ONNX Runtime's CUDA provider on a machine without CUDA, and says which nodes it leaves to the CPU.

    node test/gpu/write-cuda-graphs.ts graphs
    pip download --no-deps onnxruntime-gpu==1.30.0 && unzip onnxruntime_gpu-*.whl -d wheel
    python test/gpu/place-nodes.py wheel graphs        # needs gcc, readelf and numpy

Creating a session checks every node against its schema, infers types and shapes, looks kernels up, constructs them and
inserts copies between devices; with CUDA graphs on, it also refuses graphs that cannot be captured. Ends with 1 if a
graph does not load, if a paged decoder has a node outside of CUDA, or if a quantised product does not take the fused
kernels.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

from cuda_stubs import REORDERING_KERNEL, use_stubs


def load(path: Path, captures: bool) -> list[str]:
    """What is wrong, and nodes outside of CUDA: `CPUExecutionProvider: 2`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 0
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", "/")
    if ".int" in path.name:
        options.add_session_config_entry("ep.cuda.fpa_intb_gemm", "1")
    provider = ("CUDAExecutionProvider", {"enable_cuda_graph": "1" if captures else "0"})
    # ONNX Runtime tells where it placed nodes in its log only, which goes to the process's own file.
    with tempfile.TemporaryFile() as log:
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            onnxruntime.InferenceSession(path, options, providers=[provider, "CPUExecutionProvider"])
        except Exception as error:
            return [str(error)]
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        log.seek(0)
        text = log.read().decode(errors="replace")
    placed = re.findall(r"placed on \[(\w+)\]\. Number of nodes: (\d+)", text)
    if not placed:
        return ["the log names no placements"]
    # Each node has the name of its operator once.
    num_products = path.read_bytes().count(b"MatMulNBits")
    num_fused = text.count(f"launched {REORDERING_KERNEL}")
    unfused = [] if num_fused == num_products else [f"{num_fused} of {num_products} products are fused"]
    return unfused + [f"{provider}: {count}" for provider, count in placed if provider != "CUDAExecutionProvider"]


def main() -> None:
    use_stubs(Path(sys.argv[1]).resolve())
    paths = sorted(Path(sys.argv[2]).resolve().glob("*.onnx"))
    failed = 0
    for path in paths:
        is_paged = path.name.endswith(".paged.onnx")
        faults = load(path, captures=is_paged)
        isolated = is_paged or any(not fault.startswith("CPUExecutionProvider") for fault in faults)
        failed += bool(faults) and isolated
        print(f"{path.stem}: {', '.join(faults) or 'all nodes on CUDA'}")
    print(f"{len(paths)} graphs, {failed} failed")
    sys.exit(failed > 0 or not paths)


main()
