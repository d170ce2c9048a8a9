// Program kubernetes has all parts of a Kubernetes cluster except its container
// runtime. One program starts faster than several, because the parts share its code
// and its pages of memory.
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
	// The components need these two for metrics of calls and of the build.
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
				kubectlutil.CheckErr(err) // prints the error and exits
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
