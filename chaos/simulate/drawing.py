"""Draws random scripts. The seed decides the cluster, its peculiarities, the jobs, and which faults come
when. At the end everything that can be repaired is repaired, and the run must come to rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import msgspec

from chaos.simulate.acts import ALL, IN_REPAIR, AnyAct, Scene
from chaos.simulate.acts.faults import Join, KernelLine, LineOfRank, MassFault
from chaos.simulate.acts.network import LateScheduler, NamespaceEnd
from chaos.simulate.acts.people import Promotion, SpareChange
from chaos.simulate.script import Script, play_script
from chaos.simulate.situations import situated
from chaos.simulate.world import Simulation
from chaos.simulated.jobs import OTHER_NAMESPACE, Job, Kind, Storage
from chaos.simulated.setup import Setup
from recover.model.modes import Mode
from recover.policy.settings import Budgets, Repairs, Settings, Timing

__all__ = ["TIMING", "drawn_job", "repair_script_of", "run_seed", "script_of", "situation_of"]

TIMING = Timing(
    fence_wait_s=120.0, resume_deadline_s=120.0, verify_deadline_s=240.0, checkpoint_grace_s=120.0
)
"""Deadlines that are shorter than shipped, so that a run of an hour sees every deadline pass."""
_REPAIRS = Repairs(
    percent_at_once_max=20.0,
    resets_per_hour_max=20,
    reboots_per_hour_max=20,
    cool_down_s=30.0,
    wait_for_others_s=900.0,
    not_ready_s=120.0,
    hands_off_s=20.0,
    reset_deadline_s=120.0,
    reboot_deadline_s=400.0,
    validate_deadline_s=300.0,
)
_SITUATED = 0.4
"""Share of scripts that begin with a situation."""
_LATE_SCHEDULER = 0.2
"""Share of scripts in which the scheduler sees the nodes late for a while."""
_LEADS_S = (-7200.0, -600.0, -90.0, -5.0, -0.4, -0.02, 0.02, 0.4, 5.0, 30.0, 90.0, 600.0, 7200.0)


def script_of(seed: int) -> Script:
    draw = random.Random(seed)
    cluster, jobs = draw.choices([scene for _, scene in _SCENES], [weight for weight, _ in _SCENES])[0](draw)
    setup = _odd(msgspec.structs.replace(cluster, seed=seed, settings=_settings(draw)), draw)
    alike = _alike(tuple(jobs), draw)
    acts = _drawn_acts(ALL, Scene(setup, alike), draw, draw.randint(2, 12))
    spares = tuple(setup.names[-draw.randint(1, 2) :]) if draw.random() < 0.3 and setup.nodes > 6 else ()
    script = Script(setup, alike, acts, spares)
    of_situation = situation_of(seed)
    if of_situation is not None:
        script = situated(script, of_situation)
    return _with_late_scheduler(script, random.Random(f"{seed} scheduler"))


def _with_late_scheduler(script: Script, draw: random.Random) -> Script:
    """Returns the script. In one of five, the scheduler's watch of the nodes begins to lag shortly before an
    act. `draw` is separate from the script's, so that the other scripts stay as they are."""
    if draw.random() >= _LATE_SCHEDULER or not script.acts:
        return script
    at_s = max(0.0, draw.choice(script.acts).at_s - draw.uniform(0.0, 5.0))
    late = LateScheduler.drawn(round(at_s, 1), Scene(script.setup, script.jobs), draw)
    acts = sorted([*script.acts, late], key=lambda act: act.at_s)
    return msgspec.structs.replace(script, acts=tuple(acts))


def situation_of(seed: int) -> random.Random | None:
    """Returns the random source from which the seed's situation is drawn. Returns None if the script begins
    with no situation. The source is separate from the script's, so that scripts without a situation stay as
    they are."""
    draw = random.Random(f"{seed} situation")
    return draw if draw.random() < _SITUATED else None


def run_seed(seed: int, draw: Callable[[int], Script] = script_of) -> Simulation:
    """Plays the seed's script. Raises AssertionError with the script if any check fails."""
    script = draw(seed)
    try:
        return play_script(script)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}\n{script}\n{error}") from error


