#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Draws the README's figures beside itself: `meson compile -C build figures`, or with the program as the argument.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
seqpar=${1:-$here/../build/seqpar}
papers=$here/../scenarios/papers

"$seqpar" plot scaling llama-3.1-8b-208k --sweep ulysses:ring=1:16,8:2,16:1 --sweep "sequence=8K..1M*2" \
  -o "$here/first-result.svg"
"$seqpar" plot timeline llama-3.1-8b-208k --set sequence=32K --set pipeline=4 --set ulysses=4 --set ring=1 \
  --set global-batch=8 --set zero=1 -o "$here/timeline.png"
"$seqpar" plot scaling tnl-1b-lasp --sweep nodes:lasp=2:16,4:32,8:64,16:128 --sweep "sequence=2K..4M*2" \
  --published "$papers/lasp-scalability.csv" -o "$here/lasp-scalability.svg"
"$seqpar" plot scaling "$papers/lasp-comparison.ini" --sweep lasp:ulysses:tensor:data=64:1:1:1,1:16:1:4,1:1:8:8 \
  --sweep "sequence=2K..4M*2" --published "$papers/lasp-comparison.csv" -o "$here/lasp-comparison.svg"
recompute=sequence-regions:recompute=false:none,true:none,false:selective,true:selective,false:full
"$seqpar" plot memory "$papers/megatron-sp-22b.ini" --sweep $recompute \
  --published "$papers/megatron-sp-22b-memory.csv" -o "$here/megatron-sp-memory.svg"
"$seqpar" plot memory "$papers/megatron-sp-175b.ini" --sweep $recompute \
  --published "$papers/megatron-sp-175b-memory.csv" -o "$here/megatron-sp-175b-memory.svg"
"$seqpar" plot breakdown "$papers/megatron-sp-175b.ini" --sweep sequence-regions:recompute=true:selective,false:full \
  --published "$papers/megatron-sp-175b-step.csv" -o "$here/megatron-sp-175b-step.svg"
"$seqpar" plot breakdown "$papers/megatron-sp-22b.ini" --sweep scope=layer --sweep $recompute \
  --published "$papers/megatron-sp-22b-layer.csv" -o "$here/megatron-sp-layer.svg"
"$seqpar" plot heatmap "$papers/usp-attention.ini" --sweep ulysses:ring=8:1,4:2,2:4,1:8 --sweep sequence=8K,32K,128K \
  --published "$papers/usp-attention.csv" -o "$here/usp-attention.svg"
"$seqpar" plot scaling "$papers/rsa-scaling.ini" --sweep nodes:tensor:ring:global-batch:micro-batch=\
16:2:1:128:16,32:4:1:256:32,64:8:1:512:64,16:1:2:128:16,32:1:4:256:32,64:1:8:512:64 \
  --published "$papers/rsa-scaling.csv" -o "$here/rsa-scaling.svg"
SEQPAR=$seqpar "$here/chain-skew.sh"
