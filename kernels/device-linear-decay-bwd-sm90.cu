/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward by warpgroups of a decay a head that follows the data. Its tables first, then the chains, which also leave
 * what the gradient of decays is made of, and that. Where heads share keys each has gradients of its own, in bf16, which
 * are summed last.
 */
#include "kernels/device-linear-bwd-kernel.cuh"

/* Where things are in the scratch: bytes from its start. */
struct Layout {
  size_t tables, x[2], y, between, last[2], parts[2], bytes;
};

static Layout
layout_of (const SpDevRecurrence &r)
{
  SpDevShape s = r.shape;
  size_t vectors = (size_t) (s.batch * s.heads), segments = (size_t) div_up (s.m, segment_of (s));
  size_t tokens = vectors * (size_t) s.m, at = chains_bytes (s);
  Layout l;
  auto next = [&] (size_t bytes) {
    size_t here = at;
    at += (bytes + 255) / 256 * 256;
    return here;
  };

  l.tables = next (decay_tables_bytes (r));
  for (size_t &x : l.x)
    x = next (tokens * sizeof (float));
  l.y = next (tokens * sizeof (float));
  l.between = next (2 * (segments - 1) * vectors * KNOT * sizeof (uint4));
  for (size_t &last : l.last)
    last = next (vectors * (size_t) (s.k * s.n) * sizeof (float));
  for (size_t &part : l.parts)
    part = next (s.heads > s.kv_heads ? tokens * (size_t) s.k * sizeof (uint16_t) : 0);
  l.bytes = at;
  return l;
}

size_t
recurrent_bwd_sm90_scratch (const SpDevRecurrence &r)
{
  return layout_of (r).bytes;
}

cudaError_t
recurrent_bwd_sm90 (const SpDevRecurrence &r, const LinearBwd &x, const HeadBwd &h, cudaStream_t stream)
{
  SpDevShape s = r.shape;
  Layout l = layout_of (r);
  char *scratch = (char *) x.scratch;
  LinearBwd own = x;
  bool is_shared = s.heads > s.kv_heads;
  Bwd a;

  if (is_shared) {
    own.dq.data = scratch + l.parts[0];
    own.dkeys.data = scratch + l.parts[1];
  }
  if (!make_bwd (own, (int) (s.heads / s.kv_heads), &a))
    return cudaErrorInvalidValue;
  a.tables = (const float *) (scratch + l.tables);
  a.x[0] = (float *) (scratch + l.x[0]);
  a.x[1] = (float *) (scratch + l.x[1]);
  a.y = (float *) (scratch + l.y);
  a.between = (uint4 *) (scratch + l.between);
  a.dbeta = h.dbeta;
  /* The ends' products are of two states that there are. */
  if (x.dstate_out != nullptr)
    a.last[0] = (float *) (scratch + l.last[0]);
  if (x.state_in != nullptr && a.last[1] == nullptr)
    a.last[1] = (float *) (scratch + l.last[1]);
  DecaySums sums = { a.m,
                     a.vectors,
                     a.segment,
                     a.segments,
                     a.dk * a.dv,
                     { a.x[0], a.x[1] },
                     a.y,
                     a.between,
                     { x.state_in, a.last[1] },
                     { a.last[0], x.dstate_out },
                     h.dgates };
  int device, multiprocessors = 0;
  cudaError_t error = cudaGetDevice (&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute (&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = decay_tables (r, h.gates, h.beta, (float *) (scratch + l.tables), stream);
  if (error == cudaSuccess)
    error = run_bwd<GateWeights> (a, multiprocessors, stream);
  if (error == cudaSuccess)
    error = decay_gradients (sums, stream);
  if (error == cudaSuccess && is_shared)
    error = sum_heads (s, own.dq.data, x.dq, stream);
  if (error == cudaSuccess && is_shared)
    error = sum_heads (s, own.dkeys.data, x.dkeys, stream);
  return error;
}
