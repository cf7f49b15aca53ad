"""Records which kernels ONNX Runtime's CUDA provider has, as cuda-kernels.json beside this script.

    pip download --no-deps onnxruntime-gpu==1.30.0 && unzip onnxruntime_gpu-*.whl -d wheel
    python record-cuda-kernels.py wheel        # needs gcc, readelf and numpy; no GPU and no CUDA

The list is the provider's own registry. The provider libraries load without CUDA because every CUDA library that they
need is replaced by a shared object that exports the same names and does nothing.

Rows of the output, sorted: [domain, operator, first version, last version or null, {type parameter: types}].
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
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in kernels)
    output.write_text(f"[\n{rows}\n]\n")
    print(f"{len(kernels)} kernels, {output.stat().st_size} bytes")


main()
