"""Diagnoses to a plan: may we, and what to write about nodes, Incidents, spares and new Recoveries.

In: World, settings, time.
Out: Plan: writes, reasons, when to look again.
Touches: nothing: pure. Every disruptive act passes guard.py.
"""
