"""From a module to a bundle: ONNX, graph passes, verification. `gaussport.export.bundle` alone is free of torch and onnx.

    checkpoint ──pipeline──▶ onnx_export ──passes──▶ graph_check ──▶ proof ──▶ report ──▶ bundle
    bundle ──verification──▶ findings
    somebody's ONNX ──fusion──▶ bundle

`pipeline` refuses what cannot be before `work` imports torch.
"""
