"""Facts about faults, as TOML rows that people edit. Each row names its source. Policy stands elsewhere."""
