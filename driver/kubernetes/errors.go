package kubernetes

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/delegate-io/dlite/task/stage"
)

// The values of [Error].Reason.
const (
	reasonRefused       = "refused"
	reasonQuota         = "quota"
	reasonUnschedulable = "unschedulable"
	reasonVolume        = "volume"
	reasonImage         = "image"
	reasonStart         = "start"
	reasonEvicted       = "evicted"
	reasonDeleted       = "deleted"
	reasonNodeLost      = "node lost"
	reasonUnreachable   = "unreachable"
	reasonDeadline      = "deadline"
	reasonEnded         = "ended"
)

// Error is a failure of the cluster. Callers find it with [errors.As].
type Error struct {
	// Reason is the category of the error:
	//
	//   - refused: the API server rejects the pod, because of an admission policy, a
	//     missing permission, or a field that is not allowed
	//   - quota: the quota of the namespace is exhausted
	//   - unschedulable: no node accepted the pod in time, no node ever can, or the
	//     selected node rejects it
	//   - volume: a volume cannot be mounted
	//   - image: the image of a container cannot be pulled, or its name is not valid
	//   - start: a container cannot be created or started
	//   - evicted: the node, or another pod, needed the resources of the pod
	//   - deleted: another client has deleted the pod
	//   - node lost: the node of the pod does not answer
	//   - unreachable: the pod runs according to the cluster, but the driver cannot connect
	//   - deadline: the lifetime of the pod is over ([Config], Lifetime)
	//   - ended: the pod or one of its containers has ended in some other way
	Reason string
	// Pod is the namespace and name of the pod. Container is the name of the container,
	// if the error is about one.
	Pod, Container string
	// Message is the text of the cluster.
	Message   string
	err       error
	requested bool // the container ended because its end was requested
}

// Error returns the reason, the pod, the container and the message.
func (e *Error) Error() string {
	what := "pod " + e.Pod
	if e.Container != "" {
		what += ", container " + e.Container
	}
	text := map[string]string{
		reasonRefused: "the API server rejected it", reasonQuota: "the quota of the namespace is exhausted",
		reasonUnschedulable: "no node accepted it", reasonVolume: "a volume cannot be mounted",
		reasonImage: "its image cannot be pulled", reasonStart: "it cannot be started", reasonEvicted: "it was evicted",
		reasonDeleted: "it was deleted", reasonNodeLost: "its node does not answer", reasonUnreachable: "it cannot be reached", reasonDeadline: "its lifetime is over",
		reasonEnded: "it has ended",
	}[e.Reason]
	if e.Message != "" {
		text += ": " + e.Message
	}
	return what + ": " + text
}

func (e *Error) Unwrap() error { return e.err }

// FailureKind returns the kind of the failure for the answer to the manager.
func (e *Error) FailureKind() string {
	switch e.Reason {
	case reasonImage:
		return stage.FailureImage
	case reasonUnreachable, reasonNodeLost:
		return stage.FailureConnectivity
	case reasonRefused:
		return stage.FailureRefused
	default:
		return stage.FailureInfrastructure
	}
}

// refusal recognises quotas and policies among the errors of a request.
func refusal(pod string, err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}
	s := status.Status()
	switch {
	case s.Code == http.StatusForbidden && strings.Contains(s.Message, "exceeded quota"):
		return &Error{Reason: reasonQuota, Pod: pod, Message: s.Message, err: err}
	case s.Code == http.StatusForbidden, s.Code == http.StatusUnprocessableEntity, s.Code == http.StatusBadRequest, s.Code == http.StatusUnauthorized:
		return &Error{Reason: reasonRefused, Pod: pod, Message: s.Message, err: err}
	}
	return err
}

// podError returns the reason why the pod is not usable, or nil.
func podError(pod *corev1.Pod, p *patience) error {
	e := &Error{Pod: pod.Namespace + "/" + pod.Name, Message: pod.Status.Message}
	disrupted := condition(pod, corev1.DisruptionTarget)
	switch {
	case pod.Status.Reason == "Evicted", disrupted != nil && !isNodes(disrupted.Reason) && disrupted.Status == corev1.ConditionTrue:
		e.Reason = reasonEvicted
	case pod.Status.Reason == "NodeLost", disrupted != nil && disrupted.Status == corev1.ConditionTrue:
		e.Reason = reasonNodeLost
	case pod.Status.Reason == "DeadlineExceeded":
		e.Reason = reasonDeadline
	case pod.DeletionTimestamp != nil:
		e.Reason = reasonDeleted
	case isRejected(pod):
		e.Reason, e.Message = reasonUnschedulable, pod.Status.Reason+": "+e.Message
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		e.Reason = reasonEnded
	default:
		return hubError(pod, p)
	}
	if e.Message == "" && disrupted != nil {
		e.Message = disrupted.Message
	}
	if e.Message == "" && e.Reason == reasonEnded {
		if err := hubError(pod, p); err != nil {
			return err
		}
		e.Message = pod.Status.Reason
	}
	return e
}

