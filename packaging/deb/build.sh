#!/usr/bin/env bash
# Builds the Debian packages `sheen` and `libsheen-lustreapi-dev` with dpkg-deb. `make deb` runs it.
# Equal sources and programs give equal packages. Variables:
#   BIN, LIBDIR, SHEEN  as of packaging/install.sh
#   OUT                 directory of the packages: target/deb
#   ARCH, MULTIARCH     architecture of BIN, such as arm64 and aarch64-linux-gnu: this machine's
#   MAINTAINER          name and address in the packages
set -euo pipefail
umask 022
export LC_ALL=C
out=$(realpath -m "${OUT:-$(dirname "$0")/../../target/deb}")
# Relative paths begin at the directory of the caller.
for name in BIN LIBDIR SHEEN; do
  [ -z "${!name:-}" ] || export "$name=$(realpath -m "${!name}")"
done
cd "$(dirname "$0")/../.."
arch=${ARCH:-$(dpkg --print-architecture)}
multiarch=${MULTIARCH:-$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || gcc -print-multiarch)}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
# Sources from an archive have no history.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
# With several threads xz writes other bytes.
export SOURCE_DATE_EPOCH DPKG_DEB_THREADS_MAX=1
libraries=/usr/lib/$multiarch
maintainer=${MAINTAINER:-Sheen maintainers <sheen@localhost>}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
main=$work/sheen
dev=$work/libsheen-lustreapi-dev

# Moves files from the package `sheen` to the package of the C library.
move_to_dev() {
  local path
  for path; do
    mkdir -p "$dev$(dirname "$path")"
    mv "$main$path" "$dev$path"
  done
}

# Prints the packages of the shared libraries that a program or library needs.
needs() { # FILE
  if command -v dpkg-shlibdeps >/dev/null; then
    mkdir -p "$work/debian"
    printf 'Source: sheen\n\nPackage: sheen\nArchitecture: any\n' >"$work/debian/control"
    # Its warnings concern only an installed package. Its errors are shown.
    (cd "$work" && dpkg-shlibdeps -O --ignore-missing-info "$1" 2>errors) | sed -n 's/^shlibs:Depends=//p' || {
      cat "$work/errors" >&2
      return 1
    }
  else
    local glibc
    glibc=$(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
    echo "libc6 (>= ${glibc#GLIBC_}), libgcc-s1"
  fi
}

# Completes the package in a directory: control files, checksums, times, archive.
pack() { # DIRECTORY CONTROL-TEXT
  local dir=$1 size
  # 1 KiB for a directory or a link, whatever the file system takes for it.
  size=$(find "$dir" -printf '%y %s\n' | awk '{ sum += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print sum }')
  mkdir "$dir/DEBIAN"
  printf '%s\n' "$2" | sed "s/^Section:/Installed-Size: $size\n&/" >"$dir/DEBIAN/control"
  (cd "$dir" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  local script
  for script in postinst postrm; do
    [ "$dir" != "$main" ] || install -m 755 packaging/deb/reload.sh "$dir/DEBIAN/$script"
  done
  [ "$dir" != "$dev" ] || echo 'activate-noawait ldconfig' >"$dir/DEBIAN/triggers"
  find "$dir" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zxz --build "$dir" "$out/$(basename "$dir")_${version}_$arch.deb"
}

DESTDIR=$main PREFIX=/usr LIBRARIES=$libraries SBINDIR=/usr/sbin ZSHDIR=/usr/share/zsh/vendor-completions \
  packaging/install.sh
mkdir -p "$out"
ln -sf ../bin/sheen "$main/usr/sbin/mount.sheen"
find "$main/usr/share/man" -type f -exec gzip -9n {} +
ln -sf mount.sheen.8.gz "$main/usr/share/man/man8/mount.fuse.sheen.8.gz"
rm "$main/usr/share/man/man8/mount.fuse.sheen.8"
install -d "$main/etc/sheen"
install -d -m 700 "$main/etc/sheen/keys"
rm "$main/usr/share/doc/sheen/LICENSE"
install -m 644 packaging/deb/copyright "$main/usr/share/doc/sheen/copyright"
move_to_dev "$libraries" /usr/include
install -D -m 644 packaging/deb/copyright "$dev/usr/share/doc/libsheen-lustreapi-dev/copyright"

main_needs=$(needs "$main/usr/bin/sheen")
dev_needs=$(needs "$dev$libraries/liblustreapi.so.1")
pack "$main" "Package: sheen
Version: $version
Architecture: $arch
Maintainer: $maintainer
Depends: $main_needs
Recommends: fuse3
Suggests: munge
Conflicts: lustre-client-utils, lustre-server-utils, lustre-utils
Section: admin
Priority: optional
Description: parallel file system in user space that speaks Lustre
 Servers, mounts and tools of Sheen, in one program. It has Lustre's striping,
 and Lustre's commands lfs and lctl. It needs no kernel module besides FUSE.
 The package starts no server."

pack "$dev" "Package: libsheen-lustreapi-dev
Version: $version
Architecture: $arch
Maintainer: $maintainer
Depends: $dev_needs
Suggests: sheen (= $version), pkg-config
Conflicts: lustre-client-utils, lustre-dev, lustre-server-utils, lustre-utils
Section: libdevel
Priority: optional
Description: liblustreapi of Sheen: shared library, static library and headers
 C programs that were written for Lustre's liblustreapi link with this library.
 It reads and sets layouts, and opens files by FID, on mounts of Sheen."
