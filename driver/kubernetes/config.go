package kubernetes

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// Config configures a [Driver].
type Config struct {
	// REST has the address of the cluster and the credentials. If it is nil, the driver
	// uses Kubeconfig; if that is empty too, the service account of the pod that the
	// process runs in.
	REST *rest.Config
	// Kubeconfig is the path of a configuration file of kubectl. Context is one of its
	// contexts; empty means the current one.
	Kubeconfig, Context string
	// Namespace is the namespace of the pods, unless StageSettings allows a stage another
	// one. Empty means that of the context or of the service account, or "default" if both
	// have none.
	Namespace string

	// AgentImage is an image that has the static binary of the agent (examples/agent) as
	// /agent. Required.
	AgentImage string
	// GitImage is the image for clones of repositories. It needs git, and git-lfs for
	// repositories with LFS. Empty means AgentImage.
	GitImage string
	// StepImage is the image of steps without an image. If it is empty, such steps fail.
	StepImage string

	// HTTPClient makes the requests to registries for the entrypoints of images. The file of
	// Kubeconfig configures the requests to the cluster. Nil means a client that uses
	// HTTP_PROXY.
	HTTPClient *http.Client
	// InsecureRegistries are registries (host or host:port) that the driver asks without
	// TLS for the entrypoint of an image. It does not affect the pulls of the nodes.
	InsecureRegistries []string

	// The following fields are copied to each pod.

	ServiceAccount   string // empty means the default one of the namespace, without its token
	ImagePullSecrets []string
	NodeSelector     map[string]string // a stage may ask for more labels, and not replace these
	Tolerations      []corev1.Toleration
	Affinity         *corev1.Affinity
	RuntimeClass     string
	PriorityClass    string
	Labels           map[string]string
	Annotations      map[string]string
	SecurityContext  *corev1.PodSecurityContext
	// ContainerSecurityContext applies to each container. The user and privileged of a
	// step take precedence.
	ContainerSecurityContext *corev1.SecurityContext
	// Restricted creates pods that a namespace with the Pod Security level "restricted"
	// admits: no process in them is root. It overrides settings of the two security
	// contexts that allow more.
	Restricted bool
	// RunAs is the user of the containers of restricted pods, as numeric "uid:gid". The
	// user of a step overrides it, the user of an image does not. Claims belong to that
	// group, unless SecurityContext has another one (FSGroup). Empty means 65532:65532.
	RunAs string
	// StepResources are the resources of announced steps without CPU and memory limits.
	// HubResources are those of the hub and of the init container.
	StepResources, HubResources corev1.ResourceRequirements

	// StageSettings are the settings of pods that a stage may choose: serviceAccountName,
	// automountServiceAccountToken, priorityClassName, labels, annotations, tolerations,
	// containerSecurityContext, namespace, initTimeout, configMapVolumes, secretVolumes and
	// podSpecOverlay. NAME=PATTERN allows values, or keys of labels, annotations and
	// tolerations, or fields of podSpecOverlay, that match the pattern (package path). An
	// entry for namespace has the name of one namespace, in which [Role] must apply too.
	// initTimeout allows times longer than StartTimeout. The other fields here take
	// precedence. Other settings of a stage are ignored, with a line in the log of the init;
	// a namespace, a volume or an overlay that is not allowed fails it.
	StageSettings []string

	// PodTemplate is merged into each pod: YAML or JSON of a Pod, as a strategic merge
	// patch, like the default of kubectl patch. It must keep the parts of the pod that
	// the driver needs.
	PodTemplate []byte

	// Owner is the name of a ConfigMap in Namespace that owns each pod. When it is
	// deleted, for example with the installation of the delegate, the cluster deletes the
	// remaining pods, and their steps fail. If the ConfigMap does not exist, an init
	// fails. Pods in other namespaces have no owner. Empty means no owner.
	Owner string

	// Services creates a Service for each background step with port_bindings, by which other pods reach the step while
	// the transaction runs. A binding maps a port of the Service to a port of the container. Steps that start later have
	// the name of the Service in DLITE_SERVICE_<NAME>_CLUSTER_NAME and its address in DLITE_SERVICE_<NAME>_CLUSTER_IP. The
	// driver then also needs the permissions to create, get, list and delete services, which [Role] does not have. The
	// default is that no Service is created.
	Services bool

	// SpareVolumes is the number of empty volumes that a pod has for volumes that the
	// init does not name, because the volumes of a pod cannot be changed. Half as many
	// are in memory. 0 means 4, a negative value none.
	SpareVolumes int
	// StartTimeout limits the time from the creation of a pod until it runs, including
	// the wait for a node. 0 means 10 minutes.
	StartTimeout time.Duration
	// PullTimeout limits the time until the container of a step runs, including the pull
	// of its image. 0 means 30 minutes.
	PullTimeout time.Duration
	// ReconnectTimeout limits the attempts to reconnect to a pod that still runs
	// according to the cluster. 0 means 5 minutes.
	ReconnectTimeout time.Duration
	// Lifetime is the age at which the cluster ends a pod, also without the delegate. 0
	// means no limit.
	Lifetime time.Duration
	// Grace is the time between SIGTERM and SIGKILL for a step that is stopped
	// (CLEANUP_GRACE_PERIOD_SECONDS, rule T7). 0 means no grace, except for a soft stop,
	// which has 10 seconds.
	Grace time.Duration
	// Log receives errors that no caller gets. A call with a logger in its context logs there
	// instead. The zero value logs nothing.
	Log zerolog.Logger
}

