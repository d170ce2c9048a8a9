package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// watcher has the latest state of one pod. It continues after failures of the watch, such as
// a restart of the API server or a resource version that is too old.
type watcher struct {
	pod string // for errors
	// limit is the time without permission after which an allowed watch abandons the pod.
	limit time.Duration
	// patience limits the wait for temporary errors of the node.
	patience patience

	mu        sync.Mutex
	last      *corev1.Pod   // nil before the first list and after the deletion; guarded by mu
	listed    bool          // guarded by mu
	changed   chan struct{} // closed at the next change; guarded by mu
	end       error         // why the pod is lost; guarded by mu
	requested *time.Timer   // runs while the reason for the end of the pod is unknown; guarded by mu
	denied    *time.Timer   // runs while the permission for the watch is missing; guarded by mu
	watched   bool          // the watch was allowed at least once; guarded by mu

	// lost is closed when end is set.
	lost chan struct{}
	// gone is closed when the pod does not exist any more.
	gone     chan struct{}
	goneOnce sync.Once
}

func newWatcher(pod string, limit time.Duration) *watcher {
	return &watcher{pod: pod, limit: limit, changed: newSignal(), lost: newSignal(), gone: newSignal()}
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context, d *Driver, namespace, name string) {
	mine := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	pods := d.api.pods(namespace)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector, o.ResourceVersion = mine, present(o.ResourceVersion)
			list, err := pods.list(ctx, o)
			if err != nil {
				w.allowed(err) // a list alone does not report later changes
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = mine
			i, err := pods.watch(ctx, o)
			w.allowed(err)
			return i, err
		},
	}
	defer w.release()
	quiet := logr.Discard()
	cache.NewReflectorWithOptions(plainLists{lw}, &corev1.Pod{}, podStore{w}, cache.ReflectorOptions{Name: "pod", Logger: &quiet}).RunWithContext(ctx)
}

// plainLists disables lists as part of a watch: for some kinds of objects, such as events,
// the end of such a list may come minutes late.
type plainLists struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported disables watch lists in the reflector.
func (plainLists) IsWatchListSemanticsUnSupported() bool { return true }

// present replaces the resource version that allows an old state, possibly from before the
// creation of the pod.
func present(resourceVersion string) string {
	if resourceVersion == "0" {
		return ""
	}
	return resourceVersion
}

// deniedTime limits the wait for a permission that the driver never had. An API server that
// has just started may not know it yet.
const deniedTime = 15 * time.Second

// allowed abandons the pod if the watch is refused for too long, because changes of the pod
// would not be noticed. A refusal may be temporary: permissions and tokens are replaced, and
// a new API server may not know them yet.
func (w *watcher) allowed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		if !w.watched {
			w.watched = true
			close(w.changed)
			w.changed = newSignal()
		}
		if w.denied != nil {
			w.denied.Stop()
			w.denied = nil
		}
	case w.denied == nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)):
		limit := deniedTime
		if w.watched {
			limit = w.limit
		}
		end := &Error{Reason: reasonRefused, Pod: w.pod, Message: "watch the pod: " + err.Error(), err: err}
		w.denied = time.AfterFunc(limit, func() { w.conclude(end) })
	}
}

// isWatched reports whether the watch was ever allowed.
func (w *watcher) isWatched() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watched
}

// set stores a new state.
func (w *watcher) set(pod *corev1.Pod, end error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.listed = pod, true
	if end == nil && pod != nil {
		end = podError(pod, &w.patience)
	}
	switch {
	case end == nil || w.end != nil:
	case pod != nil && pod.Status.Phase == corev1.PodRunning && endWasRequested(end):
		if w.requested == nil {
			w.requested = time.AfterFunc(reasonTimeout, func() { w.conclude(end) })
		}
	default:
		w.end = end
		close(w.lost)
	}
	close(w.changed)
	w.changed = newSignal()
}

// conclude abandons the pod if its end has no other explanation.
func (w *watcher) conclude(end error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end == nil {
		w.end = end
		close(w.lost)
		close(w.changed)
		w.changed = newSignal()
	}
}

// release stops the timers.
func (w *watcher) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, timer := range []*time.Timer{w.requested, w.denied} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// reasonTimeout limits the wait for the reason when the end of the pod's containers was
// requested. The node reports the reason when all of them have ended.
const reasonTimeout = 15 * time.Second

// endWasRequested reports whether a container ended because its end was requested.
func endWasRequested(end error) bool {
	var e *Error
	return errors.As(end, &e) && e.requested
}

// abandon marks the pod as lost.
func (w *watcher) abandon(why error) {
	pod, _, _ := w.current()
	w.set(pod, why)
}

// vanish marks the pod as not existing.
func (w *watcher) vanish() {
	w.set(nil, &Error{Reason: reasonDeleted, Pod: w.pod, Message: "it does not exist in the cluster any more"})
	w.goneOnce.Do(func() { close(w.gone) })
}

// current returns the state of the pod, and a channel that is closed when the state changes.
func (w *watcher) current() (pod *corev1.Pod, changed <-chan struct{}, end error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.changed, w.end
}

// err returns the reason why the pod is lost, or nil.
func (w *watcher) err() error {
	_, _, end := w.current()
	return end
}

// await returns when done returns true or an error, the pod is lost, or ctx ends.
func (w *watcher) await(ctx context.Context, done func(*corev1.Pod) (bool, error)) error {
	for {
		pod, changed, end := w.current()
		if end != nil {
			return end
		}
		if pod != nil {
			if ok, err := done(pod); ok || err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// podStore is a watcher in the form that the reflector needs.
type podStore struct{ w *watcher }

func (s podStore) Add(obj any) error { return s.Update(obj) }

func (s podStore) Update(obj any) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("the watch of pods returned a %T", obj)
	}
	s.w.set(pod, nil)
	return nil
}

func (s podStore) Delete(any) error {
	s.w.vanish()
	return nil
}

func (s podStore) Replace(list []any, _ string) error {
	if len(list) == 0 {
		s.w.vanish()
		return nil
	}
	return s.Update(list[0])
}

func (s podStore) Resync() error { return nil }
