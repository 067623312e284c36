"""One step of Helm against a cluster, for tests/e2e/helm_release.rs.

Reads JSON from stdin: kubeconfig, action (install, upgrade, rollback), chart, values as YAML. Prints the error, if any.
"""

import json
import sys

from helm_python.chart import values_from_yaml
from helm_python.config import Config
from helm_python.errors import HelmError


def main():
    request = json.load(sys.stdin)
    with Config(kubeconfig_path=request["kubeconfig"], namespace="default") as config:
        try:
            if request["action"] == "rollback":
                config.rollback("azure")
            else:
                step = config.install if request["action"] == "install" else config.upgrade
                step(request["chart"], "azure", values=values_from_yaml(request["values"]))
        except HelmError as error:
            print(error)


main()
