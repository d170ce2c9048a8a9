package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/kubernetes"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/examples/internal/service"
	"github.com/delegate-io/dlite/examples/internal/storage"
)

// DriverConfig selects the drivers that run stages (rule D1). It is exported so that the config can embed it.
type DriverConfig struct {
	Drivers     []string `env:"DRIVERS" envDefault:"local" help:"comma-separated drivers of stages: local (this machine: containers and processes), vm (machines of pools), kubernetes (pods)"`
	LocalStages string   `env:"LOCAL_STAGES" help:"which of DRIVERS runs the stages that a manager means for the delegate's own machine (CI_DOCKER_*, local_*); default: local where it is one of them, or else the first"`

	KubeContext        string `env:"KUBERNETES_CONTEXT" help:"context of the file in KUBECONFIG; default: its current one"`
	KubePods           string `env:"KUBERNETES_NAMESPACE" help:"namespace of the pods; default: the context's or the delegate's own"`
	KubeAgentImage     string `env:"KUBERNETES_AGENT_IMAGE" help:"image with the agent's binary as /agent (dlite-agent of a release); needed for kubernetes"`
	KubeGitImage       string `env:"KUBERNETES_GIT_IMAGE" help:"image with git for clones; default: the agent's image, which has no git"`
	KubeStepImage      string `env:"KUBERNETES_STEP_IMAGE" help:"image for steps without one; default: such steps are refused"`
	KubeServiceAccount string `env:"KUBERNETES_SERVICE_ACCOUNT" help:"service account of the pods; default: the namespace's, without its token"`
	KubeRestricted     bool   `env:"KUBERNETES_RESTRICTED" envDefault:"false" help:"make pods that a namespace with the Pod Security level restricted admits: no process in them is root"`
	KubeRunAs          string `env:"KUBERNETES_RUN_AS" help:"user of the containers of restricted pods if the step names none, as numbers uid:gid; default: 65532:65532"`
	KubeServices       bool   `env:"KUBERNETES_SERVICES" envDefault:"false" help:"create a Service for each background step with port_bindings, for other pods"`
	KubeStageSettings  string `env:"KUBERNETES_STAGE_SETTINGS" help:"settings of pods that stages may choose, separated by commas: NAME or NAME=PATTERN of serviceAccountName, automountServiceAccountToken, priorityClassName, labels, annotations, tolerations, containerSecurityContext, namespace, initTimeout, configMapVolumes, secretVolumes, podSpecOverlay"`
	KubePodTemplate    string `env:"KUBERNETES_POD_TEMPLATE" help:"file with a Pod in YAML that is laid over each pod (strategic merge)"`
	KubeOwner          string `env:"KUBERNETES_OWNER" help:"ConfigMap in the namespace of the pods: when it is removed, the cluster removes the pods too; default: none"`

	VMPools    string `env:"VM_POOLS" help:"YAML file that describes the pools of machines, see docs/drivers.md; needed for vm"`
	VMStateDir string `env:"VM_STATE_DIR" help:"folder that remembers the machines, with their keys; default: machines in LEDGER_DIR"`
}

// drivers lists the valid values of DRIVERS.
var drivers = []string{transaction.Local, transaction.VM, transaction.Kubernetes}

// checkDrivers sets defaults and reports wrong settings.
func (c *DriverConfig) checkDrivers(wrong func(setting string, bad bool, must string)) {
	var names []string
	for _, name := range c.Drivers {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	c.Drivers = names
	known := func(name string) bool { return slices.Contains(drivers, name) }
	all := len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return !known(n) })
	wrong("DRIVERS", !all, "a list of "+strings.Join(drivers, ", "))
	if !all {
		return
	}
	switch {
	case c.LocalStages != "":
		wrong("LOCAL_STAGES", !slices.Contains(names, c.LocalStages), "one of DRIVERS, "+strings.Join(names, " or "))
	case slices.Contains(names, transaction.Local):
		c.LocalStages = transaction.Local
	default:
		c.LocalStages = names[0]
	}
	wrong("KUBERNETES_AGENT_IMAGE", slices.Contains(names, transaction.Kubernetes) && c.KubeAgentImage == "", "set, as kubernetes is one of DRIVERS")
	wrong("VM_POOLS", slices.Contains(names, transaction.VM) && c.VMPools == "", "set, as vm is one of DRIVERS")
	wrong("LOCAL_STAGES", slices.Contains(names, c.LocalStages) && c.LocalStages != transaction.Local && slices.Contains(names, transaction.Local),
		"local, which is one of DRIVERS: leave it out there to have another one run these stages")
}

