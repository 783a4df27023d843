"""`examples/pytorch-text.yaml` is what its sources make, and holds the scripts as they are."""

from pathlib import Path

import pytest
import yaml

from demo import manifest


def test_the_manifest_is_up_to_date() -> None:
    assert manifest.MANIFEST.read_text() == manifest.render(), "run `make generate`"


def test_the_pods_get_the_scripts_byte_by_byte() -> None:
    documents = list(yaml.safe_load_all(manifest.MANIFEST.read_text()))
    assert [document["kind"] for document in documents] == ["PersistentVolumeClaim", "TrainingJob", "ConfigMap"]
    assert documents[2]["data"] == {path.name: path.read_text() for path in manifest.SOURCES.glob("*.py")}


def test_a_script_that_yaml_would_make_unreadable_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("kind: TrainingJob\n")
    (tmp_path / "train.py").write_text("if True:\n\tprint()\n")
    with pytest.raises(ValueError, match=r"train\.py:2"):
        manifest.render(tmp_path)
