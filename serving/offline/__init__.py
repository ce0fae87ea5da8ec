"""Classifying many pictures without a server: a frozen list cut into parts, each part's answers one file that appears whole.

inputs    what is to be classified: folders, pictures, Parquet files, cut into parts
job       the folder of answers: what was asked, which parts are there, one process at a time
batches   pictures to rows: a pool that decodes ahead of the model
formats   rows to a file: JSON lines, CSV, Parquet
here      the parts that are missing, in this process
on_ray    the same on a Ray cluster
"""
