"""What reviewers need to know of the cluster: the one thing handed to them beside the request."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from policies.estimate import Standings
from policies.governing import QuotaView
from policies.gpupolicy import Policies
from policies.inventory import Inventory
from policies.settings import Settings
from webhook.tally import Tally


class Cluster(Protocol):
    """The cluster as far as reviews look at it; answered from memory."""

    @property
    def inventory(self) -> Inventory:
        """Return the nodes that matter for slices."""

    @property
    def standings(self) -> Standings:
        """Return the quotas with what they use."""

    @property
    def quotas(self) -> Iterable[QuotaView]:
        """Return all quotas, in force or not."""

    @property
    def policies(self) -> Policies:
        """Return the policies, each of which governs its namespace."""

    @property
    def tally(self) -> Tally:
        """Return what was given away and the inventory does not show yet."""

    @property
    def settings(self) -> Settings:
        """Return the settings of the cluster."""

    def knows(self, namespace: str) -> bool:
        """Return whether there is a namespace of that name."""

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace that decisions read; empty if it is not known (yet)."""
