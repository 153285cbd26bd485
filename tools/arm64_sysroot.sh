#!/usr/bin/env bash
# Unpacks what the programs are linked against, as Debian has it for 64-bit Arm, in a folder: the headers and libraries of
# tools/packages.txt and all that they depend on. FOLDER/DEBIAN says of which package a library is, for dpkg-shlibdeps. apt
# works in folders of its own, so this machine's packages and its list of architectures stay what they are. It asks the
# mirrors that this machine's apt asks for Debian's packages, and deb.debian.org where they lack those of arm64. Beside
# the folder lies FOLDER.ini, which tells Meson where it is.
# usage: tools/arm64_sysroot.sh FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1
mapfile -t packages < <(awk '/^\[/ { is_build = $1 == "[build]" }
    is_build && /^(lib|zlib)/ && !/^(libjs-|libstdc\+\+)/ { print $1 }' tools/packages.txt)
[ ! -f "$folder.ini" ] || [ "$(cat "$folder/DEBIAN/packages" 2>/dev/null)" != "${packages[*]}" ] || exit 0
keys=/usr/share/keyrings/debian-archive-keyring.gpg release=$(. /etc/os-release && echo "$VERSION_CODENAME")
apt=$folder.apt
rm -rf "$folder"
mkdir -p "$folder/DEBIAN"
own_mirrors() {
    apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' |
        awk -v release="$release" '$2 ~ "^" release "(-updates|-security)?$"' | sort -u
}
debian() {
    printf 'http://deb.debian.org/%s main\n' "debian $release" "debian-security $release-security"
}
asked() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Dir::Etc::sourcelist="$PWD/$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State="$PWD/$apt/state" \
        -o Dir::State::status="$PWD/$apt/status" -o Dir::Cache="$PWD/$apt/cache" "$@"
}
# fetched NAME: from the mirrors that the function prints
fetched() {
    rm -rf "$apt"
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial}
    : >"$apt/status"
    "$1" | sed "s|^|deb [signed-by=$keys] |" >"$apt/sources.list"
    [ -s "$apt/sources.list" ] && asked update --error-on=any &&
        asked install --yes --no-install-recommends --download-only "${packages[@]}" check >/dev/null
}
fetched own_mirrors || fetched debian
for package in "$apt"/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$folder"
    for part in symbols shlibs; do
        dpkg-deb --ctrl-tarfile "$package" | tar -xO "./$part" 2>/dev/null >>"$folder/DEBIAN/$part" || true # not each has them
    done
done
# Links that begin at / would lead to this machine's files.
find "$folder" -type l -lname '/*' | while IFS= read -r link; do
    ln -srf "$folder$(readlink "$link")" "$link"
done
rm -rf "$apt"
echo "${packages[*]}" >"$folder/DEBIAN/packages"
printf "[constants]\nroot = '%s'\n" "$PWD/$folder" >"$folder.ini"
