"""The two ways to look: at the whole world (triage, upkeep, recipes, repair, expiry), and at one recovery
each."""
