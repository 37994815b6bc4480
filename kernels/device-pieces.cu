/* SPDX-License-Identifier: Apache-2.0 */
/* Rows cut in pieces and joined, the features of linear attention, and the parts of an all-to-all. */
#include "kernels/device-several.cuh"
#include "kernels/device-unary.cuh"

/* --- moves -------------------------------------------------------------------------------------------------------- */

/* f.from (i) and f.to (i): where elements i .. i + 7 lie, and where they go. */
template <typename F> struct Move {
  F f;
  typedef uint4 Fetched;

  __device__ uint4 fetch (int64_t i) const
  {
    return *(const uint4 *) f.from (i);
  }
  __device__ void put (int64_t i, uint4 raw) const
  {
    *(uint4 *) f.to (i) = raw;
  }
};

/* What only moves: n elements, of which bf16 stay as they are. */
template <typename F>
static cudaError_t
move (const F &f, int64_t n, bool is_half, int width, cudaStream_t stream)
{
  return is_half && width == 8 ? each_several (Move<F>{ f }, n, stream) : each (f, n, width, stream);
}

static __device__ inline uint16_t *
half_at (SpDevTensor t, int64_t i)
{
  return (uint16_t *) t.data + i;
}

/* --- split and join ----------------------------------------------------------------------------------------------- */

/* x[m, n + k] on one side, a[m,n] and b[m,k] on the other. */
struct Split {
  int64_t n, k;
  bool joins;
  SpDevTensor x, a, b;

  __device__ SpDevTensor piece (int64_t i, int64_t *ret_in_piece) const
  {
    int64_t row = divide (i, n + k), column = i - row * (n + k);

    *ret_in_piece = column < n ? row * n + column : row * k + column - n;
    return column < n ? a : b;
  }
  __device__ uint16_t *in_piece (int64_t i) const
  {
    int64_t at;
    SpDevTensor t = piece (i, &at);
    return half_at (t, at);
  }
  __device__ const uint16_t *from (int64_t i) const
  {
    return joins ? in_piece (i) : half_at (x, i);
  }
  __device__ uint16_t *to (int64_t i) const
  {
    return joins ? half_at (x, i) : in_piece (i);
  }
  template <int V> __device__ void at (int64_t i) const
  {
    int64_t in_piece;
    SpDevTensor t = piece (i, &in_piece);

    if (joins)
      store<V> (x, i, load<V> (t, in_piece));
    else
      store<V> (t, in_piece, load<V> (x, i));
  }
};

cudaError_t
sp_dev_split (int64_t m, int64_t n, int64_t k, SpDevTensor x, SpDevTensor a, SpDevTensor b, cudaStream_t stream)
{
  if (!are_floats ({ x, a, b }))
    return cudaErrorInvalidValue;
  return move (Split{ n, k, false, x, a, b }, m * (n + k), are_half ({ x, a, b }), width_of ({ n, k }, { x, a, b }),
               stream);
}

cudaError_t
sp_dev_join (int64_t m, int64_t n, int64_t k, SpDevTensor a, SpDevTensor b, SpDevTensor x, cudaStream_t stream)
{
  if (!are_floats ({ x, a, b }))
    return cudaErrorInvalidValue;
  return move (Split{ n, k, true, x, a, b }, m * (n + k), are_half ({ x, a, b }), width_of ({ n, k }, { x, a, b }),
               stream);
}

/* --- features of linear attention --------------------------------------------------------------------------------- */

struct Feature {
  int64_t w;
  SpDevTensor qkvu, q, keys, values;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t from = i + 3 * divide (i, w) * w;
    Vec<V> a = load<V> (qkvu, from), b = load<V> (qkvu, from + w);

#pragma unroll
    for (int j = 0; j < V; j++) {
      a.x[j] = silu (a.x[j]);
      b.x[j] = silu (b.x[j]);
    }
    store<V> (q, i, a);
    store<V> (keys, i, b);
    store<V> (values, i, load<V> (qkvu, from + 2 * w));
  }
};

cudaError_t
sp_dev_feature (int64_t m, int64_t w, SpDevTensor qkvu, SpDevTensor q, SpDevTensor keys, SpDevTensor values,
                cudaStream_t stream)
{
  if (!are_floats ({ qkvu, q, keys, values }))
    return cudaErrorInvalidValue;
  return each (Feature{ w, qkvu, q, keys, values }, m * w, width_of ({ w }, { qkvu, q, keys, values }), stream);
}

struct FeatureBwd {
  int64_t w;
  SpDevTensor qkvu, dq, dkeys, dvalues, du, dqkvu;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t to = i + 3 * divide (i, w) * w;
    Vec<V> a = load<V> (dq, i), b = load<V> (dkeys, i), x = load<V> (qkvu, to), y = load<V> (qkvu, to + w);

#pragma unroll
    for (int j = 0; j < V; j++) {
      a.x[j] *= silu_slope (x.x[j]);
      b.x[j] *= silu_slope (y.x[j]);
    }
    store<V> (dqkvu, to, a);
    store<V> (dqkvu, to + w, b);
    store<V> (dqkvu, to + 2 * w, load<V> (dvalues, i));
    store<V> (dqkvu, to + 3 * w, load<V> (du, i));
  }
};

