"""Many machines: libraries on Lance tables and in buckets, work on a Ray cluster."""
