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
