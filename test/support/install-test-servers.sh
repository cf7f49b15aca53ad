#!/usr/bin/env bash
# Installs the real servers the tests start themselves: an S3 server (moto, in a virtual environment of its own), Redis,
# and SwiftShader's software Vulkan, which Debian ships inside its chromium package.
set -euo pipefail
cache="${FOVEA_TEST_CACHE:-$HOME/.cache/fovea-test}"
mkdir -p "$cache"

if [ ! -e /usr/lib/chromium/vk_swiftshader_icd.json ] || ! ldconfig -p | grep -q libvulkan.so.1; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq --no-install-recommends chromium libvulkan1
fi

if ! command -v redis-server >/dev/null; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq --no-install-recommends redis-server
fi

if [ ! -x "$cache/moto/bin/moto_server" ]; then
  python3 -m venv "$cache/moto"
  "$cache/moto/bin/pip" install -q "moto[server]==5.2.4"
fi
