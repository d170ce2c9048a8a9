package kubernetes_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/task/stage"
)

// batch is the number of containers that wait in one pod.
const batch = 10

// BenchmarkStep measures the time from a step's Execute to its result, for a step that does
// nothing. For comparison, exec measures the cluster's exec of the same command in the same
// pod. The metrics include the median.
func BenchmarkStep(b *testing.B) {
	p := newPlace(b)
	d := p.driver(b)
	var steps []stage.Step
	for i := range batch {
		steps = append(steps, p.sh("step-"+strconv.Itoa(i), "true"))
	}
	begin := func(b *testing.B, announced bool) *transaction {
		b.Helper()
		tx := &transaction{d: d, ledger: &ledger{}, log: drivertest.NewOutput(), p: p, env: &driver.Environment{ID: b.Name()}}
		if announced {
			for _, s := range steps {
				tx.env.Steps = append(tx.env.Steps, s.Announcement())
			}
		}
		require.NoError(b, tx.init(b))
		return tx
	}
	for name, announced := range map[string]bool{"announced": true, "added": false} {
		b.Run(name, func(b *testing.B) {
			var times []time.Duration
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				tx := begin(b, announced)
				// The first step of a pod waits until the others have started.
				_, err := tx.execute(b, steps[0], drivertest.NewOutput())
				require.NoError(b, err)
				b.StartTimer()
				for _, s := range steps[1:] {
					start := time.Now()
					_, err := tx.execute(b, s, drivertest.NewOutput())
					times = append(times, time.Since(start))
					require.NoError(b, err)
				}
				b.StopTimer()
				tx.cleanup(b)
				b.StartTimer()
			}
			report(b, times)
		})
	}
	b.Run("exec", func(b *testing.B) {
		tx := begin(b, true)
		defer tx.cleanup(b)
		_, err := tx.execute(b, steps[0], drivertest.NewOutput())
		require.NoError(b, err)
		exec := p.exec(b, tx.pod(b), "w1-step-1", "sh", "-c", "true")
		var times []time.Duration
		for b.Loop() {
			start := time.Now()
			require.NoError(b, exec(b.Context()))
			times = append(times, time.Since(start))
		}
		report(b, times)
	})
}

func report(b *testing.B, times []time.Duration) {
	b.Helper()
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(times[len(times)*9/10].Microseconds())/1000, "p90-ms")
}

// exec runs a command like kubectl exec.
func (p *place) exec(tb testing.TB, pod, container string, command ...string) func(context.Context) error {
	tb.Helper()
	hc, err := rest.HTTPClientFor(p.rest)
	require.NoError(tb, err)
	tb.Cleanup(hc.CloseIdleConnections)
	api, err := corev1client.NewForConfigAndClient(p.rest, hc)
	require.NoError(tb, err)
	url := api.RESTClient().Get().Namespace(p.namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true}, scheme.ParameterCodec).URL()
	return func(ctx context.Context) error {
		e, err := remotecommand.NewWebSocketExecutor(p.rest, http.MethodGet, url.String())
		if err != nil {
			return err
		}
		return e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard})
	}
}
