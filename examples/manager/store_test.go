package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/serving"
	"github.com/delegate-io/dlite/internal/testbed"
)

const fakeStoreKey = "visibly fake store key"

func (p *server) submit(t *testing.T, id string) {
	t.Helper()
	status, body := p.call(http.MethodPost, "/api/stages?accountId=a", `{"id":"`+id+`","steps":[{}]}`, "Authorization", "Bearer "+tokenFor(t))
	require.Equal(t, http.StatusAccepted, status, body)
}

func (p *server) stages(t *testing.T) string {
	t.Helper()
	status, body := p.call(http.MethodGet, "/api/stages?accountId=a", "", "Authorization", "Bearer "+tokenFor(t))
	require.Equal(t, http.StatusOK, status, body)
	return body
}

// Rule Q7: by default the state is in the data directory and survives the program. A backup contains it too. Other
// users cannot read it.
func TestTheStateOfAManagerOutlivesIt(t *testing.T) {
	t.Parallel()
	accounts := map[string]string{"a": fakeSecret}
	dir := t.TempDir()
	o := storeOptions{Store: "sqlite", DataDir: filepath.Join(dir, "data")}
	p := start(t, &serverCommand{storeOptions: o}, accounts, nil)
	p.submit(t, "kept")
	file := filepath.Join(dir, "backup.db")
	require.NoError(t, o.backup(t.Context(), file))
	p.submit(t, "later")
	require.NoError(t, p.end())
	require.NoError(t, o.check(t.Context()))
	for _, name := range []string{"", "manager.db", "key", "logs"} {
		info, err := os.Stat(filepath.Join(o.DataDir, name))
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, name)
	}
	p = start(t, &serverCommand{storeOptions: o}, accounts, nil)
	assert.Contains(t, p.stages(t), `"later"`)
	require.NoError(t, p.end())

	require.ErrorContains(t, o.restore(t.Context(), file), "move it away")
	require.NoError(t, os.Remove(filepath.Join(o.DataDir, "manager.db")))
	require.NoError(t, o.restore(t.Context(), file))
	p = start(t, &serverCommand{storeOptions: o}, accounts, nil)
	assert.Contains(t, p.stages(t), `"kept"`)
	assert.NotContains(t, p.stages(t), `"later"`)
	require.NoError(t, p.end())

	require.NoError(t, os.Remove(filepath.Join(o.DataDir, "key"))) // the program creates another key, which decrypts nothing
	o.StoreKey = fakeStoreKey
	require.ErrorContains(t, serve(context.Background(), command(o), accounts, io.Discard), "key")
}

func command(o storeOptions) *serverCommand {
	return &serverCommand{storeOptions: o, Options: serving.Options{Listen: "127.0.0.1:0", LogLevel: "error", HTTPBind: "off"}}
}

// Without configured accounts the program creates one for first experiments. It is the same after a restart.
func TestTheDemoAccountStays(t *testing.T) {
	t.Parallel()
	o := storeOptions{Store: "sqlite", DataDir: t.TempDir()}
	first, err := command(o).demoAccount()
	require.NoError(t, err)
	again, err := command(o).demoAccount()
	require.NoError(t, err)
	assert.Equal(t, first, again)
	other, err := command(storeOptions{Store: "memory"}).demoAccount()
	require.NoError(t, err)
	assert.NotEqual(t, first, other)
}

// Rule Q7: two programs with one Redis act as one manager.
func TestTwoManagersOnRedis(t *testing.T) {
	t.Parallel()
	r := testbed.Redis(t)
	accounts := map[string]string{"a": fakeSecret}
	archive := "file://" + t.TempDir()
	var all []*server
	for range 2 {
		all = append(all, start(t, &serverCommand{
			storeOptions: storeOptions{Store: r.URL(), StoreKey: fakeStoreKey}, LogsArchive: archive,
		}, accounts, nil))
	}
	all[0].submit(t, "s")
	assert.Contains(t, all[1].stages(t), `"s"`)
	require.NoError(t, all[0].end())
	all[1].submit(t, "t")
	assert.Contains(t, all[1].stages(t), `"t"`)

	for want, c := range map[string]*serverCommand{
		"STORE_KEY":    {storeOptions: storeOptions{Store: r.URL()}, LogsArchive: archive},
		"too short":    {storeOptions: storeOptions{Store: r.URL(), StoreKey: "short"}, LogsArchive: archive},
		"LOGS_ARCHIVE": {storeOptions: storeOptions{Store: r.URL(), StoreKey: fakeStoreKey}},
		"key":          {storeOptions: storeOptions{Store: r.URL(), StoreKey: "another visibly fake key"}, LogsArchive: archive},
		"postgres":     {storeOptions: storeOptions{Store: "postgres"}},
	} {
		c.Listen, c.LogLevel, c.HTTPBind = "127.0.0.1:0", "error", "off"
		require.ErrorContains(t, serve(context.Background(), c, accounts, io.Discard), want)
	}
	c := command(storeOptions{Store: r.URL(), StoreKey: fakeStoreKey})
	c.LogsArchive = archive
	require.ErrorContains(t, serve(context.Background(), c, nil, io.Discard), "ACCOUNTS")
}