def _drawn_acts(
    kinds: tuple[tuple[float, type[AnyAct]], ...], scene: Scene, draw: random.Random, count: int
) -> tuple[AnyAct, ...]:
    """Draws acts. About every second act comes within 3 s of the act before, so that the controller still
    handles that act."""
    possible = [(weight, act) for weight, act in kinds if _is_possible(act, scene)]
    drawn = draw.choices([act for _, act in possible], [weight for weight, _ in possible], k=count)
    return tuple(kind.drawn(at_s, scene, draw) for kind, at_s in zip(drawn, _times(draw), strict=False))


def repair_script_of(seed: int) -> Script:
    """Returns the script of the seed in mode repair. Every repair must end, or state its reason for
    waiting."""
    draw = random.Random(f"{seed} repair")
    settings = Settings(
        mode=Mode.REPAIR,
        timing=TIMING,
        budgets=Budgets(quarantined_percent_max=40.0, pool_percent_max=100.0),
        repair=msgspec.structs.replace(_REPAIRS, nodes_at_once_max=draw.choice([1, 2])),
    )
    setup = Setup(nodes=10, settings=settings, seed=seed, heartbeat_s=20.0, tick_s=20.0)
    jobs = (
        drawn_job("llm", draw, ranks=draw.randint(2, 3), opted_in=True),
        drawn_job("vision", draw, ranks=draw.randint(2, 3), opted_in=draw.random() < 0.5),
    )
    scene = Scene(setup, jobs)
    acts = _drawn_acts(((1, KernelLine), (1, LineOfRank)), scene, draw, 3) + _drawn_acts(
        IN_REPAIR, scene, draw, 9
    )
    return Script(setup, jobs, tuple(sorted(acts, key=lambda act: act.at_s)))


def _times(draw: random.Random) -> Iterator[float]:
    at_s = 60.0
    while True:
        yield round(at_s, 1)
        at_s += draw.uniform(0.0, 3.0) if draw.random() < 0.5 else draw.uniform(3.0, 200.0)


def _is_possible(act: type, scene: Scene) -> bool:
    if act is Join:
        return bool(scene.setup.joining)
    if act is MassFault:
        return scene.setup.nodes >= 5
    if act is NamespaceEnd:
        return any(job.namespace == OTHER_NAMESPACE for job in scene.jobs)
    if act is Promotion:
        return scene.setup.settings.mode is Mode.OBSERVE
    return act is not SpareChange or scene.setup.nodes > 6


# --- the cluster ------------------------------------------------------------------------------------------


def _settings(draw: random.Random) -> Settings:
    return Settings(
        mode=Mode.OBSERVE if draw.random() < 0.1 else Mode.RECOVER,
        timing=TIMING,
        budgets=Budgets(
            quarantined_percent_max=draw.choice([5.0, 20.0, 40.0, 60.0]),
            pool_percent_max=draw.choice([10.0, 50.0, 100.0]),
            domain_nodes_max=draw.choice([1, 1, 2, 100]),
            quarantines_per_hour_max=draw.choice([1, 2, 20, 20, 20]),
        ),
    )


