"""Helm for tests/chart: renders, lints and packages a chart.

In, as JSON on stdin: the folder of the chart, and texts of values by the name of the case. Out, as JSON: for each case the objects as
YAML and the notes, or the error; what lint says of each; and whether the packaged chart renders the same.
"""

import json
import sys
import tempfile

from helm_python.chart import Chart, lint, package, values_from_yaml
from helm_python.errors import HelmError


def render(chart, values):
    try:
        files = chart.render(values=values, name="azure", namespace="default", is_upgrade=True)
    except HelmError as error:
        return {"error": str(error)}
    notes = [text for path, text in files.items() if path.endswith("NOTES.txt")]
    objects = [text.strip() for path, text in sorted(files.items()) if path.endswith(".yaml")]
    lines = "\n---\n".join(text for text in objects if text).splitlines()
    return {"objects": "".join(f"{line.rstrip()}\n" for line in lines if line.strip()), "notes": "".join(notes)}


def main():
    asked = json.load(sys.stdin)
    values = {name: values_from_yaml(text) for name, text in asked["values"].items()}
    with tempfile.TemporaryDirectory() as folder:
        archive = package(asked["chart"], destination=folder)
        unpacked, packed = Chart.load(asked["chart"]), Chart.load(archive)
        cases = {name: render(unpacked, own) for name, own in values.items()}
        same = all(render(packed, own) == cases[name] for name, own in values.items())
    told = {name: lint(asked["chart"], own, strict=True) for name, own in values.items() if "error" not in cases[name]}
    json.dump({"cases": cases, "lint": told, "packageIsSame": same}, sys.stdout)


main()
