"""Whether a role's pod template leaves to Meshwright what is Meshwright's to set."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright_api import reserved
from meshwright_api.errors import Problem
from meshwright_api.keys import alias_of
from meshwright_api.quantity import parse, whole
from meshwright_api.reading import as_json, read
from meshwright_api.resolve import Resolved
from meshwright_api.spec import Agent, Role, TrainingJobSpec
from meshwright_api.template import Container, PodMetadata, PodSpec, PodTemplate


def template_problems(spec: TrainingJobSpec, resolved: Resolved) -> Iterator[Problem]:
    """Problems in the pod templates of a spec whose form is right."""
    for i, role in enumerate(spec.roles):
        template = read(PodTemplate, resolved.roles[i].template)
        at = f"spec.roles[{i}].template"
        yield from _metadata(template.metadata, f"{at}.metadata")
        if spec.trainer is None:
            yield from _own_image(template.spec, resolved.agent, f"{at}.spec")
        else:
            yield from _built_in(template.spec, f"{at}.spec")
        yield from _reserved(template.spec, f"{at}.spec")
        yield from _pod_fields(template.spec, f"{at}.spec")
        yield from _own_names(template.spec, f"{at}.spec")
        yield from _quantities(template.spec, f"{at}.spec")
        yield from _gpus(role, template.spec, f"spec.roles[{i}].gpusPerPod")
        yield from _priority(spec, template.spec, f"{at}.spec.priorityClassName")
        yield from _shared_volumes(spec, template.spec, f"{at}.spec")


def _metadata(metadata: PodMetadata, at: str) -> Iterator[Problem]:
    for kind, values in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        for key in values or ():
            if key.startswith(reserved.LABEL_PREFIX):
                yield Problem(f"{at}.{kind}", f"{key} is Meshwright's to set; leave it out or use another prefix")


def _own_image(pod: PodSpec, agent: Agent, at: str) -> Iterator[Problem]:
    if not pod.containers:
        yield Problem(f"{at}.containers", "no container; give one with an image, for example [{name: trainer, "
                      "image: IMAGE, command: [python, train.py]}]")  # fmt: skip
    elif pod.trained is None:
        names = ", ".join(container.name for container in pod.containers)
        yield Problem(f"{at}.containers", f"it is not clear which of {names} trains; name that one `trainer`")
    elif agent is Agent.INJECT and not pod.containers[pod.trained].command:
        yield Problem(f"{at}.containers[{pod.trained}].command", f"is missing in container "
                      f"{pod.containers[pod.trained].name}: the agent wraps it, and an image's own entry point is not "
                      "known here; give it, for example command: [python, train.py], or leave spec.agent out"
                      )  # fmt: skip
    yield from _images(pod, at)


def _built_in(pod: PodSpec, at: str) -> Iterator[Problem]:
    for i, container in enumerate(pod.containers):
        if container.name == reserved.TRAINER and (container.command or container.args):
            yield Problem(f"{at}.containers[{i}]", "command and args of container trainer are the built-in trainer's; "
                          "leave them out, and leave spec.trainer out to run a program of your own")  # fmt: skip
    yield from _images(pod, at, known=reserved.TRAINER)


def _images(pod: PodSpec, at: str, known: str = "") -> Iterator[Problem]:
    """Problems of containers without an image, other than the one whose image is known."""
    for kind, containers in (("containers", pod.containers), ("initContainers", pod.init_containers)):
        for i, container in enumerate(containers):
            if not container.image and (container.name != known or kind == "initContainers"):
                yield Problem(f"{at}.{kind}[{i}].image", f"is missing in container {container.name}; give an image, "
                              "for example pytorch/pytorch:latest")  # fmt: skip


def _reserved(pod: PodSpec, at: str) -> Iterator[Problem]:
    for kind, containers in (("containers", pod.containers), ("initContainers", pod.init_containers)):
        for i, container in enumerate(containers):
            yield from _container(container, f"{at}.{kind}[{i}]")


def _container(container: Container, at: str) -> Iterator[Problem]:
    for variable in container.env:
        if reserved.is_env(variable.name):
            yield Problem(f"{at}.env", f"{variable.name} is Meshwright's to set; leave it out, it will be right")
    for mount in container.volume_mounts:
        if reserved.is_mount(mount.mount_path):
            yield Problem(f"{at}.volumeMounts", f"{mount.mount_path} is Meshwright's; mount elsewhere, for example at "
                          "/data")  # fmt: skip


def _pod_fields(pod: PodSpec, at: str) -> Iterator[Problem]:
    if pod.restart_policy not in (None, "Never"):
        yield Problem(f"{at}.restartPolicy", f"{pod.restart_policy} is not allowed, since a gang restarts as a whole; "
                      "use Never or leave it out, and set failurePolicy.maxRestarts")  # fmt: skip
    for name in PodSpec.model_fields:
        field = alias_of(PodSpec, name)
        if field in reserved.POD_FIELDS and getattr(pod, name) is not None:
            yield Problem(f"{at}.{field}", f"must be left out: {reserved.POD_FIELDS[field]}")


def _own_names(pod: PodSpec, at: str) -> Iterator[Problem]:
    kinds = (("containers", pod.containers), ("initContainers", pod.init_containers), ("volumes", pod.volumes))
    for kind, items in kinds:
        for item in items:
            if item.name.startswith(reserved.NAME_PREFIX):
                yield Problem(f"{at}.{kind}", f"{item.name}: names that begin with `{reserved.NAME_PREFIX}` are "
                              "Meshwright's; choose another")  # fmt: skip


def _gpus(role: Role, pod: PodSpec, at: str) -> Iterator[Problem]:
    position = pod.trained
    limit = pod.containers[position].gpu_limit if position is not None else None
    if role.gpus_per_pod is not None and limit is not None and whole(limit) != role.gpus_per_pod:
        yield Problem(at, f"{role.gpus_per_pod} disagrees with the limit {reserved.GPU}: {limit} in the template; "
                      "leave one of them out")  # fmt: skip


def _quantities(pod: PodSpec, at: str) -> Iterator[Problem]:
    asked = [(f"{at}.resources", pod.resources)]
    for kind, containers in (("containers", pod.containers), ("initContainers", pod.init_containers)):
        asked += [(f"{at}.{kind}[{i}].resources", container.resources) for i, container in enumerate(containers)]
    amounts = [(f"{at}.overhead", pod.overhead)]
    for path, resources in asked:
        if resources is not None:
            amounts += [(f"{path}.limits", resources.limits), (f"{path}.requests", resources.requests)]
    for path, values in amounts:
        for name, value in (values or {}).items():
            if (number := parse(value)) is None or number < 0:
                yield Problem(f"{path}.{name}", f"{as_json(value):.80} is no amount; give a number with a suffix or "
                              "none, for example 500m or 16Gi")  # fmt: skip


def _priority(spec: TrainingJobSpec, pod: PodSpec, at: str) -> Iterator[Problem]:
    wanted, own = spec.queue.priority_class_name, pod.priority_class_name
    if wanted is not None and own is not None and wanted != own:
        yield Problem(at, f"{own} disagrees with queue.priorityClassName {wanted}; leave one of them out")


def _shared_volumes(spec: TrainingJobSpec, pod: PodSpec, at: str) -> Iterator[Problem]:
    names = {volume.name for volume in pod.volumes}
    position = pod.trained
    mounts = pod.containers[position].volume_mounts if position is not None else ()
    paths = {mount.mount_path for mount in mounts}
    for volume in spec.volumes:
        if volume.name in names:
            yield Problem(f"{at}.volumes", f"{volume.name} is also in spec.volumes; rename one of them")
        if volume.mount_path in paths:
            yield Problem(f"{at}.containers[{position}].volumeMounts", f"{volume.mount_path} is also mounted by "
                          "spec.volumes; mount one of them elsewhere")  # fmt: skip
