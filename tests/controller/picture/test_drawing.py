"""Text, JSON and SVG of a picture."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.placement_pictures import IMAGES, pictures, scenes
from meshwright.cli import main
from meshwright.picture.document import document
from meshwright.picture.inventory import Inventory
from meshwright.picture.job_file import job_of
from meshwright.picture.siting import Siting
from meshwright.picture.svg import svg
from meshwright.picture.text import amount, job_text, topology_text
from meshwright.placement.topology.presets import PRESETS
from tests.controller.picture.scenes import TOPOLOGY, a_job, a_mesh_job, a_node, a_pod, parsed, two_by_two_by_two

GOLDEN = Path(__file__).parent / "golden"
SVG = "{http://www.w3.org/2000/svg}"


def the_scene() -> Siting:
    """Half of the cluster is busy, a node is down, one stands nowhere."""
    lost = a_node("n7")
    del lost["metadata"]["labels"]["fabric/leaf"]
    busy = [a_pod("a", "n0", 8), a_pod("b", "n2", 4)]
    return Siting(two_by_two_by_two(*busy, n3=a_node("n3", "s0", "l1", ready=False), n7=lost), TOPOLOGY, "example")


@pytest.mark.parametrize("name", ["topology.txt", "plan.txt", "waits.txt", "topology.json", "plan.svg"])
def test_what_is_printed_is_what_was_looked_at(name: str) -> None:
    scene, job = the_scene(), parsed(a_mesh_job(4, gpus=4))
    found = {
        "topology.txt": lambda: topology_text(scene.job(job)),
        "plan.txt": lambda: job_text(scene.job(job)),
        "waits.txt": lambda: job_text(scene.job(parsed(a_job(6)))),
        "topology.json": lambda: document(scene.job(job), whole=True),
        "plan.svg": lambda: svg(scene.job(job)).rstrip("\n"),
    }[name]()
    assert found + "\n" == (GOLDEN / name).read_text()


def test_the_pictures_in_the_documentation_are_what_the_code_draws() -> None:
    for name, drawn in pictures().items():
        assert (IMAGES / name).read_text() == drawn, "run: python -m benchmarks.placement_pictures"


def test_the_table_in_the_documentation_is_what_comes_out() -> None:
    text = (IMAGES.parent / "placement.md").read_text()
    for (_, cluster, raw), title in zip(scenes(), ("fat tree", "NVL72"), strict=True):
        inventory = Inventory.of_objects([cluster])
        placed = Siting(inventory, PRESETS["topograph"], "topograph").job(job_of([raw], "default")[0]).job
        assert placed is not None
        crossing = [c for c in placed.crossing if c.level != "core"]
        for how, found in (("topology", [c.bytes for c in crossing]), ("first fit", [c.first_fit for c in crossing])):
            assert f"| {title}: by {how} | " + " | ".join(map(amount, found)) + " |" in text


def test_the_command_draws_those_pictures_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, cluster, job in scenes():
        (tmp_path / "nodes.json").write_text(json.dumps(cluster))
        (tmp_path / "job.json").write_text(json.dumps(job))
        arguments = ["topology", "-o", "svg", "--nodes", str(tmp_path / "nodes.json"), "-f", str(tmp_path / "job.json")]
        assert main(arguments) == 0
        assert capsys.readouterr().out == (IMAGES / f"{name}.svg").read_text()


def test_the_drawn_gpus_are_the_counted_ones() -> None:
    """Counted in the file by its styles; the legend has one square of each."""
    for name, cluster, _ in scenes():
        drawn = ElementTree.fromstring((IMAGES / f"{name}.svg").read_text())
        squares = [r.get("class") or "" for r in drawn.iter(f"{SVG}rect") if r.get("width") == "9"]
        gpus = sum(
            int(item["status"]["allocatable"]["nvidia.com/gpu"]) for item in cluster["items"] if item["kind"] == "Node"
        )
        assert len(squares) == gpus
        assert sorted(s for s in squares if s.startswith("job")) == sorted([f"job{i}" for i in range(4)] * 32)


def test_the_drawn_ranks_are_every_rank_once() -> None:
    for name in pictures():
        texts = [t.text or "" for t in ElementTree.fromstring((IMAGES / name).read_text()).iter(f"{SVG}text")]
        ranks: list[int] = []
        for first, last in (text.split("-") for text in texts if re.fullmatch(r"\d+-\d+", text)):
            ranks += range(int(first), int(last) + 1)
        assert sorted(ranks) == list(range(128))


def test_a_picture_has_nothing_from_elsewhere_and_stays_inside_its_frame() -> None:
    for drawn in pictures().values():
        root = ElementTree.fromstring(drawn)
        assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
        width, height = map(float, (root.get("viewBox") or "").split()[2:])
        right, bottom = _extent(root, 0, 0)
        assert right <= width
        assert bottom <= height


def _extent(element: ElementTree.Element, x: float, y: float) -> tuple[float, float]:
    move = re.match(r"translate\((\S+) (\S+)\)", element.get("transform") or "")
    if move:
        x, y = x + float(move[1]), y + float(move[2])
    corners = [(0.0, 0.0)]
    if element.tag == f"{SVG}rect":
        place = {key: float(element.get(key) or 0) for key in ("x", "y", "width", "height")}
        corners.append((x + place["x"] + place["width"], y + place["y"] + place["height"]))
    corners += [_extent(child, x, y) for child in element]
    return max(corner[0] for corner in corners), max(corner[1] for corner in corners)


def test_names_that_mean_something_in_xml_are_written_as_text() -> None:
    nodes = [a_node(name, labels={"fabric/leaf": "<script>"}) for name in ("a<b>&c", "d")]
    root = ElementTree.fromstring(svg(Siting(Inventory.of(nodes), TOPOLOGY, 'x"<y>').cluster()))
    assert any("<script>" in (text.text or "") for text in root.iter(f"{SVG}text"))


def test_a_cluster_of_any_size_can_be_drawn() -> None:
    for count, gpus in ((0, 8), (1, 8), (3, 0), (20, 16), (1000, 8)):
        nodes = [a_node(f"n{i:04}", f"s{i // 100}", f"l{i // 10}", gpus=gpus) for i in range(count)]
        drawn = svg(Siting(Inventory.of(nodes), TOPOLOGY, "t").cluster())
        assert ElementTree.fromstring(drawn).tag == f"{SVG}svg"
        assert len(drawn) < 150_000


def test_amounts_are_written_for_people() -> None:
    written = [amount(a) for a in (None, 0, 1, 999, 999.6, 1000, 6.44e9, 3.45e12, 2e16)]
    assert written == ["-", "0", "1 B", "999 B", "1 kB", "1 kB", "6.44 GB", "3.45 TB", "20 PB"]
