#!/usr/bin/env bash
# A relocatable tarball of a build: programs, their libraries beside them, the man pages. It runs on
# x86-64 machines whose C library is not older than the one here, with no package installed.
# usage: tools/dist.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1
version=$("$build/parleyd" --version | sed 's/.* //')
name=parley-$version-x86_64
root=build/dist/$name
rm -rf build/dist
mkdir -p "$root"/{bin,lib,share/man/man1,share/man/man7,share/man/man8,include,proto}
DESTDIR=$PWD/build/dist/install meson install -C "$build" --no-rebuild --quiet --skip-subprojects
find build/dist/install -name parleyd -o -name parley | xargs -I{} cp {} "$root/bin/"
# The C library and the loader are the machine's own; all else travels.
for program in "$root"/bin/*; do ldd "$program"; done | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux-x86-64)\.so' | xargs -I{} cp -L {} "$root/lib/"
# Libwebsockets loads its part for libuv by itself: nothing is linked against it (server/http/event_lib.c).
cp -L "$(dirname "$(ldconfig -p | awk '/libwebsockets\.so/ { print $NF; exit }')")/libwebsockets-evlib_uv.so" "$root/lib/"
module=$build/compute/cuda/libparley-cuda.so # where nvcc was found
[ ! -f "$module" ] || cp "$module" "$root/lib/"
cp man/parley.1 "$root/share/man/man1/"
cp man/parley-parlai.7 "$root/share/man/man7/"
cp man/parleyd.8 "$root/share/man/man8/"
cp client/lib/parley.h "$root/include/"
cp -r proto/parley proto/grpc proto/inference "$root/proto/"
cp -r share/grafana "$root/share/"
cp README.md CHANGES.md LICENSE "$root/"
rm -rf build/dist/install
tar -C build/dist -czf "build/$name.tar.gz" "$name"
# Its own programs, with nothing but what is in it.
env -i "$root/bin/parleyd" --version >/dev/null
env -i "$root/bin/parley" --version >/dev/null
exec {said}< <(exec env -i "$root/bin/parleyd" --listen 127.0.0.1:0 --http 127.0.0.1:0 2>&1)
pid=$!
trap 'kill "$pid"' EXIT
while IFS= read -r -u "$said" line; do
    case $line in ready\ *) break ;; esac
done
grep -qF "$PWD/$root/lib/libwebsockets-evlib_uv.so" "/proc/$pid/maps" || {
    printf 'HTTP does not run by what is in the tarball\n' >&2
    exit 1
}
printf '%s\n' "build/$name.tar.gz"
