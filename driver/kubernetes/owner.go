package kubernetes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// owner returns the owner of a new pod ([Config], Owner). It reads the ConfigMap each time: a
// new one with the same name has another uid, and the cluster deletes objects whose owner
// does not exist.
func (d *Driver) owner(ctx context.Context, namespace string, onError func(error)) ([]metav1.OwnerReference, error) {
	if d.cfg.Owner == "" || namespace != d.cfg.Namespace {
		// The cluster deletes an object whose owner is in another namespace.
		return nil, nil
	}
	id := d.cfg.Namespace + "/" + d.cfg.Owner
	var found *corev1.ConfigMap
	err := d.callAPI(ctx, onError, func(ctx context.Context) (err error) {
		found, err = d.api.configMaps(d.cfg.Namespace).get(ctx, d.cfg.Owner)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the config map %s, the owner of the pod: %w", id, err)
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: found.Name, UID: found.UID}}, nil
}
