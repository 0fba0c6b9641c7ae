"""The commands `bench` and `train`."""
