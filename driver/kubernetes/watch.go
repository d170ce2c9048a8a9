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

// watcher knows the latest state of one pod. It survives everything that happens
// to a watch: an API server that restarts, a resource version that is too old.
type watcher struct {
	pod string // for errors
	// limit is how long a watch that was allowed may not be before the pod is given up.
	limit time.Duration
	// patience is with what the node tries again.
	patience patience

	mu      sync.Mutex
	last    *corev1.Pod   // nil before the first look, and once it is gone; guarded by mu
	looked  bool          // guarded by mu
	changed chan struct{} // closed at the next change; guarded by mu
	end     error         // why the pod can be used no more; guarded by mu
	told    *time.Timer   // runs while somebody has ended the pod and not said why; guarded by mu
	denied  *time.Timer   // runs while the watch is not allowed; guarded by mu
	watched bool          // that it ever was; guarded by mu

	// lost is closed when end is set.
	lost chan struct{}
	// gone is closed when the cluster does not know the pod any more.
	gone     chan struct{}
	goneOnce sync.Once
}

func newWatcher(pod string, limit time.Duration) *watcher {
	return &watcher{pod: pod, limit: limit, changed: newSignal(), lost: newSignal(), gone: newSignal()}
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context, d *Driver, namespace, name string) {
	mine := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	pods := d.api.Pods(namespace)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector, o.ResourceVersion = mine, present(o.ResourceVersion)
			list, err := pods.List(ctx, o)
			if err != nil {
				w.allowed(err) // a list alone tells nothing that comes later
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = mine
			i, err := pods.Watch(ctx, o)
			w.allowed(err)
			return i, err
		},
	}
	defer w.release()
	quiet := logr.Discard()
	cache.NewReflectorWithOptions(plainLists{lw}, &corev1.Pod{}, podStore{w}, cache.ReflectorOptions{Name: "pod", Logger: &quiet}).RunWithContext(ctx)
}

// plainLists are lists before watches, and not within them: of some kinds of objects,
// events among them, the end of such a list may come minutes late.
type plainLists struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what the reflector asks.
func (plainLists) IsWatchListSemanticsUnSupported() bool { return true }

// present refuses a state that may be of any time: it could be from before the pod
// was made.
func present(resourceVersion string) string {
	if resourceVersion == "0" {
		return ""
	}
	return resourceVersion
}

// deniedTime is how long a permission that we have never had is waited for: an API server
// that has just started may not know of it yet.
const deniedTime = 15 * time.Second

// allowed gives up after a while in which the watch is not: nobody will tell what becomes
// of the pod. That may pass, as permissions and tokens are replaced, and API servers
// refuse what they do not know of yet.
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
		end := &Error{Reason: Refused, Pod: w.pod, Message: "watch the pod: " + err.Error(), err: err}
		w.denied = time.AfterFunc(limit, func() { w.conclude(end) })
	}
}

// isWatched reports whether the watch was ever allowed.
func (w *watcher) isWatched() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watched
}

// set takes in a change.
func (w *watcher) set(pod *corev1.Pod, end error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.looked = pod, true
	if end == nil && pod != nil {
		end = podError(pod, &w.patience)
	}
	switch {
	case end == nil || w.end != nil:
	case pod != nil && pod.Status.Phase == corev1.PodRunning && wasTold(end):
		if w.told == nil {
			w.told = time.AfterFunc(toldTime, func() { w.conclude(end) })
		}
	default:
		w.end = end
		close(w.lost)
	}
	close(w.changed)
	w.changed = newSignal()
}

// conclude is for an end that nobody has explained.
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

// release ends what waits for an explanation.
func (w *watcher) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, timer := range []*time.Timer{w.told, w.denied} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// toldTime is for how long a pod whose containers were told to end is expected to
// say why. The node says so when all of them have ended, and not before.
const toldTime = 15 * time.Second

// wasTold reports whether a container ended as one does that is told to, and not by
// itself.
func wasTold(end error) bool {
	var e *Error
	return errors.As(end, &e) && e.told
}

// abandon says that the pod is of no use any more.
func (w *watcher) abandon(why error) {
	pod, _, _ := w.look()
	w.set(pod, why)
}

// vanish says that there is no such pod (any more).
func (w *watcher) vanish() {
	w.set(nil, &Error{Reason: Deleted, Pod: w.pod, Message: "the cluster does not know it any more"})
	w.goneOnce.Do(func() { close(w.gone) })
}

// look gives the pod as it is, and what is closed when that changes.
func (w *watcher) look() (pod *corev1.Pod, changed <-chan struct{}, end error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.changed, w.end
}

// err is why the pod can be used no more.
func (w *watcher) err() error {
	_, _, end := w.look()
	return end
}

// await returns when done does or fails, the pod is lost, or ctx ends.
func (w *watcher) await(ctx context.Context, done func(*corev1.Pod) (bool, error)) error {
	for {
		pod, changed, end := w.look()
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

// podStore is a watcher as the reflector wants it.
type podStore struct{ w *watcher }

func (s podStore) Add(obj any) error { return s.Update(obj) }

func (s podStore) Update(obj any) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a watch of pods brought %T", obj)
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
