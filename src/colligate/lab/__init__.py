"""What measures and trains: the bench, the papers' baselines, trainings and their jobs."""
