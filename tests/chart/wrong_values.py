"""Values that the chart refuses, each with the key that the message must name."""

from __future__ import annotations

from typing import Any

__all__ = ["WRONG"]

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown group": ({"crd": {"enabled": True}}, "crd"),
    "an unknown value": ({"crds": {"kep": True}}, "kep"),
    "a word in place of a boolean": ({"crds": {"enabled": "yes"}}, "enabled"),
    "a mode that does not exist": ({"mode": "repair"}, "mode"),
    "a registry with a scheme": ({"image": {"registry": "https://registry.example.com"}}, "registry"),
    "a repository in capitals": ({"image": {"repository": "Rekindle"}}, "repository"),
    "a tag with a colon": ({"image": {"tag": "a:b"}}, "tag"),
    "a digest that is cut": ({"image": {"digest": "sha256:0123"}}, "digest"),
    "a pull policy in small letters": ({"image": {"pullPolicy": "always"}}, "pullPolicy"),
    "pull secrets as objects": ({"image": {"pullSecrets": [{"name": "a"}]}}, "pullSecrets"),
    "no replica": ({"controller": {"replicas": 0}}, "replicas"),
    "half a replica": ({"controller": {"replicas": 1.5}}, "replicas"),
    "a log level that does not exist": ({"controller": {"logLevel": "trace"}}, "logLevel"),
    "a toleration with a typing error": ({"controller": {"tolerations": [{"kei": "a"}]}}, "kei"),
    "a memory that is no quantity": ({"controller": {"resources": {"limits": {"memory": "1 GB"}}}}, "memory"),
    "a resource that is unknown": ({"agent": {"resources": {"limit": {}}}}, "limit"),
    "all nodes and more": ({"agent": {"maxUnavailable": "101%"}}, "maxUnavailable"),
    "a node label that is none": ({"agent": {"nodeLabels": ["a b"]}}, "nodeLabels"),
    "a label's value that is a boolean": ({"agent": {"nodeSelector": {"gpu": True}}}, "gpu"),
    "a path that is not absolute": ({"agent": {"hostPaths": {"kmsg": "dev/kmsg"}}}, "kmsg"),
    "a folder in place of the library": ({"agent": {"nvmlLibrary": "/usr/lib64"}}, "nvmlLibrary"),
    "a port that is none": ({"networkPolicy": {"egressPorts": [70000]}}, "egressPorts"),
    "an interval without unit": ({"podMonitor": {"interval": "30"}}, "interval"),
    "a policy that is neither": ({"policies": {"environment": "maybe"}}, "environment"),
    "an unknown setting": ({"settings": {"controller": {"timing": {"setle_s": 1}}}}, "setle_s"),
    "a setting below its limit": ({"settings": {"agent": {"logs": {"stall_factor": 1}}}}, "stall_factor"),
    "a setting of the wrong type": ({"settings": {"agent": {"nvml": {"enabled": 1}}}}, "enabled"),
    "the mode as a setting": ({"settings": {"controller": {"mode": "recover"}}}, "mode"),
}
