#!/bin/sh
# For a GPU machine that is lent for minutes, runs one command after the other over this working tree, and takes at most
# 64 MiB with each: the commands of such a lease. docs/gpu-experiments.md has them in order.
#
#   sh test/gpu/lease.sh receive      keeps the parts of a pack that came with this command
#   sh test/gpu/lease.sh first        parts 1, 2 and 3, in at most 240 s
#   sh test/gpu/lease.sh large        part 5-8b, 330 s
#   sh test/gpu/lease.sh int4         part 5-8b in int4, 300 s
#   sh test/gpu/lease.sh second       parts 12, 7, 6 and 5, 360 s
#   sh test/gpu/lease.sh third        parts 10, 8, 9 and 4, 390 s
#   sh test/gpu/lease.sh tests        the device suites of the tests, 500 s
#   sh test/gpu/lease.sh parts N ...  any parts, or options of run.sh, 500 s
#
# Reports go to $OUT, gpu-reports where it is not set. LEASE_SECONDS sets another bound; LEASE_FOLDER (/tmp/fovea-lease)
# keeps what came, for as long as the machine is lent.
set -eu
tree=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
kept=${LEASE_FOLDER:-/tmp/fovea-lease}
output=${OUT:-$tree/gpu-reports}
started=$(date +%s)
mkdir -p "$kept/parts" "$output"

# Prints the parts of the pack that are not here.
missing() {
  if [ ! -f "$kept/parts/SHA256SUMS" ]; then
    echo "SHA256SUMS, ARCHIVES and assemble.sh"
    return
  fi
  while read -r _ part; do
    [ -f "$kept/parts/$part" ] || echo "$part"
  done <"$kept/parts/SHA256SUMS"
}

receive() {
  for file in "$tree"/gpu-pack/*; do
    if [ -f "$file" ]; then cp "$file" "$kept/parts/"; fi
  done
  absent=$(missing)
  if [ -z "$absent" ]; then echo "All parts are here."; else echo "Not here yet:" $absent; fi
}

prepare() {
  receive
  absent=$(missing)
  if [ -n "$absent" ]; then
    echo "A lease begins with \`receive\` for each part: a machine that was given back has kept none." >&2
    exit 1
  fi
  if [ ! -f "$kept/assembled" ]; then
    sh "$kept/parts/assemble.sh" "$kept/fovea"
    touch "$kept/assembled"
  fi
  # Sources come with every command, so that a mended one is run.
  for name in engine functions infra models container docs test; do
    rm -rf "$kept/fovea/$name"
    cp -R "$tree/$name" "$kept/fovea/$name"
  done
  cp "$tree"/*.json "$tree"/*.config.ts "$kept/fovea/"
}

# The first argument is the bound in seconds.
begin() {
  prepare
  left=$((${LEASE_SECONDS:-$1} - ($(date +%s) - started)))
  shift
  echo "$left s are left for: $*"
}

run_parts() {
  begin "$@"
  shift
  status=0
  sh "$kept/fovea/test/gpu/run.sh" "$@" --seconds "$left" --output "$output" --folder "$kept/work" || status=$?
  exit "$status"
}

run_tests() {
  begin 500 "the tests $*"
  status=0
  # The list of results is whole only if all tests end in time; the log has those that did.
  sh "$kept/fovea/test/gpu/run.sh" tests --output "$output" --seconds "$left" "$@" >"$output/tests.log" 2>&1 || status=$?
  tail -n 40 "$output/tests.log"
  exit "$status"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
  receive) receive ;;
  first) run_parts 240 1 2 3 "$@" ;;
  large) run_parts 330 5-8b "$@" ;;
  int4) run_parts 300 5-8b --dtype int4 "$@" ;;
  second) run_parts 360 12 7 6 5 "$@" ;;
  third) run_parts 390 10 8 9 4 "$@" ;;
  tests) run_tests "$@" ;;
  parts) run_parts 500 "$@" ;;
  *)
    sed -n '2,16s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
