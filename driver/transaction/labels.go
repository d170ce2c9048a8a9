package transaction

import (
	"fmt"
	"maps"
	"slices"
)

// checkInitLabels refuses an init whose labels, or options of the network, show a secret.
func (t *transaction) checkInitLabels() error {
	if err := t.checkLabels("label", "network.labels", t.env.Network.Labels); err != nil {
		return err
	}
	if err := t.checkLabels("option", "network.options", t.env.Network.Options); err != nil {
		return err
	}
	for i, v := range t.env.Volumes {
		if v == nil {
			continue
		}
		if v.Temp != nil {
			if err := t.checkLabels("label", fmt.Sprintf("volumes[%d].temp.labels", i), v.Temp.Labels); err != nil {
				return err
			}
		}
		if v.Host != nil {
			if err := t.checkLabels("label", fmt.Sprintf("volumes[%d].host.labels", i), v.Host.Labels); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkLabels refuses labels with a secret. Engines and clusters keep labels on the disk, and show
// them to everyone who may list containers (rule S5). The error names the kind and the place of the
// label.
func (t *transaction) checkLabels(kind, place string, labels map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if t.secrets.Mask(k) != k || t.secrets.Mask(labels[k]) != labels[k] {
			return fmt.Errorf("%s %q of %s shows a secret: %ss are kept on the disk; put the secret into an environment variable",
				kind, t.secrets.Mask(k), place, kind)
		}
	}
	return nil
}
