"""What the attention looked at, from `explain.onnx` with ONNX Runtime and numpy alone: no torch, no onnx.

selection ─▶ explainer (one run of explain.onnx) ─▶ operators/ (numbers and implied rows) ─▶ numbers, drawing, page, route
"""
