"""A finding as a script and as an issue draft; a ledger or a campaign as one page of HTML."""
