"""Registers the toy in WORKLOADS, as a plugin of pytest, before anything else of Rekindle is imported."""

import recover.workloads as registration
from tests.recover.workloads.one_more.toy_workload import ToyJob

registration.WORKLOADS = (*registration.WORKLOADS, ToyJob())
