"""Serving and classifying on a Ray cluster: the same application, in replicas that Ray starts, watches and replaces."""
