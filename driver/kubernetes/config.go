package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// Config sets up a [Driver].
type Config struct {
	// REST says where the cluster is and who we are there. Without it that is what
	// Kubeconfig says, and without that the service account of the pod that the
	// process runs in.
	REST *rest.Config
	// Kubeconfig is a file for kubectl, Context which of its contexts; empty is its
	// current one.
	Kubeconfig, Context string
	// Namespace is where the pods are. Empty is the context's or the service
	// account's own, and "default" where neither says.
	Namespace string

	// AgentImage holds the agent's static binary (examples/agent) as /agent.
	// Required.
	AgentImage string
	// GitImage is the image in which repositories are cloned: it needs git, and
	// git-lfs where LFS is wanted. Empty is AgentImage.
	GitImage string
	// StepImage is for steps that name no image. Empty refuses them.
	StepImage string

	// InsecureRegistries are those, as host or host:port, that are asked without TLS for
	// what an image runs by itself. What nodes do is their own business.
	InsecureRegistries []string

	// What follows goes to each pod as it is.

	ServiceAccount   string // empty is the namespace's default one, without its token
	ImagePullSecrets []string
	NodeSelector     map[string]string
	Tolerations      []corev1.Toleration
	Affinity         *corev1.Affinity
	RuntimeClass     string
	PriorityClass    string
	Labels           map[string]string
	Annotations      map[string]string
	SecurityContext  *corev1.PodSecurityContext
	// ContainerSecurityContext is every container's. A step's user and privileged
	// take precedence.
	ContainerSecurityContext *corev1.SecurityContext
	// Restricted makes pods that a namespace with the Pod Security level "restricted"
	// takes: nobody is root in them. It takes precedence over what the two contexts
	// allow beyond that.
	Restricted bool
	// RunAs is whom the containers of restricted pods run as, but for those of steps
	// that name a user: "uid:gid" in numbers. Images have no say. Claims belong to that
	// group, if SecurityContext names no other (FSGroup). Empty is 65532:65532.
	RunAs string
	// StepResources are those of a step that was announced and says nothing about
	// CPU or memory; HubResources those of the hub and of the init container.
	StepResources, HubResources corev1.ResourceRequirements

	// PodTemplate is laid over each pod: YAML or JSON of a Pod, merged as kubectl
	// patch does it by default (strategic merge). What the driver needs of its own
	// pod must still be there afterwards.
	PodTemplate []byte

	// Owner names a ConfigMap in Namespace that each pod belongs to: when it is removed,
	// as with everything else that a delegate was installed with, the cluster removes the
	// pods that are left, which fails what runs in them. An init fails where there is no
	// such ConfigMap. Empty is none.
	Owner string

	// SpareVolumes is how many empty volumes a pod has for those that steps bring
	// along: the volumes of a pod cannot be changed. There are half as many in
	// memory. 0 is 4, and less than 0 is none.
	SpareVolumes int
	// StartTimeout bounds the time until a pod runs, from its making on, with the
	// wait for a node. 0 is 10 minutes.
	StartTimeout time.Duration
	// PullTimeout bounds the time until the container of a step runs, with the pull
	// of its image. 0 is 30 minutes.
	PullTimeout time.Duration
	// ReconnectTimeout is how long to try to reach a pod again that the cluster says
	// still runs. 0 is 5 minutes.
	ReconnectTimeout time.Duration
	// Lifetime ends a pod that is older, whatever happens to the delegate. 0 is
	// never.
	Lifetime time.Duration
	// Grace is how long a step that is stopped has between SIGTERM and SIGKILL
	// (CLEANUP_GRACE_PERIOD_SECONDS, SPEC T7). 0 is none, except for a soft stop,
	// which gives 10 seconds.
	Grace time.Duration
	// Log takes what no caller is told. The zero value writes nothing.
	Log zerolog.Logger
}

// complete checks cfg and fills in what is not set.
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

// ownNamespace is that of the pod that the process runs in.
func ownNamespace() string {
	b, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if name := strings.TrimSpace(string(b)); err == nil && name != "" {
		return name
	}
	return "default"
}
