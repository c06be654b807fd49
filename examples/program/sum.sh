#!/bin/sh
# Time a loop of $1 additions in the shell: the smallest program that a campaign can measure. Rank 0 prints the rate.
n=$1
begin=$(date +%s%N)
i=0
while [ "$i" -lt "$n" ]; do i=$((i + 1)); done
end=$(date +%s%N)
[ "$i" -eq "$n" ] || { echo FAILED; exit 1; }
[ "${RANK:-0}" -eq 0 ] || exit 0
echo "rate: $((n * 1000000000 / (end - begin))) operations/s"
echo PASSED
