package vault_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/secrets/vault"
	"github.com/delegate-io/dlite/task"
)

func mustParse(t *testing.T, ref string) *url.URL {
	t.Helper()
	u, err := url.Parse(ref)
	require.NoError(t, err)
	return u
}

// handle sends a task with data to a handler.
func handle(t *testing.T, h http.Handler, set *secrets.Set, data any) (int, string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"id": "t", "type": "x", "data": data})
	require.NoError(t, err)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(secrets.NewContext(t.Context(), set), http.MethodPost, "/", strings.NewReader(string(b))))
	return rec.Code, rec.Body.String()
}

// docs/protocol.md, section 2: secret/vault/fetch, in the form of other runners.
func TestFetchTasks(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	role, id := credentials(t, v)
	v.Do(t, "POST", "kv1/encoded", m{"k": "aHVzaC1odXNo"})
	own := open(t, vault.Config{Address: v.Address, Token: v.Token})
	with := m{"address": v.Address, "token": v.Token}
	for name, tc := range map[string]struct {
		own    *vault.Provider
		secret m
		status int
		want   string
	}{
		"version 2":     {nil, m{"config": with, "path": "secret/data/app", "key": "password"}, 200, `{"id":"","value":"hush-hush-2"}`},
		"version 1":     {nil, m{"config": with, "path": "kv1/app", "key": "password"}, 200, `{"id":"","value":"hush-hush-kv1"}`},
		"base64":        {nil, m{"config": with, "path": "kv1/encoded", "key": "k", "base64": true}, 200, `{"id":"","value":"hush-hush"}`},
		"not base64":    {nil, m{"config": with, "path": "kv1/app", "key": "password", "base64": true}, 500, "the value is not base64"},
		"AppRole":       {nil, m{"config": m{"address": v.Address, "role_id": role, "secret_id": id}, "path": "kv1/app", "key": "user"}, 200, `{"id":"","value":"app"}`},
		"own Vault":     {own, m{"path": "kv1/app", "key": "user"}, 200, `{"id":"","value":"app"}`},
		"no Vault":      {nil, m{"path": "kv1/app", "key": "user"}, 500, "the task names no Vault"},
		"wrong token":   {nil, m{"config": m{"address": v.Address, "token": "not-a-real-token"}, "path": "kv1/app", "key": "user"}, 500, "vault refused the login"},
		"missing":       {nil, m{"config": with, "path": "kv1/none", "key": "k"}, 500, "kv1/none#k: there is no such secret"},
		"missing key":   {nil, m{"config": with, "path": "kv1/app", "key": "k"}, 500, `it has no field \"k\"`},
		"path upwards":  {nil, m{"config": with, "path": "kv1/../sys/raw", "key": "k"}, 500, "is not the path of a secret"},
		"no path":       {nil, m{"config": with, "key": "k"}, 500, "is not the path of a secret"},
		"wrong payload": {nil, m{"path": 7}, 400, "does not have the form"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := &secrets.Set{}
			status, body := handle(t, vault.Routes(tc.own)[task.TypeVaultFetch], set, m{"secrets": []m{tc.secret}})
			assert.Equal(t, tc.status, status, body)
			assert.Contains(t, body, tc.want)
			if status != 200 {
				assert.NotContains(t, body, hush)
			}
			if cfg, ok := tc.secret["config"].(m); ok && cfg["token"] != nil {
				assert.Equal(t, secrets.Replacement, set.Mask(cfg["token"].(string)), "the token is a secret of the task")
				assert.NotContains(t, body, cfg["token"])
			}
		})
	}
	status, body := handle(t, vault.Routes(own)[task.TypeVaultFetch], &secrets.Set{}, m{"secrets": []m{{}, {}}})
	assert.Equal(t, 500, status)
	assert.Contains(t, body, "must have one secret, this one has 2")
}

// secret/vault/edit changes one key and no other.
func TestEditTasks(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	own := open(t, vault.Config{Address: v.Address, Token: v.Token})
	h := vault.Routes(own)[task.TypeVaultEdit]
	for engine, version := range map[string]int{"secret": 2, "kv1": 1} {
		edit := func(action, path, key, value string) {
			t.Helper()
			status, body := handle(t, h, &secrets.Set{}, m{
				"action": action, "engine_name": engine, "engine_version": version, "path": path, "key": key, "value": value,
			})
			require.Equal(t, 200, status, body)
			assert.JSONEq(t, `{"name":"`+path+`","status":"SUCCESS"}`, body)
		}
		ref := "vault://" + engine + "/app#"
		edit("UPSERT", "app", "password", "changed")
		assert.Equal(t, "changed", mustFetch(t, own, ref+"password"))
		assert.Equal(t, "app", mustFetch(t, own, ref+"user"), "other keys stay")
		edit("UPSERT", "new/one", "k", "v")
		assert.Equal(t, "v", mustFetch(t, own, "vault://"+engine+"/new/one#k"))
		edit("DELETE", "app", "password", "")
		_, err := fetch(t, own, ref+"password")
		require.ErrorIs(t, err, secrets.ErrNotFound)
		assert.Equal(t, "app", mustFetch(t, own, ref+"user"))
		edit("DELETE", "new/one", "k", "")
		_, err = fetch(t, own, "vault://"+engine+"/new/one#k")
		require.ErrorIs(t, err, secrets.ErrNotFound)
		edit("DELETE", "new/one", "k", "")
	}
	assert.Equal(t, hush+"-1", mustFetch(t, own, "vault://secret/app?version=1#password"), "old versions stay")
	for want, data := range map[string]m{
		`the action \"MOVE\" is neither`: {"action": "MOVE", "engine_name": "kv1", "path": "a", "key": "k"},
		"names no key":                   {"action": "UPSERT", "engine_name": "kv1", "path": "a"},
		"engine_name:":                   {"action": "UPSERT", "path": "a", "key": "k"},
		"path:":                          {"action": "UPSERT", "engine_name": "kv1", "path": "../a", "key": "k"},
		"no version 3":                   {"action": "UPSERT", "engine_name": "kv1", "engine_version": 3, "path": "a", "key": "k"},
	} {
		status, body := handle(t, h, &secrets.Set{}, data)
		assert.Equal(t, 500, status)
		assert.Contains(t, body, want)
	}
}
