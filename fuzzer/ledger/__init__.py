"""The ledger: findings, faults and their causes, in one SQLite file."""
