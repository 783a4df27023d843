// Command node is what a node that runs containers needs from Kubernetes: kubelet and kube-proxy, unchanged from
// upstream, in one program. As with busybox, the name it is called by or its first argument chooses.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func command(name string) *cobra.Command {
	switch name {
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kube-proxy":
		return proxy.NewProxyCommand()
	}
	return nil
}

func main() {
	chosen := command(filepath.Base(os.Args[0]))
	if chosen == nil && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		chosen = command(filepath.Base(os.Args[0]))
	}
	if chosen == nil {
		fmt.Fprintln(os.Stderr, "usage: node kubelet|kube-proxy [arguments]")
		os.Exit(2)
	}
	os.Exit(cli.Run(chosen))
}
