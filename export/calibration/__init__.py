"""Calibration: run pictures through a float model and decide which range of each activation int8 shall cover.

pictures ──float model, tapped──▶ histograms ──percentile | entropy──▶ ranges ──▶ cache
"""
