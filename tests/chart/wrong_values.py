"""Values that the chart refuses, each with the key that the message must name."""

from __future__ import annotations

from typing import Any

__all__ = ["WRONG", "WRONG_TOGETHER"]

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown group": ({"crd": {"enabled": True}}, "crd"),
    "an unknown value": ({"crds": {"kep": True}}, "kep"),
    "a word in place of a boolean": ({"crds": {"enabled": "yes"}}, "enabled"),
    "a mode that does not exist": ({"mode": "act"}, "mode"),
    "a pool's mode that does not exist": ({"modes": {"pools": {"a100": "off"}}}, "a100"),
    "a namespace that is none": ({"modes": {"namespaces": {"Team": "observe"}}}, "namespaces"),
    "modes of what has none": ({"modes": {"nodes": {"n1": "observe"}}}, "nodes"),
    "a registry of all charts with a scheme": ({"global": {"imageRegistry": "http://r"}}, "imageRegistry"),
    "a label that is the chart's own": ({"labels": {"app.kubernetes.io/name": "x"}}, "labels"),
    "a label with a number": ({"labels": {"team": 7}}, "team"),
    "a label's value with a space": ({"labels": {"team": "ml platform"}}, "team"),
    "a label's name with a space": ({"labels": {"ml team": "a"}}, "ml team"),
    "a registry with a scheme": ({"image": {"registry": "https://registry.example.com"}}, "registry"),
    "a repository in capitals": ({"image": {"repository": "Rekindle"}}, "repository"),
    "a tag with a colon": ({"image": {"tag": "a:b"}}, "tag"),
    "a digest that is cut": ({"image": {"digest": "sha256:0123"}}, "digest"),
    "a pull policy in small letters": ({"image": {"pullPolicy": "always"}}, "pullPolicy"),
    "pull secrets as objects": ({"image": {"pullSecrets": [{"name": "a"}]}}, "pullSecrets"),
    "no replica": ({"controller": {"replicas": 0}}, "replicas"),
    "half a replica": ({"controller": {"replicas": 1.5}}, "replicas"),
    "a controller somewhere else": ({"controller": {"acceleratorNodes": "sometimes"}}, "acceleratorNodes"),
    "a user namespace in a word": ({"controller": {"hostUsers": "no"}}, "hostUsers"),
    "a log level that does not exist": ({"controller": {"logLevel": "trace"}}, "logLevel"),
    "a toleration with a typing error": ({"controller": {"tolerations": [{"kei": "a"}]}}, "kei"),
    "a memory that is no quantity": ({"controller": {"resources": {"limits": {"memory": "1 GB"}}}}, "memory"),
    "a resource that is unknown": ({"agent": {"resources": {"limit": {}}}}, "limit"),
    "all nodes and more": ({"agent": {"maxUnavailable": "101%"}}, "maxUnavailable"),
    "a node label that is none": ({"agent": {"nodeLabels": ["a b"]}}, "nodeLabels"),
    "a label's value that is a boolean": ({"agent": {"nodeSelector": {"gpu": True}}}, "gpu"),
    "a path that is not absolute": ({"agent": {"hostPaths": {"kmsg": "dev/kmsg"}}}, "kmsg"),
    "a folder in place of the library": ({"agent": {"nvmlLibrary": "/usr/lib64"}}, "nvmlLibrary"),
    "a folder that is not absolute": ({"agent": {"corexFolder": "corex"}}, "corexFolder"),
    "a namespace with a slash": ({"networkPolicy": {"scrapeNamespaces": ["a/b"]}}, "scrapeNamespaces"),
    "an address without its prefix": ({"networkPolicy": {"apiServerCIDRs": ["10.0.0.1"]}}, "apiServerCIDRs"),
    "a port that is none": ({"networkPolicy": {"egressPorts": [70000]}}, "egressPorts"),
    "an interval without unit": ({"podMonitor": {"interval": "30"}}, "interval"),
    "pod monitors in a word": ({"podMonitor": {"enabled": "yes"}}, "enabled"),
    "an alert that does not exist": ({"alerts": {"rules": {"RekindleNoLeeder": {"for": "5m"}}}}, "NoLeeder"),
    "an alert's time without unit": ({"alerts": {"rules": {"RekindleNoLeader": {"for": "5"}}}}, "for"),
    "an alert's time as a number": ({"alerts": {"rules": {"RekindleNoLeader": {"for": 5}}}}, "for"),
    "an alert's severity in words": (
        {"alerts": {"rules": {"RekindleNoLeader": {"severity": "very bad"}}}},
        "severity",
    ),
    "an alert's other expression": ({"alerts": {"rules": {"RekindleNoLeader": {"expr": "1"}}}}, "expr"),
    "runbooks without a scheme": ({"alerts": {"runbookPrefix": "wiki.example.com"}}, "runbookPrefix"),
    "an alert's label with a space": ({"alerts": {"labels": {"release": "a b"}}}, "release"),
    "a dashboard's label that is a number": (
        {"dashboards": {"labels": {"grafana_dashboard": 1}}},
        "grafana_dashboard",
    ),
    "a policy that is neither": ({"policies": {"environment": "maybe"}}, "environment"),
    "a pod template without containers": ({"repair": {"templates": {"reset": {"spec": {}}}}}, "containers"),
    "a pod template that names its node": (
        {"repair": {"templates": {"reboot": {"spec": {"containers": [{"name": "a"}], "nodeName": "n"}}}}},
        "nodeName",
    ),
    "a pod in place of its template": ({"repair": {"templates": {"validate": {"kind": "Pod"}}}}, "kind"),
    "a step of a repair that does not exist": ({"repair": {"templates": {"wash": {}}}}, "wash"),
    "an image with a space": ({"repair": {"image": "a b"}}, "image"),
    "a secret in capitals": ({"repair": {"webhookSecret": "Token"}}, "webhookSecret"),
    "a removal in a word": ({"uninstall": {"takeBack": "no"}}, "takeBack"),
    "warnings in a word": ({"policies": {"warnings": "on"}}, "warnings"),
    "an unknown setting": ({"settings": {"controller": {"timing": {"setle_s": 1}}}}, "setle_s"),
    "a setting below its limit": ({"settings": {"agent": {"logs": {"stall_factor": 1}}}}, "stall_factor"),
    "a setting of the wrong type": ({"settings": {"agent": {"nvml": {"enabled": 1}}}}, "enabled"),
    "the mode as a setting": ({"settings": {"controller": {"mode": "recover"}}}, "mode"),
    "modes as a setting": ({"settings": {"controller": {"modes": {"pools": {}}}}}, "modes"),
    "a repair's template as a setting": (
        {"settings": {"controller": {"repair": {"templates": {"reset": "/reset.yaml"}}}}},
        "templates",
    ),
    "a webhook's token as a setting": (
        {"settings": {"controller": {"repair": {"webhook": {"token_file": "/token"}}}}},
        "token_file",
    ),
}

WRONG_TOGETHER: dict[str, tuple[dict[str, Any], str]] = {
    "half of what asks another controller": (
        {"settings": {"controller": {"repair": {"maintenance": {"plural": "reboots"}}}}},
        "maintenance",
    ),
    "a controller kept off nodes that nothing tells": (
        {"agent": {"nodeLabels": []}, "controller": {"acceleratorNodes": "never"}},
        "acceleratorNodes",
    ),
    "two ways to reboot a node": (
        {
            "settings": {
                "controller": {
                    "repair": {
                        "maintenance": {"plural": "reboots", "manifest": "apiVersion: a/v1\nkind: Reboot"},
                        "webhook": {"url": "https://dc.example/reboot"},
                    }
                }
            }
        },
        "webhook.url",
    ),
}
"""Values with correct types, so the schema accepts them and the templates refuse them."""
