"""What everything else builds on: errors, dtypes, random streams, schedules, layouts and file formats; NumPy only."""
