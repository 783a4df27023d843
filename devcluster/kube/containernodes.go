//go:build containernodes

// The programs of a node that runs containers. They add to the build and only serve as root, so
// they are left out unless `-tags containernodes` asks for them.
package main

import (
	"context"

	"github.com/spf13/cobra"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func init() {
	programs["kube-proxy"] = component(proxy.NewProxyCommand)
	programs["kubelet"] = component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) })
}
