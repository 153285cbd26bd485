#!/usr/bin/env bash
# Installs Debian packages in a bare root, serves from them, builds the C examples and has them run, and purges all: only data stay, and, where it
# is asked for, nothing.
# Needs root, mmdebstrap and Debian's archive. PARLEY_ROOT_TAR: a root that was made before, or is made for the next time.
# usage: tools/try_deb.sh PARLEY.deb LIBPARLEY0.deb LIBPARLEY-DEV.deb
set -euo pipefail
saved=${PARLEY_ROOT_TAR-}
root=$(mktemp -d /tmp/parley-root.XXXXXX)
pid=''
finish() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    ! mountpoint -q "$root/proc" || umount "$root/proc"
    rm -rf --one-file-system "$root"
}
trap finish EXIT
fail() {
    printf 'try_deb: %s\n' "$*" >&2
    exit 1
}
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

if [ -n "$saved" ] && [ -f "$saved" ]; then
    tar -C "$root" -xf "$saved"
else
    mmdebstrap --quiet --variant=apt bookworm "$root"
    [ -z "$saved" ] || tar -C "$root" -cf "$saved" .
fi
mount -t proc proc "$root/proc" 2>/dev/null || echo 'try_deb: cannot mount /proc in the root: parleyd runs without it' >&2
cp /etc/resolv.conf "$root/etc/resolv.conf"
for file in /etc/apt/apt.conf.d/*proxy*; do [ ! -f "$file" ] || cp "$file" "$root/etc/apt/apt.conf.d/"; done
mkdir "$root/tmp/debs"
cp "$@" "$root/tmp/debs/"
# The daemon by itself first: it must not need what is beside it.
inside sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends /tmp/debs/parley_*.deb' >"$root/tmp/install.log" 2>&1 ||
    { tail "$root/tmp/install.log" >&2; fail 'the packages cannot be installed'; }

inside getent passwd parley >/dev/null || fail 'there is no user parley'
[ -L "$root/etc/systemd/system/multi-user.target.wants/parleyd.service" ] || fail 'the unit parleyd.service is not enabled'
inside ldd /usr/lib/parley/libparley-grammar.so >"$root/tmp/ldd.log" && ! grep 'not found' "$root/tmp/ldd.log" || fail 'the grammar module cannot be loaded'
inside parleyd --check --config /etc/parley/parleyd.yaml --listen 127.0.0.1:0 --http off || fail 'parleyd --check refuses the example configuration'
exec {said}< <(exec chroot --userspec=parley:parley "$root" env -i PARLEY_CONFIG=/etc/parley/parleyd.yaml parleyd --listen 127.0.0.1:0 --http 127.0.0.1:0 2>&1)
pid=$!
address=''
while IFS= read -r -u "$said" line; do
    case $line in ready\ grpc=*) address=${line#ready grpc=} address=${address%% *}; break ;; esac
done
[ -n "$address" ] || fail 'parleyd did not become ready'
inside parley ask --server "$address" --model echo hello | grep -q hello || fail 'parleyd does not answer'
inside sh -c 'apt-get install -y -qq --no-install-recommends /tmp/debs/libparley*.deb gcc libc6-dev libuv1-dev pkg-config' >"$root/tmp/install.log" 2>&1 ||
    { tail "$root/tmp/install.log" >&2; fail 'libparley cannot be installed'; }
for example in "$root"/usr/share/doc/libparley-dev/examples/*.c; do
    name=$(basename "$example" .c) more=''
    case $name in uv_*) more=libuv ;; esac
    inside sh -c "cc -Wall -Werror /usr/share/doc/libparley-dev/examples/$name.c \$(pkg-config --cflags --libs parley $more) -o /tmp/$name" ||
        fail "the example $name.c does not build"
    [ "$name" != words ] || continue # a worker, which serves until it is killed
    inside timeout 60 "/tmp/$name" "$address" >"$root/tmp/said" || fail "the example $name failed"
    [ -s "$root/tmp/said" ] || fail "the example $name printed nothing"
done
kill "$pid"
pid=''
cp "$root/var/lib/dpkg/info/parley.postrm" "$root/tmp/postrm"
inside sh -c 'mkdir -p /var/lib/parley/data && echo kept >/var/lib/parley/data/journal.db'
inside apt-get purge -y -qq parley libparley0 libparley-dev >"$root/tmp/purge.log" 2>&1 || { tail "$root/tmp/purge.log" >&2; fail 'the packages cannot be purged'; }
grep -q kept "$root/var/lib/parley/data/journal.db" || fail 'purging deleted the data'
grep -q '/var/lib/parley is kept' "$root/tmp/purge.log" || fail 'purging does not say that the data are kept'
inside getent passwd parley >/dev/null || fail 'purging left data without their owner'
inside env PARLEY_PURGE_DATA=yes sh /tmp/postrm purge || fail 'the data cannot be purged'
! inside getent passwd parley >/dev/null || fail 'purging left the user parley'
left=$(find "$root/etc" "$root/usr" "$root/lib/systemd" "$root/var/lib" "$root/var/cache" \
    \( -iname '*parley*' \) ! -path '*/apt/*' 2>/dev/null || true)
[ -z "$left" ] || fail "purging left these files: $left"
echo 'try_deb: they install, serve, build the examples and are purged'
