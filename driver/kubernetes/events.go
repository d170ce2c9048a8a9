package kubernetes

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// watchEvents reports events of the pod, which have reasons that its status does not have:
// failed mounts of volumes and failures of the network. Without the permission for events,
// it reports nothing.
func (p *pod) watchEvents(ctx context.Context, s *uniqueLines, failed chan<- error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	mine := fields.OneTermEqualSelector("involvedObject.name", p.name).String()
	events := p.d.api.events(p.namespace)
	check := func(err error) {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			cancel()
		}
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = mine
			list, err := events.list(ctx, o)
			check(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = mine
			i, err := events.watch(ctx, o)
			check(err)
			return i, err
		},
	}
	quiet := logr.Discard()
	store := eventStore{func(e *corev1.Event) {
		if err := p.eventError(e, s); err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}}
	cache.NewReflectorWithOptions(plainLists{lw}, &corev1.Event{}, store, cache.ReflectorOptions{Name: "events", Logger: &quiet}).RunWithContext(ctx)
}

// eventError returns an error for an event that is final. It reports a temporary one.
func (p *pod) eventError(e *corev1.Event, s *uniqueLines) error {
	if e.Type != corev1.EventTypeWarning {
		return nil
	}
	switch e.Reason {
	case "FailedMount", "FailedAttachVolume":
		for _, final := range []string{"hostPath type check failed", "persistentvolumeclaim", "configmap", "secret"} {
			if strings.Contains(e.Message, final) && (final == "hostPath type check failed" || strings.Contains(e.Message, "not found")) {
				return &Error{Reason: reasonVolume, Pod: p.key(), Message: p.spellOut(e.Message)}
			}
		}
	case "FailedCreatePodSandBox", "FailedScheduling", "NetworkNotReady", "FailedKillPod":
	default:
		return nil
	}
	s.line(fmt.Sprintf("Event of the pod: %s: %s", e.Reason, e.Message))
	return nil
}

// spellOut adds the directories of the node to a message that has only the names of the
// volumes.
func (p *pod) spellOut(message string) string {
	pod, _, _ := p.current()
	if pod == nil {
		return message
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil && strings.Contains(message, fmt.Sprintf("%q", v.Name)) && !strings.Contains(message, v.HostPath.Path) {
			message += " (" + v.HostPath.Path + ")"
		}
	}
	return message
}

// eventStore receives the events of the reflector.
type eventStore struct{ take func(*corev1.Event) }

func (s eventStore) Add(obj any) error { return s.Update(obj) }

func (s eventStore) Update(obj any) error {
	if e, ok := obj.(*corev1.Event); ok {
		s.take(e)
	}
	return nil
}

func (s eventStore) Delete(any) error { return nil }

func (s eventStore) Replace(list []any, _ string) error {
	for _, obj := range list {
		_ = s.Update(obj)
	}
	return nil
}

func (s eventStore) Resync() error { return nil }
