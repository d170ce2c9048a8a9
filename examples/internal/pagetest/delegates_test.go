package pagetest

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task/capacity"
)

func TestADelegateShowsWhatItRefusedAndItsHistory(t *testing.T) {
	var busy atomic.Bool
	busy.Store(true)
	load := func(context.Context) (capacity.Load, error) {
		if busy.Load() {
			return capacity.Load{CPU: 12, Memory: 93.4}, nil
		}
		return capacity.Load{}, nil
	}
	m, err := machine.Start(context.Background(), machine.Config{
		Dir: t.TempDir(), Log: zerolog.Nop(), Thresholds: &capacity.Thresholds{CPU: 80, Memory: 90, Measure: load},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		assert.NoError(t, m.Close(ctx))
	})
	run := start(t, m, api.RunRequest{YAML: shop})
	p := signedIn(t, m)
	p.visit("#/delegates")
	p.shows(".warn", "Refused a stage: memory at 93 %, limit 90 %")
	p.shows("summary", "History")
	p.run(act(`document.querySelector('summary').click()`))
	p.shows("details td", "registered")
	p.press("button", "Drain local")
	p.shows("details td", "drain began")
	p.press("button", "Resume local")
	p.shows("details td", "drain ended")
	assert.Equal(t, []string{"drain ended", "drain began", "registered"}, value[[]string](p, `[...document.querySelectorAll('details tr td:nth-child(2)')].map(e => e.innerText)`))
	busy.Store(false)
	ended(t, m, run.ID)
}
