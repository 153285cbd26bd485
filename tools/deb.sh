#!/usr/bin/env bash
# Debian packages of a build that was made with --prefix=/usr -Drelocatable=false: parley, libparley0 and libparley-dev, as
# packaging/deb/control has them. Prints their paths.
# usage: tools/deb.sh BUILD_DIR OUT_DIR [SYSROOT]    SYSROOT: the build is for 64-bit Arm, against tools/arm64_sysroot.sh's folder
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1 out=$2 sysroot=${3-} arch=amd64 runs=() strip=strip
[ -z "$sysroot" ] || {
    sysroot=$(realpath "$sysroot") arch=arm64 runs=(qemu-aarch64 -L "$sysroot") strip=aarch64-linux-gnu-strip
}
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d "$out/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
umask 022

version=$("${runs[@]}" "$build/parleyd" --version | sed 's/.* //')
maintainer=$(sed -n 's/^Maintainer: //p' packaging/deb/control)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
root=$work/parley shared=$work/libparley0 dev=$work/libparley-dev
DESTDIR=$root meson install -C "$build" --no-rebuild --quiet --skip-subprojects --strip

# moved FROM TO PATH…: of one package's root to another's
moved() {
    local from=$1 to=$2 path
    shift 2
    for path; do
        mkdir -p "$to/$(dirname "$path")"
        mv "$from/$path" "$to/$path"
    done
}

# The libraries, and what is for those who build.
libdir=$(cd "$root" && dirname usr/lib/*/libparley.a)
(cd "$root" && ls -d "$libdir"/libparley.so.*) | while read -r path; do moved "$root" "$shared" "$path"; done
moved "$root" "$dev" "$libdir"/libparley.{a,so} "$libdir/pkgconfig/parley.pc" usr/include/parley{,_agent,_environment,_teacher}.h usr/share/parley/proto
mkdir -p "$dev/usr/share/doc/libparley-dev/examples"
cp client/examples/*.c client/examples/*.cc client/examples/*.py "$dev/usr/share/doc/libparley-dev/examples/"
"$strip" --strip-debug --remove-section=.comment --enable-deterministic-archives "$dev/$libdir/libparley.a"
# Debian's places, and its user by adduser.
rm -r "$root/usr/lib/sysusers.d"
mkdir -p "$root/usr/share/zsh/vendor-completions" "$root/etc/parley" "$root/lib/systemd/system" "$root/usr/share/lintian/overrides"
mv "$root"/usr/share/zsh/site-functions/* "$root/usr/share/zsh/vendor-completions/"
mv "$root/usr/lib/systemd/system/parleyd.service" "$root/lib/systemd/system/"
cp "$root/usr/share/doc/parley/examples/parleyd.yaml" "$root/etc/parley/"
if [ -e "$root/usr/lib/parley/libparley-grammar.so" ]; then
    install -D -m 644 build/xgrammar/xgrammar-0.2.8/NOTICE "$root/usr/share/doc/parley/NOTICE.xgrammar"
fi
cp packaging/deb/lintian-overrides "$root/usr/share/lintian/overrides/parley"
find "$root/usr/share/man" -type f -exec gzip -9n {} +
find "$root" -type d -empty ! -path "$root/etc/*" -delete
mkdir -p "$root/DEBIAN" "$shared/DEBIAN" "$dev/DEBIAN"
(cd "$root" && find etc -type f | sed 's,^,/,') >"$root/DEBIAN/conffiles"
install -m 755 packaging/deb/{postinst,prerm,postrm} "$root/DEBIAN/"
echo 'activate-noawait ldconfig' >"$shared/DEBIAN/triggers"
echo "libparley 0 libparley0 (>= $version)" >"$shared/DEBIAN/shlibs"

# depends_of FILE…: the packages of the libraries that these are linked against
mkdir -p "$work/debian"
cp packaging/deb/control "$work/debian/control"
depends_of() {
    (cd "$work" && DEB_HOST_ARCH=$arch dpkg-shlibdeps -O ${sysroot:+"-S$sysroot"} --ignore-missing-info "${@/#/-e}" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

# packed NAME SHLIBS: the package of $work/NAME
packed() {
    local name=$1 libs=$2 here=$work/$1 doc=$work/$1/usr/share/doc/$1
    mkdir -p "$doc"
    cp packaging/deb/copyright "$doc/"
    [ "$name" != parley ] || gzip -9nc CHANGES.md >"$doc/NEWS.gz"
    printf 'parley (%s) unstable; urgency=medium\n\n  * See NEWS.gz of the package parley.\n\n -- %s  %s\n' "$version" "$maintainer" \
        "$(date -Ru -d "@$SOURCE_DATE_EPOCH")" | gzip -9nc >"$doc/changelog.gz"
    find "$here" -type d -exec chmod 755 {} +
    find "$here" -type f ! -path '*/bin/*' ! -path '*/DEBIAN/p*' -exec chmod 644 {} +
    (cd "$here" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$here/DEBIAN/md5sums"
    # The stanza of the package, with what it has of its own before what the source says of all.
    awk -v name="$name" -v version="$version" -v libs="$libs" -v arch="$arch" -v size="$(du -sk --exclude=DEBIAN "$here" | cut -f1)" '
        BEGIN { RS = ""; FS = "\n" }
        NR == 1 { for (i = 1; i <= NF; i++) if ($i ~ /^(Section|Priority|Maintainer):/) general[++n] = $i }
        $1 == "Package: " name {
            print $1 "\nSource: parley\nVersion: " version
            for (i = 1; i <= n; i++)
                if (!(general[i] ~ /^Section:/ && $0 ~ /\nSection:/))
                    print general[i]
            print "Installed-Size: " size
            for (i = 2; i <= NF; i++) {
                sub(/^Architecture: .*/, "Architecture: " arch, $i)
                sub(/\$\{shlibs:Depends\}/, libs, $i)
                sub(/\$\{binary:Version\}/, version, $i)
                print $i
            }
        }' packaging/deb/control | if [ "$name" = parley ]; then grep -v '^Source:'; else cat; fi >"$here/DEBIAN/control"
    dpkg-deb --root-owner-group --build "$here" "$out/${name}_${version}_$arch.deb" >/dev/null
    echo "$out/${name}_${version}_$arch.deb"
}

packed parley "$(depends_of "$root/usr/bin/parleyd" "$root/usr/bin/parley")"
packed libparley0 "$(depends_of "$(find "$shared" -name 'libparley.so.*' -type f)")"
packed libparley-dev ''
