#!/bin/sh
# Fetches Nsight Systems from Debian's archive into build/nsight-systems/VERSION, for tests that record with it. Needs no
# root, and changes neither the system nor its package sources.
#
#   sh scripts/nsight-systems.sh 2023.4      # or 2022.4, 2024.2
#   PATH="$PWD/build/nsight-systems/2023.4/usr/bin:$PATH" torchscale profile --tool nsys …
#
# DEBIAN_MIRROR names another mirror than that of the system's own sources (http://HOST/debian/).
set -eu
cd "$(dirname "$0")/.."
version=${1:?a version: 2022.4, 2023.4 or 2024.2}
target=build/nsight-systems/$version
[ -e "$target/.complete" ] && exit 0

# Checksum and name of each package in the pool of Debian's non-free component.
packages() {
    case $version in
    2022.4) cat <<END ;;
3bfcdf9119a3aab3dadd6aa9faedb5407b71f6afaa678e98b54ab97d87627c2e nsight-systems_2022.4.2.1~11.8.0-5~deb12u1_amd64.deb
420ab94d22cb8e30feaf88f0acb7735500ffd564e5a2027f09e87438ac11615e nsight-systems-target_2022.4.2.1~11.8.0-5~deb12u1_amd64.deb
END
    2023.4) cat <<END ;;
182afe148c6812f5db98e6f58c5cdcc5af4ba1a54be3c0a097f6227de042b485 nsight-systems_2023.4.4.54~12.4.1-2_amd64.deb
adc9a357a0d9a81617753925a856e8e9957af10c9addae1068c3ef9be1d2a766 nsight-systems-target_2023.4.4.54~12.4.1-2_amd64.deb
END
    2024.2) cat <<END ;;
e81a8a5ffa1bde826e34f54d5f1b36c7f5f420d89682f73816e30cf16095005f nsight-systems_2024.2.3.38~12.5.0-2+b1_amd64.deb
87b96111e6699581cf031981204a5027446580802673b09cebb82f358b95b7d0 nsight-systems-target_2024.2.3.38~12.5.0-2+b1_amd64.deb
c29299270ef1283d3909f3a92ff3c02c447218f04af860240f1622fd1666b2dc libarrow500_0~~12.5.0-2+b1_amd64.deb
f19f75fe51a2a30f740c5ab46d73591a25ee063d2a75b0bf009c06b5f0455763 libparquet500_0~~12.5.0-2+b1_amd64.deb
END
    *) echo "nsight-systems.sh: $version: expected 2022.4, 2023.4 or 2024.2" >&2; exit 2 ;;
    esac
}
packages >/dev/null

helper=/usr/lib/apt/apt-helper
if [ ! -x "$helper" ] || [ "$(dpkg --print-architecture)" != amd64 ]; then
    echo "nsight-systems.sh: needs apt and an amd64 machine" >&2
    exit 3
fi
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 '/debian/$' || true)}
if [ -z "$mirror" ]; then
    echo "nsight-systems.sh: the system's package sources name no mirror of Debian; set DEBIAN_MIRROR" >&2
    exit 3
fi

mkdir -p build/nsight-systems
work=$(mktemp -d "$PWD/build/nsight-systems/.$version-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
packages | while read -r checksum name; do
    "$helper" download-file "${mirror%/}/pool/non-free/n/nvidia-cuda-toolkit/$name" "$work/$name" "SHA256:$checksum" \
        >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    # Without the desktop program and the manuals, which are two thirds of it.
    dpkg-deb --fsys-tarfile "$work/$name" | tar -x -C "$work" --exclude=./usr/share --exclude='*WebEngine*' \
        --exclude='*/host-linux-x64/resources' --exclude='*/host-linux-x64/Plugins'
    rm "$work/$name"
done

host=$work/usr/lib/nsight-systems/host-linux-x64
# nsys looks for its importer beside its own directory.
ln -s ../../nsight-systems/host-linux-x64 "$work/usr/lib/x86_64-linux-gnu/nsight-systems/host-linux-x64"
mv "$work"/usr/lib/x86_64-linux-gnu/lib*.so.* "$host" 2>/dev/null || true
libssh=$(ldconfig -p 2>/dev/null | sed -n 's/.*libssh\.so\.4 .*=> //p' | head -n 1)
if [ -n "$libssh" ]; then
    ln -s "$libssh" "$host/libssh.so.4"
else
    (
        cd "$work"
        apt-get download libssh-4 >log 2>&1 || {
            own="-o Dir::State::lists=$work/lists -o Dir::Cache=$work/cache"
            mkdir -p lists/partial cache/archives/partial
            # shellcheck disable=SC2086 - a list of words
            apt-get $own update >log 2>&1 && apt-get $own download libssh-4 >>log 2>&1 || { cat log >&2; exit 1; }
        }
        dpkg-deb --fsys-tarfile libssh-4_*.deb | tar -x --wildcards '*/libssh.so.4*'
        mv usr/lib/x86_64-linux-gnu/libssh.so.4* "$host"
    )
fi
ln -sf libssh.so.4 "$host/libssh.so"
"$host/QdstrmImporter" --version >/dev/null
rm -rf "$work/log" "$work"/*.deb "$work/lists" "$work/cache"
touch "$work/.complete"
chmod 755 "$work"
rm -rf "$target"
mv -T "$work" "$target"
