#!/usr/bin/env bash
# Installs Sheen's files. `make install` and packaging/deb/build.sh run it. Variables:
#   DESTDIR    directory that stands for / (default: empty)
#   PREFIX     /usr/local
#   LIBRARIES  directory of the C library: $PREFIX/lib
#   SBINDIR    where mount(8) looks for helpers: /sbin
#   ZSHDIR     directory of completions for zsh: $PREFIX/share/zsh/site-functions
#   BIN        the program: target/release/sheen
#   LIBDIR     where liblustreapi.so and liblustreapi.a were built: target/release
#   SHEEN      a program that runs on this machine and writes manual pages and completions: $BIN
set -euo pipefail
umask 022
# Relative paths begin at the directory of the caller.
for name in DESTDIR BIN LIBDIR SHEEN; do
  [ -z "${!name:-}" ] || printf -v "$name" %s "$(realpath -m "${!name}")"
done
cd "$(dirname "$0")/.."
dest=${DESTDIR:-}
prefix=${PREFIX:-/usr/local}
libraries=${LIBRARIES:-$prefix/lib}
sbin=${SBINDIR:-/sbin}
zsh=${ZSHDIR:-$prefix/share/zsh/site-functions}
bin=${BIN:-target/release/sheen}
libdir=${LIBDIR:-target/release}
sheen=$(realpath "${SHEEN:-$bin}")
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
share=$dest$prefix/share
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT

programs() {
  install -D -s "$bin" "$dest$prefix/bin/sheen"
  ln -sf sheen "$dest$prefix/bin/lfs"
  ln -sf sheen "$dest$prefix/bin/lctl"
  install -d "$dest$sbin"
  ln -sf "$prefix/bin/sheen" "$dest$sbin/mount.sheen"
  ln -sf mount.sheen "$dest$sbin/mount.fuse.sheen"
}

c_library() {
  install -D -s -m 644 "$libdir/liblustreapi.so" "$dest$libraries/liblustreapi.so.1"
  ln -sf liblustreapi.so.1 "$dest$libraries/liblustreapi.so"
  install -D -m 644 "$libdir/liblustreapi.a" "$dest$libraries/liblustreapi.a"
  strip --strip-debug --enable-deterministic-archives "$dest$libraries/liblustreapi.a"
  local include=$dest$prefix/include
  install -D -m 644 -t "$include/lustre" crates/llapi/include/lustre/*.h
  install -D -m 644 -t "$include/linux/lustre" crates/llapi/include/linux/lustre/*.h
  install -d "$dest$libraries/pkgconfig"
  sed "s,@PREFIX@,$prefix,; s,@LIBRARIES@,$libraries,; s,@VERSION@,$version," \
    packaging/lustreapi.pc.in >"$dest$libraries/pkgconfig/lustreapi.pc"
  # The name in Lustre's packages.
  ln -sf lustreapi.pc "$dest$libraries/pkgconfig/lustre.pc"
}

manual_pages() {
  "$sheen" man "$pages"
  install -D -m 644 -t "$share/man/man1" "$pages"/*.1
  install -D -m 644 -t "$share/man/man8" "$pages"/*.8
  ln -sf mount.sheen.8 "$share/man/man8/mount.fuse.sheen.8"
}

# bash and fish load the file with the name of the command. zsh reads in the file which commands it
# is for.
completions() {
  local bash=$share/bash-completion/completions fish=$share/fish/vendor_completions.d
  install -d "$bash" "$fish" "$dest$zsh"
  "$sheen" completions bash >"$bash/sheen"
  "$sheen" completions fish >"$fish/sheen.fish"
  "$sheen" completions zsh >"$dest$zsh/_sheen"
  local tool
  for tool in lfs lctl; do
    ln -sf sheen "$bash/$tool"
    ln -sf sheen.fish "$fish/$tool.fish"
  done
}

units() {
  local unit
  install -d "$dest$prefix/lib/systemd/system"
  for unit in packaging/systemd/*.service; do
    sed "s,/usr/bin/sheen,$prefix/bin/sheen," "$unit" >"$dest$prefix/lib/systemd/system/${unit##*/}"
  done
}

documents() {
  local doc=$share/doc/sheen
  install -D -m 644 -t "$doc" README.md CHANGELOG.md LICENSE
  install -D -m 644 -t "$doc/docs" docs/*.md
  install -D -m 644 -t "$doc/docs/monitoring" docs/monitoring/*.json
  install -D -m 644 -t "$doc/docs/pictures" docs/pictures/*
  install -D -m 644 -t "$doc/docs/examples" docs/examples/*
  install -D -m 644 -t "$doc/examples" packaging/examples/*.conf
}

programs
c_library
manual_pages
completions
units
documents
