package drone_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/client/drone"
	"github.com/delegate-io/dlite/client/drone/dronetest"
	"github.com/delegate-io/dlite/client/drone/yaml"
	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
)

// idle is a driver whose steps take no time.
type idle struct{}

func (idle) Infra() string { return "local" }

func (idle) Init(context.Context, *driver.Environment, driver.Ledger) error { return nil }

func (idle) Execute(_ context.Context, _ *driver.Environment, _ *driver.Step, out io.Writer, _ driver.Ledger) (*driver.Result, error) {
	_, err := io.WriteString(out, "done\n")
	return &driver.Result{}, err
}

func (idle) Cleanup(context.Context, []driver.Resource) ([]driver.Resource, error) { return nil, nil }

// runDelegate runs a delegate until the test ends.
func runDelegate(b testing.TB, d driver.Driver, c client.Client, slots *capacity.Slots, options ...transaction.Option) {
	b.Helper()
	stages := transaction.New(d, append(options, transaction.WithSlots(slots), transaction.WithLedger(b.TempDir()))...)
	p := poller.New(c, router.New(stages.Routes()), poller.WithStages(stages), poller.WithName("bench"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, 8) }()
	b.Cleanup(func() {
		cancel()
		require.NoError(b, <-done)
	})
}

// runDrone runs a delegate of a driver on a Drone server.
func runDrone(b testing.TB, d driver.Driver, s *dronetest.Server, compile func([]byte, string, yaml.Input) (*yaml.Plan, error)) {
	b.Helper()
	slots := capacity.NewSlots(1)
	c, err := drone.New(drone.Config{Endpoint: s.URL, Secret: secret, OS: "linux", Arch: "amd64", Slots: slots, Compile: compile})
	require.NoError(b, err)
	runDelegate(b, d, c, slots, transaction.WithLog(c.Log(nil)))
}

// BenchmarkPickup measures the time from a new build to the call that accepts its stage.
func BenchmarkPickup(b *testing.B) {
	s := dronetest.New(secret)
	defer s.Close()
	accepted, waiting := make(chan time.Time, 1), make(chan struct{}, 1)
	s.OnCall = func(r *http.Request) {
		switch {
		case r.URL.Query().Has("machine"):
			accepted <- time.Now()
		case r.Method == http.MethodPost && r.URL.Path == "/rpc/v2/stage":
			select {
			case waiting <- struct{}{}:
			default:
			}
		}
	}
	runDrone(b, idle{}, s, shell("true"))
	b.ReportAllocs()
	var all []time.Duration
	for b.Loop() {
		<-waiting
		<-time.After(2 * time.Millisecond) // the call is held now
		begun := time.Now()
		id := s.Add(dronetest.Build{Type: "docker"})
		all = append(all, (<-accepted).Sub(begun))
		_, err := s.Wait(b.Context(), id)
		require.NoError(b, err)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs-p50")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "µs-p99")
}

// BenchmarkStep measures a step of a long stage, from a Drone server and from a manager.
func BenchmarkStep(b *testing.B) {
	const steps = 50
	b.Run("drone", func(b *testing.B) {
		s := dronetest.New(secret)
		defer s.Close()
		runDrone(b, idle{}, s, shell(slices.Repeat([]string{"true"}, steps)...))
		b.ReportAllocs()
		for b.Loop() {
			stages, err := s.Wait(b.Context(), s.Add(dronetest.Build{}))
			require.NoError(b, err)
			require.Equal(b, "success", stages[0].Status)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/steps, "µs/step")
	})
	b.Run("manager", func(b *testing.B) {
		m := clienttest.NewServer()
		defer m.Close()
		c, err := client.New(m.URL, m.Account, m.Secret)
		require.NoError(b, err)
		runDelegate(b, idle{}, c, capacity.NewSlots(1))
		b.ReportAllocs()
		for b.Loop() {
			_, err := m.RunStage(b.Context(), clienttest.Stage{
				Steps: slices.Repeat([]stage.Step{{Run: stage.Run{Command: []string{"true"}}}}, steps),
			})
			require.NoError(b, err)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/steps, "µs/step")
	})
}
