"""A plugin of pytest: the line of the toy in WORKLOADS, before anything else of Rekindle is imported."""

import recover.workloads as registration
from tests.recover.workloads.one_more.toy_workload import ToyJob

registration.WORKLOADS = (*registration.WORKLOADS, ToyJob())
