"""What happens to one broker of three: it is restarted, killed, paused, or out of the workers' reach.

outages = Outages(cluster, config, slots=2, dice=dice)
outages.happen("cut off", go_on)     # `cluster.restore` puts right what is left of it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from confluent_kafka import ElectionType, KafkaException

from tests.support.kafka.cluster import NODES
from tests.support.kafka.topics import CALL_S, admin, until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from tests.support.kafka.cluster import Cluster
    from tests.support.worker.process import WorkerConfig

WAIT_S = 120.0


class Outages:
    """What can happen.

    Args:
        cluster: To which.
        config: Of the workers: they need its topics and coordinators.
        slots: Of each pipeline.
        dice: Decide to which broker.
    """

    ALL: ClassVar[Mapping[str, Callable[[Outages, Callable[[], None]], None]]]

    def __init__(self, cluster: Cluster, config: WorkerConfig, slots: int, dice: random.Random) -> None:
        self._cluster = cluster
        self._config = config
        self._slots = slots
        self._dice = dice

    def happen(self, name: str, go_on: Callable[[], None]) -> None:
        """Let it happen; ``go_on`` waits until the workers have committed something more."""
        print(f"happens: {name}")  # noqa: T201 - shown when the test fails
        self.ALL[name](self, go_on)

    def rolling_restart(self, go_on: Callable[[], None]) -> None:
        """Restart one broker after the other cleanly, and give it back what it led."""
        for node in NODES:
            self._cluster.nodes[node].restart()
            self._cluster.wait_in_sync()
            self.elections(go_on)

    def elections(self, go_on: Callable[[], None]) -> None:
        """Let the preferred brokers lead again, everywhere."""
        client = admin(self._cluster.direct)  # held: its futures die with it
        try:
            client.elect_leaders(ElectionType.PREFERRED).result(CALL_S)
        except KafkaException as error:
            print(f"elections: {error}")  # noqa: T201 - such as that nothing is to be done
        go_on()

    def transaction_coordinator_killed(self, go_on: Callable[[], None]) -> None:
        """Kill the broker that coordinates a slot's transactions."""
        pipeline = self._dice.choice(self._config.pipelines).name
        slot = self._dice.randrange(self._slots)
        name = f"{self._config.application_id}-{pipeline}-{slot}-of-{self._slots}"
        self._kill(self._cluster.transaction_coordinator(name), go_on)

    def group_coordinator_killed(self, go_on: Callable[[], None]) -> None:
        """Kill the broker that coordinates the workers' group."""
        self._kill(self._cluster.group_coordinator(self._config.application_id), go_on)

    def killed(self, go_on: Callable[[], None]) -> None:
        """Kill any broker."""
        self._kill(self._dice.choice(NODES), go_on)

    def paused(self, go_on: Callable[[], None]) -> None:
        """Stop the clock of a broker, until others lead in its place, and longer."""
        node = self._dice.choice(NODES)
        self._cluster.pause(node)
        try:
            self._cluster.wait_leads_nothing(node)
            go_on()
        finally:
            self._cluster.resume(node)

    def cut_off(self, go_on: Callable[[], None]) -> None:
        """Swallow what the workers send to a broker, which goes on to lead, and then hand it on."""
        # They need what it leads: after a restart that is nothing, for minutes.
        self.elections(go_on)
        proxy = self._cluster.proxies[self._dice.choice(NODES)]
        held = proxy.held
        proxy.swallow()
        until(lambda: proxy.held >= held + 5, "requests are swallowed", WAIT_S)
        proxy.heal()

    def connections_cut(self, go_on: Callable[[], None]) -> None:
        """Break all connections of the workers to all brokers, one after the other."""
        for node in NODES:
            self._cluster.proxies[node].cut()
            go_on()

    def _kill(self, node: int, go_on: Callable[[], None]) -> None:
        self._cluster.nodes[node].kill()
        self._cluster.wait_leads_nothing(node)
        go_on()


Outages.ALL = {
    "rolling restart": Outages.rolling_restart,
    "elections": Outages.elections,
    "transaction coordinator killed": Outages.transaction_coordinator_killed,
    "group coordinator killed": Outages.group_coordinator_killed,
    "killed": Outages.killed,
    "paused": Outages.paused,
    "cut off": Outages.cut_off,
    "connections cut": Outages.connections_cut,
}
