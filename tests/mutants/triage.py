"""Mutants of triage: what broke, which node or program is the culprit, and what may be done about it."""

from __future__ import annotations

from tests.mutants.model import Mutant, of

__all__ = ["TRIAGE"]

_GUARD = of(
    "recover/triage/guard.py",
    (
        "rack limit ignored",
        "limit = limits.domain_nodes_max if percent is None else _share(peers, percent)",
        "limit = peers if percent is None else _share(peers, percent)",
        "a whole rack may leave service",
    ),
    (
        "pool limit ignored",
        "limit = limits.domain_nodes_max if percent is None else _share(peers, percent)",
        "limit = limits.domain_nodes_max if percent is None else peers",
        "a whole pool may leave service",
    ),
    (
        "cluster limit one too high",
        "if len(others) + 1 > cluster:",
        "if len(others) > cluster:",
        "one node more than allowed leaves service",
    ),
    (
        "hourly limit ignored",
        "if recent + 1 > limits.quarantines_per_hour_max:",
        "if recent < 0:",
        "a storm of false findings empties the cluster within the hour",
    ),
    (
        "soft taints use the budget",
        "        if level is not QuarantineLevel.CORDON:\n            return Allowed()\n",
        "",
        "a harmless sign keeps a dead GPU in service",
    ),
    (
        "brake ignored for nodes",
        "        if self.brakes:\n",
        "        if self.brakes and not self.nodes:\n",
        "a broken driver update cordons node after node",
    ),
    (
        "brake ignored for gangs",
        "if not affected.dead and self.brakes:",
        "if affected.dead and self.brakes:",
        "a mass fault stops jobs that train, and keeps dead ones down",
    ),
    (
        "consent ignored",
        "if consent is OptIn.DISABLED:",
        "if consent is OptIn.DISABLED and gang.suspended:",
        "jobs are stopped whose people did not ask for it",
    ),
    (
        "hold of a node ignored",
        "if why := hold_of_node(node, self.now):",
        "if (why := hold_of_node(node, self.now)) and node.quarantine is not None:",
        "a node that people hold is taken from them",
    ),
    (
        "hold of a gang ignored",
        "if why := hold_of_gang(gang, namespace, now):",
        "if (why := hold_of_gang(gang, namespace, now)) and gang.suspended:",
        "a job that people hold is stopped",
    ),
    (
        "old evidence cordons",
        "        if seen_at < mode.would_act_since:\n",
        "        if seen_at > mode.would_act_since:\n",
        "the promotion to recover cordons for what was seen before, and nothing after",
    ),
    (
        "what people have undone is tried again",
        "if (last.phase, last.reason) == (Phase.ESCALATED, Reason.FOREIGN_OWNER) else None",
        "if not last.phase else None",
        "Rekindle and another controller stop and start a job in turns",
    ),
    (
        "a degraded node moves a gang without a better place",
        "if not free.fits:",
        "if free.fits and free.missing:",
        "a job that trains is stopped and finds no place",
    ),
)

_BRAKE = of(
    "recover/triage/brake.py",
    (
        "brake one node too late",
        "if len(nodes) >= limits.brake_nodes_min and share",
        "if len(nodes) > limits.brake_nodes_min and share",
        "one node more is taken out before the brake",
    ),
)

