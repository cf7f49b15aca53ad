"""Lets ONNX Runtime's CUDA provider load on a machine without CUDA: libraries that export what it needs.

    python cuda_stubs.py wheel folder          # needs gcc and readelf
    LD_LIBRARY_PATH=folder test/gpu/run.sh 5   # with the wheel's providers beside onnxruntime-node's library

Functions allocate and copy in the host's memory and say that there is one device of compute capability 9.0; all others
do nothing and report success. So sessions are created, up to weights prepared on the device, and run: everything but the
kernels themselves, whose results are zeros. That shows what a kernel refuses before it is launched, such as wrong inputs
or a missing cuDNN, and whether the experiments run to their ends.
Launches of the kernel that reorders weights for the fused products are written to the standard error output.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# All providers of the wheel are looked at when the registry is read, so both libraries must load.
LIBRARIES = ["libonnxruntime_providers_cuda.so", "libonnxruntime_providers_tensorrt.so"]
# Present on every machine.
SYSTEM = re.compile(r"^(libdl|librt|libpthread|libstdc\+\+|libm|libgcc_s|libc|ld-linux-x86-64)\.so")

# Kernels are launched by the address that they were registered with. This one reorders the weights of a MatMulNBits for
# the fused kernels, once for each.
REORDERING_KERNEL = "permute_rows_kernel"
PREAMBLE = f"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEMORY (14ul << 30)

/* The device's memory: zeros that take room only where they are touched. */
static struct {{ void *start; size_t size; }} allocated[1 << 16];
static int num_allocated;
static size_t in_use;

static int allocate(void **p, size_t n) {{
    size_t size = ((n ? n : 1) + 4095) & ~4095ul;
    *p = 0;
    if (in_use + size > MEMORY || num_allocated == 1 << 16) return 2;
    void *start = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return 2;
    *p = start;
    allocated[num_allocated].start = start;
    allocated[num_allocated++].size = size;
    in_use += size;
    return 0;
}}

static int release(void *start) {{
    for (int index = 0; index < num_allocated; index++) {{
        if (allocated[index].start != start) continue;
        munmap(start, allocated[index].size);
        in_use -= allocated[index].size;
        allocated[index] = allocated[--num_allocated];
        break;
    }}
    return 0;
}}

static const void *reordering[64];
static int num_reordering;

static void report(const void *kernel) {{
    for (int index = 0; index < num_reordering; index++)
        if (reordering[index] == kernel) fprintf(stderr, "launched {REORDERING_KERNEL}\\n");
}}
"""

