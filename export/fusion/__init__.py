"""Fusion of foreign graphs: our operators found in ONNX models that other people's modules were exported to.

sampling ──▶ anchors ──▶ reading (index notation) ──▶ RULES ──▶ writing ──▶ proof ──▶ the operator in the graph
"""