// unused returns warnings for settings of drivers that DRIVERS does not name.
func (c *DriverConfig) unused() (warnings []string) {
	all := reflect.ValueOf(c).Elem()
	for _, f := range reflect.VisibleFields(all.Type()) {
		setting := f.Tag.Get("env")
		prefix, _, _ := strings.Cut(setting, "_")
		name := strings.ToLower(prefix)
		if name == transaction.VM || name == transaction.Kubernetes {
			if !slices.Contains(c.Drivers, name) && !all.FieldByIndex(f.Index).IsZero() {
				warnings = append(warnings, fmt.Sprintf("%s is for nothing, as %s is not one of DRIVERS", setting, name))
			}
		}
	}
	return warnings
}

// slots returns how many stages the delegate runs at once. If every stage needs a machine of a pool, the default is
// the maximum number of machines. Further stages wait at the manager, where any delegate can take them (rule Q2).
func (c *config) slots() int {
	if c.MaxStages > 0 || len(c.Drivers) != 1 || c.Drivers[0] != transaction.VM {
		return int(c.MaxStages)
	}
	list, err := readPools(c.VMPools)
	if err != nil {
		return 0 // reported when the pools are opened
	}
	sum := 0
	for _, p := range list {
		sum += p.Max
	}
	return sum
}

func openDriver(ctx context.Context, cfg config, name string, out *client.HTTP, log zerolog.Logger) (driver.Driver, error) {
	switch name {
	case transaction.Local:
		return openLocal(cfg, out, log)
	case transaction.VM:
		return openMachines(ctx, cfg, outgoing(out), log)
	case transaction.Kubernetes:
		return openKubernetes(cfg, outgoing(out), log)
	}
	return nil, fmt.Errorf("DRIVERS: there is no driver %q", name)
}

func openKubernetes(cfg config, hc *http.Client, log zerolog.Logger) (driver.Driver, error) {
	c := kubernetes.Config{
		Kubeconfig: cfg.Kubeconfig, Context: cfg.KubeContext, Namespace: cfg.KubePods,
		AgentImage: cfg.KubeAgentImage, GitImage: cfg.KubeGitImage, StepImage: cfg.KubeStepImage,
		ServiceAccount: cfg.KubeServiceAccount, Restricted: cfg.KubeRestricted, RunAs: cfg.KubeRunAs, Owner: cfg.KubeOwner, Services: cfg.KubeServices,
		Grace: seconds(cfg.CleanupGrace), HTTPClient: hc, Log: log,
	}
	for _, entry := range strings.Split(cfg.KubeStageSettings, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			c.StageSettings = append(c.StageSettings, entry)
		}
	}
	if cfg.KubePodTemplate != "" {
		b, err := os.ReadFile(cfg.KubePodTemplate)
		if err != nil {
			return nil, fmt.Errorf("KUBERNETES_POD_TEMPLATE: %w", err)
		}
		c.PodTemplate = b
	}
	d, err := kubernetes.New(c)
	switch {
	case err == nil:
		return d, nil
	case strings.Contains(err.Error(), "PodTemplate"):
		return nil, fmt.Errorf("KUBERNETES_POD_TEMPLATE: %w", err)
	case strings.Contains(err.Error(), "StageSettings"):
		return nil, fmt.Errorf("KUBERNETES_STAGE_SETTINGS: %w", err)
	case strings.Contains(err.Error(), "RunAs"):
		return nil, fmt.Errorf("KUBERNETES_RUN_AS: %w", err)
	default:
		return nil, fmt.Errorf("KUBECONFIG, KUBERNETES_CONTEXT: %w", err)
	}
}

func openLocal(cfg config, out *client.HTTP, log zerolog.Logger) (driver.Driver, error) {
	d, err := local.New(local.Config{
		Host: host.Config{
			HTTPClient: outgoing(out), GitEnvironment: out.GitEnvironment,
			WorkDir: cfg.WorkDir, Grace: seconds(cfg.CleanupGrace), FileLimit: int64(cfg.FileLimit), Log: log,
			TermAttempts: cfg.TermAttempts, TermInterval: seconds(cfg.TermInterval), Trusted: cfg.Trusted, Hidden: cfg.private(),
			Builtins: storage.Builtins(),
		},
		Docker: local.DockerConfig{Host: cfg.DockerHost},
	})
	if err != nil {
		return nil, fmt.Errorf("WORK_DIR: %w", err)
	}
	return d, nil
}

// private lists the files and folders that steps must not reach.
func (c *config) private() []string {
	all := []string{
		c.file, c.LedgerDir, c.VMStateDir, c.VMPools, c.ClientKey, c.Dir, c.VaultTokenFile, c.VaultSecretIDFile, c.Kubeconfig, c.CGICache,
	}
	if c.LogToFile {
		all = append(all, c.LogFile)
	}
	switch own := service.DefaultSocket(); {
	case own != "":
		all = append(all, filepath.Dir(own)) // the socket is made anew by each process
	case c.StatusSocket != "":
		all = append(all, c.StatusSocket)
	}
	return slices.DeleteFunc(all, func(path string) bool { return path == "" })
}
