"""What a pod template must leave to Meshwright, in CEL; the schema does not type templates."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright_api import reserved
from meshwright_api.crd.rules import covered
from meshwright_api.crd.validation import Validation, text, texts


@dataclass(frozen=True, slots=True)
class Culprits:
    """A rule about templates as a CEL text that names what breaks it; empty if nothing does."""

    name: str
    """What tests and docs call it; also the policy's variable that holds the text."""
    found: str
    """CEL: the culprits, as one string."""
    say: str
    """What follows them in the message."""


def template_validations() -> tuple[Validation, ...]:
    """Validations of the policy `template`."""
    return tuple(
        Validation(
            name=rule.name,
            expression=f"variables.{rule.name} == ''",
            message=f"spec.roles[].template: {rule.say}",
            message_expression=f"'spec.roles[].template: ' + variables.{rule.name} + {text(' ' + rule.say)}",
        )
        for rule in _template_rules()
    )


def template_variables() -> list[dict[str, str]]:
    """What the validations have in common, and the culprits of each."""
    roles = {"name": "roles", "expression": "object.?spec.?roles.orValue([])"}
    built_in = {"name": "builtIn", "expression": "object.?spec.?trainer.hasValue()"}
    path = "object.?spec.?trainer.?checkpoint.?path.orValue('')"
    checkpoints = {"name": "checkpoints", "expression": f"{path}.replace('file://', '', 1)"}
    return [
        roles,
        built_in,
        checkpoints,
        *({"name": rule.name, "expression": rule.found} for rule in _template_rules()),
    ]


_POD = "r.?template.?spec"
_CONTAINERS = f"{_POD}.?containers.orValue([])"
_ALL_CONTAINERS = f"({_CONTAINERS} + {_POD}.?initContainers.orValue([]))"
_TRAINED = (
    f"{_CONTAINERS}.filter(c, (size({_CONTAINERS}) == 1 && !variables.builtIn) || c.name == {text(reserved.TRAINER)})"
)
_VOLUMES = "object.?spec.?volumes.orValue([])"


def _roles(inner: str) -> str:
    """CEL: `role NAME: TEXT` for every role whose text is not empty."""
    named = f"[{inner}].filter(s, s != '').map(s, 'role ' + r.name + ': ' + s).join('')"
    return f"variables.roles.map(r, {named}).filter(s, s != '').join('; ')"


def _in_containers(inner: str, containers: str = _ALL_CONTAINERS) -> str:
    """CEL: what `inner` finds in a role's containers `c`, joined."""
    return f"{containers}.map(c, {inner}).filter(s, s != '').join(', ')"


def _names(items: str, condition: str, show: str = "x.name") -> str:
    """CEL: the names of those items `x` for which the condition holds, joined."""
    return f"{items}.filter(x, {condition}).map(x, {show}).join(', ')"


def _template_rules() -> tuple[Culprits, ...]:
    return (
        *_container_rules(),
        *_command_rules(),
        *_pod_rules(),
        _quantity_rule(),
        *_agreement_rules(),
        _checkpoint_rule(),
    )


def _container_rules() -> tuple[Culprits, ...]:
    prefixes = "|".join(reserved.ENV_PREFIXES)
    env = text(f"^(({'|'.join(reserved.ENV)})$|{prefixes})")
    own = f"x.name.startsWith({text(reserved.NAME_PREFIX)})"
    empty = _roles(f"size({_CONTAINERS}) == 0 ? 'no container' : ''")
    many = f"size({_CONTAINERS}) > 1 && size({_TRAINED}) == 0"
    image = f"x.?image.orValue('') == '' && !(variables.builtIn && x.name == {text(reserved.TRAINER)})"
    named = f"{_ALL_CONTAINERS} + {_POD}.?volumes.orValue([])"
    return (
        Culprits(
            "noContainer",
            f"(variables.builtIn ? '' : size(variables.roles) == 0 ? 'there is no role' : {empty})",
            "- give a container with an image, for example spec.containers: [{name: trainer, image: IMAGE, command: "
            "[python, train.py]}]",
        ),
        Culprits(
            "whichTrains",
            _roles(f"!variables.builtIn && {many} ? {_names(_CONTAINERS, 'true')} : ''"),
            f"- it is not clear which of these containers trains; name that one {reserved.TRAINER}",
        ),
        Culprits(
            "noImage",
            _roles(_names(_ALL_CONTAINERS, image)),
            "without an image; give one, for example pytorch/pytorch:latest",
        ),
        Culprits(
            "reservedEnv",
            _roles(_in_containers(_names("c.?env.orValue([])", f"x.name.matches({env})"))),
            "is Meshwright's to set in env; leave it out, it will be right",
        ),
        Culprits(
            "reservedMount",
            _roles(_in_containers(_names("c.?volumeMounts.orValue([])", covered("x.mountPath"), "x.mountPath"))),
            "is Meshwright's; mount elsewhere, for example at /data",
        ),
        Culprits(
            "reservedName",
            _roles(_names(f"({named})", own)),
            f"- names that begin with {reserved.NAME_PREFIX} are Meshwright's; choose another, for example helper",
        ),
    )