_HELD_BACK = of(
    "recover/triage/held_back_incidents.py",
    (
        "a member leaves before its own Incident is there",
        "return node in self._decided or self._is_unread(node, incident.fault)",
        "return self._is_unread(node, incident.fault)",
        "a node in service is named nowhere if the API server refuses its own Incident",
    ),
    (
        "a member of which nobody knows leaves",
        "return node in self._decided or self._is_unread(node, incident.fault)",
        "return node in self._decided",
        "a dead GPU is in service without a word while its agent does not report",
    ),
    (
        "every class joins the brake of one",
        "any(brake.fault is fault for brake in brakes)",
        "bool(brakes)",
        "a node with another fault than the brake's is named nowhere",
    ),
    (
        "a new brake joins the Incident of the last one",
        "began[spec.fault] <= spec.detected_at + window",
        "began[spec.fault] > spec.detected_at - window",
        "nobody remembers the new brake once its faults are no longer seen",
    ),
    (
        "a brake that goes on has an Incident for each look",
        "began[spec.fault] <= spec.detected_at + window",
        "began[spec.fault] <= spec.detected_at",
        "thousands of Incidents about one brake",
    ),
    (
        "a pause gives each node an Incident of its own",
        "if is_new and (why not in _BY_PAUSE or (found.fault, found.node) in members):",
        "if is_new and why not in _BY_PAUSE:",
        "hundreds of Incidents for one fault, which all stay after the pause",
    ),
    (
        "a full Incident takes more gangs",
        "has_room = has_room and len(gangs | of_one) <= min(_VICTIMS_MAX, _ACTIONS_MAX)",
        "has_room = has_room and len(gangs) <= min(_VICTIMS_MAX, _ACTIONS_MAX)",
        "nobody tells a gang that it trains on a dead GPU",
    ),
)

_ABSENT = of(
    "recover/triage/absent.py",
    (
        "nobody asks for the members of an Incident",
        "named |= {incident.spec.node, *incident.status.members}",
        "named |= {incident.spec.node}",
        "an Incident about a deleted node stays open for ever",
    ),
)

_ANSWERED = of(
    "recover/diagnose/answered.py",
    (
        "a release answers nothing",
        "    return released + closes\n",
        "    return closes\n",
        "a node is taken out again for what a person has released it from",
    ),
    (
        "an answer goes by the node's clock alone",
        "        if self.known is None or not finding.sequence:\n            return not is_shown_after(",
        "        if True:\n            return not is_shown_after(",
        "a dead GPU of a node whose clock is off stays in service",
    ),
)

_BOOT = of(
    "recover/diagnose/set_aside.py",
    (
        "a fault of an earlier boot counts",
        "and finding.boot_id == boot == health.status.boot_id",
        "and boot == health.status.boot_id",
        "a node that has booted again is cordoned for what is over",
    ),
)

_EVIDENCE = of(
    "recover/diagnose/what_counts.py",
    (
        "a degraded device is a proof",
        "drain = finding.remedy is Remedy.DRAIN_AND_RESET\n    return",
        "drain = True\n    return",
        "a gang waits beside a place of use",
    ),
    (
        "a suspicion never ends",
        "if finding.last_seen >= since and not trained_over(finding, health)",
        "if finding.last_seen <= now",
        "a node that trained for days is avoided for a sign of long ago",
    ),
    (
        "proofs are forgotten",
        "return {name: worst.code for name, worst in _worst(world, now) if is_proof(worst)}",
        "return {name: worst.code for name, worst in _worst(world, now) if not is_proof(worst)}",
        "a gang is placed on a dead GPU that no budget let be cordoned",
    ),
    (
        "a weak finding hides a fatal one",
        "return _FATAL if finding.severity is Severity.FATAL else 3",
        "return 0 if finding.severity is Severity.FATAL else 3",
        "a dead GPU stays in service beside an unknown code",
    ),
)

_NODES = of(
    "recover/diagnose/node_faults.py",
    (
        "the class of the open Incident decides",
        "        fault=first.fault,\n        severity=first.severity,\n",
        "        fault=open_one.spec.fault if open_one else first.fault,\n        severity=first.severity,\n",
        "one weak Incident hides every stronger fault of its node",
    ),
    (
        "verdicts do not settle",
        "settled = settles_at is None or now >= settles_at",
        "settled = now is not None",
        "a node is taken out for a line that the next one softens",
    ),
    (
        "a silent node stops gangs that train",
        "AffectedGang(gang=gang, due=now if is_dead else None, dead=is_dead) for gang, is_dead in victims",
        "AffectedGang(gang=gang, due=now, dead=is_dead) for gang, is_dead in victims",
        "a kubelet that restarts costs a job its steps",
    ),
    (
        "a fault harms gangs elsewhere too",
        "        return self._stopped_on.get(node, [])\n",
        "        return [gang for there in self._stopped_on.values() for gang in there]\n",
        "every gang that is being recovered takes up every fault of the cluster",
    ),
)

