package drone_test

import (
	"context"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/client/drone"
	"github.com/delegate-io/dlite/client/drone/dronetest"
	"github.com/delegate-io/dlite/client/drone/yaml"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a-shared-secret" //nolint:gosec // visibly fake

// shell is the plan of a pipeline with one step for each script.
func shell(scripts ...string) func([]byte, string, yaml.Input) (*yaml.Plan, error) {
	return func([]byte, string, yaml.Input) (*yaml.Plan, error) {
		plan := &yaml.Plan{}
		for i, script := range scripts {
			s := yaml.Step{Number: i + 1, Name: "step-" + string(rune('a'+i)), OnSuccess: true}
			if i > 0 {
				s.DependsOn = []string{plan.Steps[i-1].Name}
			}
			s.Execute.Step = stage.Step{Run: stage.Run{Entrypoint: []string{"sh", "-ec"}, Command: []string{script}}}
			plan.Steps = append(plan.Steps, s)
		}
		return plan, nil
	}
}

// start runs a delegate of host steps on a server until the test ends. It returns the directory
// of all its files.
func start(t *testing.T, s *dronetest.Server, slots int, change func(*drone.Config)) (root string) {
	t.Helper()
	root = t.TempDir()
	cfg := drone.Config{Endpoint: s.URL, Secret: secret, Name: "test", OS: "linux", Arch: "amd64", Slots: capacity.NewSlots(slots), Dir: filepath.Join(root, "drone")}
	change(&cfg)
	c, err := drone.New(cfg)
	require.NoError(t, err)
	c.SetMinute(time.Second)
	if s.Hold > 0 {
		c.SetWatchEvery(s.Hold / 2)
	}
	d, err := host.New(host.Config{WorkDir: filepath.Join(root, "work")})
	require.NoError(t, err)
	stages := transaction.New(d, transaction.WithSlots(cfg.Slots), transaction.WithLedger(filepath.Join(root, "ledger")), transaction.WithLog(c.Log(nil)))
	resolve := routersecrets.Resolve(secrets.ResolverConfig{Providers: secrets.Providers{"delegate": secrets.ProviderFunc(
		func(context.Context, *url.URL) (string, error) {
			t.Error("a stage has reached a secret of the delegate")
			return "hush-of-the-delegate", nil
		})}})
	p := poller.New(c, router.New(stages.Routes(), router.WithMiddleware(resolve)), poller.WithStages(stages), poller.WithName("test"), poller.WithState(filepath.Join(root, "poller")))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, 8) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return root
}

func serve(t *testing.T) *dronetest.Server {
	t.Helper()
	s := dronetest.New(secret)
	t.Cleanup(s.Close)
	return s
}

func wait(t *testing.T, s *dronetest.Server, build int64) dronetest.Stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stages, err := s.Wait(ctx, build)
	require.NoError(t, err, "%+v", stages)
	require.Len(t, stages, 1)
	return stages[0]
}

func TestAStageRunsItsSteps(t *testing.T) {
	t.Parallel()
	s := serve(t)
	start(t, s, 1, func(c *drone.Config) { c.Compile = shell("echo one; echo two", "echo three") })
	got := wait(t, s, s.Add(dronetest.Build{}))
	assert.Equal(t, "success", got.Status, "%+v", got)
	require.Len(t, got.Steps, 2)
	assert.Equal(t, 1, got.Ends)
	for i, want := range [][]string{{"one\n", "two\n"}, {"three\n"}} {
		step := got.Steps[i]
		assert.Equal(t, "success", step.Status)
		assert.Equal(t, 1, step.Ends)
		var text []string
		for _, l := range step.Log {
			text = append(text, l.Out)
		}
		assert.Equal(t, want, text)
	}
}
