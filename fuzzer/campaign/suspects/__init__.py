"""A suspect until it is a finding or nothing: recognised, shrunk, verified, stored."""
