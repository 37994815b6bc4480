#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Draws the README's figures beside itself: `meson compile -C build figures`, or with the program as the argument.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
seqpar=${1:-$here/../build/seqpar}

"$seqpar" plot scaling llama-3.1-8b-208k --sweep ulysses:ring=1:16,8:2,16:1 --sweep "sequence=8K..1M*2" \
  -o "$here/first-result.svg"
"$seqpar" plot timeline llama-3.1-8b-208k --set sequence=32K --set pipeline=4 --set ulysses=4 --set ring=1 \
  --set global-batch=8 --set zero=1 -o "$here/timeline.png"
"$seqpar" plot scaling tnl-1b-lasp --sweep nodes:lasp=2:16,4:32,8:64,16:128 --sweep "sequence=2K..4M*2" \
  --published "$here/../scenarios/papers/lasp-scalability.csv" -o "$here/lasp-scalability.svg"
SEQPAR=$seqpar "$here/chain-skew.sh"
