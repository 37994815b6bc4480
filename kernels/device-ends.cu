/* SPDX-License-Identifier: Apache-2.0 */
/* The embedding and the head: tables, positions, the loss. */
#include "kernels/device-several.cuh"

/* --- tables ------------------------------------------------------------------------------------------------------- */

struct Embed {
  int64_t n, k, first;
  const int32_t *ids;
  SpDevTensor table, x;
  typedef uint4 Fetched;

  /* Where all is bf16. */
  __device__ uint4 fetch (int64_t i) const
  {
    int64_t token = divide (i, k), row = ids[token] - first;

    return row >= 0 && row < n ? ::fetch<8, true> (table, row * k + i - token * k).a : uint4{};
  }
  __device__ void put (int64_t i, uint4 raw) const
  {
    *(uint4 *) ((uint16_t *) x.data + i) = raw;
  }
  template <int V> __device__ void at (int64_t i) const
  {
    int64_t token = divide (i, k), row = ids[token] - first;

    store<V> (x, i, row >= 0 && row < n ? load<V> (table, row * k + i - token * k) : Vec<V>{});
  }
};

cudaError_t
sp_dev_embed (int64_t m, int64_t n, int64_t k, const int32_t *ids, int64_t first, SpDevTensor table, SpDevTensor x,
              cudaStream_t stream)
{
  if (!are_floats ({ table, x }))
    return cudaErrorInvalidValue;
  int width = width_of ({ k }, { table, x });
  if (width == 8 && are_half ({ table, x }))
    return each_several (Embed{ n, k, first, ids, table, x }, m * k, stream);
  return each (Embed{ n, k, first, ids, table, x }, m * k, width, stream);
}

struct Position {
  int64_t n, k;
  const int32_t *pos;
  SpDevTensor x, table, out;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t token = divide (i, k), row = pos[token];
    Vec<V> v = load<V> (x, i), t = row >= 0 && row < n ? load<V> (table, row * k + i - token * k) : Vec<V>{};

#pragma unroll
    for (int j = 0; j < V; j++)
      v.x[j] += t.x[j];
    store<V> (out, i, v);
  }
};

cudaError_t
sp_dev_position (int64_t m, int64_t n, int64_t k, const int32_t *pos, SpDevTensor x, SpDevTensor table, SpDevTensor out,
                 cudaStream_t stream)
{
  if (!are_floats ({ x, table, out }))
    return cudaErrorInvalidValue;
  return each (Position{ n, k, pos, x, table, out }, m * k, width_of ({ k }, { x, table, out }), stream);
}

/* --- their gradients ---------------------------------------------------------------------------------------------- */

/*
 * Tokens are grouped by their row of the table with integer atomics, so in any order; then blocks sum the tokens of a row
 * in the order of tokens: a short list is sorted first, of a long one the ids are gone through again. There are blocks
 * for each token, and those of the one that was counted first for its row work: a table has many more rows than a part
 * of a sequence has tokens. Most tokens are alone in their row, and then there is no list.
 */

#define EMBED_THREADS 128
#define MOST_SORTED 1024 /* tokens of a list that is sorted */
#define EMBED_LOADS 2    /* tokens that are under way at once */

/* In the scratch: of rows [n], of tokens [m]. */
struct Groups {
  int32_t *count, *total; /* of a row, and of all lists together: zero at first */
  int32_t *start;         /* of a row's list */
  int32_t *place;         /* of a token in its row's list */
  int32_t *tokens;        /* the lists */
};

static Groups
groups_in (void *scratch, int64_t m, int64_t n)
{
  int32_t *p = (int32_t *) scratch;

  return { p, p + n, p + n + 1, p + 2 * n + 1, p + 2 * n + 1 + m };
}

/* The row of a token, or -1. */
static __device__ inline int64_t
row_of (int64_t i, int64_t m, int64_t n, const int32_t *ids, int64_t first)
{
  int64_t row = i < m ? ids[i] - first : -1;

  return row < n ? row : -1;
}

