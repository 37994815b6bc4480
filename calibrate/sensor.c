/* SPDX-License-Identifier: Apache-2.0 */
#include "calibrate/sensor.h"

#include <cuda_runtime_api.h>
#include <gmodule.h>
#include <math.h>

/* --- NVML: the few declarations that are needed, for its header is no part of every toolkit ------------------------ */

#define LIBRARY "libnvidia-ml.so.1"

enum { NVML_SUCCESS = 0, NVML_CLOCK_SM = 1, NVML_TEMPERATURE_GPU = 0, NVML_FI_DEV_POWER_INSTANT = 186 };

typedef struct {
  unsigned int id, scope;
  long long timestamp, latency_us;
  int type, status;
  union {
    unsigned int u;
    unsigned long long ull;
    double d;
  } value;
} NvmlField;

typedef struct {
  int (*init) (void);
  int (*shutdown) (void);
  int (*handle) (const char *pci, gpointer *ret);
  int (*clock) (gpointer device, int kind, unsigned int *ret_mhz);
  int (*max_clock) (gpointer device, int kind, unsigned int *ret_mhz);
  int (*power) (gpointer device, unsigned int *ret_mw);
  int (*limit) (gpointer device, unsigned int *ret_mw);
  int (*fields) (gpointer device, int n, NvmlField *fields);
  int (*temperature) (gpointer device, int where, unsigned int *ret_c);
  int (*reasons) (gpointer device, unsigned long long *ret);
} NvmlCalls;

/* By bit, as nvml.h has nvmlClocksEventReason*; NULL: says nothing of a limit. */
static const char *const reason_names[] = { NULL,          "applications-clocks", "sw-power-cap",
                                            "hw-slowdown", "sync-boost",          "sw-thermal",
                                            "hw-thermal",  "hw-power-brake",      "display-clock" };

/* The library stays open: it is the driver's. FALSE without it, or if it lacks a call. */
static gboolean
look_up (NvmlCalls *c)
{
  const struct {
    const char *name;
    gpointer *at;
  } calls[] = {
    { "nvmlInit_v2", (gpointer *) &c->init },
    { "nvmlShutdown", (gpointer *) &c->shutdown },
    { "nvmlDeviceGetHandleByPciBusId_v2", (gpointer *) &c->handle },
    { "nvmlDeviceGetClockInfo", (gpointer *) &c->clock },
    { "nvmlDeviceGetMaxClockInfo", (gpointer *) &c->max_clock },
    { "nvmlDeviceGetPowerUsage", (gpointer *) &c->power },
    { "nvmlDeviceGetEnforcedPowerLimit", (gpointer *) &c->limit },
    { "nvmlDeviceGetFieldValues", (gpointer *) &c->fields },
    { "nvmlDeviceGetTemperature", (gpointer *) &c->temperature },
    { "nvmlDeviceGetCurrentClocksThrottleReasons", (gpointer *) &c->reasons },
  };
  GModule *module = g_module_open (LIBRARY, G_MODULE_BIND_LAZY | G_MODULE_BIND_LOCAL);

  if (module == NULL)
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS (calls); i++)
    if (!g_module_symbol (module, calls[i].name, calls[i].at))
      return FALSE;
  return TRUE;
}

/* NULL: the card cannot be asked. */
static gpointer
open_device (NvmlCalls *calls, int device)
{
  char pci[32] = "";
  gpointer handle = NULL;

  if (!look_up (calls) || cudaDeviceGetPCIBusId (pci, sizeof pci, device) != cudaSuccess ||
      calls->init () != NVML_SUCCESS)
    return NULL;
  if (calls->handle (pci, &handle) == NVML_SUCCESS && handle != NULL)
    return handle;
  calls->shutdown ();
  return NULL;
}

/* --- samples ------------------------------------------------------------------------------------------------------ */

typedef struct {
  gint64 at_us;
  SpReading reading;
} Sample;

enum { KEPT = 60 * G_USEC_PER_SEC / SP_SENSOR_US };

struct _SpSensor {
  NvmlCalls calls;
  gpointer device; /* NULL: says nothing */
  GThread *thread;
  GMutex lock; /* of what follows */
  GCond ends;
  gboolean stop;
  Sample *samples; /* KEPT, the oldest overwritten */
  guint64 n;       /* that there were */
};

static double
read_power (const SpSensor *sensor)
{
  NvmlField field = { .id = NVML_FI_DEV_POWER_INSTANT };
  unsigned int mw = 0;

  if (sensor->calls.fields (sensor->device, 1, &field) == NVML_SUCCESS && field.status == NVML_SUCCESS)
    return field.value.u * 1e-3;
  return sensor->calls.power (sensor->device, &mw) == NVML_SUCCESS ? mw * 1e-3 : 0;
}

static SpReading
read_card (const SpSensor *sensor)
{
  const NvmlCalls *calls = &sensor->calls;
  unsigned int mhz = 0, celsius = 0;
  unsigned long long reasons = 0;
  SpReading reading = { .power_w = read_power (sensor) };

  if (calls->clock (sensor->device, NVML_CLOCK_SM, &mhz) == NVML_SUCCESS)
    reading.clock_hz = mhz * 1e6;
  if (calls->temperature (sensor->device, NVML_TEMPERATURE_GPU, &celsius) == NVML_SUCCESS)
    reading.temperature_c = celsius;
  if (calls->reasons (sensor->device, &reasons) == NVML_SUCCESS)
    reading.throttle = reasons & ~G_GUINT64_CONSTANT (1);
  return reading;
}

