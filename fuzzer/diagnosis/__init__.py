"""The diagnosis of a finding: stages, single changes, the operator at fault, the side that is wrong."""