static __global__ void
group_count_kernel (int64_t m, int64_t n, const int32_t *ids, int64_t first, Groups g)
{
  int64_t i = (int64_t) blockIdx.x * EMBED_THREADS + threadIdx.x, row = row_of (i, m, n, ids, first);

  release_next ();
  if (i < m)
    g.place[i] = row >= 0 ? atomicAdd (&g.count[row], 1) : -1;
}

static __global__ void
group_start_kernel (int64_t m, int64_t n, const int32_t *ids, int64_t first, Groups g)
{
  int64_t i = (int64_t) blockIdx.x * EMBED_THREADS + threadIdx.x, row = row_of (i, m, n, ids, first);

  release_next ();
  wait_for_grid ();
  if (row >= 0 && g.place[i] == 0 && g.count[row] > 1)
    g.start[row] = atomicAdd (g.total, g.count[row]);
}

static __global__ void
group_fill_kernel (int64_t m, int64_t n, const int32_t *ids, int64_t first, Groups g)
{
  int64_t i = (int64_t) blockIdx.x * EMBED_THREADS + threadIdx.x, row = row_of (i, m, n, ids, first);

  release_next ();
  wait_for_grid ();
  if (row >= 0 && g.count[row] > 1)
    g.tokens[g.start[row] + g.place[i]] = (int32_t) i;
}

/* The next tokens of the row among ids[from .. from + threads), in order; returns how many. All threads call it. */
static __device__ inline int
tokens_among (int64_t m, const int32_t *ids, int64_t id, int64_t from, int32_t *sorted, int *counts)
{
  int64_t i = from + threadIdx.x;
  bool is_ours = i < m && ids[i] == id;
  unsigned ours = __ballot_sync (0xffffffffu, is_ours);
  int warp = threadIdx.x / 32, before = __popc (ours & ((1u << threadIdx.x % 32) - 1)), all = 0;

  if (threadIdx.x % 32 == 0)
    counts[warp] = __popc (ours);
  __syncthreads ();
  for (int w = 0; w < EMBED_THREADS / 32; w++) {
    before += w < warp ? counts[w] : 0;
    all += counts[w];
  }
  if (is_ours)
    sorted[before] = (int32_t) i;
  __syncthreads ();
  return all;
}

/* The token of each place in the list by its rank among them. */
static __device__ inline void
sort_tokens (const int32_t *tokens, int count, int32_t *unsorted, int32_t *sorted)
{
  for (int i = threadIdx.x; i < count; i += EMBED_THREADS)
    unsorted[i] = tokens[i];
  __syncthreads ();
  for (int i = threadIdx.x; i < count; i += EMBED_THREADS) {
    int rank = 0;
    for (int j = 0; j < count; j++)
      rank += unsorted[j] < unsorted[i];
    sorted[rank] = unsorted[i];
  }
  __syncthreads ();
}

/* Adds V columns of the tokens that are in `sorted`, in their order. */
template <int V>
static __device__ inline void
add_tokens (int64_t k, int64_t column, SpDevTensor dx, const int32_t *sorted, int count, Vec<V> *sum)
{
  for (int i = 0; i < count && column < k; i += EMBED_LOADS) {
    Raw<V> raw[EMBED_LOADS];
#pragma unroll
    for (int r = 0; r < EMBED_LOADS; r++)
      if (i + r < count)
        raw[r] = fetch<V> (dx, sorted[i + r] * k + column);
#pragma unroll
    for (int r = 0; r < EMBED_LOADS; r++)
      if (i + r < count) {
        Vec<V> v = floats_of<V> (dx, raw[r]);
#pragma unroll
        for (int l = 0; l < V; l++)
          sum->x[l] += v.x[l];
      }
  }
}

/* The sum of a row's tokens, of which there is more than one. */
template <int V>
static __device__ inline Vec<V>
sum_list (int64_t m, int64_t k, int64_t column, const int32_t *ids, int64_t id, SpDevTensor dx, const int32_t *tokens,
          int count)
{
  __shared__ int32_t unsorted[MOST_SORTED], sorted[MOST_SORTED];
  __shared__ int counts[EMBED_THREADS / 32];
  bool is_short = count <= MOST_SORTED;
  Vec<V> sum = {};

  if (is_short)
    sort_tokens (tokens, count, unsorted, sorted);
  for (int64_t from = 0; from < (is_short ? 1 : m); from += EMBED_THREADS) {
    int here = is_short ? count : tokens_among (m, ids, id, from, sorted, counts);
    add_tokens<V> (k, column, dx, sorted, here, &sum);
    __syncthreads ();
  }
  return sum;
}