_DUE = of(
    "recover/diagnose/due.py",
    (
        "the grace runs from the finding",
        "return max(first.first_seen, known_since, came_at) + timedelta(seconds=timing.checkpoint_grace_s)",
        "return max(first.first_seen, known_since) + timedelta(seconds=timing.checkpoint_grace_s)",
        "a job that starts on a degraded node is stopped at once",
    ),
    (
        "a degraded device stops its gang at once",
        "if may_wait(findings) and not is_at_once and awaited is not Awaited.SAVED:",
        "if may_wait(findings) and is_at_once and awaited is not Awaited.SAVED:",
        "steps since the last checkpoint are lost for a device that works",
    ),
    (
        "an unknown code stops gangs",
        "    if not is_hardware(first):\n        return None\n    came_at",
        "    came_at",
        "jobs that train are stopped for lines that nobody knows",
    ),
    (
        "an unknown code blames its node",
        "return quarantine_level(finding.fault, finding.severity) is not QuarantineLevel.NONE",
        "return finding.severity is not Severity.INFO",
        "lines that nobody knows stop jobs, and count towards the brake",
    ),
    (
        "a checkpoint moves no gang",
        "if may_wait(findings) and not is_at_once and awaited is not Awaited.SAVED:",
        "if may_wait(findings) and not is_at_once and awaited is not None:",
        "a gang leaves a degraded node at any step, and loses those since its checkpoint",
    ),
)

_AWAITED = of(
    "recover/diagnose/awaited.py",
    (
        "a gang that came back leaves at each checkpoint",
        "            return Awaited.MOVED_BEFORE\n",
        "            pass\n",
        "a job that saves often is moved again and again",
    ),
    (
        "any checkpoint answers the wait",
        "save.served == wait for pod",
        "save.served for pod",
        "a gang is moved for a checkpoint of long ago",
    ),
)

_GANGS = of(
    "recover/diagnose/gang_faults.py",
    (
        "hangs are not noticed",
        "hangs = (stalled is not None or is_silent) and not unknown_on",
        "hangs = is_silent and not unknown_on",
        "a gang hangs for ever",
    ),
    (
        "a rank that its agent may leave out proves a hang",
        "hangs = (stalled is not None or is_silent) and not unknown_on",
        "hangs = stalled is not None or is_silent",
        "a crowd of another tenant's pods stops a healthy gang",
    ),
    (
        "a loss in doubt counts at once",
        "if uid not in explained and not s.suspicious]",
        "if uid not in explained]",
        "an elastic training that goes on is restarted",
    ),
    (
        "what a node's fault explains is blamed on the gang as well",
        "if uid not in explained and not s.suspicious]",
        "if not s.suspicious]",
        "the application is blamed for a dead GPU, and the gang restarted twice",
    ),
)

_HINDSIGHT = of(
    "recover/diagnose/hindsight.py",
    (
        "a contained error explains later starts",
        "if since is not None and fault.level is QuarantineLevel.PREFER and fault.seen_at <= since:",
        "if since is not None and fault.level is QuarantineLevel.NONE and fault.seen_at <= since:",
        "a healthy node is blamed for a program that fails again and again",
    ),
    (
        "a contained error that is shown again explains nothing",
        "if since is not None and fault.level is QuarantineLevel.PREFER and fault.seen_at <= since:",
        "if since is not None and fault.level is QuarantineLevel.PREFER:",
        "a program is blamed for a device that fails again and again",
    ),
    (
        "a dead device explains one failure",
        "if since is not None and fault.level is QuarantineLevel.PREFER and fault.seen_at <= since:",
        "if since is not None and fault.seen_at <= since:",
        "a program is blamed for a dead device that a limit keeps in service",
    ),
)

