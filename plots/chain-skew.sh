#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Draws chain-skew.svg beside itself: when each of 64 ranks has the state of each layer, forward and backward, in a
# simulated step of LASP; from the simulator's trace. Run from anywhere; needs build/seqpar and gnuplot.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for framework in flash-loss-in-place lasp-authors; do
  "${SEQPAR:-$here/../build/seqpar}" run linear-llama3-1b-lasp2 --engine simulate --set lasp-version=1 \
    --set "framework=$framework" --trace "$folder/trace.json" > "$folder/report"
  # One event a line: process (rank + 1), begin and duration in microseconds, layer, phase.
  sed -n 's/.*"ph":"X","pid":\([0-9]*\),.*"ts":\([0-9.]*\),"dur":\([0-9.]*\),"cat":"lasp","name":"receive","args":{"layer":\([0-9]*\),"phase":"\([a-z]*\)".*/\1 \2 \3 \4 \5/p' \
    "$folder/trace.json" |
    awk '{ print ($5 == "backward"), $4, $1 - 1, ($2 + $3) / 1000 }' | sort -n -k1,1 -k2,2 -k3,3 |
    awk '{ if ($1 != phase) printf "\n\n"; else if ($2 != layer) print ""; phase = $1; layer = $2; print $4, $3 }' \
      > "$folder/$framework" # a line for each layer, forward and backward as two data sets
done

cd "$folder" # the picture has the names of its data
gnuplot <<GNUPLOT
set terminal svg size 860,360 font "sans-serif,13" background "white"
set output "$here/chain-skew.svg"
set multiplot layout 1,2 margins 0.09,0.98,0.2,0.88 spacing 0.08
set border 3
set tics nomirror out
set xlabel "ms of the step"
set ylabel "rank in the chain"
set yrange [-1:64]
unset key
set title "the local part does not wait for the state"
plot "flash-loss-in-place" index 0 with lines lc rgb "#0072b2", "" index 1 with lines lc rgb "#d55e00"
set title "as the authors' code: it does"
unset ylabel
plot "lasp-authors" index 0 with lines lc rgb "#0072b2", "" index 1 with lines lc rgb "#d55e00"
GNUPLOT