/* A block has a row of the table, and V columns a thread. */
template <int V>
static __global__ void
__launch_bounds__ (EMBED_THREADS, 9) group_sum_kernel (int64_t m, int64_t n, int64_t k, const int32_t *ids,
                                                       int64_t first, SpDevTensor dx, SpDevTensor dtable, Groups g)
{
  int64_t token = blockIdx.x, row = ids[token] - first;
  int64_t column = ((int64_t) blockIdx.y * EMBED_THREADS + threadIdx.x) * V;
  Raw<V> own = {}, before = {};

  wait_for_grid ();
  if (g.place[token] != 0)
    return;
  if (column < k) {
    own = fetch<V> (dx, token * k + column);
    before = fetch<V> (dtable, row * k + column);
  }
  int count = g.count[row];
  Vec<V> sum = count == 1 ? floats_of<V> (dx, own)
                          : sum_list<V> (m, k, column, ids, first + row, dx, g.tokens + g.start[row], count);
  if (column < k) {
    Vec<V> v = floats_of<V> (dtable, before);
#pragma unroll
    for (int l = 0; l < V; l++)
      v.x[l] += sum.x[l];
    store<V> (dtable, row * k + column, v);
  }
}

size_t
sp_dev_embed_bwd_scratch_bytes (int64_t m, int64_t n)
{
  return (size_t) (2 * n + 1 + 2 * m) * sizeof (int32_t);
}

cudaError_t
sp_dev_embed_bwd (int64_t m, int64_t n, int64_t k, const int32_t *ids, int64_t first, SpDevTensor dx,
                  SpDevTensor dtable, void *scratch, cudaStream_t stream)
{
  Groups g = groups_in (scratch, m, n);
  int width = width_of ({ k }, { dx, dtable });
  int64_t columns = div_up (k, EMBED_THREADS * width);

  if (!are_floats ({ dx, dtable }) || m > INT32_MAX || n > INT32_MAX || columns > 65535)
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0 || k == 0)
    return cudaSuccess;

  dim3 by_token ((unsigned) div_up (m, EMBED_THREADS));
  cudaError_t error = cudaMemsetAsync (scratch, 0, (size_t) (n + 1) * sizeof (int32_t), stream);
  if (error == cudaSuccess)
    error = launch (group_count_kernel, by_token, EMBED_THREADS, 0, stream, m, n, ids, first, g);
  for (auto kernel : { group_start_kernel, group_fill_kernel })
    if (error == cudaSuccess)
      error = launch_early (kernel, by_token, EMBED_THREADS, 0, stream, m, n, ids, first, g);
  if (error == cudaSuccess)
    error =
        launch_early (width == 8 ? group_sum_kernel<8> : group_sum_kernel<1>, dim3 ((unsigned) m, (unsigned) columns),
                      EMBED_THREADS, 0, stream, m, n, k, ids, first, dx, dtable, g);
  return error;
}

cudaError_t
sp_dev_position_bwd (int64_t m, int64_t n, int64_t k, const int32_t *pos, SpDevTensor dx, SpDevTensor dtable,
                     void *scratch, cudaStream_t stream)
{
  return sp_dev_embed_bwd (m, n, k, pos, 0, dx, dtable, scratch, stream);
}

/* --- loss --------------------------------------------------------------------------------------------------------- */

/*
 * A block a row, of which a thread has LOSS_LOADS pieces under way at once. Columns from `columns` on are padding. The
 * exponentials are the special function unit's, of differences that are at most 0 and exact where logits are bf16: off by
 * 2^-22 of themselves and 2^-24 of the difference.
 */

#define LOSS_THREADS 256
#define LOSS_LOADS 4

/* exp (x), 0 where it would be denormal. */
static __device__ inline float
quick_exp (float x)
{
  return exp2_fast (x * LOG2_E);
}

