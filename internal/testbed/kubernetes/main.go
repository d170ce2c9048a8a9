// All of a Kubernetes cluster but its container runtime, in one program: what
// takes a cluster's start is the same text and the same pages of memory for each
// of its parts.
//
//	kubernetes kube-apiserver --etcd-servers=...
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	// Without these two a component has no metrics of its own calls and builds.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	parts := map[string]func() int{
		"etcd": func() int {
			etcdmain.Main(os.Args)
			return 0
		},
		"kube-apiserver":          daemon(apiserver.NewAPIServerCommand),
		"kube-controller-manager": daemon(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          daemon(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kube-proxy":              daemon(proxy.NewProxyCommand),
		"kubelet":                 daemon(kubelet.NewKubeletCommand),
		"kubectl": func() int {
			if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
				kubectlutil.CheckErr(err) // says what is wrong, and exits
			}
			return 0
		},
	}
	if len(os.Args) > 1 {
		if run, ok := parts[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			os.Exit(run())
		}
	}
	fmt.Fprintf(os.Stderr, "the first argument must be one of %v\n", slices.Sorted(maps.Keys(parts)))
	os.Exit(2)
}

func daemon(command func() *cobra.Command) func() int {
	return func() int { return cli.Run(command()) }
}