def _command_rules() -> tuple[Culprits, ...]:
    wraps = "!variables.builtIn && object.?spec.?agent.orValue('None') == 'Inject'"
    bare = "size(c.?command.orValue([])) == 0"
    own = "size(c.?command.orValue([])) + size(c.?args.orValue([])) > 0"
    return (
        Culprits(
            "agentCommand",
            _roles(_in_containers(f"{wraps} && {bare} ? c.name : ''", _TRAINED)),
            "has no command for the agent to wrap, and an image's own entry point is not known here; give one, for "
            "example command: [python, train.py], or leave spec.agent out",
        ),
        Culprits(
            "trainerCommand",
            _roles(_in_containers(f"variables.builtIn && {own} ? c.name : ''", _TRAINED)),
            "- its command and args are the built-in trainer's; leave them out, and leave spec.trainer out to run a "
            "program of your own",
        ),
    )


def _pod_rules() -> tuple[Culprits, ...]:
    labels, annotations = (
        f"r.?template.?metadata.?{kind}.orValue({{}}).map(k, k)" for kind in ("labels", "annotations")
    )
    keys = f"({labels} + {annotations})"
    fields = f"{texts(tuple(reserved.POD_FIELDS))}.filter(f, f in {_POD}.orValue({{}})).join(', ')"
    why = "; ".join(f"{field}: {reason}" for field, reason in reserved.POD_FIELDS.items())
    return (
        Culprits(
            "reservedLabel",
            _roles(f"{keys}.filter(k, k.startsWith({text(reserved.LABEL_PREFIX)})).join(', ')"),
            "is Meshwright's to set in metadata; leave it out or use another prefix, for example example.com/",
        ),
        Culprits(
            "restartPolicy",
            _roles(f"{_POD}.?restartPolicy.orValue('Never') == 'Never' ? '' : {_POD}.?restartPolicy.orValue('')"),
            "is not allowed as restartPolicy, since a gang restarts as a whole; use Never or leave it out, and set "
            "failurePolicy.maxRestarts",
        ),
        Culprits("reservedField", _roles(fields), f"must be left out ({why})"),
    )


def _quantity_rule() -> Culprits:
    """Amounts of containers; those of the pod as a whole, which few give, are the controller's to check."""
    wrong = (
        "(type(dyn(v)) == string && (!isQuantity(v) || quantity(v).isLessThan(quantity('0')))) || type(dyn(v)) == bool"
    )
    amounts = [f"c.?resources.?{kind}.orValue({{}})" for kind in ("limits", "requests")]
    found = " + ".join(f"{a}.map(k, {a}[k]).filter(v, {wrong}).map(v, string(v))" for a in amounts)
    return Culprits(
        "quantity",
        _roles(_in_containers(f"({found}).join(', ')")),
        "is no amount of a resource; give a number with a suffix or none, for example 500m or 16Gi",
    )


def _agreement_rules() -> tuple[Culprits, ...]:
    limit = f"c.?resources.?limits[?{text(reserved.GPU)}]"
    value = f"dyn({limit}.orValue(''))"  # dyn, or the type of '' decides which string() is called
    as_text = f"(type({value}) == string ? {value} : type({value}) == int ? string({value}) : 'no quantity')"
    same = f"isQuantity({as_text}) && quantity({as_text}).compareTo(quantity(string(r.gpusPerPod))) == 0"
    gpus = f"!has(r.gpusPerPod) || !{limit}.hasValue() || ({same}) ? '' : {as_text}"
    queue = "object.?spec.?queue.?priorityClassName"
    own = f"{_POD}.?priorityClassName"
    mounted = f"{_TRAINED}.exists(c, c.?volumeMounts.orValue([]).exists(m, m.mountPath == x.mountPath))"
    named = f"{_POD}.?volumes.orValue([]).exists(v, v.name == x.name)"
    return (
        Culprits(
            "gpus",
            _roles(_in_containers(gpus, _TRAINED)),
            f"as limit {reserved.GPU} disagrees with gpusPerPod; leave one of them out",
        ),
        Culprits(
            "priorityClass",
            _roles(f"{queue}.hasValue() && {own}.hasValue() && {queue} != {own} ? {own}.orValue('') : ''"),
            "as priorityClassName disagrees with spec.queue.priorityClassName; leave one of them out",
        ),
        Culprits(
            "volumeNames",
            _roles(_names(_VOLUMES, named)),
            "is a volume of the template and of spec.volumes; rename one of them",
        ),
        Culprits(
            "volumePaths",
            _roles(_names(_VOLUMES, mounted, "x.mountPath")),
            "is mounted by the template and by spec.volumes; mount one of them elsewhere",
        ),
    )


def _checkpoint_rule() -> Culprits:
    """Checkpoints must outlive their pod. Whether the volume is one that all pods share is the controller's to say."""
    path = "variables.checkpoints"
    holds = f"({path} + '/').startsWith(%s.endsWith('/') ? %s : %s + '/')"
    shared = f"{_VOLUMES}.exists(v, {holds.replace('%s', 'v.mountPath')})"
    mounts = f"c.?volumeMounts.orValue([]).exists(m, {holds.replace('%s', 'm.mountPath')})"
    own = f"variables.roles.exists(r, {_TRAINED}.exists(c, {mounts}))"
    return Culprits(
        "checkpointVolume",
        f"({path} == '' || {shared} || {own} ? '' : {path})",
        "as spec.trainer.checkpoint.path lies under no volume, so it would be lost with its pod; mount one there, "
        "for example spec.volumes: [{name: checkpoints, mountPath: /checkpoints, persistentVolumeClaim: "
        "{claimName: NAME}}]",
    )