// complete validates the configuration and sets the defaults.
func (c *Config) complete() error {
	if c.AgentImage == "" {
		return errors.New("kubernetes: AgentImage is not set: it names the image with the agent's binary")
	}
	if err := c.restrict(); err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	if c.REST == nil {
		if err := c.connect(); err != nil {
			return fmt.Errorf("kubernetes: %w", err)
		}
	}
	if c.Namespace == "" {
		c.Namespace = ownNamespace()
	}
	if c.GitImage == "" {
		c.GitImage = c.AgentImage
	}
	switch {
	case c.SpareVolumes == 0:
		c.SpareVolumes = 4
	case c.SpareVolumes < 0:
		c.SpareVolumes = 0
	}
	for _, entry := range c.StageSettings {
		if err := checkStageSetting(entry); err != nil {
			return fmt.Errorf("kubernetes: %w", err)
		}
	}
	for value, usual := range map[*time.Duration]time.Duration{
		&c.StartTimeout: 10 * time.Minute, &c.PullTimeout: 30 * time.Minute, &c.ReconnectTimeout: 5 * time.Minute,
	} {
		if *value == 0 {
			*value = usual
		}
	}
	for name, value := range map[string]time.Duration{
		"StartTimeout": c.StartTimeout, "PullTimeout": c.PullTimeout, "ReconnectTimeout": c.ReconnectTimeout, "Lifetime": c.Lifetime, "Grace": c.Grace,
	} {
		if value < 0 {
			return fmt.Errorf("kubernetes: %s: %v is negative", name, value)
		}
	}
	if len(c.PodTemplate) > 0 {
		var err error
		if c.PodTemplate, err = yaml.YAMLToJSON(c.PodTemplate); err != nil {
			return fmt.Errorf("kubernetes: PodTemplate: %w", err)
		}
	}
	return nil
}

func (c *Config) connect() error {
	if c.Kubeconfig == "" {
		var err error
		c.REST, err = rest.InClusterConfig()
		return err
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: c.Context},
	)
	var err error
	if c.REST, err = loader.ClientConfig(); err != nil {
		return err
	}
	if c.Namespace == "" {
		c.Namespace, _, err = loader.Namespace()
	}
	return err
}

// ownNamespace returns the namespace of the pod that the process runs in.
func ownNamespace() string {
	b, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if name := strings.TrimSpace(string(b)); err == nil && name != "" {
		return name
	}
	return "default"
}