cudaError_t
sp_dev_feature_bwd (int64_t m, int64_t w, SpDevTensor qkvu, SpDevTensor dq, SpDevTensor dkeys, SpDevTensor dvalues,
                    SpDevTensor du, SpDevTensor dqkvu, cudaStream_t stream)
{
  if (!are_floats ({ qkvu, dq, dkeys, dvalues, du, dqkvu }))
    return cudaErrorInvalidValue;
  return each (FeatureBwd{ w, qkvu, dq, dkeys, dvalues, du, dqkvu }, m * w,
               width_of ({ w }, { qkvu, dq, dkeys, dvalues, du, dqkvu }), stream);
}

/* --- parts for an all-to-all -------------------------------------------------------------------------------------- */

/* By elements of out[n][m][k]. */
struct Pack {
  int64_t m, n, k, parts;
  SpDevTensor x, out;

  __device__ int64_t source (int64_t i) const
  {
    int64_t row = divide (i, k), to = divide (row, m), token = row - to * m;

    return (token * parts + divide (to * parts, n)) * k + i - row * k;
  }
  __device__ const uint16_t *from (int64_t i) const
  {
    return half_at (x, source (i));
  }
  __device__ uint16_t *to (int64_t i) const
  {
    return half_at (out, i);
  }
  template <int V> __device__ void at (int64_t i) const
  {
    store<V> (out, i, load<V> (x, source (i)));
  }
};

cudaError_t
sp_dev_pack (int64_t m, int64_t n, int64_t k, int64_t parts, SpDevTensor x, SpDevTensor out, cudaStream_t stream)
{
  if (!are_floats ({ x, out }) || parts < 1 || n % parts != 0)
    return cudaErrorInvalidValue;
  return move (Pack{ m, n, k, parts, x, out }, n * m * k, are_half ({ x, out }), width_of ({ k }, { x, out }), stream);
}

/* By elements of x[m, parts * k]: its n / parts copies follow each other. */
struct Unpack {
  int64_t m, k, parts, copies;
  SpDevTensor in, x;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t head = divide (i, k), token = divide (head, parts), first = (head - token * parts) * copies;
    Vec<V> sum = load<V> (in, (first * m + token) * k + i - head * k);

    for (int64_t j = first + 1; j < first + copies; j++) {
      Vec<V> v = load<V> (in, (j * m + token) * k + i - head * k);
#pragma unroll
      for (int l = 0; l < V; l++)
        sum.x[l] += v.x[l];
    }
    store<V> (x, i, sum);
  }
};

/* By elements of in[n][m][k], where none is a copy: what is read then lies together. */
struct UnpackOnce {
  int64_t m, k, parts;
  SpDevTensor in, x;

  __device__ int64_t target (int64_t i) const
  {
    int64_t row = divide (i, k), part = divide (row, m), token = row - part * m;

    return (token * parts + part) * k + i - row * k;
  }
  __device__ const uint16_t *from (int64_t i) const
  {
    return half_at (in, i);
  }
  __device__ uint16_t *to (int64_t i) const
  {
    return half_at (x, target (i));
  }
  template <int V> __device__ void at (int64_t i) const
  {
    store<V> (x, target (i), load<V> (in, i));
  }
};

cudaError_t
sp_dev_unpack (int64_t m, int64_t n, int64_t k, int64_t parts, SpDevTensor in, SpDevTensor x, cudaStream_t stream)
{
  if (!are_floats ({ in, x }) || parts < 1 || n % parts != 0)
    return cudaErrorInvalidValue;
  if (n == parts)
    return move (UnpackOnce{ m, k, parts, in, x }, n * m * k, are_half ({ in, x }), width_of ({ k }, { in, x }),
                 stream);
  return each (Unpack{ m, k, parts, n / parts, in, x }, m * parts * k, width_of ({ k }, { in, x }), stream);
}

struct Part {
  int64_t n, parts, place;
  SpDevTensor x, out;

  template <int V> __device__ void at (int64_t i) const
  {
    int64_t row = divide (i, n);

    store<V> (out, i, load<V> (x, (row * parts + place) * n + i - row * n));
  }
};

cudaError_t
sp_dev_part (int64_t m, int64_t n, int64_t parts, int64_t place, SpDevTensor x, SpDevTensor out, cudaStream_t stream)
{
  if (!are_floats ({ x, out }) || place < 0 || place >= parts)
    return cudaErrorInvalidValue;
  return each (Part{ n, parts, place, x, out }, m * n, width_of ({ n }, { x, out }), stream);
}
