"""A ledger or a campaign as one page of HTML."""
