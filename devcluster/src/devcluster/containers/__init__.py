"""Container nodes: real kubelets with containerd, each in namespaces of its own on this machine. Root only."""