/* f (j, V elements, how many of them are no padding) of a row, in the same order by thread whatever the card. */
template <int V, bool HALF, typename F>
static __device__ inline void
each_piece (int64_t n, int64_t columns, SpDevTensor logits, F f)
{
  int64_t at = blockIdx.x * n, stride = (int64_t) blockDim.x * V;

  for (int64_t j = (int64_t) threadIdx.x * V; j < n; j += LOSS_LOADS * stride) {
    Raw<V> raw[LOSS_LOADS];
#pragma unroll
    for (int r = 0; r < LOSS_LOADS; r++)
      if (j + r * stride < n)
        raw[r] = fetch<V, HALF> (logits, at + j + r * stride);
#pragma unroll
    for (int r = 0; r < LOSS_LOADS; r++) {
      int64_t here = j + r * stride, left = columns - here;
      if (here < n)
        f (here, floats_of<V, HALF> (logits, raw[r]), left >= V ? V : left > 0 ? (int) left : 0);
    }
  }
}

#define LOSS_KERNEL(name, width, is_half) (width == 1 ? name<1, false> : is_half ? name<8, true> : name<8, false>)

template <int V, bool HALF>
static __global__ void
__launch_bounds__ (LOSS_THREADS) loss_max_kernel (int64_t n, int64_t columns, SpDevTensor logits, float *ret_max)
{
  __shared__ float parts[32];
  float most = -INFINITY;

  take_turn ();
  each_piece<V, HALF> (n, columns, logits, [&] (int64_t, const Vec<V> &v, int count) {
#pragma unroll
    for (int l = 0; l < V; l++)
      most = count == V || l < count ? fmaxf (most, v.x[l]) : most;
  });
  most = block_max (most, parts);
  if (threadIdx.x == 0)
    ret_max[blockIdx.x] = most;
}

cudaError_t
sp_dev_loss_max (int64_t m, int64_t n, int64_t columns, SpDevTensor logits, float *max, cudaStream_t stream)
{
  int width = width_of ({ n }, { logits });

  if (!are_floats ({ logits }) || m > INT32_MAX)
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return cudaSuccess;
  return launch_early (LOSS_KERNEL (loss_max_kernel, width, are_half ({ logits })), dim3 ((unsigned) m),
                       row_threads (n, width, LOSS_THREADS), 0, stream, n, columns, logits, max);
}

/* The label's column in this part, or -1. */
static __device__ inline int64_t
target_column (int32_t label, int64_t first, int64_t n)
{
  return label >= first && label < first + n ? label - first : -1;
}

template <int V, bool HALF>
static __global__ void
__launch_bounds__ (LOSS_THREADS) loss_sum_kernel (int64_t n, int64_t columns, SpDevTensor logits, const float *max,
                                                  const int32_t *labels, int64_t first, float *sums)
{
  __shared__ float parts[32];
  int64_t row = blockIdx.x;

  take_turn ();
  float most = max[row], sum = 0;
  each_piece<V, HALF> (n, columns, logits, [&] (int64_t, const Vec<V> &v, int count) {
    float here[V];
#pragma unroll
    for (int l = 0; l < V; l++)
      here[l] = quick_exp (v.x[l] - most);
    if (count < V)
#pragma unroll
      for (int l = 0; l < V; l++)
        here[l] = l < count ? here[l] : 0;
#pragma unroll
    for (int l = 0; l < V; l++)
      sum += here[l];
  });
  sum = block_sum (sum, parts);
  if (threadIdx.x == 0) {
    int64_t target = target_column (labels[row], first, columns < n ? columns : n);
    sums[2 * row] = sum;
    sums[2 * row + 1] = target >= 0 ? load1 (logits, row * n + target) : 0;
  }
}

cudaError_t
sp_dev_loss_sum (int64_t m, int64_t n, int64_t columns, SpDevTensor logits, const float *max, const int32_t *labels,
                 int64_t first, float *sums, cudaStream_t stream)
{
  int width = width_of ({ n }, { logits });

  if (!are_floats ({ logits }) || m > INT32_MAX)
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return cudaSuccess;
  return launch_early (LOSS_KERNEL (loss_sum_kernel, width, are_half ({ logits })), dim3 ((unsigned) m),
                       row_threads (n, width, LOSS_THREADS), 0, stream, n, columns, logits, max, labels, first, sums);
}