static gpointer
listen (gpointer data)
{
  SpSensor *sensor = data;
  gint64 next_us = g_get_monotonic_time ();

  g_mutex_lock (&sensor->lock);
  while (!sensor->stop) {
    g_mutex_unlock (&sensor->lock);
    Sample sample = { .reading = read_card (sensor), .at_us = g_get_monotonic_time () };
    g_mutex_lock (&sensor->lock);
    sensor->samples[sensor->n++ % KEPT] = sample;
    next_us = MAX (next_us + SP_SENSOR_US, sample.at_us); /* what was missed is not made up for */
    while (!sensor->stop && g_cond_wait_until (&sensor->ends, &sensor->lock, next_us))
      ;
  }
  g_mutex_unlock (&sensor->lock);
  return NULL;
}

SpSensor *
sp_sensor_new (int device)
{
  SpSensor *sensor = g_new0 (SpSensor, 1);

  g_mutex_init (&sensor->lock);
  g_cond_init (&sensor->ends);
  sensor->device = open_device (&sensor->calls, device);
  if (sensor->device != NULL) {
    sensor->samples = g_new0 (Sample, KEPT);
    sensor->thread = g_thread_new ("sensor", listen, sensor);
  }
  return sensor;
}

void
sp_sensor_free (SpSensor *sensor)
{
  if (sensor->thread != NULL) {
    g_mutex_lock (&sensor->lock);
    sensor->stop = TRUE;
    g_cond_signal (&sensor->ends);
    g_mutex_unlock (&sensor->lock);
    g_thread_join (sensor->thread);
    sensor->calls.shutdown ();
  }
  g_mutex_clear (&sensor->lock);
  g_cond_clear (&sensor->ends);
  g_free (sensor->samples);
  g_free (sensor);
}

/* --- readings ----------------------------------------------------------------------------------------------------- */

/* Those of the thread. */
static SpReading
mean_of_samples (SpSensor *sensor, gint64 from_us, gint64 to_us)
{
  SpReading sum = { 0 };
  guint n = 0;

  g_mutex_lock (&sensor->lock);
  for (guint64 i = sensor->n; i > 0 && i + KEPT > sensor->n; i--) {
    const Sample *sample = &sensor->samples[(i - 1) % KEPT];
    if (sample->at_us < from_us)
      break;
    if (sample->at_us > to_us)
      continue;
    sum.clock_hz += sample->reading.clock_hz;
    sum.power_w += sample->reading.power_w;
    sum.temperature_c += sample->reading.temperature_c;
    sum.throttle |= sample->reading.throttle;
    n++;
  }
  g_mutex_unlock (&sensor->lock);
  if (n > 0)
    sum.clock_hz /= n, sum.power_w /= n, sum.temperature_c /= n;
  return sum;
}

SpReading
sp_sensor_mean (SpSensor *sensor, gint64 from_us, gint64 to_us)
{
  SpReading reading = { 0 };

  if (sensor->device == NULL)
    return reading;
  reading = mean_of_samples (sensor, from_us, to_us);
  if (reading.clock_hz <= 0)
    reading = read_card (sensor);
  if (to_us - from_us < SP_SENSOR_LEAST_US)
    reading.power_w = 0;
  return reading;
}

void
sp_reading_join (SpReading *into, const SpReading *other)
{
  into->clock_hz = MIN (into->clock_hz, other->clock_hz);
  into->power_w = MAX (into->power_w, other->power_w);
  into->temperature_c = MAX (into->temperature_c, other->temperature_c);
  into->throttle |= other->throttle;
}

char *
sp_reading_throttle (const SpReading *reading)
{
  GString *names = g_string_new (NULL);

  for (guint bit = 0; bit < G_N_ELEMENTS (reason_names); bit++)
    if (reading->throttle >> bit & 1 && reason_names[bit] != NULL)
      g_string_append_printf (names, "%s%s", names->len > 0 ? "+" : "", reason_names[bit]);
  return g_string_free (names, FALSE);
}

void
sp_reading_put (const SpReading *reading, SpMeasuredRow *row, GStringChunk *words)
{
  g_autofree char *throttle = sp_reading_throttle (reading);

  /* To what a card tells apart. */
  row->clock_hz = round (reading->clock_hz / 1e5) * 1e5;
  row->power_w = round (reading->power_w * 10) / 10;
  row->temperature_c = round (reading->temperature_c * 10) / 10;
  row->throttle = g_string_chunk_insert_const (words, throttle);
}

void
sp_sensor_describe (int device, SpMeasured *measured)
{
  NvmlCalls calls;
  gpointer handle = open_device (&calls, device);
  unsigned int mw = 0, mhz = 0;

  if (handle == NULL)
    return;
  if (calls.limit (handle, &mw) == NVML_SUCCESS) {
    g_autofree char *text = g_strdup_printf ("%.10g", mw * 1e-3);
    sp_measured_say (measured, "power_limit_w", text);
  }
  if (calls.max_clock (handle, NVML_CLOCK_SM, &mhz) == NVML_SUCCESS) {
    g_autofree char *text = g_strdup_printf ("%.10g", mhz * 1e6);
    sp_measured_say (measured, "max_clock_hz", text);
  }
  calls.shutdown ();
}
