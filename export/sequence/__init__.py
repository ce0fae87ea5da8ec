"""What is special about exporting a classifier of sequences: probes of every length, padding, streams, text as data."""
