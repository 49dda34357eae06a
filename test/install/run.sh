#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# test/install/run.sh BUILD SOURCE: installs BUILD into a fresh prefix, and uses it as a stranger would:
# through pkg-config, the header, the shared and the static library, and the program.
set -u
build=$1
source=$2
compiler=${CC:-cc}
passed=0
failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

try() { # NAME COMMAND…: passes if the command succeeds
	title=$1
	shift
	if "$@" >"$work/said" 2>&1; then
		passed=$((passed + 1))
		echo "ok - $title"
	else
		failed=$((failed + 1))
		echo "not ok - $title: $*"
		sed 's/^/# /' "$work/said"
	fi
}

says() { # WORD COMMAND…: succeeds if the command does and prints WORD
	word=$1
	shift
	"$@" >"$work/output" 2>&1
	status=$?
	cat "$work/output"
	[ "$status" = 0 ] && grep -q -- "$word" "$work/output"
}

try "meson install" env DESTDIR="$work" meson install -C "$build" --no-rebuild
library=$(find "$work" -name 'liblockstep.so' | head -n 1)
folder=$(dirname "$library")
prefix=${folder%/lib*}
export PKG_CONFIG_PATH="$folder/pkgconfig" LD_LIBRARY_PATH="$folder"
# The prefix that pkg-config names is the one the build was set up for; here it lies below $work.
package="pkg-config --define-variable=prefix=$prefix"

try "no path of the source tree is installed" sh -c "! grep -rIl '$source' '$prefix'"
try "version" says "^$(sed -n 's/.*LOCKSTEP_VERSION "\(.*\)"/\1/p' "$source/include/lockstep/lockstep.h")\$" \
	pkg-config --modversion lockstep

flags=$($package --cflags --libs lockstep)
for name in hello train_digits; do
	files=$source/examples/$name.c
	[ "$name" = train_digits ] && files="$files $source/examples/digits.c $source/examples/mlp.c $source/examples/evaluate.c $source/examples/fault.c"
	# shellcheck disable=SC2086
	try "$name compiles with the shared library" $compiler -std=c17 -D_GNU_SOURCE -Wall -Wextra -Werror -O2 \
		"-DDIGITS_DATA=\"$source/examples/data/digits.csv\"" -o "$work/$name" $files $flags -lm
	# The static library, everything else as the system has it.
	static=$($package --static --cflags --libs lockstep | sed 's/-llockstep/-l:liblockstep.a/')
	# shellcheck disable=SC2086
	try "$name compiles with the static library" $compiler -std=c17 -D_GNU_SOURCE -O2 \
		"-DDIGITS_DATA=\"$source/examples/data/digits.csv\"" -o "$work/$name-static" $files $static -lm
done
# The example of its manual page, which uses a device.
sed -n '/^# EXAMPLE/,/^# SEE/{/^#include/,/^```/p}' "$source/doc/man/ls_device.3.scd" | sed '/^```/,$d' >"$work/device.c"
# shellcheck disable=SC2046
try "the example of ls_device(3) compiles" $compiler -std=c17 -Wall -Wextra -Werror -o "$work/device" "$work/device.c" \
	$($package --cflags --libs lockstep-sim)
try "it runs" says 'rank 2: success: 3' "$prefix/bin/lockstep" run -n 3 "$work/device"
cat >"$work/plain.c" <<'END'
#include <lockstep/lockstep.h>
int main(void)
{
	ls_group *group;
	struct ls_group_options open = {.size = sizeof open, .world_size = 1, .rendezvous = "unix:install-test", .device = "sim:0"};
	return ls_group_open(&open, &group) != LS_OK;
}
END
# shellcheck disable=SC2086
try "a program without the driver compiles" $compiler -o "$work/plain" "$work/plain.c" $flags -Wl,--enable-new-dtags "-Wl,-rpath,$folder"
try "the library finds the driver beside itself" env -u LD_LIBRARY_PATH "$work/plain"
mv "$folder/liblockstep-sim.so" "$work/"
try "and nowhere else" says LS-DEVICE-DRIVER sh -c "! env -u LD_LIBRARY_PATH '$work/plain'"
try "but where LD_LIBRARY_PATH says" env LD_LIBRARY_PATH="$work:$folder" "$work/plain"
mv "$work/liblockstep-sim.so" "$folder/"
try "the shared one needs liblockstep.so.0" says 'liblockstep\.so\.0' readelf -d "$work/hello"
try "the static one does not" sh -c "! readelf -d '$work/hello-static' | grep liblockstep"
try "one rank runs" says 'rank 0 of 1: the sum of all ranks is 0' "$work/hello"
try "three ranks run" says 'rank 2 of 3: the sum of all ranks is 3' \
	"$prefix/bin/lockstep" run -n 3 "$work/hello"
try "three static ranks run" says 'rank 2 of 3: the sum of all ranks is 3' \
	"$prefix/bin/lockstep" run -n 3 "$work/hello-static"
# Unless the system lets no process look into another.
if ! grep -q '[1-9]' /proc/sys/kernel/yama/ptrace_scope 2>/dev/null; then
	try "reports tell the line of Python of a late rank" sh -c "LOCKSTEP_TIMEOUT_MS=1000 '$prefix/bin/lockstep' run -n 2 \
		python3 '$source/test/cli/stacks_job.py' '$library' threads 2>&1 | grep 'rank 1 is elsewhere .*; its main thread is in lade_stapel at stacks_job.py:'"
fi
# An empty file in its place: it cannot be loaded, as where it is not installed.
mkdir "$work/without"
: >"$work/without/libdw.so.1"
without="env LD_LIBRARY_PATH=$work/without:$folder $prefix/bin/lockstep run -n 3 $work/train_digits --fault=leave"
try "without libdw the verdict is the same" sh -c "$without 2>&1 | grep 'called from train_digits+0x'"
try "and the rank that reports says once that lines are missing" sh -c "[ \"\$($without 2>&1 | grep -c '^.[0-9].*LS-LIBDW-MISSING')\" = 1 ]"
try "nothing of libdw or UCX is linked" sh -c "! readelf -d '$library' '$prefix/bin/lockstep' | grep -E 'libdw|libelf|libuc'"
# A compiler that finds no header of elfutils, or of UCX, as where the package with them is not installed.
for headers in elfutils:libdw-dev ucp:libucx-dev; do
	cat >"$work/poor-cc" <<END
#!/bin/sh
for word; do case \$word in *.c) ! grep -q '${headers%:*}/' "\$word" || exit 1 ;; esac; done
exec $compiler "\$@"
END
	chmod +x "$work/poor-cc"
	try "a build without ${headers#*:} names it" sh -c "
		CC='$work/poor-cc' meson setup '$work/poor-${headers%:*}' '$source' 2>&1 | grep 'ERROR.*Debian, Ubuntu: ${headers#*:}'"
done
if command -v clang >/dev/null; then
	printf '#include <lockstep/%s.h>\n' lockstep sim >"$work/header.cc"
	# shellcheck disable=SC2086
	try "the headers are C++" clang -x c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only \
		$($package --cflags lockstep) "$work/header.cc"
fi
if [ -d "$prefix/share/man" ]; then
	try "the manual has a page for every command and function" sh -c "
		cd '$prefix/share/man' && for page in man1/lockstep-run.1 man3/ls_allreduce.3 man3/ls_recv.3 man3/ls_status_name.3 man3/ls_version.3 man7/lockstep-errors.7; do
			[ -s \$page ] || { echo \$page; exit 1; }; done"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
