"""Records which kernels ONNX Runtime's CUDA provider has, as cuda-kernels.json beside this script.

    pip download --no-deps onnxruntime-gpu==1.30.0 && unzip onnxruntime_gpu-*.whl -d wheel
    python record-cuda-kernels.py wheel        # needs gcc, readelf and numpy; no GPU and no CUDA

The list is the provider's own registry. The provider libraries load without CUDA because every CUDA library that they
need is replaced by a shared object that exports the same names and does nothing.

The output has two lists, sorted:
- kernels: [domain, operator, first version, last version or null, {type parameter or input: types}]
- schemas, of the operators that have kernels and the versions that graphs may use:
  [domain, operator, version, [[name, type parameter] of each input], [the same of each output]]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CUDA_PROVIDER = "CUDAExecutionProvider"
# The registry is read with all providers of the wheel, so both libraries must load.
LIBRARIES = ["libonnxruntime_providers_cuda.so", "libonnxruntime_providers_tensorrt.so"]
# Of the standard; graphs use this version or later ones.
OLDEST_OPSET = 21
# Present on every machine.
SYSTEM = re.compile(r"^(libdl|librt|libpthread|libstdc\+\+|libm|libgcc_s|libc|ld-linux-x86-64)\.so")


def readelf(option: str, library: Path) -> str:
    return subprocess.run(["readelf", "-W", option, library], capture_output=True, text=True, check=True).stdout


def write_stubs(capi: Path, folder: Path) -> None:
    names: dict[str, set[str]] = {}
    unversioned: set[str] = set()
    for library in (capi / name for name in LIBRARIES):
        for needed in re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("--dynamic", library)):
            if not SYSTEM.match(needed):
                names.setdefault(needed, set())
        for line in readelf("--dyn-syms", library).splitlines():
            fields = line.split()
            if len(fields) < 8 or fields[6] != "UND" or fields[4] == "WEAK":
                continue
            symbol, _, version = fields[7].partition("@")
            if version in names:
                names[version].add(symbol)
            elif version == "":
                unversioned.add(symbol)
    for symbol in unversioned:
        prefix = "libnv" if "INTERNAL" in symbol or "Infer" in symbol else "libcu"
        owners = [name for name in names if name.startswith(prefix)]
        for owner in owners:
            names[owner].add(symbol)
    for name, symbols in names.items():
        source = folder / f"{name}.c"
        functions = (f"void *{symbol}(void) {{ return 0; }}\n" for symbol in sorted(symbols))
        source.write_text("".join(functions) + "int stub_library;\n")
        versions = folder / f"{name}.map"
        versions.write_text(f"{name} {{ global: *; }};\n")
        options = [f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}"]
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", *options, "-o", folder / name, source], check=True)


def read_kernels(wheel: Path) -> list[list]:
    sys.path.insert(0, str(wheel))
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
    wheel = Path(sys.argv[1]).resolve()
    if "FOVEA_STUBS" not in os.environ:
        # The loader reads LD_LIBRARY_PATH once, when the process starts.
        with tempfile.TemporaryDirectory() as folder:
            write_stubs(wheel / "onnxruntime" / "capi", Path(folder))
            environment = {**os.environ, "LD_LIBRARY_PATH": folder, "FOVEA_STUBS": folder}
            sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)
    kernels = read_kernels(wheel)
    output = Path(__file__).with_name("cuda-kernels.json")
    schemas = read_schemas(kernels)
    output.write_text(f'{{"kernels":[\n{format_rows(kernels)}\n],"schemas":[\n{format_rows(schemas)}\n]}}\n')
    print(f"{len(kernels)} kernels, {len(schemas)} schemas, {output.stat().st_size} bytes")


main()
