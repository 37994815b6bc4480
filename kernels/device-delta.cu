/* SPDX-License-Identifier: Apache-2.0 */
/* The delta rule: which passes a call takes, and where their arrays lie. */
#include "kernels/device-delta.cuh"

#ifdef SP_SM90
bool
delta_has_groups (void)
{
  int device, major = 0;

  return cudaGetDevice (&device) == cudaSuccess &&
         cudaDeviceGetAttribute (&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major == 9;
}
#endif

/* --- cuts --------------------------------------------------------------------------------------------------------- */

/* Of an H100, whatever the card: the cut decides the order of sums. */
#define MULTIPROCESSORS 132

/* Times in tenths of a microsecond, measured on an H200, by warps, of 128 features: of a chunk and 64 columns in a
 * pass with outputs, alone on a multiprocessor and where others are there too, and in the pass before it; of a step
 * of the chain. */
#define ALONE 22
#define TOGETHER 20
#define BEFORE 13
#define STEP 40

/* Segments as many as finish first. Where a sequence is cut, what segments leave and their transfers must be known
 * first. */
static int64_t
segments_of (SpDevShape s)
{
  int64_t chunks = div_up (s.m, CHUNK), heads = s.batch * s.heads;
  int64_t blocks = heads * div_up (s.n, 64), before = blocks + heads * div_up (s.k, 64);
  int64_t best = 1, least = INT64_MAX;

  for (int64_t n = 1; n <= chunks && n <= MULTIPROCESSORS; n++) {
    int64_t length = div_up (chunks, n), most = div_up (blocks * n, MULTIPROCESSORS);
    int64_t time = length * (most == 1 ? ALONE : most * TOGETHER);
    if (n > 1)
      time += length * div_up (before * n, MULTIPROCESSORS) * BEFORE + n * STEP;
    if (time < least) {
      least = time;
      best = n;
    }
  }
  return best;
}

/* --- scratch ------------------------------------------------------------------------------------------------------ */

/* Parts of it one behind the other; of NULL their sizes alone. */
struct Carver {
  char *at;
  size_t bytes;

  template <typename T> T *take (int64_t elements)
  {
    T *taken = (T *) (at != nullptr ? at + bytes : nullptr);

    bytes += ((size_t) elements * sizeof (T) + 255) / 256 * 256;
    return taken;
  }
};

/* What a call has in its scratch, and the cut. */
struct Plan {
  Delta a;
  int64_t segments, state, transfer; /* elements of a state of all heads, and of a transfer */
  float *own, *transfers, *befores;
  float *dq, *dkeys; /* of each value head, where they share keys */
  size_t bytes;
};

static Plan
plan_of (const SpDevRecurrence &r, bool backward, void *scratch)
{
  SpDevShape s = r.shape;
  Plan p = {};
  Carver carver = { (char *) scratch, 0 };
  int64_t heads = s.batch * s.heads, padded = s.k <= 64 ? 64 : 128;
  int64_t scaled = r.decay == SP_DEV_DECAY_FEATURE ? s.m * heads * s.k : 0;
  Delta &a = p.a;

  a.m = s.m;
  a.batch = s.batch;
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.d = s.k;
  a.c = s.n;
  a.by_feature = r.decay == SP_DEV_DECAY_FEATURE;
  a.chunks = div_up (s.m, CHUNK);
  a.segment = max (div_up (a.chunks, segments_of (s)), (int64_t) 1);
  p.segments = div_up (a.chunks, a.segment);
  p.state = heads * s.k * s.n;
  p.transfer = heads * s.k * s.k;
  a.inverse = carver.take<uint16_t> (heads * a.chunks * CHUNK * CHUNK);
  a.scores = carver.take<uint16_t> (heads * a.chunks * CHUNK * CHUNK);
  a.weights = carver.take<float> (heads * a.chunks * DELTA_WEIGHTS * CHUNK);
  a.since_q = carver.take<uint16_t> (scaled);
  a.since_keys = carver.take<uint16_t> (scaled);
  a.left_keys = carver.take<uint16_t> (scaled);
  p.own = carver.take<float> (p.segments > 1 ? p.segments * p.state : 0);
  p.befores = carver.take<float> (p.segments > 1 ? p.segments * p.state : 0);
  p.transfers = carver.take<float> (p.segments > 1 ? p.segments * p.transfer : 0);
  if (backward) {
    a.errors = carver.take<uint16_t> (s.m * heads * s.n);
    a.errors_d = carver.take<uint16_t> (s.m * heads * s.n);
    a.states = carver.take<uint16_t> (heads * a.chunks * s.n * padded);
    a.states_d = carver.take<uint16_t> (heads * a.chunks * s.n * padded);
    p.dq = carver.take<float> (s.heads > s.kv_heads ? s.m * heads * s.k : 0);
    p.dkeys = carver.take<float> (s.heads > s.kv_heads ? s.m * heads * s.k : 0);
  }
  p.bytes = carver.bytes;
  return p;
}

size_t
sp_dev_delta_scratch_bytes (const SpDevRecurrence *r)
{
  return plan_of (*r, false, nullptr).bytes;
}

size_t
sp_dev_delta_bwd_scratch_bytes (const SpDevRecurrence *r)
{
  return plan_of (*r, true, nullptr).bytes;
}

static bool
is_empty (SpDevShape s)
{
  return s.m == 0 || s.batch * s.heads * s.k * s.n == 0;
}

static void
set_inputs (Delta *a, SpDevTensor q, SpDevTensor keys, SpDevTensor values, const float *gates, SpDevTensor beta,
            SpDevTensor d_o)
{
  a->q = (const uint16_t *) q.data;
  a->keys = (const uint16_t *) keys.data;
  a->values = (const uint16_t *) values.data;
  a->d_o = (const uint16_t *) d_o.data;
  a->gates = gates;
  a->beta = beta;
}

/* --- segments ----------------------------------------------------------------------------------------------------- */

static DeltaChain
chain_of (const Plan &p, bool reverse)
{
  DeltaChain c = {};

  c.heads = p.a.batch * p.a.heads;
  c.d = p.a.d;
  c.c = p.a.c;
  c.steps = p.segments;
  c.reverse = reverse;
  c.transfers = p.transfers;
  c.own = p.own;
  c.transfer_step = p.transfer;
  c.own_step = p.state;
  return c;
}

/* The product of all segments' transfers. */
static cudaError_t
whole_transfer (const Plan &p, float *transfer, cudaStream_t stream)
{
  DeltaChain c = chain_of (p, false);

  c.c = p.a.d;
  c.own = nullptr;
  c.identity = true;
  c.last = transfer;
  return delta_chain (c, stream);
}

static DeltaPass
pass_of (const Plan &p, const float *in, float *last)
{
  DeltaPass pass = {};

  pass.a = p.a;
  pass.segments = p.segments;
  pass.before = p.segments > 1 ? p.befores : in;
  pass.last = last;
  return pass;
}

/* States before the segments, or behind them, if there are several: then transfers are there already. */
static cudaError_t
befores_fill (const Plan &p, const float *in, bool reverse, cudaStream_t stream)
{
  DeltaPass pass = pass_of (p, nullptr, nullptr);
  DeltaChain chain = chain_of (p, reverse);
  cudaError_t error;

  if (p.segments == 1)
    return cudaSuccess;
  pass.before = nullptr;
  pass.own = p.own;
  pass.transfers = reverse ? nullptr : p.transfers;
  chain.in = in;
  chain.befores = p.befores;
  error = reverse ? delta_own_bwd (pass, stream) : delta_own (pass, stream);
  return error == cudaSuccess ? delta_chain (chain, stream) : error;
}

static cudaError_t
chunks_fill (const Plan &p, cudaStream_t stream)
{
  return p.a.by_feature ? delta_feature_chunks (p.a, stream) : delta_chunks (p.a, stream);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

cudaError_t
sp_dev_delta (const SpDevRecurrence *r, SpDevTensor q, SpDevTensor keys, SpDevTensor values, const float *gates,
              SpDevTensor beta, const float *state_in, SpDevTensor o, float *state, void *scratch, cudaStream_t stream)
{
  Plan p = plan_of (*r, false, scratch);
  cudaError_t error;

  if (!delta_is_legal (*r, gates, { q, keys, values, o }) || !are_floats ({ beta }))
    return cudaErrorInvalidValue;
  if (is_empty (r->shape))
    return cudaSuccess;
  set_inputs (&p.a, q, keys, values, gates, beta, {});
  DeltaPass pass = pass_of (p, state_in, state);
  pass.o = (uint16_t *) o.data;
  error = chunks_fill (p, stream);
  if (error == cudaSuccess)
    error = befores_fill (p, state_in, false, stream);
  return error == cudaSuccess ? delta_outputs (pass, stream) : error;
}

/* Segments' own states and transfers, or the transfers alone, to those of all. */
static cudaError_t
own (Plan *p, float *state, float *transfer, cudaStream_t stream)
{
  DeltaPass pass = pass_of (*p, nullptr, nullptr);
  bool is_cut = p->segments > 1;
  cudaError_t error;

  pass.before = nullptr;
  pass.own = state == nullptr ? nullptr : is_cut ? p->own : state;
  pass.transfers = is_cut ? p->transfers : transfer;
  error = delta_own (pass, stream);
  if (!is_cut || error != cudaSuccess)
    return error;
  if (state != nullptr) {
    DeltaChain chain = chain_of (*p, false);
    chain.last = state;
    error = delta_chain (chain, stream);
  }
  return error == cudaSuccess && transfer != nullptr ? whole_transfer (*p, transfer, stream) : error;
}

cudaError_t
sp_dev_delta_own (const SpDevRecurrence *r, SpDevTensor keys, SpDevTensor values, const float *gates, SpDevTensor beta,
                  float *state, float *transfer, void *scratch, cudaStream_t stream)
{
  Plan p = plan_of (*r, false, scratch);
  cudaError_t error;

  if (!delta_is_legal (*r, gates, { keys, values }) || !are_floats ({ beta }))
    return cudaErrorInvalidValue;
  if (is_empty (r->shape))
    return cudaSuccess;
  set_inputs (&p.a, {}, keys, values, gates, beta, {});
  error = chunks_fill (p, stream);
  return error == cudaSuccess ? own (&p, state, transfer, stream) : error;
}

cudaError_t
sp_dev_delta_own_bwd (const SpDevRecurrence *r, SpDevTensor q, SpDevTensor keys, const float *gates, SpDevTensor beta,
                      SpDevTensor d_o, float *dstate, float *transfer, void *scratch, cudaStream_t stream)
{
  Plan p = plan_of (*r, false, scratch);
  cudaError_t error;

  if (!delta_is_legal (*r, gates, { q, keys, d_o }) || !are_floats ({ beta }))
    return cudaErrorInvalidValue;
  if (is_empty (r->shape))
    return cudaSuccess;
  set_inputs (&p.a, q, keys, {}, gates, beta, d_o);
  error = chunks_fill (p, stream);
  if (error == cudaSuccess && (transfer != nullptr || p.segments > 1))
    error = own (&p, nullptr, transfer, stream);
  if (error != cudaSuccess)
    return error;
  DeltaPass pass = pass_of (p, nullptr, nullptr);
  DeltaChain chain = chain_of (p, true);
  pass.before = nullptr;
  pass.own = p.segments > 1 ? p.own : dstate;
  chain.last = dstate;
  error = delta_own_bwd (pass, stream);
  return error == cudaSuccess && p.segments > 1 ? delta_chain (chain, stream) : error;
}

/* Of heads that share a key: [m,batch,kv_heads,group,d] to [m,batch,kv_heads,d]. */
struct GroupSum {
  int64_t group, d;
  const float *in;
  SpDevTensor out;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t row = divide (i, d), from = row * group * d + (i - row * d);
    Vec<V> sum = {};

    for (int64_t g = 0; g < group; g++) {
      Vec<V> x = load<V> (SpDevTensor{ (void *) in, SP_DEV_FP32 }, from + g * d);
#pragma unroll
      for (int j = 0; j < V; j++)
        sum.x[j] += x.x[j];
    }
    store<V> (out, i, sum);
  }
};

static cudaError_t
sum_groups (const Plan &p, const float *in, SpDevTensor out, cudaStream_t stream)
{
  GroupSum sum = { p.a.heads / p.a.kv_heads, p.a.d, in, out };

  return each (sum, p.a.m * p.a.batch * p.a.kv_heads * p.a.d, 8, stream);
}

cudaError_t
sp_dev_delta_bwd (const SpDevRecurrence *r, SpDevTensor q, SpDevTensor keys, SpDevTensor values, const float *gates,
                  SpDevTensor beta, SpDevTensor d_o, const float *state_in, const float *dstate_out, SpDevTensor dq,
                  SpDevTensor dkeys, SpDevTensor dvalues, float *dgates, SpDevTensor dbeta, float *dstate_in,
                  void *scratch, cudaStream_t stream)
{
  Plan p = plan_of (*r, true, scratch);
  bool is_shared = r->shape.heads > r->shape.kv_heads;
  cudaError_t error;

  if (!delta_is_legal (*r, gates, { q, keys, values, d_o, dq, dkeys, dvalues }) || !are_floats ({ beta, dbeta }))
    return cudaErrorInvalidValue;
  if (is_empty (r->shape))
    return cudaSuccess;
  set_inputs (&p.a, q, keys, values, gates, beta, d_o);
  error = chunks_fill (p, stream);
  if (error == cudaSuccess)
    error = befores_fill (p, state_in, false, stream);
  if (error == cudaSuccess)
    error = delta_errors (pass_of (p, state_in, nullptr), stream);
  if (error == cudaSuccess)
    error = befores_fill (p, dstate_out, true, stream);
  if (error == cudaSuccess)
    error = delta_errors_bwd (pass_of (p, dstate_out, dstate_in), stream);
  if (error != cudaSuccess)
    return error;
  DeltaGradients g = { p.a, dq, dkeys, (uint16_t *) dvalues.data, dgates, dbeta };
  if (is_shared) {
    g.dq = { p.dq, SP_DEV_FP32 };
    g.dkeys = { p.dkeys, SP_DEV_FP32 };
  }
  error = p.a.by_feature ? delta_feature_gradients (g, stream) : delta_gradients (g, stream);
  if (error == cudaSuccess && is_shared)
    error = sum_groups (p, p.dq, dq, stream);
  return error == cudaSuccess && is_shared ? sum_groups (p, p.dkeys, dkeys, stream) : error;
}
