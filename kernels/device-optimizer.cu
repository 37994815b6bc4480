/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers' elementwise parts. */
#include "kernels/device-private.cuh"

#include <math.h>

struct Adam {
  float rate, beta1, beta2, rest1, rest2, correction1, correction2, epsilon;
  SpDevTensor gradient, master, moment1, moment2, parameter;

  template <int V> __device__ void at (int64_t i) const
  {
    Vec<V> g = load<V> (gradient, i), p = load<V> (master, i), a = load<V> (moment1, i), b = load<V> (moment2, i);

#pragma unroll
    for (int j = 0; j < V; j++) {
      a.x[j] = beta1 * a.x[j] + rest1 * g.x[j];
      b.x[j] = beta2 * b.x[j] + rest2 * g.x[j] * g.x[j];
      p.x[j] -= rate * (a.x[j] * correction1) / (sqrtf (b.x[j] * correction2) + epsilon);
    }
    store<V> (moment1, i, a);
    store<V> (moment2, i, b);
    store<V> (master, i, p);
    if (parameter.data != nullptr)
      store<V> (parameter, i, p);
  }
};

cudaError_t
sp_dev_adam (int64_t n, SpDevTensor gradient, int64_t step, double rate, double beta1, double beta2, double epsilon,
             SpDevTensor master, SpDevTensor moment1, SpDevTensor moment2, SpDevTensor parameter, cudaStream_t stream)
{
  if (!are_floats ({ gradient, master, moment1, moment2, parameter }) || step < 1)
    return cudaErrorInvalidValue;

  Adam a = { (float) rate,
             (float) beta1,
             (float) beta2,
             (float) (1 - beta1),
             (float) (1 - beta2),
             (float) (1 / (1 - pow (beta1, (double) step))),
             (float) (1 / (1 - pow (beta2, (double) step))),
             (float) epsilon,
             gradient,
             master,
             moment1,
             moment2,
             parameter };
  return each (a, n, width_of ({ n }, { gradient, master, moment1, moment2, parameter }), stream);
}

struct Momentum {
  float beta;
  SpDevTensor gradient, momentum, update;

  template <int V> __device__ void at (int64_t i) const
  {
    Vec<V> g = load<V> (gradient, i), a = load<V> (momentum, i);

#pragma unroll
    for (int j = 0; j < V; j++) {
      a.x[j] = beta * a.x[j] + g.x[j];
      g.x[j] += beta * a.x[j];
    }
    store<V> (momentum, i, a);
    store<V> (update, i, g);
  }
};

cudaError_t
sp_dev_momentum (int64_t n, SpDevTensor gradient, double beta, SpDevTensor momentum, SpDevTensor update,
                 cudaStream_t stream)
{
  if (!are_floats ({ gradient, momentum, update }))
    return cudaErrorInvalidValue;
  return each (Momentum{ (float) beta, gradient, momentum, update }, n,
               width_of ({ n }, { gradient, momentum, update }), stream);
}

struct Descend {
  float rate;
  SpDevTensor update, master, parameter;

  template <int V> __device__ void at (int64_t i) const
  {
    Vec<V> u = load<V> (update, i), p = load<V> (master, i);

#pragma unroll
    for (int j = 0; j < V; j++)
      p.x[j] -= rate * u.x[j];
    store<V> (master, i, p);
    store<V> (parameter, i, p);
  }
};

cudaError_t
sp_dev_descend (int64_t n, SpDevTensor update, double rate, SpDevTensor master, SpDevTensor parameter,
                cudaStream_t stream)
{
  if (!are_floats ({ update, master, parameter }))
    return cudaErrorInvalidValue;
  return each (Descend{ (float) rate, update, master, parameter }, n, width_of ({ n }, { update, master, parameter }),
               stream);
}
