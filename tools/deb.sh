#!/usr/bin/env bash
# A Debian package of a build that was made with --prefix=/usr -Drelocatable=false.
# usage: tools/deb.sh BUILD_DIR OUT_DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1 out=$2
mkdir -p "$out"
work=$(mktemp -d "$out/work.XXXXXX")
work=$(realpath "$work")
trap 'rm -rf "$work"' EXIT
root=$work/parley
doc=$root/usr/share/doc/parley
umask 022

version=$("$build/parleyd" --version | sed 's/.* //')
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
DESTDIR=$root meson install -C "$build" --no-rebuild --quiet --skip-subprojects --strip
# Debian's places, and its user by adduser.
rm -r "$root/usr/lib/sysusers.d"
# libparley is for those who build: its library would be a package of its own.
find "$root/usr/lib" \( -name 'libparley.*' -o -name parley.pc \) -delete
find "$root/usr/lib" -type d -empty -delete
rm "$root/usr/include/parley.h"
mkdir -p "$root/usr/share/zsh/vendor-completions" "$root/etc/parley" "$root/lib/systemd/system" "$root/DEBIAN" "$root/usr/share/lintian/overrides"
mv "$root"/usr/share/zsh/site-functions/* "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"
mv "$root/usr/lib/systemd/system/parleyd.service" "$root/lib/systemd/system/"
rmdir -p --ignore-fail-on-non-empty "$root/usr/lib/systemd/system"
cp "$doc/examples/parleyd.yaml" "$root/etc/parley/"
cp packaging/deb/copyright "$doc/"
cp packaging/deb/lintian-overrides "$root/usr/share/lintian/overrides/parley"
find "$root/usr/share/man" -type f -exec gzip -9n {} +
gzip -9nc CHANGES.md >"$doc/NEWS.gz"
printf 'parley (%s) unstable; urgency=medium\n\n  * See NEWS.gz.\n\n -- %s  %s\n' "$version" \
    "$(sed -n 's/^Maintainer: //p' packaging/deb/control)" "$(date -Ru -d "@$SOURCE_DATE_EPOCH")" | gzip -9nc >"$doc/changelog.gz"
(cd "$root" && find etc -type f | sed 's,^,/,') >"$root/DEBIAN/conffiles"
install -m 755 packaging/deb/{postinst,prerm,postrm} "$root/DEBIAN/"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"

# The libraries that the programs are linked against become its dependencies.
mkdir -p "$work/debian"
cp packaging/deb/control "$work/debian/control"
(cd "$work" && dpkg-shlibdeps --ignore-missing-info -e"$root/usr/bin/parleyd" -e"$root/usr/bin/parley" 2>/dev/null)
shlibs=$(sed -n 's/^shlibs:Depends=//p' "$work/debian/substvars")
{
    awk -v version="$version" -v libs="$shlibs" -v size="$(du -sk --exclude=DEBIAN "$root" | cut -f1)" '
        /^Source:|^Standards-Version:|^$/ { next }
        /^(Section|Priority|Maintainer):/ { head = head $0 "\n"; next }
        /^Package:/ { print; print "Version: " version; printf "%s", head; print "Installed-Size: " size; next }
        { sub(/\$\{shlibs:Depends\}/, libs); print }' packaging/deb/control
} >"$root/DEBIAN/control"
find "$root" -type d -exec chmod 755 {} +
find "$root" -type f ! -path '*/bin/*' ! -path '*/DEBIAN/p*' -exec chmod 644 {} +
dpkg-deb --root-owner-group --build "$root" "$out/parley_${version}_amd64.deb" >/dev/null
echo "$(realpath "$out")/parley_${version}_amd64.deb"