def _odd(setup: Setup, draw: random.Random) -> Setup:
    """Adds peculiarities: most clusters have one or two."""
    names = setup.names
    odd: dict[str, int] = {}
    if draw.random() < 0.4:
        odd["per_rack"] = draw.choice([2, 4])
    if draw.random() < 0.4:
        odd["per_pool"] = draw.choice([3, 4, 8])
    without: tuple[str, ...] = ()
    if draw.random() < 0.2:
        without = tuple(names) if draw.random() < 0.4 else tuple(draw.sample(names, max(1, len(names) // 3)))
    leads_s: dict[str, float] = {}
    if draw.random() < 0.3:
        leads_s = {name: draw.choice(_LEADS_S) for name in draw.sample(names, max(1, len(names) // 2))}
    joining: tuple[str, ...] = ()
    if draw.random() < 0.2:
        odd["nodes"] = setup.nodes + 1
        joining = (f"n{setup.nodes + 1}",)
    return msgspec.structs.replace(
        setup, without_agent=without, clock_leads_s=leads_s, joining=joining, **odd
    )


_Drawn = tuple[Setup, list[Job]]


def _usual(draw: random.Random) -> _Drawn:
    """Draws a cluster with more nodes than the jobs need."""
    jobs = [drawn_job("llm", draw, ranks=draw.randint(2, 3), opted_in=True)]
    if draw.random() < 0.5:
        jobs.append(drawn_job("vision", draw, ranks=draw.randint(2, 3), opted_in=draw.random() < 0.5))
    return Setup(nodes=8, heartbeat_s=20.0, tick_s=20.0), jobs


def _full(draw: random.Random) -> _Drawn:
    """Draws a cluster without a free node."""
    ranks = draw.randint(2, 6)
    jobs = [drawn_job("llm", draw, ranks=ranks, opted_in=True)]
    if draw.random() < 0.4:
        jobs.append(drawn_job("vision", draw, ranks=2, opted_in=draw.random() < 0.7))
    return Setup(nodes=sum(job.ranks for job in jobs), heartbeat_s=20.0, tick_s=20.0), jobs


def _dense(draw: random.Random) -> _Drawn:
    """Draws a cluster with several ranks on each node."""
    gpus = draw.choice([2, 4, 8])
    jobs = [drawn_job("llm", draw, ranks=gpus * draw.randint(1, 2), opted_in=True)]
    jobs.append(drawn_job("vision", draw, ranks=draw.randint(2, gpus), opted_in=draw.random() < 0.7))
    return Setup(nodes=draw.randint(3, 6), gpus_per_node=gpus, heartbeat_s=20.0, tick_s=20.0), jobs


def _fleet(draw: random.Random) -> _Drawn:
    """Draws a cluster with enough nodes for the brake."""
    names = ("llm", "vision", "speech")
    jobs = [drawn_job(name, draw, ranks=draw.randint(2, 8), opted_in=draw.random() < 0.8) for name in names]
    return Setup(nodes=draw.randint(18, 24), heartbeat_s=20.0, tick_s=20.0), jobs


def _large(draw: random.Random) -> _Drawn:
    """Draws one large gang, and a cluster with at most one more node than the gang needs."""
    ranks = draw.choice([16, 32, 64])
    job = drawn_job("llm", draw, ranks=ranks, opted_in=True)
    job = msgspec.structs.replace(job, step_s=60.0, annotations={**job.annotations, **_PATIENT})
    return Setup(nodes=ranks // 8 + draw.randint(0, 1), gpus_per_node=8, heartbeat_s=20.0, tick_s=60.0), [job]


_PATIENT = {"rekindle.dev/hang-timeout": "400s"}
_SCENES: tuple[tuple[float, Callable[[random.Random], _Drawn]], ...] = (
    (5, _usual),
    (4, _full),
    (2, _dense),
    (1.5, _fleet),
    (0.5, _large),
)


# --- the jobs ---------------------------------------------------------------------------------------------


def drawn_job(name: str, draw: random.Random, *, ranks: int, opted_in: bool) -> Job:
    annotations = {"rekindle.dev/hang-timeout": "90s"}
    if may_be_remade := draw.random() < 0.4:
        annotations["rekindle.dev/on-terminal"] = "recreate"
    grace_s, lingers_s = draw.choice([(300, 200.0), (60, 20.0)]) if draw.random() < 0.15 else (None, 0.0)
    return Job(
        name=name,
        namespace=OTHER_NAMESPACE if draw.random() < 0.15 else Job().namespace,
        kind=draw.choices([Kind.PYTORCHJOB, Kind.JOB, Kind.JOBSET], [2, 2, 1])[0],
        ranks=ranks,
        opted_in=opted_in,
        storage=draw.choice(list(Storage)),
        scanned=draw.random() < 0.5,
        step_s=10.0,
        policy=draw.choice(["OnFailure", "Never"]) if may_be_remade else "OnFailure",
        backoff_limit=draw.choice([0, 6]) if may_be_remade else 6,
        max_restarts=draw.choice([None, 0, 3]),
        grace_s=grace_s,
        lingers_s=lingers_s,
        rendezvous_s=draw.choice([0.0, 0.0, 120.0]),
        annotations=annotations,
    )


def _alike(jobs: tuple[Job, ...], draw: random.Random) -> tuple[Job, ...]:
    """Gives two jobs of different kinds the same name in some scripts."""
    if len(jobs) < 2 or draw.random() < 0.85:
        return jobs
    first, second, *others = jobs
    kind = next(kind for kind in Kind if kind is not first.kind)
    twin = msgspec.structs.replace(
        second,
        id=f"{second.name} of the name {first.name}",
        name=first.name,
        kind=kind,
        namespace=first.namespace,
    )
    return first, twin, *others
