#!/bin/sh
# Puts a pack together: sh assemble.sh [FOLDER], where the parts lie beside this script. Run again with new parts of some
# archives (`gpu:pack --no-provider`), it replaces what those hold. Needs a shell, sha256sum, gzip and tar.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
target=${1:-$here/fovea-gpu}
cd "$here"

echo "Checking the parts ..."
missing=""
while read -r _ part; do
  [ -f "$part" ] || missing="$missing $part"
done <SHA256SUMS
if [ -n "$missing" ]; then
  echo "These parts are not here yet:$missing" >&2
  exit 1
fi
if ! sha256sum -c SHA256SUMS >"$here/.sha256.log" 2>&1; then
  grep -v ': OK$' "$here/.sha256.log" >&2
  echo "Copy the parts that failed again." >&2
  exit 1
fi
rm -f "$here/.sha256.log"

mkdir -p "$target/bin"
# Node first: it unpacks the others, as zstd may not be installed.
unzstd='const { createZstdDecompress } = require("node:zlib"); process.stdin.pipe(createZstdDecompress()).pipe(process.stdout)'
while read -r name compression parts; do
  echo "Unpacking $name ..."
  case $compression in
    gzip)
      # shellcheck disable=SC2086
      cat $parts | gzip -dc >"$target/bin/$name.new"
      chmod 755 "$target/bin/$name.new"
      mv "$target/bin/$name.new" "$target/bin/$name"
      ;;
    zstd)
      # shellcheck disable=SC2086
      cat $parts | "$target/bin/node" -e "$unzstd" | tar -xf - -C "$target"
      ;;
    *)
      echo "ARCHIVES names a compression that this script does not know: $compression" >&2
      exit 1
      ;;
  esac
done <ARCHIVES
echo "Done. Now: $target/test/gpu/run.sh 1"
