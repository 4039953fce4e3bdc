"""Checks manifests (the first argument) against the API of Kubernetes, and prints them as JSON."""

import copy
import json
import sys

import kubernetes_validate
import yaml

objects = list(yaml.safe_load_all(sys.argv[1]))
for version in ("1.30", "1.37"):
    for item in objects:
        kubernetes_validate.validate(item, version, strict=True)

wrong = copy.deepcopy(objects[-1])
if wrong["kind"] == "DaemonSet":
    wrong["spec"]["template"]["spec"]["hostPid"] = True
else:
    wrong["roleref"] = {}
try:
    kubernetes_validate.validate(wrong, "1.37", strict=True)
    refuses = False
except kubernetes_validate.ValidationError:
    refuses = True
json.dump({"objects": objects, "refuses_a_typing_error": refuses}, sys.stdout)