// isNodes reports whether the node caused the disruption: it does not answer, or it does not
// exist any more.
func isNodes(reason string) bool {
	return reason == "DeletionByTaintManager" || reason == "DeletionByPodGC"
}

// isRejected reports whether the selected node rejected the pod. Such a pod never has
// containers, and the node does not try again.
func isRejected(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodFailed {
		return false
	}
	switch reason := pod.Status.Reason; reason {
	case "NodeAffinity", "NodeName", "NodePorts", "TaintToleration", "TopologyAffinityError", "UnexpectedAdmissionError":
		return true
	default:
		return strings.HasPrefix(reason, "OutOf")
	}
}

// hubError returns the reason why the hub or an init container does not run.
func hubError(pod *corev1.Pod, p *patience) error {
	// All init containers, also those of a template or a webhook: the others wait for them.
	for _, s := range pod.Status.InitContainerStatuses {
		if err := p.startError(pod, s, false); err != nil {
			return err
		}
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 && pod.Status.Phase == corev1.PodFailed {
			return ended(pod, s)
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name != hubContainer {
			continue
		}
		if err := p.startError(pod, s, false); err != nil {
			return err
		}
		if s.State.Terminated != nil {
			return ended(pod, s)
		}
	}
	return nil
}

// ended returns the error for a container that ended unexpectedly.
func ended(pod *corev1.Pod, s corev1.ContainerStatus) error {
	t := s.State.Terminated
	text := fmt.Sprintf("%s, exit code %d", t.Reason, t.ExitCode)
	if t.Message != "" {
		text += ": " + strings.TrimSpace(t.Message)
	}
	return &Error{Reason: reasonEnded, Pod: pod.Namespace + "/" + pod.Name, Container: s.Name, Message: text,
		requested: t.ExitCode == 0 || t.ExitCode == 128+int32(syscall.SIGTERM)}
}

// pullPatience limits the wait after a pull fails with a temporary error. The node tries
// again after 10 s and after 20 s more.
const pullPatience = 25 * time.Second

// patience stores since when containers of a pod fail to start with temporary errors. The
// zero value is ready for use.
type patience struct {
	mu    sync.Mutex
	since map[string]time.Time // by container; guarded by mu
}

// lasts reports whether to wait longer for the container.
func (p *patience) lasts(container string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since == nil {
		p.since = map[string]time.Time{}
	}
	if p.since[container].IsZero() {
		p.since[container] = time.Now()
	}
	return time.Since(p.since[container]) < pullPatience
}

// startError returns the reason why a container will not start. It returns nil for temporary
// errors, which the node tries again. New credentials may not have reached the node yet.
func (p *patience) startError(pod *corev1.Pod, s corev1.ContainerStatus, credentials bool) error {
	e := &Error{Pod: pod.Namespace + "/" + pod.Name, Container: s.Name}
	if t := s.State.Terminated; t != nil && (t.Reason == "StartError" || t.Reason == "ContainerCannotRun") {
		e.Reason, e.Message = reasonStart, strings.TrimSpace(t.Message)
		return e
	}
	w := s.State.Waiting
	if w == nil {
		return nil
	}
	e.Message = w.Reason
	if w.Message != "" {
		e.Message += ": " + w.Message
	}
	switch w.Reason {
	case "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "SignatureValidationFailed":
		e.Reason = reasonImage
	case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable":
		if (mayPass(w.Message) || credentials && isCredentials(w.Message)) && p.lasts(s.Name) {
			return nil
		}
		e.Reason = reasonImage
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreStartHookError":
		if isBusy(w.Message) {
			return nil
		}
		e.Reason = reasonStart
	default:
		return nil
	}
	return e
}

// isBusy reports whether an overloaded node could not create a container and tries again.
// "is reserved" means that an earlier attempt still runs.
func isBusy(message string) bool {
	for _, text := range []string{"context deadline exceeded", "is reserved for", "failed to sync "} {
		if strings.Contains(message, text) {
			return true
		}
	}
	return false
}

// mayPass reports whether the error of a pull is temporary. A refusal by a registry, or an
// unknown host, is not.
func mayPass(message string) bool {
	text := strings.ToLower(message)
	for _, final := range []string{
		"not found", "manifest unknown", "name unknown", "no match for platform", "no matching manifest", "no such host", "invalid reference",
		"unauthorized", "authorization failed", "authentication required", "denied", "forbidden", "insufficient_scope",
		"http response to https client",
	} {
		if strings.Contains(text, final) {
			return false
		}
	}
	return true
}

// isCredentials reports whether a pull failed because of missing or wrong credentials.
func isCredentials(message string) bool {
	text := strings.ToLower(message)
	for _, word := range []string{"unauthorized", "authorization failed", "authentication required", "denied", "forbidden", "insufficient_scope"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i, c := range pod.Status.Conditions {
		if c.Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// statusOf returns the status of a container of any kind.
func statusOf(pod *corev1.Pod, container string) (corev1.ContainerStatus, bool) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for _, s := range list {
			if s.Name == container {
				return s, true
			}
		}
	}
	return corev1.ContainerStatus{}, false
}
