#!/usr/bin/env bash
# Builds the image with only Debian's packages: no container engine, no registry. debootstrap and buildah create
# replacements for the two base images in a separate store.
#
#   bash container/try-build.sh [cpu|cuda]      needs root and apt-get install buildah debootstrap
#
# Prints the name of the built image and its store. FOVEA_IMAGE_STORE sets the store's folder (/tmp/fovea-images).
set -euo pipefail
cd "$(dirname "$0")/.."
target="${1:-cpu}"
store="${FOVEA_IMAGE_STORE:-/tmp/fovea-images}"
for command in buildah debootstrap npm; do
  command -v "$command" >/dev/null || { echo "$command is missing: apt-get install buildah debootstrap npm" >&2; exit 2; }
done
[ "$(id -u)" = 0 ] || { echo "debootstrap needs root." >&2; exit 2; }
export STORAGE_DRIVER="${STORAGE_DRIVER:-overlay}" BUILDAH_ISOLATION=chroot
build() { buildah --root "$store/images" --runroot "$store/run" "$@"; }

if ! build inspect --type image localhost/fovea-stand-in/node >/dev/null 2>&1; then
  mkdir -p "$store"
  debootstrap --variant=minbase --include=ca-certificates,libstdc++6 bookworm "$store/debian" >"$store/debootstrap.log"
  # The certificates that this machine trusts, in case a proxy to the registries has its own.
  cp /etc/ssl/certs/ca-certificates.crt "$store/debian/etc/ssl/certs/"
  container="$(build from scratch)"
  build copy -q "$container" "$store/debian" /
  build commit -q "$container" localhost/fovea-stand-in/debian
  modules="$(npm root --global)"
  build copy -q "$container" "$(readlink -f "$(command -v node)")" /usr/local/bin/node
  build copy -q "$container" "$modules/npm" /usr/local/lib/node_modules/npm
  build run "$container" ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
  build config --env NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt "$container"
  build commit -q --rm "$container" localhost/fovea-stand-in/node
  rm -rf "$store/debian"
fi

build bud --format docker --file container/Containerfile --target "$target" --tag "localhost/fovea:$target" \
  --build-arg BASE_IMAGE=localhost/fovea-stand-in/debian --build-arg NODE_IMAGE=localhost/fovea-stand-in/node .
build images "localhost/fovea:$target"
echo "buildah --root $store/images --runroot $store/run from localhost/fovea:$target"
