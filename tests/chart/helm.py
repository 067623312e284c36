"""Helm for tests/chart: renders, lints and packages a copy of a chart.

In, as JSON on stdin: the folder of the chart, and texts of values by the name of the case. Out, as JSON: for each case the objects as
YAML and the notes, or the error; what lint says of each; whether the packaged chart renders the same; and what the chart makes of the
values of the case `reused` without its own defaults, as `helm upgrade --reuse-values` renders it.
"""

import json
import pathlib
import shutil
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


def render_reused(chart, defaults):
    """Renders with the defaults of another chart in place of the chart's own."""
    (chart / "values.yaml").write_text(defaults)
    return render(Chart.load(str(chart)), {"image": {"repository": "registry.example.com/cloud-controller-manager"}})


def main():
    asked = json.load(sys.stdin)
    values = {name: values_from_yaml(text) for name, text in asked["values"].items()}
    with tempfile.TemporaryDirectory() as folder:
        # Outside of the tree, since the chart must not need anything else of it.
        chart = pathlib.Path(shutil.copytree(asked["chart"], f"{folder}/chart", symlinks=True))
        archive = package(str(chart), destination=folder)
        unpacked, packed = Chart.load(str(chart)), Chart.load(archive)
        cases = {name: render(unpacked, own) for name, own in values.items()}
        same = all(render(packed, own) == cases[name] for name, own in values.items())
        rendered = [name for name in values if "error" not in cases[name]]
        lints = {name: lint(str(chart), values[name], strict=True) for name in rendered}
        cases["reused"] = render_reused(chart, asked["values"]["go-defaults"])
    json.dump({"cases": cases, "lint": lints, "packageIsSame": same}, sys.stdout)


main()
