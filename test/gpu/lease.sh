#!/bin/sh
# For a GPU machine that is lent for 15 minutes, runs one command after the other, and takes at most 64 MiB with each: the
# commands of such a lease. docs/gpu-experiments.md has them in order.
#
#   sh test/gpu/lease.sh receive      keeps the parts of a pack that came with this command
#   sh test/gpu/lease.sh answers      all parts that check numbers, side by side, in at most 160 s
#   sh test/gpu/lease.sh figures      all parts that measure, one after the other, in at most 360 s
#   sh test/gpu/lease.sh tests        the device suites of the tests, 300 s
#   sh test/gpu/lease.sh parts N ...  any parts, or options of run.sh, 300 s
#
# Reports and logs go to $OUT, gpu-reports where it is not set, as one archive. LEASE_SECONDS sets another bound,
# LEASE_DEVICE=cpu tries the commands without a GPU; LEASE_FOLDER (/tmp/fovea-lease) keeps what came, for as long as the
# machine is lent.
set -eu
tree=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
kept=${LEASE_FOLDER:-/tmp/fovea-lease}
output=${OUT:-$tree/gpu-reports}
device=${LEASE_DEVICE:-cuda}
started=$(date +%s)
reports=$kept/reports
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

# The first argument is the bound in seconds.
begin() {
  receive
  absent=$(missing)
  if [ -n "$absent" ]; then
    echo "A lease begins with \`receive\` for each part: a machine that was given back has kept none." >&2
    exit 1
  fi
  # A pack that was made anew replaces the sources.
  if ! cmp -s "$kept/parts/SHA256SUMS" "$kept/assembled"; then
    rm -rf "$kept/fovea"
    sh "$kept/parts/assemble.sh" "$kept/fovea"
    cp "$kept/parts/SHA256SUMS" "$kept/assembled"
  fi
  rm -rf "$reports"
  mkdir -p "$reports" "$kept/built"
  endsAt=$((started + ${LEASE_SECONDS:-$1}))
  echo "[$(($(date +%s) - started)) s] unpacked"
}

left() {
  echo $((endsAt - $(date +%s)))
}

# run NAME ARGUMENTS: parts with their own log and folder. Prints how they ended; what failed is at the end of it all.
run() {
  name=$1
  shift
  # Parts of the large model share its files.
  case $name in large*) folder=large ;; *) folder=$name ;; esac
  sh "$kept/fovea/test/gpu/run.sh" "$@" --device "$device" --seconds "$(left)" --output "$reports" \
    --folder "$kept/built/$folder" >"$reports/$name.log" 2>&1 || true
  # Parts that check more than they measure have hundreds of lines.
  echo "[$(($(date +%s) - started)) s] $name: $(tail -n 1 "$reports/$name.log")"
}

# As run, but the next command does not wait for it.
running=""
beside() {
  run "$@" &
  running="$running $!"
}

# Quantising takes processors only, so it goes on while other parts use the card.
build_models() {
  if [ "$device" = cpu ] || [ -d "$kept/built/large" ]; then return; fi
  mkdir -p "$kept/built/large"
  # Goes on when this command has ended.
  setsid "$kept/fovea/bin/node" "$kept/fovea/test/gpu/prepare-models.ts" "$kept/built/large" \
    >"$kept/built/models.log" 2>&1 </dev/null &
}

finish() {
  grep -h FAIL "$reports"/*.log | cut -c 1-250 | head -n 60 || true
  tar -C "$reports" -czf "$output/reports.tar.gz" .
  if grep -q FAIL "$reports"/*.log; then exit 1; fi
}

answers() {
  begin 160
  build_models
  run 1 1 "$@"
  if grep -q "No other part can run" "$reports/1.log"; then finish && exit 1; fi
  # Numbers are the same whatever else the card computes; times are not.
  beside 2 2 "$@"
  for index in 1 2 3 4; do beside "3-$index" 3 --shard "$index/4" "$@"; done
  for index in 1 2 3 4 5; do beside "13-$index" 13 --shard "$index/5" "$@"; done
  beside 6 6 "$@"
  beside 9 9 4 "$@"
  beside 12 12 "$@"
  beside 16 16 "$@"
  for process in $running; do wait "$process"; done
  finish
}

figures() {
  begin 360
  build_models
  run 14 14 "$@"
  # The models are there about 75 s after `answers` has begun.
  while pgrep -f prepare-models.ts >/dev/null 2>&1 && [ "$(left)" -gt 120 ]; do sleep 1; done
  cat "$kept/built/models.log" 2>/dev/null || true
  run large 5-8b "$@"
  run large-int4 5-8b --dtype int4 "$@"
  run 7 7 10 "$@"
  run large-kernels 15 "$@"
  run 5 5 8 "$@"
  grep -hE "^\[.*(tokens/s|captured step|load:)" "$reports"/*.log || true
  finish
}

run_tests() {
  begin 300
  status=0
  # The list of results is whole only if all tests end in time; the log has those that did.
  sh "$kept/fovea/test/gpu/run.sh" tests --output "$reports" --seconds "$(left)" "$@" >"$reports/tests.log" 2>&1 || status=$?
  tail -n 40 "$reports/tests.log"
  tar -C "$reports" -czf "$output/reports.tar.gz" .
  exit "$status"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
  receive) receive ;;
  answers) answers "$@" ;;
  figures) figures "$@" ;;
  tests) run_tests "$@" ;;
  parts)
    begin 300
    run parts "$@"
    cat "$reports/parts.log"
    finish
    ;;
  *)
    sed -n '2,15s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
