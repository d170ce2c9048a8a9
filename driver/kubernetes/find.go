package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/recorded"
)

// Find returns the pods and Services that have all of labels, in the namespace and in those that stages may choose.
func (d *Driver) Find(ctx context.Context, labels map[string]string) ([]driver.Resource, error) {
	if len(labels) == 0 {
		return nil, nil
	}
	selector := klabels.Set{labelManaged: managed}
	for k, v := range labels {
		if v == "" || len(validation.IsQualifiedName(k)) > 0 {
			return nil, nil
		}
		selector[k] = labelValue(v)
	}
	var found []driver.Resource
	for _, namespace := range d.cfg.namespaces() {
		calling, cancel := context.WithTimeout(ctx, callTimeout)
		list, err := d.api.pods(namespace).list(calling, metav1.ListOptions{LabelSelector: selector.String()})
		cancel()
		if err != nil {
			return nil, fmt.Errorf("find pods by labels in the namespace %s: %w", namespace, err)
		}
		for _, pod := range list.Items {
			if recorded.IsName(pod.Name) && carries(pod.Annotations, labels) {
				found = append(found, driver.Resource{Kind: kindPod, ID: pod.Namespace + "/" + pod.Name, Labels: own(&pod.ObjectMeta)})
			}
		}
		services, err := d.findServices(ctx, namespace, selector.String(), labels)
		if err != nil {
			return nil, err
		}
		found = append(found, services...)
	}
	return found, nil
}

// namespaces returns the namespaces that may have pods.
func (c *Config) namespaces() []string {
	all := []string{c.Namespace}
	for _, entry := range c.StageSettings {
		if name, ok := strings.CutPrefix(entry, "namespace="); ok && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// carries compares the values themselves: the labels in the cluster are only hashes.
func carries(annotations, labels map[string]string) bool {
	for k, v := range labels {
		if annotations[k] != v {
			return false
		}
	}
	return true
}

// own returns the labels of the transaction on an object, with their original values.
func own(o *metav1.ObjectMeta) map[string]string {
	labels := map[string]string{}
	for k, v := range o.Annotations {
		if o.Labels[k] == labelValue(v) {
			labels[k] = v
		}
	}
	return labels
}
