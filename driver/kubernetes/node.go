package kubernetes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/delegate-io/dlite/driver"
)

// nodeSelector returns the labels of the node of a pod: those of the configuration and those that
// the stage asks for. A stage cannot replace labels of the configuration.
func (d *Driver) nodeSelector(env *driver.Environment) (map[string]string, error) {
	labels := env.Network.NodeLabels()
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value := labels[key]
		configured, fixed := d.cfg.NodeSelector[key]
		wrong := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		switch {
		case len(wrong) > 0:
			return nil, errNode(key, value, "that is no label: "+strings.Join(wrong, "; "))
		case fixed && configured != value:
			return nil, errNode(key, value, fmt.Sprintf("the driver is configured for nodes with %q: ask for that value, or leave the label out", configured))
		}
	}
	maps.Copy(labels, d.cfg.NodeSelector)
	return labels, nil
}

func errNode(key, value, why string) error {
	return fmt.Errorf("the stage asks for a node with the label %q: %q; %s", key, value, why)
}