/* The loss of all rows: they are few beside their logits, so that one block does, beside those that have these. */
static __device__ inline void
total_loss (int64_t m, const float *max, const float *sums, const float *weights, double *loss)
{
  __shared__ double parts[LOSS_THREADS];
  double sum = 0;

  for (int64_t i = threadIdx.x; i < m; i += blockDim.x)
    sum += weights[i] * (max[i] + log ((double) sums[2 * i]) - sums[2 * i + 1]);
  parts[threadIdx.x] = sum;
  __syncthreads ();
  for (int i = 1; threadIdx.x == 0 && i < (int) blockDim.x; i++)
    sum += parts[i];
  if (threadIdx.x == 0)
    *loss += sum;
}

/* A block has `blocks`th of a row: nothing is summed up. One more block, the first, has the loss. */
template <int V, bool HALF>
static __global__ void
__launch_bounds__ (LOSS_THREADS) loss_kernel (int64_t m, int64_t n, int64_t columns, int64_t blocks, SpDevTensor logits,
                                              const float *max, const float *sums, const int32_t *labels, int64_t first,
                                              const float *weights, double *loss, SpDevTensor dlogits)
{
  int64_t block = (int64_t) blockIdx.x - 1, row = divide (block, blocks);
  int64_t from = (block - row * blocks) * LOSS_LOADS * LOSS_THREADS * V + threadIdx.x * V;
  Raw<V> raw[LOSS_LOADS];

  take_turn ();
  if (blockIdx.x == 0) {
    if (loss != nullptr)
      total_loss (m, max, sums, weights, loss);
    return;
  }
#pragma unroll
  for (int r = 0; r < LOSS_LOADS; r++)
    if (from + r * LOSS_THREADS * V < n)
      raw[r] = fetch<V, HALF> (logits, row * n + from + r * LOSS_THREADS * V);
  int64_t target = target_column (labels[row], first, n);
  float most = max[row], weight = weights[row], share = weight / sums[2 * row];
#pragma unroll
  for (int r = 0; r < LOSS_LOADS; r++) {
    int64_t j = from + r * LOSS_THREADS * V, left = columns - j, to_target = target - j;
    int count = left >= V ? V : left > 0 ? (int) left : 0;
    if (j >= n)
      break;
    Vec<V> v = floats_of<V, HALF> (logits, raw[r]);
#pragma unroll
    for (int l = 0; l < V; l++)
      v.x[l] = quick_exp (v.x[l] - most) * share;
    if (count < V)
#pragma unroll
      for (int l = 0; l < V; l++)
        v.x[l] = l < count ? v.x[l] : 0;
    if ((uint64_t) to_target < (uint64_t) count)
#pragma unroll
      for (int l = 0; l < V; l++)
        v.x[l] -= l == to_target ? weight : 0;
    store<V, HALF> (dlogits, row * n + j, v);
  }
}

cudaError_t
sp_dev_loss (int64_t m, int64_t n, int64_t columns, SpDevTensor logits, const float *max, const float *sums,
             const int32_t *labels, int64_t first, const float *weights, double *loss, SpDevTensor dlogits,
             cudaStream_t stream)
{
  int width = width_of ({ n }, { logits, dlogits });

  if (!are_floats ({ logits, dlogits }) || m > INT32_MAX)
    return cudaErrorInvalidValue;
  if (m == 0 || n == 0)
    return cudaSuccess;

  int64_t blocks = div_up (n, (int64_t) LOSS_LOADS * LOSS_THREADS * width);
  if (m * blocks >= INT32_MAX)
    return cudaErrorInvalidValue;
  return launch_early (LOSS_KERNEL (loss_kernel, width, are_half ({ logits, dlogits })),
                       dim3 ((unsigned) (m * blocks + 1)), LOSS_THREADS, 0, stream, m, n, columns, blocks, logits, max,
                       sums, labels, first, weights, loss, dlogits);
}
