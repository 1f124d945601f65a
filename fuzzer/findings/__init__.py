"""The ledger, and what a person is handed of a finding."""
