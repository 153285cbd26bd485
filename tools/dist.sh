#!/usr/bin/env bash
# A relocatable tarball of a build: programs, their libraries beside them, the man pages. It runs on
# machines of the build's processor whose C library is not older than Debian 12's, with no package installed.
# usage: tools/dist.sh BUILD_DIR OUT_DIR [--arm64 SYSROOT] [--module FILE] [--cublas DIR [--piece-bytes N]]
#   --arm64   the build is for 64-bit Arm, and SYSROOT has Debian's arm64 packages (tools/arm64_sysroot.sh)
#   --module  the CUDA module
#   --cublas  where PyPI's nvidia-cublas is unpacked: its libraries become pieces of their own beside
#             the tarball, in which a script joins them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1 out=$2 module='' cublas='' arch=x86_64 libraries=/ runs=()
most=$((60 << 20)) piece=$most # bytes of a file
shift 2
while [ $# -gt 0 ]; do
    case $1 in
    --arm64) arch=aarch64 libraries=$2 runs=(qemu-aarch64 -L "$2") ;;
    --module) module=$2 ;;
    --cublas) cublas=$2 ;;
    --piece-bytes) piece=$2 ;;
    esac
    shift 2
done

fail() {
    printf 'dist: %s\n' "$*" >&2
    exit 1
}

version=$("${runs[@]}" "$build/parleyd" --version | sed 's/.* //')
name=parley-$version-$arch
mkdir -p "$out"
work=$(mktemp -d "$out/work.XXXXXX")
work=$(realpath "$work")
pid=''
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT
root=$work/$name
mkdir -p "$root"/{bin,lib,share/man/man1,share/man/man7,share/man/man8,share/golden,include,proto}

DESTDIR=$work/install meson install -C "$build" --no-rebuild --quiet --skip-subprojects
find "$work/install" -path '*/bin/parley*' -type f -exec cp {} "$root/bin/" \;
for folder in bash-completion fish zsh doc; do
    find "$work/install" -path "*/share/$folder" -exec cp -r {} "$root/share/" \;
done
grammar=$build/agents/lm/grammar/libparley-grammar.so
[ -f "$grammar" ] || grammar=''
if [ -n "$grammar" ]; then
    cp "$grammar" "$build/server/compile/parley-compile" "$root/lib/"
    cat build/xgrammar/xgrammar-0.2.8/{NOTICE,LICENSE} >"$root/LICENSE.xgrammar"
fi
[ -z "$module" ] || cp "$module" "$root/lib/libparley-cuda.so"
# The C library (Debian's libc6) is the machine's own; all else travels. So do two libraries that are only loaded: libpq, for a
# journal in PostgreSQL (server/journal/libpq.c), and libwebsockets' part for libuv (server/http/event_lib.c).
loaded=()
for path in libpq.so.5 libwebsockets-evlib_uv.so; do
    loaded+=("$(ls "$libraries"/usr/lib/"$arch-linux-gnu/$path")")
done
cp -L "${loaded[@]}" "$root/lib/"
tools/libraries.py --root "$libraries" "$root"/bin/* "$root"/lib/*.so* | xargs -I{} cp -L {} "$root/lib/"
cp man/parley.1 "$root/share/man/man1/"
cp man/parley-parlai.7 "$root/share/man/man7/"
cp man/parleyd.8 "$root/share/man/man8/"
cp tests/golden/{greedy,passages}.jsonl "$root/share/golden/" # what selftest --golden asks
cp client/lib/parley.h agents/plugin/parley_{agent,environment,teacher}.h "$root/include/"
cp -r proto/parley proto/grpc proto/inference "$root/proto/"
cp -r share/grafana "$root/share/"
mkdir -p "$root/share/parley/train"
cp client/examples/{train,event_file,launch,attached}.py "$root/share/parley/train/" # of `parley train ppo`
cp -r README.md CHANGES.md LICENSE docs "$root/"
for package in libjs-marked libjs-katex; do # in the page that parleyd serves
    cp "/usr/share/doc/$package/copyright" "$root/LICENSE.${package#libjs-}"
done

rm -f "$out/$name".tar.gz "$out/$name"-cublas.tar.gz.*
if [ -n "$cublas" ]; then
    # Its code is compressed as it comes: xz takes ten times gzip's time for 3 % less, and not every machine has it.
    tar -C "$cublas/nvidia/cu13/lib" --owner=0 --group=0 -cz libcublas.so.13 libcublasLt.so.13 |
        split -b "$piece" -d - "$out/$name-cublas.tar.gz."
    (cd "$out" && sha256sum "$name"-cublas.tar.gz.*) >"$root/lib/cublas.sha256"
    cp tools/add_cublas.sh "$root/add-cublas"
    cp "$cublas"/nvidia_cublas-*.dist-info/licenses/License.txt "$root/LICENSE.cublas"
fi
tar -C "$work" --owner=0 --group=0 -czf "$work/$name.tar.gz" "$name"
[ "$(stat -c %s "$work/$name.tar.gz")" -le "$most" ] || fail "$name.tar.gz has more than $((most >> 20)) MiB"

# Its own programs, with nothing but what is in it.
env -i "${runs[@]}" "$root/bin/parley" --version >/dev/null
exec {said}< <(exec env -i "${runs[@]}" "$root/bin/parleyd" --listen 127.0.0.1:0 --http 127.0.0.1:0 2>&1)
pid=$!
while IFS= read -r -u "$said" line; do
    case $line in ready\ *) break ;; esac
done
grep -qF "$root/lib/libwebsockets-evlib_uv.so" "/proc/$pid/maps" || fail 'HTTP does not use the library of the tarball'
mv "$work/$name.tar.gz" "$out/"
(cd "$out" && ls "$PWD/$name"*)
