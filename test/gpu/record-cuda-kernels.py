"""Records which kernels ONNX Runtime's CUDA provider has, as cuda-kernels.json beside this script.

    pip download --no-deps onnxruntime-gpu==1.30.0 && unzip onnxruntime_gpu-*.whl -d wheel
    python record-cuda-kernels.py wheel        # needs gcc, readelf and numpy; no GPU and no CUDA

The list is the provider's own registry.

The output has two lists, sorted:
- kernels: [domain, operator, first version, last version or null, {type parameter or input: types}]
- schemas, of the operators that have kernels and the versions that graphs may use:
  [domain, operator, version, [[name, type parameter] of each input], [the same of each output]]
"""

import json
import re
import sys
from pathlib import Path

from cuda_stubs import use_stubs

CUDA_PROVIDER = "CUDAExecutionProvider"
# Of the standard; graphs use this version or later ones.
OLDEST_OPSET = 21


def read_kernels() -> list[list]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    latest = 2**31 - 1
    kernels = {}
    for kernel in state.get_all_opkernel_def():
        if kernel.provider != CUDA_PROVIDER:
            continue
        first, last = kernel.version_range
        types = {
            parameter: sorted(re.sub(r"^tensor\((.+)\)$", r"\1", name) for name in names)
            for parameter, names in sorted(kernel.type_constraints.items())
        }
        domain = "" if kernel.domain == "ai.onnx" else kernel.domain
        row = [domain, kernel.op_name, first, None if last >= latest else last, types]
        kernels[json.dumps(row)] = row
    return [kernels[key] for key in sorted(kernels)]


def read_schemas(kernels: list[list]) -> list[list]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    operators = {(domain, name) for domain, name, *_ in kernels}
    versions: dict[tuple[str, str], dict[int, list]] = {}
    for schema in state.get_all_operator_schema():
        domain = "" if schema.domain == "ai.onnx" else schema.domain
        if (domain, schema.name) not in operators:
            continue
        formals = [[[formal.name, formal.typeStr] for formal in part] for part in (schema.inputs, schema.outputs)]
        row = [domain, schema.name, schema.since_version, *formals]
        versions.setdefault((domain, schema.name), {})[schema.since_version] = row
    rows = []
    for by_version in versions.values():
        oldest = max((version for version in by_version if version <= OLDEST_OPSET), default=0)
        rows += [row for version, row in by_version.items() if version >= oldest]
    return sorted(rows, key=lambda row: row[:3])


def format_rows(rows: list[list]) -> str:
    return ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)


def main() -> None:
    use_stubs(Path(sys.argv[1]).resolve())
    kernels = read_kernels()
    output = Path(__file__).with_name("cuda-kernels.json")
    schemas = read_schemas(kernels)
    output.write_text(f'{{"kernels":[\n{format_rows(kernels)}\n],"schemas":[\n{format_rows(schemas)}\n]}}\n')
    print(f"{len(kernels)} kernels, {len(schemas)} schemas, {output.stat().st_size} bytes")


main()
