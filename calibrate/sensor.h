/* SPDX-License-Identifier: Apache-2.0 */
/* What a card says of itself at work: the clock of its SMs, power, temperature, and what holds the clock down. A thread
 * asks NVML every SP_SENSOR_US and keeps what it heard; whoever has timed something asks for the mean over that time.
 *
 * The driver's library is looked for when a sensor is made. Without it, and of what a card does not say, numbers are 0:
 * what is measured does not depend on it. Power is the one of the moment where the card has it, else NVML's, which since
 * Ampere is a mean over the last second. */
#pragma once

#include "calibrate/measured.h"

#define SP_SENSOR_US 10000
/* A card's figure of its power is renewed every 20 to 100 ms: over less than the latter nothing is said of it. assumed:
 * for H200 as it is known of A100 and H100 ("Part-time power measurements", arXiv 2312.02741). */
#define SP_SENSOR_LEAST_US 100000

typedef struct {
  double clock_hz, power_w, temperature_c; /* 0: not said */
  guint64 throttle;                        /* NVML's bits of any moment, without idleness */
} SpReading;

typedef struct _SpSensor SpSensor;

/* Of the CUDA device of that number. */
SpSensor *sp_sensor_new (int device);
void sp_sensor_free (SpSensor *sensor);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SpSensor, sp_sensor_free)

/* Of g_get_monotonic_time (). Where the thread heard nothing in it, the card is asked now. What lies a minute back is
 * forgotten. */
SpReading sp_sensor_mean (SpSensor *sensor, gint64 from_us, gint64 to_us);
/* Of several cards at once: the lowest clock, which the others wait for, the most power, the highest temperature. */
void sp_reading_join (SpReading *into, const SpReading *other);
/* Into the row's columns; `words` keeps the reasons' names. */
void sp_reading_put (const SpReading *reading, SpMeasuredRow *row, GStringChunk *words);
/* Names joined by "+"; free it. */
char *sp_reading_throttle (const SpReading *reading);
/* The card's power limit and highest clock, into fields of the file. */
void sp_sensor_describe (int device, SpMeasured *measured);
