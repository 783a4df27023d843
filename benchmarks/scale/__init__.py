"""The operator at scale, on a real API server: each figure beside what the API server alone, or a peer, takes."""
