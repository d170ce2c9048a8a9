package pagetest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delegate-io/dlite/examples/internal/machine"
)

const manyStages = 10_000

func TestAListOfManyStages(t *testing.T) {
	m, err := machine.Start(context.Background(), machine.Config{Dir: t.TempDir(), Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		assert.NoError(t, m.Close(ctx))
	})
	p := signedIn(t, m)
	token, err := m.Token(time.Hour)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	work, ctx := errgroup.WithContext(t.Context())
	work.SetLimit(8)
	for i := range manyStages {
		work.Go(func() error {
			body := fmt.Sprintf(`{"id":"s%05d","name":"Stage %d","pipeline":"crowd","selectors":["gpu"],"steps":[{"id":"a","data":{"run":{"entrypoint":["true"]}}}]}`, i, i)
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL+"/api/stages?accountId="+url.QueryEscape(machine.Account), strings.NewReader(body))
			if err != nil {
				return err
			}
			r.Header.Set("Authorization", "Bearer "+token)
			answer, err := client.Do(r)
			if err == nil && answer.StatusCode != http.StatusAccepted {
				err = fmt.Errorf("stage %d: %s", i, answer.Status)
			}
			if answer != nil {
				_ = answer.Body.Close()
			}
			return err
		})
	}
	require.NoError(t, work.Wait())

	p.visit("#/stages")
	p.shows("main .sub", "10,000 stages")
	assert.Less(t, value[int](p, `document.querySelectorAll('.row').length`), 80)
	p.scrollsWell(".rows")
	p.enter("Search", "Stage 4711")
	p.until(`document.querySelectorAll('.row:not([hidden])').length === 1`)
	p.shows(".row", "gpu")

	p.visit("#/queue")
	p.shows(".tiles", "10000")
	p.shows("td", "gpu")
	p.shows(".row", "place 1:")
	p.until(`document.querySelectorAll('.row:not([hidden]) input').length > 2`)
	p.run(act(`[...document.querySelectorAll('.row input')].slice(0, 2).forEach(e => e.click())`))
	p.press("button", "Abort 2 stages")
	p.press("dialog button", "Abort")
	p.until(`document.querySelectorAll('.results li').length === 2`)
	p.shows(".results", "aborted")
	p.press("button", "Pause")
	p.enter("Note", "new disks")
	p.press("dialog button", "Pause")
	p.shows(".banner", "new disks")
	p.press("button", "Resume")
	p.until(`!document.querySelector('.banner').checkVisibility()`)
}
