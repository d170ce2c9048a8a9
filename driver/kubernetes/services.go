package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/recorded"
)

const (
	// labelPod is the label of a pod by which Services select exactly that pod.
	labelPod = "io.dlite.pod"
	// maxServicePorts is the largest number of ports of a Service.
	maxServicePorts = 100
	// serviceSlug is the length of the part of a Service's name that comes from the step. With the name of the pod, a hash
	// and dashes, the name has at most 63 bytes, as a label of a host name must.
	serviceSlug = 18
)

// serviceName returns the name of the Service of a step in a pod.
func serviceName(pod, step string) string {
	sum := sha256.Sum256([]byte(step))
	return pod + "-" + recorded.Slug(step, serviceSlug) + "-" + hex.EncodeToString(sum[:4])
}

// isServiceOf reports whether the driver may have given the name to a Service of the pod.
func isServiceOf(pod, name string) bool {
	rest, ok := strings.CutPrefix(name, pod+"-")
	return ok && len(name) <= 63 && rest != ""
}

// servicePorts reads port_bindings: the port of the Service by the port in the container.
func servicePorts(bindings map[string]string) ([]corev1.ServicePort, error) {
	if len(bindings) > maxServicePorts {
		return nil, fmt.Errorf("port_bindings: there are %d, and a Service can have %d", len(bindings), maxServicePorts)
	}
	var ports []corev1.ServicePort
	for outside, inside := range bindings {
		number, protocol, given := strings.Cut(inside, "/")
		p := corev1.ServicePort{Protocol: corev1.ProtocolTCP}
		switch {
		case given && strings.EqualFold(protocol, "udp"):
			p.Protocol = corev1.ProtocolUDP
		case given && !strings.EqualFold(protocol, "tcp"):
			return nil, fmt.Errorf("port_bindings: %q: the protocol of a Service must be tcp or udp", inside)
		}
		from, err := strconv.ParseUint(outside, 10, 16)
		to, err2 := strconv.ParseUint(number, 10, 16)
		if err != nil || err2 != nil || from == 0 || to == 0 {
			return nil, fmt.Errorf("port_bindings: %q to %q: both must be numbers from 1 to 65535", outside, inside)
		}
		p.Port, p.TargetPort = int32(from), intstr.FromInt32(int32(to)) //nolint:gosec // 16 bits
		p.Name = fmt.Sprintf("%s-%d", strings.ToLower(string(p.Protocol)), from)
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b corev1.ServicePort) int { return strings.Compare(a.Name, b.Name) })
	return ports, nil
}

// addService creates the Service of a background step with port_bindings, if the configuration asks for it (Config,
// Services). It belongs to the pod, so that the cluster removes it with the pod.
func (r *run) addService(ctx context.Context) error {
	if !r.p.d.cfg.Services || !r.step.Detach || len(r.step.PortBindings) == 0 {
		return nil
	}
	ports, err := servicePorts(r.step.PortBindings)
	if err != nil {
		return err
	}
	pod, _, _ := r.p.current()
	if pod == nil {
		return r.p.explain(recorded.ErrCleanedUp)
	}
	if pod.Labels[labelPod] != pod.Name {
		return errors.New("its pod was created without Services: they are available from the next stage on")
	}
	wanted := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Name: serviceName(pod.Name, r.step.ID), Namespace: pod.Namespace,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{labelManaged: managed, labelPod: pod.Name}, Ports: ports,
			// A pod is not ready from the end of its first step on.
			PublishNotReadyAddresses: true,
		},
	}
	label(&wanted.ObjectMeta, r.env)
	record := driver.Resource{Kind: kindService, ID: r.p.key() + "/" + wanted.Name, Labels: r.labels()}
	err = r.p.d.gate.Create(ctx, r.ledger, record, func() error {
		return r.p.d.callAPI(ctx, r.p.unanswered(ctx), func(ctx context.Context) error {
			made, err := r.p.d.api.services(r.p.namespace).create(ctx, wanted)
			if apierrors.IsAlreadyExists(err) { // an earlier attempt whose answer was lost
				made, err = r.p.d.api.services(r.p.namespace).get(ctx, wanted.Name)
			}
			if err == nil && !ownedBy(made.OwnerReferences, pod) {
				return fmt.Errorf("the Service %s exists, and does not belong to the pod", wanted.Name)
			}
			r.service = made
			return err
		})
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return stopped(ctx)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("create the Service %s: %w: the delegate needs the permissions for services (docs/kubernetes.md)", wanted.Name, err)
	}
	return r.p.explain(fmt.Errorf("create the Service %s: %w", wanted.Name, err))
}

func ownedBy(owners []metav1.OwnerReference, pod *corev1.Pod) bool {
	return slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == pod.UID })
}

// removeService deletes a Service.
func (d *Driver) removeService(ctx context.Context, id string) error {
	namespace, pod, name, ok := parts(id)
	if !ok || !isServiceOf(pod, name) {
		return errors.New("it is not the id of a Service of this driver")
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := d.api.services(namespace).delete(calling, name)
	if isGone(err) || apierrors.IsForbidden(err) && !d.cfg.Services {
		return nil // without the option there is no permission, and the cluster removes it with the pod
	}
	return err
}

// findServices returns the Services that have all of labels.
func (d *Driver) findServices(ctx context.Context, namespace, selector string, labels map[string]string) ([]driver.Resource, error) {
	if !d.cfg.Services {
		return nil, nil
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := d.api.services(namespace).list(calling, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("find Services by labels in the namespace %s: %w", namespace, err)
	}
	var found []driver.Resource
	for _, s := range list.Items {
		pod := s.Spec.Selector[labelPod]
		if recorded.IsName(pod) && isServiceOf(pod, s.Name) && carries(s.Annotations, labels) {
			found = append(found, driver.Resource{Kind: kindService, ID: s.Namespace + "/" + pod + "/" + s.Name, Labels: own(&s.ObjectMeta)})
		}
	}
	return found, nil
}