# By name; anything else is `void *name(void) { return 0; }`.
FUNCTIONS = {
    "__cudaRegisterFunction": "void __cudaRegisterFunction(void **library, const char *function, char *device, "
    "const char *name, ...) "
    f'{{ if (strstr(name, "{REORDERING_KERNEL}") && num_reordering < 64) reordering[num_reordering++] = function; }}',
    "__cudaGetKernel": "int __cudaGetKernel(void **kernel, const void *function) { *kernel = (void *)function; return 0; }",
    "cudaLaunchKernel": "int cudaLaunchKernel(const void *kernel, ...) { report(kernel); return 0; }",
    "__cudaLaunchKernel": "int __cudaLaunchKernel(const void *kernel, ...) { report(kernel); return 0; }",
    "cudaLaunchKernelExC": "int cudaLaunchKernelExC(const void *config, const void *kernel, void **arguments) "
    "{ report(kernel); return 0; }",
    "cudaMalloc": "int cudaMalloc(void **p, size_t n) { return allocate(p, n); }",
    "cudaFree": "int cudaFree(void *p) { return release(p); }",
    "cudaMallocHost": "int cudaMallocHost(void **p, size_t n) { *p = malloc(n ? n : 1); return 0; }",
    "cudaHostAlloc": "int cudaHostAlloc(void **p, size_t n, unsigned flags) { *p = malloc(n ? n : 1); return 0; }",
    "cudaFreeHost": "int cudaFreeHost(void *p) { free(p); return 0; }",
    "cudaMemcpy": "int cudaMemcpy(void *to, const void *from, size_t n, int kind) { memmove(to, from, n); return 0; }",
    "cudaMemcpyAsync": "int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, void *stream) "
    "{ memmove(to, from, n); return 0; }",
    "cudaMemset": "int cudaMemset(void *p, int value, size_t n) { memset(p, value, n); return 0; }",
    "cudaMemsetAsync": "int cudaMemsetAsync(void *p, int value, size_t n, void *stream) { memset(p, value, n); return 0; }",
    "cudaMemcpy2DAsync": "int cudaMemcpy2DAsync(char *to, size_t to_pitch, const char *from, size_t from_pitch, "
    "size_t width, size_t height, int kind, void *stream) "
    "{ for (size_t row = 0; row < height; row++) memmove(to + row * to_pitch, from + row * from_pitch, width); return 0; }",
    "cudaMemGetInfo": "int cudaMemGetInfo(size_t *free, size_t *total) "
    "{ *total = MEMORY; *free = MEMORY - in_use; return 0; }",
    "cudaPointerGetAttributes": "int cudaPointerGetAttributes(char *attributes, const void *p) "
    "{ memset(attributes, 0, 24); return 0; }",
    "cudaFuncGetAttributes": "int cudaFuncGetAttributes(char *attributes, const void *function) "
    "{ memset(attributes, 0, 64); return 0; }",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": "int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags("
    "int *count, const void *function, int size, size_t memory, unsigned flags) { *count = 2; return 0; }",
    "cublasLtMatmulAlgoGetHeuristic": "int cublasLtMatmulAlgoGetHeuristic(void *a, void *b, void *c, void *d, void *e, "
    "void *f, void *g, int wanted, void *results, int *count) { memset(results, 0, 64); *count = 1; return 0; }",
    # A captured graph is a handle, and its launch does nothing.
    "cudaStreamIsCapturing": "int cudaStreamIsCapturing(void *stream, int *status) { *status = 0; return 0; }",
    "cudaStreamEndCapture": "int cudaStreamEndCapture(void *stream, void **graph) { *graph = malloc(1); return 0; }",
    "cudaGraphInstantiate": "int cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags) "
    "{ *executable = malloc(1); return 0; }",
    # Of the driver, which Fovea asks before the provider is loaded.
    "cuInit": "int cuInit(unsigned flags) { return 0; }",
    "cuDriverGetVersion": "int cuDriverGetVersion(int *version) { *version = 13000; return 0; }",
    "cuDeviceGetCount": "int cuDeviceGetCount(int *count) { *count = 1; return 0; }",
    "cuDeviceGet": "int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }",
    "cuDeviceGetName": 'int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "stub", length); return 0; }',
    "cuDeviceTotalMem_v2": "int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = MEMORY; return 0; }",
    "cuDeviceGetAttribute": "int cuDeviceGetAttribute(int *value, int attribute, int device) "
    "{ *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 1024; return 0; }",
    "cudaGetDeviceCount": "int cudaGetDeviceCount(int *count) { *count = 1; return 0; }",
    "cudaGetDevice": "int cudaGetDevice(int *device) { *device = 0; return 0; }",
    # cudaDevAttrComputeCapabilityMajor and Minor are 75 and 76.
    "cudaDeviceGetAttribute": "int cudaDeviceGetAttribute(int *value, int attribute, int device) "
    "{ *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 1024; return 0; }",
    # Offsets of cudaDeviceProp in CUDA 13.
    "cudaGetDeviceProperties": """int cudaGetDeviceProperties(char *properties, int device) {
        *(size_t *)(properties + 288) = 1ul << 36;   /* totalGlobalMem */
        *(size_t *)(properties + 296) = 227 * 1024;  /* sharedMemPerBlock */
        *(int *)(properties + 304) = 65536;          /* regsPerBlock */
        *(int *)(properties + 308) = 32;             /* warpSize */
        *(int *)(properties + 320) = 1024;           /* maxThreadsPerBlock */
        *(int *)(properties + 360) = 9;              /* major */
        *(int *)(properties + 364) = 0;              /* minor */
        *(int *)(properties + 384) = 132;            /* multiProcessorCount */
        *(size_t *)(properties + 672) = 227 * 1024;  /* sharedMemPerBlockOptin */
        return 0;
    }""",
    "cudaStreamCreateWithFlags": "int cudaStreamCreateWithFlags(void **stream, unsigned flags) "
    "{ *stream = malloc(1); return 0; }",
    "cudaEventCreateWithFlags": "int cudaEventCreateWithFlags(void **event, unsigned flags) "
    "{ *event = malloc(1); return 0; }",
    "cudaEventCreate": "int cudaEventCreate(void **event) { *event = malloc(1); return 0; }",
    "cudaDriverGetVersion": "int cudaDriverGetVersion(int *version) { *version = 13000; return 0; }",
    "cudaRuntimeGetVersion": "int cudaRuntimeGetVersion(int *version) { *version = 13000; return 0; }",
    "cudaGetErrorName": 'const char *cudaGetErrorName(int error) { return "stub"; }',
    "cudaGetErrorString": 'const char *cudaGetErrorString(int error) { return "stub"; }',
    "cublasCreate_v2": "int cublasCreate_v2(void **handle) { *handle = malloc(1); return 0; }",
    "cublasLtCreate": "int cublasLtCreate(void **handle) { *handle = malloc(1); return 0; }",
}

DRIVER = "libcuda.so.1"
STUBS = "FOVEA_CUDA_STUBS"


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
        for name, symbols in names.items():
            if name.startswith(prefix):
                symbols.add(symbol)
    names[DRIVER].update(name for name in FUNCTIONS if re.match("cu(Init|D)", name))
    for name, symbols in names.items():
        functions = [FUNCTIONS.get(symbol, f"void *{symbol}(void) {{ return 0; }}") for symbol in sorted(symbols)]
        source = folder / f"{name}.c"
        source.write_text("\n".join([PREAMBLE, *functions, "int stub_library;\n"]))
        versions = folder / f"{name}.map"
        versions.write_text(f"{name} {{ global: *; }};\n")
        options = [f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}"]
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", *options, "-o", folder / name, source], check=True)


def use_stubs(wheel: Path) -> None:
    """Starts the program again where it was not started with stubs, and makes the wheel's package the one to import."""
    if STUBS not in os.environ:
        # The loader reads LD_LIBRARY_PATH once, when a process starts.
        with tempfile.TemporaryDirectory() as folder:
            write_stubs(wheel / "onnxruntime" / "capi", Path(folder))
            environment = {**os.environ, "LD_LIBRARY_PATH": folder, STUBS: folder}
            sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)
    sys.path.insert(0, str(wheel))


if __name__ == "__main__":
    write_stubs(Path(sys.argv[1]).resolve() / "onnxruntime" / "capi", Path(sys.argv[2]).resolve())
