package kubernetes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// owner is what a new pod belongs to ([Config], Owner). It is asked for each time:
// one that was made anew under its name is another one, and the cluster removes what
// belongs to one that it does not know.
func (d *Driver) owner(ctx context.Context, tell func(error)) ([]metav1.OwnerReference, error) {
	if d.cfg.Owner == "" {
		return nil, nil
	}
	id := d.cfg.Namespace + "/" + d.cfg.Owner
	var found *corev1.ConfigMap
	err := d.ask(ctx, tell, func(ctx context.Context) (err error) {
		found, err = d.api.ConfigMaps(d.cfg.Namespace).Get(ctx, d.cfg.Owner, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the config map %s, which is to own the pod: %w", id, err)
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: found.Name, UID: found.UID}}, nil
}
