"""Tell TensorRT's parser which nodes are plugins.

It takes a node's function body unless the node names a plugin namespace; then it takes the plugin. Other runtimes ignore
the two attributes.
"""

import onnx_graphsurgeon as gs

from gaussport.plugins import DOMAIN, OPSET_VERSION

NAMESPACE, VERSION = "plugin_namespace", "plugin_version"


def tag_plugins(graph: gs.Graph) -> None:
    """Give every node of our domain the namespace and the version of its plugin."""
    for node in graph.nodes:
        if node.domain == DOMAIN:
            node.attrs |= {NAMESPACE: DOMAIN, VERSION: str(OPSET_VERSION)}


def untag_plugins(graph: gs.Graph) -> None:
    """Take both attributes away, so that TensorRT's parser takes the bodies."""
    for node in graph.nodes:
        if node.domain == DOMAIN:
            for name in (NAMESPACE, VERSION):
                node.attrs.pop(name, None)
