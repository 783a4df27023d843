"""What pods need so that their processes use a cluster's fast network: an administrator's profiles, laid under jobs."""
