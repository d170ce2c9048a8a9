package stage

import (
	"maps"
	"strings"
)

// nodeOption begins the network options with the labels of the node of a pod.
const nodeOption = "node_selector/"

// OnNode returns a copy of the network for a pod on a node that has these labels.
func (n Network) OnNode(labels map[string]string) Network {
	if len(labels) == 0 {
		return n
	}
	options := maps.Clone(n.Options)
	if options == nil {
		options = make(map[string]string, len(labels))
	}
	for key, value := range labels {
		options[nodeOption+key] = value
	}
	n.Options = options
	return n
}

// podOption is the network option with the settings of a pod.
const podOption = "pod_settings"

// WithPodSettings returns a copy of the network with settings of the pod, as JSON. The driver takes those that
// its configuration allows.
func (n Network) WithPodSettings(settings string) Network {
	options := maps.Clone(n.Options)
	if options == nil {
		options = map[string]string{}
	}
	options[podOption] = settings
	n.Options = options
	return n
}

// PodSettings returns the settings of the pod, see [Network.WithPodSettings], or an empty text.
func (n Network) PodSettings() string { return n.Options[podOption] }

// NodeLabels returns the labels that the node of a pod must have, see [Network.OnNode].
func (n Network) NodeLabels() map[string]string {
	labels := map[string]string{}
	for name, value := range n.Options {
		if key, ok := strings.CutPrefix(name, nodeOption); ok {
			labels[key] = value
		}
	}
	return labels
}
