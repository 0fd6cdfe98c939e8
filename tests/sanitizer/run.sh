#!/bin/sh
# Fuzzes the compiled modules in a build with AddressSanitizer and UndefinedBehaviorSanitizer.
#
#   tests/sanitizer/run.sh [SEED...]
#
# Builds into a temporary directory and leaves the tree's own build alone. Python allocates through malloc here, so that
# a read beyond the end of a bytes object is one beyond the end of an allocation. Exit status 0 means: nothing found.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[ $# -gt 0 ] || set -- 1 2 3

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$root"

echo "building the kernel with sanitizers"
mkdir "$scratch/tree"
cp -R setup.py pyproject.toml src "$scratch/tree"
(
    cd "$scratch/tree"
    find src \( -name '_*.c' -o -name '_*.so' \) -delete
    BARNABAS_SANITIZE=1 "$python" setup.py -q build_ext --inplace >"$scratch/build.log" 2>&1
) || { cat "$scratch/build.log"; exit 1; }

export LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
# Python itself leaves memory to the operating system at its end, so leaks are not looked for.
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export PYTHONMALLOC=malloc PYTHONPATH="$scratch/tree/src"

"$python" - <<'PYTHON'
from ctypes import CDLL

from barnabas.records import _kernel

assert "/tree/src/" in _kernel.__file__, f"not the sanitized kernel: {_kernel.__file__}"
assert CDLL(None).__asan_region_is_poisoned, "AddressSanitizer is not loaded"
PYTHON

for seed in "$@"; do
    echo "fuzzing with seed $seed"
    "$python" -m pytest -q -p no:cacheprovider --capture=sys --hypothesis-seed="$seed" \
        tests/unit/test_kernel_*.py tests/unit/test_codecs_*.py \
        tests/unit/net/test_framed_range.py tests/property/test_kernel.py tests/property/test_codecs.py
done
echo "the sanitizers found nothing"
