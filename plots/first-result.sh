#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Draws first-result.svg beside itself: Llama 3.1 8B on 2 nodes of 8 A800, MFU and memory over the sequence's
# length for a ring alone, Ulysses alone, and the two together. Run from anywhere; needs build/seqpar and gnuplot.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
data=$(mktemp)
trap 'rm -f "$data"' EXIT

value() { # of a key of the JSON on stdin
  sed -n "s/^ *\"$1\" : \([0-9.e+-]*\),*$/\1/p" | head -n 1
}

for layout in "1 16" "8 2" "16 1"; do
  set -- $layout
  for k in 8 16 32 64 128 256 512 1024; do
    json=$("$here/../build/seqpar" run llama-3.1-8b-208k --json --set "sequence=${k}K" --set "layout.ulysses=$1" \
      --set "layout.ring=$2")
    echo "$k $(echo "$json" | value mfu_causal) $(echo "$json" | value peak_bytes)"
  done
  printf '\n\n'
done > "$data"

gnuplot <<GNUPLOT
set terminal svg size 860,340 font "sans-serif,13" background "white"
set output "$here/first-result.svg"
set multiplot layout 1,2 margins 0.08,0.98,0.2,0.88 spacing 0.1
set logscale x 2
set xtics ("8K" 8, "32K" 32, "128K" 128, "512K" 512)
set xrange [6:2600]
set xlabel "sequence, tokens"
set border 3
set tics nomirror out
set grid y lc rgb "#dddddd"
set key bottom right reverse Left samplen 2
set title "MFU over the causal half, %"
set yrange [0:50]
plot "$data" index 0 using 1:(100*\$2) with linespoints lw 2 pt 7 ps 0.5 lc rgb "#d55e00" title "ring 16", \
     "" index 2 using 1:(100*\$2) with linespoints lw 2 pt 7 ps 0.5 lc rgb "#009e73" title "ulysses 16", \
     "" index 1 using 1:(100*\$2) with linespoints lw 2 pt 7 ps 0.5 lc rgb "#0072b2" title "ulysses 8 x ring 2"
unset key
set title "memory of the fullest GPU, GiB"
set yrange [0:100]
set label 4 "80 GiB" at 7,84 tc rgb "#555555"
plot 80 with lines dt 2 lc rgb "#555555", \
     "$data" index 1 using 1:(\$3/1073741824.0) with linespoints lw 2 pt 7 ps 0.5 lc rgb "#0072b2" title "memory"
GNUPLOT
