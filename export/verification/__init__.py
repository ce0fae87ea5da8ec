"""Proving a bundle again: a list of checks, each one question with one sentence for an answer.

    wish ──subject──▶ what runs here, and what it is held against ──checks──▶ findings ──report──▶ JSON, Markdown, HTML
                                                                     └─blame──▶ the layer at fault

`wish` alone is free of torch and onnx.
"""
