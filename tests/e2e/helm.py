"""One step of Helm against a cluster, for tests/e2e/helm_release.rs.

In, as JSON on stdin: kubeconfig, action (install, upgrade, rollback), chart, values as YAML. Out: the error, or nothing.
"""

import json
import sys

from helm_python.chart import values_from_yaml
from helm_python.config import Config
from helm_python.errors import HelmError


def main():
    asked = json.load(sys.stdin)
    with Config(kubeconfig_path=asked["kubeconfig"], namespace="default") as config:
        try:
            if asked["action"] == "rollback":
                config.rollback("azure")
            else:
                step = config.install if asked["action"] == "install" else config.upgrade
                step(asked["chart"], "azure", values=values_from_yaml(asked["values"]))
        except HelmError as error:
            print(error)


main()
