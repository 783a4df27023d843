"""Job files outside Kubernetes: held to the rules of admission, read as kubectl reads them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from meshwright_api.errors import InvalidTrainer
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.job_file import read_section
from meshwright_trainer.plan import from_file, from_section

SECTION: dict[str, Any] = {"model": {"name": "gpt3", "preset": "tiny"}, "data": {"source": "/data"}, "steps": 10}


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("precison=BF16", r"spec\.trainer\.precison: no such field; did you mean precision"),
        ("optimizer.lr=3", r"spec\.trainer\.optimizer\.lr: no such field"),
        ("model.init={fromm: /x}", r"spec\.trainer\.model\.init\.fromm: no such field; did you mean from"),
        ("data.sources=[{sourc: /x}]", r"spec\.trainer\.data\.sources\[0\]\.sourc: no such field"),
        ("optimizer.learningRate=-1", r"learningRate: -1 is too small"),
        ("optimizer.learningRate=.nan", r"learningRate: must be a finite number, but it is nan"),
        ("optimizer.learningRate=.inf", r"learningRate: must be a finite number, but it is inf"),
        ("optimizer.learningRate='0.1'", r"learningRate: .*valid number"),
        ("optimizer.betas=[0.9]", r"betas\.1: is missing"),
        ("optimizer.betas=[0.9, 1.0]", r"betas: must be below 1"),
        ("optimizer.learningRateSchedule=Cosine", r"learningRateSchedule: .*'?Cosine"),
        ("optimizer.learningRateSchedule.warmupSteps=11", r"warmupSteps: 11 is beyond decaySteps 10"),
        ("optimizer.maxGradNorm=0", r"maxGradNorm: 0 is too small"),
        ("steps=0", r"spec\.trainer\.steps: 0 is too small"),
        ("steps=ten", r"spec\.trainer\.steps: must be a whole number"),
        ("steps=null", r"spec\.trainer\.steps: is missing"),
        ("seed=-1", r"spec\.trainer\.seed: -1 is too small"),
        ("batch.micro=0", r"batch\.micro: 0 is too small"),
        ("batch.global=-4", r"batch\.global: -4 is too small"),
        ("batch.sequenceLength=0", r"batch\.sequenceLength: 0 is too small"),
        ("evaluation.everySteps=0", r"evaluation\.everySteps: 0 is too small"),
        ("data.workers=-1", r"data\.workers: -1 is too small"),
        ("parallelism.shard=0", r"parallelism\.shard: 0 is too small"),
        ("parallelism.shard=x", r"parallelism\.shard: must be a whole number"),
        ("parallelism.shardStage=5", r"parallelism\.shardStage: 5 is too large"),
        ("parallelism.data=2", r"= 2 ranks, but the number of processes = 1"),
        ("memory.offload=[Parameters]", r"memory\.offload: offloading is not part of this version"),
        ("update.slack=3", r"update\.slack: parameter servers are not part"),
        ("logging.wandb={project: x}", r"logging\.wandb: Weights & Biases is not part"),
        ("checkpoint={path: /x, keep: 0}", r"checkpoint\.keep: 0 is too small"),
        ("checkpoint={path: /x, everySteps: 0}", r"checkpoint\.everySteps: 0 is too small"),
        ("checkpoint={everySteps: 5}", r"checkpoint\.path: is missing, so nothing would be kept"),
        ("checkpoint={path: /x, resume: From}", r"checkpoint\.resumeFrom: is missing"),
        ("checkpoint={resume: From, resumeFrom: /y}", r"checkpoint\.path: is missing"),
        ("checkpoint={path: /x, resumeFrom: /y}", r"resumeFrom: counts only with resume: From, not with Auto"),
        ("code={path: /a, configMap: b}", r"spec\.trainer\.code: needs either"),
        ("data={factory: 'a:b'} & evaluation.source=/x", r"evaluation\.source: a dataset of one's own brings"),
        ("data.factory=own:data", r"spec\.trainer\.data: needs either"),
        ("model={factory: 'a:b', hiddenSize: 64}", r"model\.hiddenSize: is for built-in models"),
        ("optimizer={factory: 'a:b', betas: [0, 0]}", r"optimizer\.betas: is for built-in optimizers"),
        ("optimizer={momentum: 0.9}", r"optimizer\.momentum: is read by SGD, not by AdamW"),
        ("optimizer={name: SGD, betas: [0.9, 0.95]}", r"optimizer\.betas: is read by AdamW, not by SGD"),
        ("optimizer={name: SGD, epsilon: 1e-6}", r"optimizer\.epsilon: is read by AdamW, not by SGD"),
        ("optimizer.arguments={amsgrad: true}", r"optimizer\.arguments: is for a factory, and there is none"),
        ("optimizer.learningRateSchedule={milestones: [2]}", r"milestones: is read by Step, not by Cosine"),
        ("optimizer.learningRateSchedule={name: Linear, factor: 0.5}", r"factor: is read by Step, not by Linear"),
        (
            "optimizer.learningRateSchedule={name: Constant, minimum: 1e-5}",
            r"minimum: is read by Cosine and InverseSquareRoot and Linear and Step, not by Constant",
        ),
        ("optimizer.learningRateSchedule={name: Step, decaySteps: 5}", r"decaySteps: is read by Cosine and Linear"),
        ("data.arguments={size: 3}", r"data\.arguments: is for a factory, and there is none"),
        ("data={factory: 'a:b', format: Text}", r"data\.format: is for sources"),
        ("model.init={load: ['*']}", r"model\.init\.load: says what is loaded, but not from where"),
        ("model.arguments={1: 2}", r"model\.arguments: 1 is no name of a field; put it in quotes"),
    ],
)
def test_what_admission_would_refuse_is_refused_by_name(tmp_path: Path, override: str, says: str) -> None:
    (tmp_path / "job.yaml").write_text("model: {name: gpt3, preset: tiny}\ndata: {source: /data}\nsteps: 10\n")
    with pytest.raises(InvalidTrainer, match=says):
        from_file(tmp_path / "job.yaml", tuple(override.split(" & ")), {})


def test_a_notebook_hears_of_values_that_no_checkpoint_could_keep() -> None:
    with pytest.raises(InvalidTrainer, match=r"data\.source: must be a JSON value, but it is .*Path"):
        from_section({**SECTION, "data": {"source": Path("/data")}}, {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1E3", 1e3),
        ("3.0e-4", 3e-4),
        ("+2.", 2.0),
        (".5", 0.5),
        ("-7", -7),
        ("0.9", 0.9),
        ("1F1B", "1F1B"),
        ("1.3b", "1.3b"),
        ("2026-01-31", "2026-01-31"),
        ("'1e-3'", "1e-3"),
        (".inf", math.inf),
        ("e3", "e3"),
        ("true", True),
    ],
)
def test_scalars_are_what_kubectl_makes_of_them(tmp_path: Path, text: str, value: object) -> None:
    (tmp_path / "job.yaml").write_text(f"seed: {text}")
    found = read_section(tmp_path / "job.yaml")[1]["seed"]
    assert (type(found), found) == (type(value), value)


def test_a_field_that_is_given_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("steps: 1\nmodel: {layers: 1, layers: 2}")
    with pytest.raises(InvalidLaunch, match="the field 'layers' is given twice"):
        read_section(tmp_path / "job.yaml")


def test_anchors_and_merges_stay(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}")
    assert read_section(tmp_path / "job.yaml")[1]["b"] == {"x": 3, "y": 2}


@pytest.mark.parametrize("override", ["steps=[", "=3", "steps"])
def test_an_override_that_is_none_says_so(tmp_path: Path, override: str) -> None:
    (tmp_path / "job.yaml").write_text("steps: 1")
    with pytest.raises(InvalidLaunch, match=r"no override|no YAML"):
        from_file(tmp_path / "job.yaml", (override,), {})


def test_the_tokenizers_file_says_which_it_is() -> None:
    own = from_section({**SECTION, "data": {"source": "/data", "tokenizer": {"path": "/t.json"}}}, {})
    assert own.config.data.tokenizer.name == "BPE"
    assert from_section(SECTION, {}).config.data.tokenizer.name == "Bytes"
