#!/usr/bin/env bash
# Builds the guests into target/guests/NAME.wasm: the Rust ones always, the Python and JavaScript
# ones when asked for. Their tools go into target/tools; what has not changed is not built again.
#   usage: scripts/build-guests.sh [--python] [--js]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

componentize_py=0.25.1
componentize_qjs=0.4.5
componentize_js=0.23.0
python_least=3.10
node_least=20

out=$root/target/guests
tools=$root/target/tools
python= js=
for option in "$@"; do
  case $option in
    --python) python=yes ;;
    --js) js=yes ;;
    *) echo "usage: scripts/build-guests.sh [--python] [--js]" >&2; exit 2 ;;
  esac
done
mkdir -p "$out" "$tools"
scratch=$(mktemp -d "$tools/tmp.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

fail() { echo "build-guests: $*" >&2; exit 1; }

# One number for the content and names of files: `digest VERSION FILE...`
digest() {
  { echo "$1"; shift; cksum "$@"; } | cksum | tr ' ' -
}

# `fresh NAME DIGEST`: whether the guest was built from just this.
fresh() {
  [ -f "$out/$1.wasm" ] && [ "$(cat "$out/.$1.stamp" 2>/dev/null)" = "$2" ]
}

# `finish NAME DIGEST FILE`: puts a built guest in place; its stamp comes last.
finish() {
  mv "$3" "$out/$1.wasm"
  echo "$2" >"$out/.$1.stamp"
  echo "built target/guests/$1.wasm"
}

build_rust() {
  local workspace wasm name
  scripts/wasm-target.sh
  for workspace in guest-examples tests/programs; do
    (cd "$workspace" && CARGO_TARGET_DIR=$root/target/guest-build \
      cargo build --workspace --release --locked --quiet --target wasm32-wasip2)
  done
  for wasm in target/guest-build/wasm32-wasip2/release/*.wasm; do
    name=$(basename "$wasm" .wasm)
    cmp -s "$wasm" "$out/${name//_/-}.wasm" || cp "$wasm" "$out/${name//_/-}.wasm"
  done
}

build_python() {
  local sources stamp venv=$tools/py-venv app=$scratch/python
  command -v python3 >/dev/null || fail "the Python guest needs python3, $python_least or newer"
  python3 -c "import sys; sys.exit(sys.version_info < tuple(map(int, '$python_least'.split('.'))))" ||
    fail "the Python guest needs Python $python_least or newer, and this is $(python3 --version)"
  sources=(scripts/build-guests.sh wit/agent.wit guest-examples/python-agent/*.py)
  stamp=$(digest "$componentize_py" "${sources[@]}")
  ! fresh python-agent "$stamp" || return 0
  if [ "$(cat "$venv/.version" 2>/dev/null)" != "$componentize_py" ]; then
    echo "installing componentize-py $componentize_py into target/tools"
    rm -rf "$venv"
    python3 -m venv "$venv" || fail "python3 cannot make a virtual environment (on Debian: python3-venv)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "componentize-py==$componentize_py"
    echo "$componentize_py" >"$venv/.version"
  fi
  # A folder of its own, so that Python finds nothing else that lies beside the app.
  mkdir "$app"
  cp guest-examples/python-agent/*.py "$app/"
  "$venv/bin/componentize-py" --quiet --wit-path wit --world upgradable-agent \
    componentize app --python-path "$app" --output "$scratch/python.wasm"
  finish python-agent "$stamp" "$scratch/python.wasm"
}

# `install_npm FOLDER PACKAGE VERSION`: a package of npm, in a folder of its own.
install_npm() {
  local folder=$1 package=$2 version=$3
  [ "$(cat "$folder/.version" 2>/dev/null)" != "$package@$version" ] || return 0
  echo "installing $package $version into target/tools"
  rm -rf "$folder"
  mkdir -p "$folder"
  npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error "$package@$version" >/dev/null
  echo "$package@$version" >"$folder/.version"
}

build_js() {
  command -v node >/dev/null || fail "the JavaScript guests need Node $node_least or newer"
  node -e "process.exit(+(parseInt(process.versions.node) < $node_least))" ||
    fail "the JavaScript guests need Node $node_least or newer, and this is $(node --version)"
  command -v npm >/dev/null || fail "the JavaScript guests need npm, which comes with Node"
  local example=guest-examples/js-agent
  local sources=(scripts/build-guests.sh wit/agent.wit "$example"/*.js "$example"/wit/*.wit "$example"/wit/deps/*.wit)
  build_quickjs "$(digest "$componentize_qjs" "${sources[@]}")"
  build_spidermonkey "$(digest "$componentize_js" "${sources[@]}")"
}

build_quickjs() {
  local node=$tools/node
  ! fresh js-agent "$1" || return 0
  install_npm "$node" componentize-qjs "$componentize_qjs"
  "$node/node_modules/.bin/componentize-qjs" --sync --wit guest-examples/js-agent/wit --world js-agent \
    --js guest-examples/js-agent/app.js --output "$scratch/js.wasm" >"$scratch/log" ||
    { cat "$scratch/log" >&2; fail "componentize-qjs failed"; }
  finish js-agent "$1" "$scratch/js.wasm"
}

# The same agent on another engine.
build_spidermonkey() {
  local node=$tools/node-spidermonkey app=$scratch/spidermonkey
  ! fresh spidermonkey-agent "$1" || return 0
  install_npm "$node" @bytecodealliance/componentize-js "$componentize_js"
  # it sees only what lies in the folder, and no links out of it
  cp -rL guest-examples/js-agent "$app"
  (cd "$scratch" && "$node/node_modules/.bin/componentize-js" spidermonkey/app.js --wit spidermonkey/wit \
    --world-name js-agent --disable http fetch-event --out spidermonkey.wasm) >"$scratch/log" 2>&1 ||
    { cat "$scratch/log" >&2; fail "componentize-js failed"; }
  finish spidermonkey-agent "$1" "$scratch/spidermonkey.wasm"
}

build_rust
[ -z "$python" ] || build_python
[ -z "$js" ] || build_js
