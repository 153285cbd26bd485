#!/usr/bin/env bash
# Unpacks packages of a Debian suite into a folder. Nothing is installed, and apt's own lists stay as they are.
# usage: debs.sh SUITE FOLDER PACKAGE…
set -euo pipefail
suite=$1 folder=$2
shift 2
apt=$(mktemp -d)
trap 'rm -rf "$apt"' EXIT
chmod 755 "$apt" # apt fetches as a user of its own
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/debs" "$folder"
chmod 777 "$apt/debs"
touch "$apt/status"
printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian %s main\n' "$suite" >"$apt/sources.list"
options=(-o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$apt"
    -o "Dir::State::Lists=$apt/lists" -o "Dir::State::Status=$apt/status" -o "Dir::Cache=$apt/cache" -o APT::Architecture=amd64)
apt-get "${options[@]}" update -qq >&2
(cd "$apt/debs" && apt-get "${options[@]}" download -qq "$@" >&2)
for deb in "$apt"/debs/*.deb; do
    dpkg-deb -x "$deb" "$folder"
done
