package drone_test

import (
	"context"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/client/drone"
	"github.com/delegate-io/dlite/client/drone/dronetest"
	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"

	"io"
)

// counter is a driver without work that counts the stages between init and cleanup.
type counter struct {
	open, most atomic.Int64
}

func (*counter) Infra() string { return "local" }

func (c *counter) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	for n := c.open.Add(1); ; {
		most := c.most.Load()
		if n <= most || c.most.CompareAndSwap(most, n) {
			break
		}
	}
	return l.Record(ctx, driver.Resource{Kind: "stage", ID: env.ID})
}

func (*counter) Execute(_ context.Context, _ *driver.Environment, _ *driver.Step, out io.Writer, _ driver.Ledger) (*driver.Result, error) {
	<-time.After(5 * time.Millisecond)
	_, err := io.WriteString(out, "done\n")
	return &driver.Result{}, err
}

func (c *counter) Cleanup(_ context.Context, all []driver.Resource) ([]driver.Resource, error) {
	c.open.Add(-int64(len(all)))
	return nil, nil
}

// Rule N1: a manager and a Drone server each have many stages for the four slots of a process. Never more
// than four stages are open, and the servers end their stages at about the same pace.
func TestTwoServersShareTheSlots(t *testing.T) {
	t.Parallel()
	count := 40
	if n, err := strconv.Atoi(os.Getenv("DLITE_TEST_DRONE_STAGES")); err == nil {
		count = n / 5
	}
	server := serve(t)
	manager := clienttest.NewServer()
	t.Cleanup(manager.Close)
	d := &counter{}
	slots := capacity.NewSlots(4)
	var pollers sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		pollers.Wait()
	})
	run := func(c client.Client, slots *capacity.Slots, options ...transaction.Option) {
		stages := transaction.New(d, append(options, transaction.WithSlots(slots), transaction.WithLedger(t.TempDir()))...)
		p := poller.New(c, router.New(stages.Routes()), poller.WithStages(stages), poller.WithName("test"))
		pollers.Go(func() { assert.NoError(t, p.Run(ctx, 8)) })
	}
	share := slots.Share()
	ours, err := drone.New(drone.Config{Endpoint: server.URL, Secret: secret, Name: "test", OS: "linux", Arch: "amd64", Slots: share, Compile: shell("true")})
	require.NoError(t, err)
	theirs, err := client.New(manager.URL, manager.Account, manager.Secret)
	require.NoError(t, err)

	waiting, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	var done [2]atomic.Int64
	var halfway [2]int64 // of each server, when the other one has ended half of its stages
	var all sync.WaitGroup
	ended := func(i int) {
		if done[i].Add(1) == int64(count/2) {
			halfway[i] = done[1-i].Load()
		}
	}
	submit := func(ended func(int)) {
		build := server.Add(dronetest.Build{})
		all.Go(func() {
			stages, err := server.Wait(waiting, build)
			assert.NoError(t, err, "%+v", stages)
			assert.Equal(t, "success", stages[0].Status)
			ended(0)
		})
		all.Go(func() {
			_, err := manager.RunStage(waiting, clienttest.Stage{Steps: []stage.Step{{Run: stage.Run{Command: []string{"true"}}}}})
			assert.NoError(t, err)
			ended(1)
		})
	}
	run(theirs, slots)
	run(ours, share, transaction.WithLog(ours.Log(nil)))
	submit(func(int) {})
	all.Wait() // both have registered
	for range count {
		submit(ended)
	}
	all.Wait()
	assert.LessOrEqual(t, d.most.Load(), int64(4))
	t.Logf("when one server had ended %d of %d stages, the other one had ended %d and %d", count/2, count, halfway[0], halfway[1])
	assert.GreaterOrEqual(t, min(halfway[0], halfway[1]), int64(count/8), "one of the servers starves")
}