_VERDICTS = of(
    "recover/diagnose/verdicts.py",
    (
        "an application is blamed unseen",
        'why_not = "" if covered else why_not_covered(world, first.node, first.at, now)',
        'blind = ""',
        "the application is blamed while nobody watched its node",
    ),
    (
        "what broke beneath a program is the program's",
        "return Verdict(Fault.UNKNOWN, Blame.UNKNOWN, why, error, stuck is None or stuck.nodes < 2)",
        "return Verdict(Fault.APPLICATION, Blame.APPLICATION, why, error)",
        "the application is blamed for a port that broke under it, and the restart goes back there",
    ),
)

_STARTS = of(
    "recover/diagnose/starts.py",
    (
        "failed pods of before count as lost ranks",
        "return pod.created < gang.started_at - CLOCKS_APART",
        "return False",
        "a job that a person has resumed is stopped for what failed before",
    ),
    (
        "leftovers of earlier attempts count as lost ranks",
        "    pods = [pod for pod in world.pods(gang.ref.uid) if leftover(pod) not in noted]\n",
        "    pods = [pod for pod in world.pods(gang.ref.uid) if noted or pod]\n",
        "a restarted job is stopped again for its old failed pods",
    ),
)

_WISHES = of(
    "recover/triage/wishes.py",
    (
        "a node is taken out before its verdict settles",
        "if level is QuarantineLevel.CORDON and not diagnosis.settled:",
        "if level is QuarantineLevel.NONE and not diagnosis.settled:",
        "a node is cordoned for a line that the next one softens",
    ),
    (
        "a worse fault leaves the soft taint as it is",
        "if ours is not None and not quarantine.is_stronger(level, node):",
        "if ours is not None:",
        "a dead GPU stays in service where it was degraded before",
    ),
)

_RESTARTS = of(
    "recover/triage/restarts.py",
    (
        "a cause acts again and again",
        "        return _done(gang, taken_up, now)\n    denied",
        "        _done(gang, taken_up, now)\n    denied",
        "a job is stopped for the same fault at each look",
    ),
    (
        "a second recovery beside the running one",
        "    if running is not None:\n        return Restart(",
        "    if running is not None and running.status.phase is Phase.BLOCKED:\n        return Restart(",
        "two recoveries stop and start one job",
    ),
    (
        "gangs are stopped before they are due",
        "    denied = _due(grounds, affected, now)\n",
        "    denied = None\n",
        "no verdict settles, no grace is given, and a job that trains is stopped",
    ),
    (
        "later causes are not told",
        "    if causes != running.spec.causes:\n",
        "    if causes == running.spec.causes:\n",
        "a gang is started again on the node that broke meanwhile",
    ),
)

_INCIDENTS = of(
    "recover/triage/incidents.py",
    (
        "an Incident closes while its node is out",
        "            and name not in quarantining\n",
        "",
        "the close answers the fault, and nobody remembers why the node is out",
    ),
    (
        "an Incident closes while its fault is there",
        "            name not in live\n            and name not in quarantining",
        "            name not in quarantining",
        "Incidents close and open at each look",
    ),
)

TRIAGE: tuple[Mutant, ...] = (
    *_GUARD,
    *_BRAKE,
    *_HELD_BACK,
    *_ABSENT,
    *_BOOT,
    *_EVIDENCE,
    *_NODES,
    *_DUE,
    *_AWAITED,
    *_GANGS,
    *_HINDSIGHT,
    *_VERDICTS,
    *_STARTS,
    *_WISHES,
    *_RESTARTS,
    *_INCIDENTS,
)
